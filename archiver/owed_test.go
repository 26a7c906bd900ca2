package archiver

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// archived50 has an archive of 50 records, the last segment from offset 40, and nothing that runs.
func archived50(t *testing.T) (*env, Settings) {
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 50)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	r := e.start(s)
	e.awaitArchived("trips", 0, 50)
	r.end()
	return e, s
}

// An archiver that dies, or loses the partition, between a confirmed segment and its commit leaves the group behind. Where the partition is quiet
// from then on no segment follows that would bring it up: the next owner does.
func TestTheNextOwnerCommitsWhatTheLastOneOwed(t *testing.T) {
	t.Parallel()
	e, s := archived50(t)
	e.commitAs("g", map[kafka.TP]kafka.CommitOffset{{Topic: "trips"}: {Offset: 40, LeaderEpoch: record.NoEpoch, Metadata: "segment=30"}})
	r := e.start(s)
	e.await("the group is at the chain's end", func() bool {
		o := e.committed("trips", 0)
		return o.Offset == 50 && o.Metadata == "segment=40"
	})
	r.end()
}

// A position that is refused because the group has moved on costs the membership. Whoever takes the partition next, here the same process, stores it.
func TestAPositionOfAnOldGenerationIsStoredInTheNext(t *testing.T) {
	t.Parallel()
	e, s := archived50(t)
	r := e.start(s)
	e.await("assigned, and nothing owed", func() bool {
		p := r.state("trips", 0)
		return p != nil && p.State == "FETCHING" && e.committed("trips", 0).Offset == 50
	})
	var refused atomic.Int64
	e.fake.ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.OffsetCommitRequest)
		refused.Add(1)
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewOffsetCommitResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewOffsetCommitResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.IllegalGeneration.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	e.fill("trips", 0, 50, 10)
	e.await("the position is stored", func() bool { return e.committed("trips", 0).Offset == 60 })
	if refused.Load() != 1 {
		t.Errorf("%d commits were refused", refused.Load())
	}
	r.end()
}

// A flush under way does not put back the position of a partition that was taken away meanwhile: by the time of the next try it may be ours again,
// and the position of another, newer owner would be set back.
func TestAPositionThatWasForgottenDoesNotComeBack(t *testing.T) {
	c := newCommitter(nil, nil, nil)
	a, b := kafka.TP{Topic: "a"}, kafka.TP{Topic: "b"}
	c.add(a, 1, "")
	c.add(b, 2, "")
	taken := c.take()
	c.forget([]kafka.TP{a})
	if n := c.again(taken); n != 1 || len(c.pending) != 1 || c.pending[b].Offset != 2 {
		t.Errorf("%d put back: %v", n, c.pending)
	}
	taken = c.take()
	c.add(b, 3, "")
	if n := c.again(taken); n != 0 || c.pending[b].Offset != 3 {
		t.Errorf("%d put back: %v", n, c.pending)
	}
}

// An archiver that is told to end before it has begun ends without an error.
func TestEndedBeforeItBegan(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	hold := e.holdBack(kmsg.Metadata)
	a, err := New(e.settings("trips"), Parts{Store: e.store, TopicsDir: "topics", Log: testLog(t), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Archive(ctx) }()
	hold.await()
	cancel()
	time.AfterFunc(100*time.Millisecond, hold.release) // the client's close waits for the answer
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it does not end")
	}
}
