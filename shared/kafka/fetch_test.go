package kafka

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/record"
)

// Every shape of record that this producer can make comes back as it was sent: null and empty apart, headers in order.
func TestRoundTrip(t *testing.T) {
	e := newEnv(t)
	tp := TP{Topic: e.topic(1, "max.message.bytes", "3000000")}
	big := bytes.Repeat([]byte{0xa5, 0}, 700_000)
	in := []record.Record{
		{Key: []byte("k"), Value: []byte("v"), Timestamp: 1},
		{Key: []byte("k"), Value: nil, Timestamp: 2},
		{Key: nil, Value: []byte("v"), Timestamp: 3},
		{Key: nil, Value: nil, Timestamp: 4},
		{Key: []byte("k"), Value: []byte{}, Timestamp: 5},
		{Key: []byte{}, Value: []byte{}, Timestamp: -1},
		{Key: []byte{0, 1, 255}, Value: big, Timestamp: 1_700_000_000_123},
		{Value: []byte("h"), Timestamp: 6, Headers: []record.Header{
			{Key: "a", Value: []byte("1")}, {Key: "x-id", Value: []byte("2")}, {Key: "a", Value: []byte("3")}, {Key: "b", Value: nil}, {Key: "c", Value: []byte{}}, {Key: "", Value: []byte{0, 255}},
		}},
	}
	p := e.producer("")
	for i := range in {
		in[i].Topic, in[i].Offset = tp.Topic, int64(i)
		e.must(p.Send(e.ctx(), &in[i]))
	}
	e.must(p.Flush(e.ctx()))

	for name, change := range map[string]func(*ConsumerConfig){
		"as it comes":   func(*ConsumerConfig) {},
		"shared memory": func(c *ConsumerConfig) { c.ShareMemory = true },
		"one by one":    func(c *ConsumerConfig) { c.oneByOne = true },
	} {
		t.Run(name, func(t *testing.T) {
			c := e.consumer("", change)
			e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
			out, end := e.untilEnd(c, tp)
			wantOffsets(t, out, 0, int64(len(in)))
			if end != int64(len(in)) {
				t.Fatalf("end %d, want %d", end, len(in))
			}
			for i := range in {
				if !record.Equal(&in[i], &out[i]) {
					t.Errorf("record %d: sent %+v, got %+v", i, brief(in[i]), brief(out[i]))
				}
				if out[i].LeaderEpoch < 0 {
					t.Errorf("record %d has no leader epoch", i)
				}
			}
		})
	}
}

func brief(r record.Record) record.Record {
	if len(r.Value) > 20 {
		r.Value = r.Value[:20]
	}
	return r
}

func TestLogAppendTime(t *testing.T) {
	e := newEnv(t)
	if e.fake != nil {
		t.Skip("the fake broker does not apply message.timestamp.type of a topic")
	}
	tp := TP{Topic: e.topic(1, "message.timestamp.type", "LogAppendTime")}
	before := time.Now().UnixMilli()
	e.fill(tp, 0, 1)
	c := e.consumer("")
	e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
	rs, _ := e.untilEnd(c, tp)
	wantOffsets(t, rs, 0, 1)
	if rs[0].TimestampType != record.LogAppendTime || rs[0].Timestamp < before {
		t.Fatalf("timestamp %d of type %d, sent at %d", rs[0].Timestamp, rs[0].TimestampType, before)
	}
}

// What this client would silently change is refused, and nothing of it is sent.
func TestCannotProduce(t *testing.T) {
	e := newEnv(t)
	tp := TP{Topic: e.topic(1)}
	p := e.producer("")
	for _, r := range []record.Record{
		{Timestamp: 0}, {Timestamp: 1 << 60}, {Timestamp: -1 << 60}, {Timestamp: 1, Partition: -1},
		{Timestamp: 1, Headers: []record.Header{{Key: "a\x00b"}}},
	} {
		r.Topic = tp.Topic
		if err := p.Send(e.ctx(), &r); !errors.Is(err, ErrCannotProduce) {
			t.Errorf("%+v: %v, want ErrCannotProduce", r, err)
		}
	}
	e.must(p.Flush(e.ctx()))
	rs, err := e.admin.Offsets(e.ctx(), []TP{tp})
	e.must(err)
	if rs[tp].End != 0 {
		t.Fatalf("%d records were sent", rs[tp].End)
	}
}

func TestDeliveryErrorIsSticky(t *testing.T) {
	e := newEnv(t)
	tp := TP{Topic: e.topic(1, "max.message.bytes", "1000")}
	p := e.producer("")
	big := &record.Record{Topic: tp.Topic, Timestamp: 1, Value: bytes.Repeat([]byte{'x'}, 5000)}
	e.must(p.Send(e.ctx(), big))
	if err := p.Flush(e.ctx()); err == nil {
		t.Fatal("flush forgot the delivery error")
	}
	small := &record.Record{Topic: tp.Topic, Timestamp: 1}
	if err := p.Send(e.ctx(), small); err == nil {
		t.Fatal("send forgot the delivery error")
	}
}

