package archiver

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// recreate deletes a topic and creates it anew.
func (e *env) recreate(topic string, partitions int32) {
	e.t.Helper()
	if err := e.admin.DeleteTopic(e.ctx(), topic); err != nil {
		e.t.Fatal(err)
	}
	e.topic(topic, partitions)
}

// incarnations are settings that archive a topic created again.
func (e *env) incarnations(topics ...string) Settings {
	s := e.settings(topics...)
	s.Partition.Recreated = partition.RecreatedIncarnation
	s.Partition.Rule.FlushSize = 10
	s.Partition.RotateAge = 200 * time.Millisecond
	return s
}

// checkLogs demands that the archive holds these logs of trips-0, as incarnations 1, 2, …
func (e *env) checkLogs(logs ...[]record.Record) {
	e.t.Helper()
	for i, want := range logs {
		name := "trips"
		if i > 0 {
			name += "~" + string(rune('1'+i))
		}
		e.checkEqual(name, 0, want)
		ids := map[string]bool{}
		for _, h := range e.headers(name, 0) {
			ids[h.TopicID] = true
		}
		if len(ids) != 1 {
			e.t.Errorf("%s holds the logs %v", name, ids)
		}
	}
	e.checkClean()
}

// A topic that is created again, twice, between runs; the second time it holds what the first one held, and has more partitions.
func TestATopicCreatedAgainBetweenRuns(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var logs [][]record.Record
	for i, size := range []int{25, 40, 25} {
		if i == 0 {
			e.topic("trips", 1)
		} else {
			e.recreate("trips", int32(i))
		}
		e.fill("trips", 0, (i%2)*1000, size)
		name := []string{"trips", "trips~2", "trips~3"}[i]
		r := e.start(e.incarnations("trips"))
		e.awaitArchived(name, 0, int64(size))
		e.await("the status names the incarnation", func() bool { st := r.state("trips", 0); return st != nil && st.Incarnation == i+1 })
		logs = append(logs, e.log("trips", 0))
		r.end()
	}
	if !cmp.Equal(logs[0], logs[2]) {
		t.Error("the third log was to hold what the first one did")
	}
	// A restart goes on in the newest, with and without the group's hint, and asks for nothing that it does not need.
	for i, group := range []string{"g", "g2"} {
		e.fill("trips", 0, 2000, 5)
		s := e.incarnations("trips")
		s.Group = group
		r := e.start(s)
		e.awaitArchived("trips~3", 0, int64(30+5*i))
		r.end()
	}
	// A partition that only the newest log has is of that incarnation too.
	e.fill("trips", 1, 0, 7)
	r := e.start(e.incarnations("trips"))
	e.awaitArchived("trips~3", 1, 7)
	r.end()
	if n := len(e.objects("trips", 1)) + len(e.objects("trips~2", 1)); n != 0 {
		t.Errorf("%d objects of partition 1 in an earlier log", n)
	}
	logs[2] = e.log("trips", 0)
	e.checkLogs(logs...)
}

func TestATopicCreatedAgainWhileItRuns(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.topic("other", 1)
	e.fill("trips", 0, 0, 20)
	r := e.start(e.incarnations("trips", "other"))
	e.awaitArchived("trips", 0, 20)
	logs := [][]record.Record{e.log("trips", 0)}
	for i, name := range []string{"trips~2", "trips~3"} {
		e.recreate("trips", 1)
		e.fill("trips", 0, i*100, 35)
		e.awaitArchived(name, 0, 35)
		logs = append(logs, e.log("trips", 0))
	}
	e.fill("other", 0, 0, 3) // it went on meanwhile
	e.awaitArchived("other", 0, 3)
	e.fill("trips", 0, 500, 5)
	e.awaitArchived("trips~3", 0, 40)
	logs[2] = e.log("trips", 0)
	r.end()
	e.checkLogs(logs...)
}

