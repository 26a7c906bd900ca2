package runtime_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/processor/live"
	"tapedeck.dev/tapedeck/processor/sink"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// A pipeline that lives longer than the broker keeps positions, over quiet input. Kafka forgets positions by the age of their last commit where
// the group does not subscribe the topic, as the group of a merged pipeline.
func TestLiveKeepsItsPositions(t *testing.T) {
	t.Parallel()
	const retention = 6 * time.Second // many times what storing them takes on a slow machine
	e, fake := newFake(t, kfake.BrokerConfigs(map[string]string{"offset.retention.ms": "6000", "offsets.retention.check.interval.ms": "50"}))
	topic := unique("trips")
	p := fares(t, unique("fares"), topic, false)
	e.topic(topic, 2)
	e.produce(trips(1, topic, 2, 50)...)
	quick := func(c *live.Config) { c.KeepInterval = 100 * time.Millisecond }
	r := e.start(p, quick)
	e.untilReadOnce(p, r) // its status is told after the count
	commits := r.Status().Commits
	aged := func() {
		old := time.Now().Add(retention + retention/4)
		e.until("the positions to be old", func() bool { return time.Now().After(old) })
	}
	aged()
	e.untilRead(p)
	// One partition is quiet for as long again, the other is not.
	e.produce(trip(topic, base, base, 0))
	e.untilReadOnce(p, r)
	if got := r.Status().Commits; got != commits+1 {
		t.Errorf("%d commits that brought something, want one", got-commits)
	}
	aged()
	e.untilRead(p)
	r.kill()

	// A start stores them anew, although nothing is new and whatever the interval.
	var all atomic.Int64
	fake.ControlKey(int16(kmsg.TxnOffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if req := kreq.(*kmsg.TxnOffsetCommitRequest); len(req.Topics) == 1 && len(req.Topics[0].Partitions) == 2 {
			all.Add(1)
		}
		return nil, nil, false
	})
	r = e.start(p)
	e.until("every position to be stored again", func() bool { return all.Load() > 0 })
	e.until("RUNNING", func() bool { return r.Status().State == live.Running })
	e.untilRead(p)
	if n, st := all.Load(), r.Status(); n != 1 || st.Commits != 0 || st.Restarts != 0 {
		t.Errorf("stored %d times in %d commits and %d restarts, want once", n, st.Commits, st.Restarts)
	}
	e.wantOutputs(p, "", e.oracle(p))
}

// The first start of several processes at once: another writes the origin, and the positions with it, after this one has read positions and
// before it reads the decision log.
func TestLiveOriginOfAnotherProcess(t *testing.T) {
	t.Parallel()
	e, fake := newFake(t)
	topic := unique("trips")
	p := fares(t, unique("fares"), topic, true)
	e.topic(topic, 3)
	e.produce(trips(2, topic, 3, 50)...)
	topics, err := e.admin.Topics(e.ctx(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Ensure(e.ctx(), e.admin, []sink.Spec{{Name: p.DecisionsTopic(), Partitions: 1}}, 0); err != nil {
		t.Fatal(err)
	}
	other, err := kafka.NewProducer(e.client, "other", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.InitTransactions(e.ctx()); err != nil {
		t.Fatal(err)
	}
	write := func() error {
		origin := &decision.Origin{PipelineHash: p.Hash, Topics: map[string]decision.OriginTopic{topic: {ID: topics[topic].ID, Start: map[int32]int64{0: 0, 1: 0, 2: 0}}}}
		positions := map[kafka.TP]kafka.CommitOffset{}
		for i := range int32(3) {
			positions[kafka.TP{Topic: topic, Partition: i}] = live.FormatCommit(engine.Commit{MaxAtLow: engine.NoTime, Emitted: engine.NoTime})
		}
		if err := other.Begin(); err != nil {
			return err
		}
		if err := other.Send(e.ctx(), &record.Record{Topic: p.DecisionsTopic(), Timestamp: base, Value: decision.Format(origin)}); err != nil {
			return err
		}
		if err := other.SendOffsets(e.ctx(), "tapedeck."+p.Name, nil, positions); err != nil {
			return err
		}
		return other.CommitTx(e.ctx())
	}
	var once sync.Once
	fake.ControlKey(int16(kmsg.ListOffsets), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if req := kreq.(*kmsg.ListOffsetsRequest); len(req.Topics) == 1 && req.Topics[0].Topic == p.DecisionsTopic() {
			once.Do(func() {
				fake.SleepControl(func() {
					if err := write(); err != nil {
						t.Error(err)
					}
				})
			})
		}
		return nil, nil, false
	})
	r := e.start(p)
	e.untilReadOnce(p, r)
	e.wantOutputs(p, "", e.oracle(p))
	if n := len(e.read(p.DecisionsTopic())[0]); n != 1 {
		t.Errorf("%d decisions, want the other process's origin alone", n)
	}
}
