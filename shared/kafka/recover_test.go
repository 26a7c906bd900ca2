package kafka

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/shared/record"
)

// A position below the log start and one beyond its end are reported with what the log holds, and nothing is handed over. The
// other partitions go on, and the partition can be started again.
func TestOutOfRange(t *testing.T) {
	e := newEnv(t)
	name := e.topic(3)
	low, high, fine := TP{Topic: name}, TP{Topic: name, Partition: 1}, TP{Topic: name, Partition: 2}
	for _, tp := range []TP{low, high, fine} {
		e.fill(tp, 0, 100)
	}
	e.must(e.admin.DeleteRecords(e.ctx(), map[TP]int64{low: 50}))
	c := e.consumer("")
	for tp, at := range map[TP]int64{low: 10, high: 101, fine: 0} {
		e.must(c.Start(Position{TP: tp, Offset: at, LeaderEpoch: record.NoEpoch}))
	}
	got := map[TP]OutOfRange{}
	var rs []record.Record
	e.until(c, "two positions out of range", func(ev Event) bool {
		switch ev := ev.(type) {
		case OutOfRange:
			got[ev.TP] = ev
		case Batch:
			if ev.TP != fine {
				t.Fatalf("batch of %s", ev.TP)
			}
			rs = append(rs, ev.Records...)
		case EndOfPartition:
			if ev.TP != fine {
				t.Fatalf("%#v%s", ev, errText(ev))
			}
		default:
			t.Fatalf("%#v%s", ev, errText(ev))
		}
		return len(got) == 2
	})
	wantOffsets(t, rs, 0, 100)
	if want := (OutOfRange{TP: low, Offset: 10, LogStart: 50, LogEnd: 100}); got[low] != want {
		t.Errorf("below: %+v, want %+v", got[low], want)
	}
	if want := (OutOfRange{TP: high, Offset: 101, LogStart: 0, LogEnd: 100}); got[high] != want {
		t.Errorf("beyond: %+v, want %+v", got[high], want)
	}
	e.must(c.Start(Position{TP: low, Offset: 50, LeaderEpoch: record.NoEpoch}))
	rs, _ = e.untilEnd(c, low)
	wantOffsets(t, rs, 50, 100)
	// The end of the log is a position like any other.
	e.must(c.Start(Position{TP: high, Offset: 100, LeaderEpoch: record.NoEpoch}))
	rs, end := e.untilEnd(c, high)
	if len(rs) != 0 || end != 100 {
		t.Fatalf("%d records, end %d", len(rs), end)
	}
}

// Records that are deleted while they wait to be fetched: the consumer is in the middle of the log.
func TestRetentionOvertakes(t *testing.T) {
	e := newEnv(t)
	tp := TP{Topic: e.topic(1)}
	e.fill(tp, 0, 10)
	c := e.consumer("")
	e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
	rs, _ := e.untilEnd(c, tp)
	wantOffsets(t, rs, 0, 10)
	e.must(c.Pause(tp))
	e.fill(tp, 10, 90)
	e.must(e.admin.DeleteRecords(e.ctx(), map[TP]int64{tp: 70}))
	e.must(c.Resume(tp))
	e.until(c, "out of range", func(ev Event) bool {
		o, ok := ev.(OutOfRange)
		if !ok {
			t.Fatalf("%#v%s", ev, errText(ev))
		}
		if want := (OutOfRange{TP: tp, Offset: 10, LogStart: 70, LogEnd: 100}); o != want {
			t.Fatalf("%+v, want %+v", o, want)
		}
		return true
	})
}

// A leader that has just changed answers out of range for a valid offset, and knows of a shorter log: asked again, not reported.
func TestOutOfRangeForAMoment(t *testing.T) {
	e := onFake(t)
	tp := TP{Topic: e.topic(1)}
	e.fill(tp, 0, 100)
	var lies atomic.Int32
	e.fake.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		if lies.Load() >= 2 {
			return nil, nil, false
		}
		lies.Add(1)
		return fetchError(kreq.(*kmsg.FetchRequest), kerr.OffsetOutOfRange.Code), nil, true
	})
	e.fake.ControlKey(int16(kmsg.ListOffsets), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		if lies.Load() >= 2 {
			return nil, nil, false
		}
		req := kreq.(*kmsg.ListOffsetsRequest)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewListOffsetsResponseTopic()
			st.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				sp := kmsg.NewListOffsetsResponseTopicPartition()
				sp.Partition, sp.Offset = rp.Partition, 10
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	c := e.consumer("")
	e.must(c.Start(Position{TP: tp, Offset: 30, LeaderEpoch: record.NoEpoch}))
	rs, _ := e.untilEnd(c, tp)
	wantOffsets(t, rs, 30, 100)
	if lies.Load() != 2 {
		t.Fatalf("the broker lied %d times", lies.Load())
	}
}

