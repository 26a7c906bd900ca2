package archiver

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/store"
)

func (e *env) topicObjects(topic string) int {
	n := 0
	for _, k := range e.store.Keys() {
		if strings.HasPrefix(k, "_tapedeck/topics/"+topic+"/") {
			n++
		}
	}
	return n
}

// Configuration and number of partitions are in the archive from the start on, and again when a topic has grown; two archivers write them once.
func TestTopicsAreKept(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	if err := e.admin.CreateTopic(e.ctx(), "trips", 2, 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	e.topic("orders", 1)
	e.topic("other", 1)
	s := e.settings("trips", "orders")
	a, b := e.start(s), e.start(s)
	e.await("both topics are kept", func() bool { return e.topicObjects("trips") == 1 && e.topicObjects("orders") == 1 })
	got, err := e.arc.Topic(e.ctx(), "trips", "")
	if err != nil || got.ClusterID != "test-cluster" || got.TopicID == "" || got.Partitions != 2 || got.ReplicationFactor != 1 || got.Config["cleanup.policy"] != "compact" ||
		len(got.Config) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := e.admin.CreatePartitions(e.ctx(), "trips", 5); err != nil {
		t.Fatal(err)
	}
	e.await("the grown topic is kept", func() bool {
		got, err = e.arc.Topic(e.ctx(), "trips", "")
		return err == nil && got.Partitions == 5
	})
	a.end()
	b.end()
	var looked atomic.Int64
	e.store.SetAfter(func(_ context.Context, op, key string, err error) error {
		if op == store.OpGet && strings.HasPrefix(key, "_tapedeck/topics/") {
			looked.Add(1)
		}
		return err
	})
	c := e.start(s)
	e.await("a restarted archiver has looked at both", func() bool { return looked.Load() >= 2 })
	c.end()
	if e.topicObjects("trips") != 2 || e.topicObjects("orders") != 1 || e.topicObjects("other") != 0 {
		t.Errorf("%v", e.store.Keys())
	}
}

// A topic that is created again is another record of the sequence; a store that refuses costs a try later, and nothing else.
func TestTopicKeeper(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.topic("orders", 2) // another process owns its partition 0
	var owned atomic.Pointer[[]kafka.TP]
	owned.Store(&[]kafka.TP{{Topic: "trips", Partition: 0}, {Topic: "missing", Partition: 0}, {Topic: "orders", Partition: 1}})
	k := &topicKeeper{admin: e.admin, arc: e.arc, clusterID: "c", owned: &owned, log: testLog(t), m: newMetrics(prometheus.NewRegistry()), kept: map[string]kept{}}
	now := time.Now()
	first := func() archive.TopicInfo {
		t.Helper()
		info, err := e.arc.Topic(e.ctx(), "trips", "")
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	broken := errors.New("broken")
	e.store.SetBefore(func(_ context.Context, op, _ string) error {
		if op == store.OpCreate {
			return broken
		}
		return nil
	})
	k.look(e.ctx(), now)
	if e.topicObjects("trips") != 0 || k.warned == "" {
		t.Fatal("kept by a store that refuses")
	}
	e.store.SetBefore(nil)
	k.look(e.ctx(), now)
	old := first()

	e.store.ResetCounts()
	k.look(e.ctx(), now.Add(topicConfigEvery-1))
	k.look(e.ctx(), now.Add(topicConfigEvery))
	if c := e.store.Counts(); len(c) != 0 {
		t.Errorf("calls without news: %v", c)
	}
	if err := e.admin.DeleteTopic(e.ctx(), "trips"); err != nil {
		t.Fatal(err)
	}
	if err := e.admin.CreateTopic(e.ctx(), "trips", 1, 1, map[string]string{"retention.ms": "1000"}); err != nil {
		t.Fatal(err)
	}
	k.look(e.ctx(), now.Add(2*topicConfigEvery))
	anew := first()
	if anew.TopicID == old.TopicID || anew.Config["retention.ms"] != "1000" || e.topicObjects("trips") != 2 || e.topicObjects("orders") != 0 {
		t.Errorf("%+v after %+v", anew, old)
	}
	if got, err := e.arc.Topic(e.ctx(), "trips", old.TopicID); err != nil || !got.Equal(old) {
		t.Errorf("%+v, %v", got, err)
	}
}
