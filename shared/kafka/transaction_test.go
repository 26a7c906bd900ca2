package kafka

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/record"
)

func (e *env) sendTo(p *Producer, tp TP, values ...string) {
	e.t.Helper()
	for _, v := range values {
		e.must(p.Send(e.ctx(), &record.Record{Topic: tp.Topic, Partition: tp.Partition, Timestamp: 1, Value: []byte(v)}))
	}
}

// Committed records are handed over, aborted ones are not, and the end of the partition lies past the markers.
func TestTransactions(t *testing.T) {
	e := newEnv(t)
	tp := TP{Topic: e.topic(1)}
	p := e.producer(unique("tx"))
	e.must(p.InitTransactions(e.ctx()))
	for _, tx := range []struct {
		values []string
		commit bool
	}{{[]string{"a", "b"}, true}, {[]string{"x", "y", "z"}, false}, {[]string{"c"}, true}} {
		e.must(p.Begin())
		e.sendTo(p, tp, tx.values...)
		if tx.commit {
			e.must(p.CommitTx(e.ctx()))
		} else {
			// Flushed, so that the aborted records are in the log.
			e.must(p.Flush(e.ctx()))
			e.must(p.AbortTx(e.ctx()))
		}
	}
	read := func(isolation string) (out string, end int64) {
		c := e.consumer("", func(cfg *ConsumerConfig) { cfg.Isolation = isolation })
		e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
		rs, end := e.untilEnd(c, tp)
		for _, r := range rs {
			out += string(r.Value)
		}
		return out, end
	}
	// a b M x y z M c M
	if got, end := read(""); got != "abc" || end != 9 {
		t.Errorf("read_committed: %q to %d, want abc to 9", got, end)
	}
	if got, end := read("read_uncommitted"); got != "abxyzc" || end != 9 {
		t.Errorf("read_uncommitted: %q to %d, want abxyzc to 9", got, end)
	}
	rs, err := e.admin.Offsets(e.ctx(), []TP{tp})
	e.must(err)
	if rs[tp] != (LogRange{0, 9}) {
		t.Errorf("log range %v", rs[tp])
	}
}

// While a transaction is open, read_committed ends before it, but the log end is the high watermark.
func TestOpenTransaction(t *testing.T) {
	e := newEnv(t)
	tp := TP{Topic: e.topic(1)}
	p := e.producer(unique("tx"))
	e.must(p.InitTransactions(e.ctx()))
	e.must(p.Begin())
	e.sendTo(p, tp, "a", "b")
	e.must(p.Flush(e.ctx()))
	c := e.consumer("")
	e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
	if rs, end := e.untilEnd(c, tp); len(rs) != 0 || end != 0 {
		t.Fatalf("%d records, end %d", len(rs), end)
	}
	if lo, hi, err := c.Watermarks(e.ctx(), tp); err != nil || lo != 0 || hi != 2 {
		t.Fatalf("watermarks: %d, %d, %v", lo, hi, err)
	}
	e.must(p.CommitTx(e.ctx()))
	rs, end := e.untilEnd(c, tp)
	wantOffsets(t, rs, 0, 2)
	if end != 3 {
		t.Fatalf("end %d", end)
	}
}

func TestProducerIsFenced(t *testing.T) {
	e := newEnv(t)
	tp, id := TP{Topic: e.topic(1)}, unique("tx")
	old := e.producer(id)
	e.must(old.InitTransactions(e.ctx()))
	e.must(old.Begin())
	e.sendTo(old, tp, "old")
	e.must(old.Flush(e.ctx()))
	young := e.producer(id)
	e.must(young.InitTransactions(e.ctx()))
	e.must(young.Begin())
	e.sendTo(young, tp, "young")
	e.must(young.CommitTx(e.ctx()))
	if err := old.CommitTx(e.ctx()); !errors.Is(err, ErrFenced) {
		t.Fatalf("commit of the old producer: %v, want ErrFenced", err)
	}
	if err := old.Begin(); !errors.Is(err, ErrFenced) && !errors.Is(err, ErrFatal) {
		t.Fatalf("begin of the old producer: %v", err)
	}
	c := e.consumer("")
	e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
	rs, _ := e.untilEnd(c, tp)
	if len(rs) != 1 || string(rs[0].Value) != "young" {
		t.Fatalf("read %+v", rs)
	}
}