func fetchError(req *kmsg.FetchRequest, code int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	for _, rt := range req.Topics {
		st := kmsg.NewFetchResponseTopic()
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			sp := kmsg.NewFetchResponseTopicPartition()
			sp.Partition, sp.ErrorCode, sp.HighWatermark = rp.Partition, code, -1
			sp.RecordBatches = []byte{} // null would be a broken answer
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}

// epochEnds answers that epoch 0 ends at end(partition).
func epochEnds(req *kmsg.OffsetForLeaderEpochRequest, end func(int32) int64) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, rt := range req.Topics {
		st := kmsg.NewOffsetForLeaderEpochResponseTopic()
		st.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			sp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			sp.Partition, sp.LeaderEpoch, sp.EndOffset = rp.Partition, 0, end(rp.Partition)
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}

// An unclean election rewrote the log below the position, and it has grown past it again: only the leader epoch tells. Both where
// the partition is started first and where it was fetched before; a sane neighbour is not touched.
func TestTruncatedAndGrownBack(t *testing.T) {
	e := onFake(t)
	name := e.topic(2)
	bad, good := TP{Topic: name}, TP{Topic: name, Partition: 1}
	e.fill(bad, 0, 100)
	e.fill(good, 0, 100)
	e.offerEpochs()
	e.fake.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		return epochEnds(kreq.(*kmsg.OffsetForLeaderEpochRequest), func(p int32) int64 {
			if p == bad.Partition {
				return 60 // epoch 0 ended here
			}
			return 100
		}), nil, true
	})
	c := e.consumer("")
	for range 2 {
		e.must(c.Start(Position{TP: bad, Offset: 90, LeaderEpoch: 0}))
		e.must(c.Start(Position{TP: good, Offset: 90, LeaderEpoch: 0}))
		ended, truncated := false, false
		var rs []record.Record
		e.until(c, "truncation", func(ev Event) bool {
			switch ev := ev.(type) {
			case PartitionError:
				if ev.TP != bad || !errors.Is(ev.Err, ErrTruncated) {
					t.Fatalf("%#v%s", ev, errText(ev))
				}
				truncated = true
			case Batch:
				if ev.TP != good {
					t.Fatalf("a batch of the truncated log from %d", ev.Records[0].Offset)
				}
				rs = append(rs, ev.Records...)
			case EndOfPartition:
				ended = ended || ev.TP == good
			default:
				t.Fatalf("%#v%s", ev, errText(ev))
			}
			return truncated && ended
		})
		wantOffsets(t, rs, 90, 100)
	}
	// Within what is left of the epoch, all is well.
	e.must(c.Start(Position{TP: bad, Offset: 60, LeaderEpoch: 0}))
	rs, _ := e.untilEnd(c, bad)
	wantOffsets(t, rs, 60, 100)
}

// Without an epoch nobody can tell, and the broker is not asked.
func TestNoEpochNoValidation(t *testing.T) {
	e := onFake(t)
	tp := TP{Topic: e.topic(1)}
	e.fill(tp, 0, 10)
	e.offerEpochs()
	var asked atomic.Int32
	e.fake.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		asked.Add(1)
		return epochEnds(kreq.(*kmsg.OffsetForLeaderEpochRequest), func(int32) int64 { return 10 }), nil, true
	})
	c := e.consumer("")
	e.must(c.Start(Position{TP: tp, Offset: 5, LeaderEpoch: record.NoEpoch}))
	rs, _ := e.untilEnd(c, tp)
	wantOffsets(t, rs, 5, 10)
	if asked.Load() != 0 {
		t.Fatal("the broker was asked for an epoch that nobody knows")
	}
	e.must(c.Start(Position{TP: tp, Offset: 5, LeaderEpoch: 0}))
	rs, _ = e.untilEnd(c, tp)
	wantOffsets(t, rs, 5, 10)
	if asked.Load() == 0 {
		t.Fatal("the broker was not asked for a known epoch")
	}
}

func TestDeletedTopic(t *testing.T) {
	e := newEnv(t)
	gone, stays := TP{Topic: e.topic(1)}, TP{Topic: e.topic(1)}
	e.fill(gone, 0, 10)
	c := e.consumer("", func(cfg *ConsumerConfig) {
		cfg.Overrides = map[string]string{"topic.metadata.refresh.interval.ms": "200"}
	})
	for _, tp := range []TP{gone, stays} {
		e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
	}
	e.untilEnd(c, gone)
	e.must(e.admin.DeleteTopic(e.ctx(), gone.Topic))
	e.until(c, "the end of the topic", func(ev Event) bool {
		switch ev := ev.(type) {
		case PartitionError:
			if ev.TP != gone || !errors.Is(ev.Err, ErrNotFound) {
				t.Fatalf("%#v%s", ev, errText(ev))
			}
			return true
		case EndOfPartition:
		default:
			t.Fatalf("%#v%s", ev, errText(ev))
		}
		return false
	})
	e.fill(stays, 0, 10)
	rs, _ := e.untilEnd(c, stays)
	wantOffsets(t, rs, 0, 10)
}