// The topic is created again between the fetch and the create: what was fetched of the old log goes into no chain.
func TestATopicCreatedAgainBeforeACreate(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 10)
	s := e.incarnations("trips")
	r := e.start(s)
	e.awaitArchived("trips", 0, 10)
	before := e.log("trips", 0)
	r.end()
	// The store holds the second segment back; the first look at its answer finds another topic.
	var held atomic.Bool
	entered, release := make(chan struct{}), make(chan struct{})
	e.store.SetBefore(func(ctx context.Context, op, key string) error {
		if op == store.OpCreate && strings.HasPrefix(key, "topics/") && held.CompareAndSwap(false, true) {
			close(entered)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return store.ErrNotAllowed // nothing was written; it is tried again
		}
		return nil
	})
	s.Partition.Rule.FlushSize = 5
	e.fill("trips", 0, 10, 15) // three segments: one in the store's hands, one sealed, one that is held
	r = e.start(s)
	e.awaitClosed("a create begins", entered)
	e.await("more is sealed", func() bool { st := r.state("trips", 0); return st != nil && st.Sealed >= 2 })
	e.recreate("trips", 1)
	e.fill("trips", 0, 900, 30)
	close(release)
	e.awaitArchived("trips~2", 0, 30)
	after := e.log("trips", 0)
	r.end()
	// The segment in the store's hands may have been written before anybody could know; nothing behind it, and nothing of the new log, whose
	// values have four letters.
	got := e.archived("trips", 0)
	for i := range got {
		if i < len(before) && !record.Equal(&got[i], &before[i]) || len(got[i].Value) > 3 {
			t.Errorf("record %d of the first log is %s", i, got[i].Value)
		}
	}
	if len(got) > 15 {
		t.Errorf("%d records in the first log", len(got))
	}
	e.checkEqual("trips~2", 0, after)
	e.checkClean()
}

// A topic that is deleted: the others go on; it comes back as another log.
func TestATopicDeletedAndThereAgain(t *testing.T) {
	t.Parallel()
	for _, policy := range []partition.RecreatedPolicy{partition.RecreatedStop, partition.RecreatedIncarnation} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.topic("trips", 1)
			e.topic("other", 1)
			e.fill("trips", 0, 0, 20)
			s := e.incarnations("trips", "other")
			s.Partition.Recreated = policy
			r := e.start(s)
			e.awaitArchived("trips", 0, 20)
			old := e.log("trips", 0)
			if err := e.admin.DeleteTopic(e.ctx(), "trips"); err != nil {
				t.Fatal(err)
			}
			e.await("it is missed", func() bool { return cmp.Equal([]string{"trips"}, r.Status().Missing) })
			e.fill("other", 0, 0, 20)
			e.awaitArchived("other", 0, 20)
			e.topic("trips", 1)
			e.fill("trips", 0, 100, 30)
			if policy == partition.RecreatedStop {
				if st := r.awaitStopped("trips", 0, partition.OtherLog); !strings.Contains(st.Error, "topic.recreated") {
					t.Error(st.Error)
				}
				e.checkLogs(old)
			} else {
				e.awaitArchived("trips~2", 0, 30)
				e.checkLogs(old, e.log("trips", 0))
			}
			e.fill("other", 0, 0, 10)
			e.awaitArchived("other", 0, 30)
			r.end()
		})
	}
}

// A group that still has its position in the old log is not ahead of the new one: it has none there.
func TestAPositionInAnEarlierLogIsNoPosition(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	old := segment.LogIdentity{ClusterID: "test-cluster", TopicID: "one", Topic: "trips", Isolation: segment.ReadCommitted}
	recs := numbered(0, 10)
	for i := range recs {
		recs[i].Topic, recs[i].Offset = "trips", int64(i)
	}
	e.putSegment(old, 0, 10, recs, segment.First())
	w := &workers{arc: e.arc, recreated: partition.RecreatedIncarnation}
	committed := kafka.CommitOffset{Offset: 10, Metadata: "segment=0"}
	if c, err := w.findChain(e.ctx(), old, committed); err != nil || c.incarnation != 1 || c.tail == nil || c.committed != committed {
		t.Errorf("%+v, %v", c, err)
	}
	again := old
	again.TopicID = "two"
	if c, err := w.findChain(e.ctx(), again, committed); err != nil || c.incarnation != 2 || c.tail != nil || c.committed.Offset != -1 {
		t.Errorf("%+v, %v", c, err)
	}
	// Its position in the new log counts, where the archive of that is gone.
	committed.Metadata = "segment=0 incarnation=2"
	if c, err := w.findChain(e.ctx(), again, committed); err != nil || c.incarnation != 2 || c.tail != nil || c.committed != committed {
		t.Errorf("%+v, %v", c, err)
	}
}