// Nothing below the position, the position first: after Start, Stop, Pause, Resume and seeks back and forth in any order.
func TestPositionsInAnyOrder(t *testing.T) {
	for _, group := range []bool{false, true} {
		name := "assigned"
		if group {
			name = "in a group"
		}
		t.Run(name, func(t *testing.T) { positionsInAnyOrder(t, group) })
	}
}

func positionsInAnyOrder(t *testing.T, group bool) {
	e := newEnv(t)
	const n = 4000
	tps := []TP{{Topic: e.topic(3)}}
	for p := int32(1); p < 3; p++ {
		tps = append(tps, TP{Topic: tps[0].Topic, Partition: p})
	}
	for _, tp := range tps {
		e.fill(tp, 0, n)
	}
	gid := ""
	if group {
		gid = unique("g")
	}
	c := e.consumer(gid, func(cfg *ConsumerConfig) { cfg.MaxBatchRecords = 37 })
	if group {
		e.must(c.Subscribe([]string{tps[0].Topic}))
		got := 0
		e.until(c, "the assignment", func(ev Event) bool {
			switch ev := ev.(type) {
			case Assigned:
				got += len(ev.Partitions)
			default:
				t.Fatalf("before Start: %#v", ev)
			}
			return got == 3
		})
		// Nothing comes before Start.
		evs, err := c.Poll(e.ctx(), 300*time.Millisecond)
		e.must(err)
		if len(evs) != 0 {
			t.Fatalf("before Start: %#v", evs)
		}
	}

	type want struct {
		next            int64
		started, paused bool
	}
	ws := map[TP]*want{}
	for _, tp := range tps {
		ws[tp] = &want{}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	records := 0
	check := func(evs []Event) {
		for _, ev := range evs {
			switch ev := ev.(type) {
			case Batch:
				w := ws[ev.TP]
				if !w.started || w.paused {
					t.Fatalf("batch of %s while started=%v paused=%v", ev.TP, w.started, w.paused)
				}
				if len(ev.Records) == 0 || len(ev.Records) > 37 {
					t.Fatalf("batch of %d records", len(ev.Records))
				}
				for _, r := range ev.Records {
					if r.Offset != w.next {
						t.Fatalf("%s: got offset %d, want %d", ev.TP, r.Offset, w.next)
					}
					w.next++
					records++
				}
			case EndOfPartition:
				if w := ws[ev.TP]; !w.started || w.paused || w.next != ev.Offset || ev.Offset != n {
					t.Fatalf("end at %d, have %+v", ev.Offset, *w)
				}
			default:
				t.Fatalf("%#v", ev)
			}
		}
	}
	for range 300 {
		tp := tps[rng.IntN(len(tps))]
		w := ws[tp]
		switch rng.IntN(6) {
		case 0, 1:
			w.next, w.started, w.paused = rng.Int64N(n+1), true, false
			epoch := record.NoEpoch
			if rng.IntN(2) == 0 {
				epoch = 0
			}
			e.must(c.Start(Position{TP: tp, Offset: w.next, LeaderEpoch: epoch}))
		case 2:
			w.started, w.paused = false, false
			e.must(c.Stop(tp))
		case 3:
			w.paused = w.started
			e.must(c.Pause(tp))
		case 4, 5:
			w.paused = false
			e.must(c.Resume(tp))
		}
		for range rng.IntN(4) {
			evs, err := c.Poll(e.ctx(), time.Duration(rng.IntN(8))*time.Millisecond)
			e.must(err)
			check(evs)
		}
	}
	if records < n {
		t.Fatalf("only %d records were seen: the test proves little", records)
	}
	// And each can still be read to its end.
	for _, tp := range tps {
		w := ws[tp]
		if !w.started {
			w.next, w.started = 0, true
			e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
		}
		w.paused = false
		e.must(c.Resume(tp))
	}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		evs, err := c.Poll(e.ctx(), 50*time.Millisecond)
		e.must(err)
		check(evs)
		if ws[tps[0]].next == n && ws[tps[1]].next == n && ws[tps[2]].next == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("stuck: %+v %+v %+v", *ws[tps[0]], *ws[tps[1]], *ws[tps[2]])
		}
	}
}

func TestPollEndsWithItsContext(t *testing.T) {
	e := newEnv(t)
	c := e.consumer("")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	if evs, err := c.Poll(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("poll: %v, %v", evs, err)
	}
	if d := time.Since(start); d > 40*time.Second {
		t.Fatalf("poll saw the end of its context after %s", d)
	}
	evs, err := c.Poll(context.Background(), 20*time.Millisecond)
	if err != nil || len(evs) != 0 {
		t.Fatalf("an idle poll: %v, %v", evs, err)
	}
}

// A bound that passes while Poll looks at the clock must not become a wait without end: librdkafka takes a negative time-out so.
func TestShortPollsReturn(t *testing.T) {
	e := newEnv(t)
	c := e.consumer("")
	done := make(chan error, 1)
	go func() {
		for i := range 400 {
			if _, err := c.Poll(context.Background(), time.Duration(i%4-1)*700*time.Microsecond); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		e.must(err)
	case <-time.After(2 * time.Minute):
		t.Fatal("a poll of a millisecond hangs")
	}
}