func TestStartOfNoPartition(t *testing.T) {
	e := newEnv(t)
	name := e.topic(2)
	c := e.consumer("")
	tp := TP{Topic: name, Partition: 9}
	e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
	e.until(c, "no such partition", func(ev Event) bool {
		p, ok := ev.(PartitionError)
		if !ok || p.TP != tp || !errors.Is(p.Err, ErrNotFound) {
			t.Fatalf("%#v%s", ev, errText(ev))
		}
		return true
	})
	if err := c.Start(Position{TP: tp, Offset: -1}); err == nil {
		t.Fatal("a negative offset was taken")
	}
}

// A batch whose bytes were damaged is not skipped.
func TestDamagedBatch(t *testing.T) {
	e := onFake(t)
	tp := TP{Topic: e.topic(1)}
	e.fill(tp, 0, 1)
	e.fill(tp, 1, 1)
	e.fill(tp, 2, 1)
	c := e.consumer("")
	e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
	rs, _ := e.untilEnd(c, tp)
	wantOffsets(t, rs, 0, 3)
	e.must(c.Stop(tp))
	raw := make(chan []byte, 1)
	e.fake.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case raw <- kreq.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records:
		default:
		}
		return nil, nil, false
	})
	e.fill(tp, 3, 1)
	batch := append([]byte(nil), <-raw...)
	batch[7] = 3             // first offset
	batch[len(batch)-2] ^= 1 // a byte of the value
	e.fake.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		if len(req.Topics) == 0 || req.Topics[0].Partitions[0].FetchOffset != 3 {
			return nil, nil, false
		}
		resp := fetchError(req, 0).(*kmsg.FetchResponse)
		sp := &resp.Topics[0].Partitions[0]
		sp.HighWatermark, sp.LastStableOffset, sp.RecordBatches = 4, 4, batch
		return resp, nil, true
	})
	e.must(c.Start(Position{TP: tp, Offset: 3, LeaderEpoch: record.NoEpoch}))
	e.until(c, "the damage", func(ev Event) bool {
		switch ev := ev.(type) {
		case Batch:
			t.Fatalf("a batch from %d", ev.Records[0].Offset)
		case PartitionError:
			if !errors.Is(ev.Err, ErrCorrupt) {
				t.Fatalf("%#v%s", ev, errText(ev))
			}
			return true
		case EndOfPartition:
			t.Fatalf("the end at %d was reached past the damage", ev.Offset)
		}
		return false
	})
	evs, err := c.Poll(e.ctx(), 300*time.Millisecond)
	e.must(err)
	if len(evs) != 0 {
		t.Fatalf("after the damage: %#v", evs)
	}
}

// A stopped or paused partition is not fetched: nothing is asked of the broker for it.
func TestStopEndsFetching(t *testing.T) {
	e := onFake(t)
	name := e.topic(2)
	stopped, paused := TP{Topic: name}, TP{Topic: name, Partition: 1}
	var asked atomic.Int32
	e.fake.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		for _, rt := range kreq.(*kmsg.FetchRequest).Topics {
			asked.Add(int32(len(rt.Partitions)))
		}
		return nil, nil, false
	})
	c := e.consumer("")
	for _, tp := range []TP{stopped, paused} {
		e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
		e.untilEnd(c, tp)
	}
	if asked.Load() == 0 {
		t.Fatal("the broker was never asked: the test proves nothing")
	}
	e.must(c.Stop(stopped))
	e.must(c.Pause(paused))
	// What was under way at that moment may still arrive.
	_, err := c.Poll(e.ctx(), 300*time.Millisecond)
	e.must(err)
	asked.Store(0)
	evs, err := c.Poll(e.ctx(), time.Second)
	e.must(err)
	if n := asked.Load(); n != 0 || len(evs) != 0 {
		t.Fatalf("asked %d times, events %v", n, evs)
	}
}

// Markers of a later epoch follow the last record; EOF moves the position past them; a pause and resume is no truncation.
func TestNoEpochBehindMarkers(t *testing.T) {
	e := onFake(t)
	tp := TP{Topic: e.topic(1)}
	p := e.producer("tx-m")
	e.must(p.InitTransactions(e.ctx()))
	e.must(p.Begin())
	e.sendTo(p, tp, "a", "b", "c")
	e.must(p.CommitTx(e.ctx())) // marker at 3
	e.offerEpochs()
	e.fake.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		// epoch 0 (the records') ended at 3, where epoch 1 began with the marker
		return epochEnds(kreq.(*kmsg.OffsetForLeaderEpochRequest), func(int32) int64 { return 3 }), nil, true
	})
	c := e.consumer("")
	e.must(c.Start(Position{TP: tp, Offset: 0, LeaderEpoch: record.NoEpoch}))
	e.untilEnd(c, tp)
	e.must(c.Pause(tp))
	e.must(c.Resume(tp))
	e.until(c, "end again", func(ev Event) bool {
		switch ev := ev.(type) {
		case EndOfPartition:
			return true
		case PartitionError:
			t.Fatalf("spurious: %v", ev.Err)
		}
		return false
	})
}