// A record that the broker refuses makes the transaction abortable; after the abort the producer works.
func TestRefusedRecordAborts(t *testing.T) {
	e := newEnv(t)
	tp := TP{Topic: e.topic(1, "max.message.bytes", "1000")}
	p := e.producer(unique("tx"))
	e.must(p.InitTransactions(e.ctx()))
	e.must(p.Begin())
	e.must(p.Send(e.ctx(), &record.Record{Topic: tp.Topic, Timestamp: 1, Value: bytes.Repeat([]byte{'x'}, 5000)}))
	if err := p.CommitTx(e.ctx()); !errors.Is(err, ErrAbortable) || errors.Is(err, ErrFenced) {
		t.Fatalf("commit: %v, want ErrAbortable", err)
	}
	e.must(p.AbortTx(e.ctx()))
	// The refused record has used up a sequence number that a real broker has not seen. librdkafka finds out with the next
	// transaction, which then has to be aborted too.
	for try := 0; ; try++ {
		e.must(p.Begin())
		e.sendTo(p, tp, "small")
		err := p.CommitTx(e.ctx())
		if err == nil {
			return
		}
		if !errors.Is(err, ErrAbortable) || try == 1 {
			t.Fatalf("try %d after the abort: %v", try, err)
		}
		e.must(p.AbortTx(e.ctx()))
	}
}

// Aborting drops what was still queued, and its reports do not count against the next transaction.
func TestAbortWithQueuedRecords(t *testing.T) {
	e := newEnv(t)
	tp := TP{Topic: e.topic(1)}
	p := e.producer(unique("tx"))
	e.must(p.InitTransactions(e.ctx()))
	for range 20 {
		e.must(p.Begin())
		e.sendTo(p, tp, "x", "y", "z")
		e.must(p.AbortTx(e.ctx()))
	}
	e.must(p.Begin())
	e.sendTo(p, tp, "kept")
	e.must(p.CommitTx(e.ctx()))
	c := e.consumer("")
	e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
	rs, _ := e.untilEnd(c, tp)
	if len(rs) != 1 || string(rs[0].Value) != "kept" {
		t.Fatalf("read %+v", rs)
	}
}

func TestSendOffsets(t *testing.T) {
	e := newEnv(t)
	name, gid := e.topic(1), unique("g")
	tp := TP{Topic: name}
	p := e.producer(unique("tx"))
	e.must(p.InitTransactions(e.ctx()))
	read := func() CommitOffset {
		got, err := e.admin.CommittedOffsets(e.ctx(), gid, []TP{tp})
		e.must(err)
		if len(got) == 0 {
			return CommitOffset{Offset: -1}
		}
		return got[tp]
	}

	// Without membership.
	one := CommitOffset{Offset: 5, LeaderEpoch: record.NoEpoch, Metadata: "low=2"}
	e.must(p.Begin())
	e.must(p.SendOffsets(e.ctx(), gid, nil, map[TP]CommitOffset{tp: one}))
	e.must(p.CommitTx(e.ctx()))
	if got := read(); got != one {
		t.Fatalf("after the commit: %+v, want %+v", got, one)
	}
	e.must(p.Begin())
	e.must(p.SendOffsets(e.ctx(), gid, nil, map[TP]CommitOffset{tp: {Offset: 9, LeaderEpoch: record.NoEpoch}}))
	e.must(p.AbortTx(e.ctx()))
	if got := read(); got != one {
		t.Fatalf("after the abort: %+v, want %+v", got, one)
	}

	// As a member; then the group moves on, and the old generation is refused.
	c := e.consumer(gid)
	e.must(c.Subscribe([]string{name}))
	e.assigned(c, 1)
	gm, err := c.GroupMetadata()
	e.must(err)
	two := CommitOffset{Offset: 7, LeaderEpoch: record.NoEpoch, Metadata: "low=6"}
	e.must(p.Begin())
	e.must(p.SendOffsets(e.ctx(), gid, gm, map[TP]CommitOffset{tp: two}))
	e.must(p.CommitTx(e.ctx()))
	if got := read(); got != two {
		t.Fatalf("as a member: %+v, want %+v", got, two)
	}
	e.must(c.Close())
	d := e.consumer(gid)
	e.must(d.Subscribe([]string{name}))
	e.assigned(d, 1)
	e.must(p.Begin())
	err = p.SendOffsets(e.ctx(), gid, gm, map[TP]CommitOffset{tp: {Offset: 1, LeaderEpoch: record.NoEpoch}})
	if !errors.Is(err, ErrFenced) {
		t.Fatalf("positions of an old generation: %v, want ErrFenced", err)
	}
	e.must(p.AbortTx(e.ctx()))
	if got := read(); got != two {
		t.Fatalf("after a refused commit: %+v, want %+v", got, two)
	}
}

// Positions in an open transaction are waited for.
func TestStableOffsets(t *testing.T) {
	e := newEnv(t)
	tp, gid := TP{Topic: e.topic(1)}, unique("g")
	p := e.producer(unique("tx"))
	e.must(p.InitTransactions(e.ctx()))
	e.must(p.Begin())
	e.must(p.SendOffsets(e.ctx(), gid, nil, map[TP]CommitOffset{tp: {Offset: 2, LeaderEpoch: record.NoEpoch}}))
	e.must(p.CommitTx(e.ctx()))
	e.must(p.Begin())
	e.must(p.SendOffsets(e.ctx(), gid, nil, map[TP]CommitOffset{tp: {Offset: 3, LeaderEpoch: record.NoEpoch}}))
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if got, err := e.admin.CommittedOffsets(ctx, gid, []TP{tp}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("while the transaction is open: %v, %v", got, err)
	}
	e.must(p.CommitTx(e.ctx()))
	got, err := e.admin.CommittedOffsets(e.ctx(), gid, []TP{tp})
	if err != nil || got[tp].Offset != 3 {
		t.Fatalf("after the commit: %v, %v", got, err)
	}
}

func TestProducerWithoutBroker(t *testing.T) {
	p, err := NewProducer(Client{Bootstrap: "127.0.0.1:1"}, "tx", 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := p.InitTransactions(ctx); !errors.Is(err, ErrUnreachable) {
		t.Errorf("init: %v, want ErrUnreachable", err)
	}
	p.Close()
	if d := time.Since(start); d > time.Minute {
		t.Errorf("took %s", d)
	}

	q, err := NewProducer(Client{Bootstrap: "127.0.0.1:1"}, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := q.Send(ctx, &record.Record{Topic: "t", Timestamp: 1}); err != nil {
		t.Errorf("send: %v", err)
	}
	if err := q.Flush(ctx); !errors.Is(err, ErrUnreachable) {
		t.Errorf("flush: %v, want ErrUnreachable", err)
	}
	start = time.Now()
	q.Close()
	if d := time.Since(start); d > time.Minute {
		t.Errorf("close took %s", d)
	}
}

// A full queue makes Send wait, not fail.
func TestFullQueue(t *testing.T) {
	e := newEnv(t)
	tp := TP{Topic: e.topic(1)}
	cfg := e.client()
	cfg.Overrides = map[string]string{"queue.buffering.max.messages": "10"}
	p, err := NewProducer(cfg, "", 0)
	e.must(err)
	defer p.Close()
	for range 500 {
		e.sendTo(p, tp, "x")
	}
	e.must(p.Flush(e.ctx()))
	rs, err := e.admin.Offsets(e.ctx(), []TP{tp})
	e.must(err)
	if rs[tp].End != 500 {
		t.Fatalf("log end %d", rs[tp].End)
	}
}
