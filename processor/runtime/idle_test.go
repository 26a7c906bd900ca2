package runtime_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/processor/live"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/sessions"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// idler is fares with idleness; "" for none.
func idler(t *testing.T, name, topic, idleness string) *pipeline.Pipeline {
	if idleness != "" {
		idleness = "    idleness: {after: " + idleness + "}\n"
	}
	return parse(t, fmt.Sprintf("name: %s\nsources:\n  - topic: %s\n    format: json\n    eventTime: {field: t, unit: ms}\n    delay: 2s\n    maxFuture: 1h\n%s"+
		"groupBy: [user]\nwindow: {tumbling: {size: 1s}}\naggregates: {total: sum(price), n: count()}\noutput: {topic: %s-out, partitions: 3}\n",
		name, topic, idleness, name))
}

func (e *env) floors(p *pipeline.Pipeline) []engine.Floor {
	e.t.Helper()
	var values [][]byte
	for _, r := range e.read(p.DecisionsTopic())[0] {
		values = append(values, r.Value)
	}
	log, err := decision.ParseLog(values)
	if err != nil {
		e.t.Fatal(err)
	}
	var floors []engine.Floor
	for _, f := range log.Floors {
		floors = append(floors, engine.Floor{TP: f.TopicPartition, Offset: f.Offset, W: f.W})
	}
	return floors
}

// Partitions fall idle, are passed by, and come back with records that are late by then; the run is killed in between. When it all happened
// was a matter of clocks: the decisions hold all of it, so that a replay, which has no clock, writes the same bytes.
func TestLivePassesIdlePartitionsBy(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := idler(t, unique("fares"), topic, "150ms")
	e.topic(topic, 4) // nothing ever comes to partition 3
	all := trips(51, topic, 3, 600)
	rng := rand.New(rand.NewPCG(9, 9))
	round := func(from, to int, parts ...int32) {
		var recs []record.Record
		for i, r := range all {
			if n := i / 3; n >= from && n < to && bytes.ContainsRune([]byte(fmt.Sprint(parts)), '0'+rune(r.Partition)) {
				recs = append(recs, r)
			}
		}
		e.produce(recs...)
	}
	before := 0
	for i := range 5 {
		r := e.start(p, func(c *live.Config) { c.CommitInterval = 5 * time.Millisecond })
		// One partition is ahead of the others, which hold results back until they are passed by.
		ahead := int32(i % 3)
		round(i*120, i*120+120, ahead)
		e.until("the others to be passed by", func() bool { return len(e.floors(p)) > before })
		if i == 0 {
			e.until("the status", func() bool {
				st := r.Status()
				return len(st.Partitions) == 4 && !st.Partitions[0].PassedBy && st.Partitions[3].PassedBy && st.Partitions[3].Idle && st.Emitted > 0
			})
		}
		if i%2 == 0 {
			r.kill() // between the floors and the records behind them
			r = e.start(p, func(c *live.Config) { c.CommitInterval = 5 * time.Millisecond })
		}
		round(i*120, i*120+120, (ahead+1)%3, (ahead+2)%3)
		kill := time.Now().Add(time.Duration(rng.IntN(300)) * time.Millisecond)
		e.until("the kill", func() bool { return time.Now().After(kill) })
		r.kill()
		e.settle(p)
		before = len(e.floors(p))
	}
	r := e.start(p)
	e.untilRead(p)
	r.kill()
	floors := e.floors(p)
	want := e.oracle(p, floors...)
	if d := diff(want, e.outputs(p, "")); d != "" {
		t.Error(d)
	}
	if diff(want, e.oracle(p)) == "" {
		t.Error("the floors make no difference: the test shows nothing")
	}
	t.Logf("%d floors, %d results, %d late", len(floors), len(want["results"]), len(want["late"]))

	// The clock is no part of the pipeline: a processor that is told nothing of idleness replays the same.
	quiet := idler(t, p.Name, topic, "")
	if quiet.Hash != p.Hash {
		t.Fatal("idleness is in the hash")
	}
	a := e.archive(quiet, rng)
	rc := e.receiver(func(c *sessions.Config) { c.CommitInterval = time.Hour; c.CommitRecords = 50 }, quiet)
	rc.mustOpen("again", a.req)
	rc.send("again", 1, a, rng, func(i int) {
		if i == 7 || i == 20 || i == 40 {
			rc.down()
			rc.up()
		}
	})
	if _, code, text := rc.finish("again", 1); code != http.StatusOK {
		t.Fatalf("finish: %d %s", code, text)
	}
	e.wantOutputs(p, ".replay.again", want)
}

// Without the setting nobody is passed by, and the status names who holds.
func TestLiveIdlePartitionHolds(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := idler(t, unique("fares"), topic, "")
	e.topic(topic, 2)
	e.produce(trips(52, topic, 1, 200)...)
	r := e.start(p)
	e.untilRead(p)
	e.until("the status", func() bool {
		st := r.Status()
		return st.State == live.Running && st.HeldBy != nil && st.HeldBy.Partition == 1 && st.OpenWindows > 10
	})
	if n := len(e.floors(p)) + len(e.lines(p.Output.Topic)); n != 0 {
		t.Errorf("%d floors and results", n)
	}
}

// Records of a transaction that is still open may come: their partition is not idle, however long it lasts.
func TestLiveOpenTransactionIsNotIdle(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := idler(t, unique("fares"), topic, "100ms")
	e.topic(topic, 2)
	tx := e.openTransaction(record.Record{Topic: topic, Partition: 1, Timestamp: base, Value: fmt.Appendf(nil, `{"t":%d,"user":"u","price":7}`, base)})
	e.produce(trips(53, topic, 1, 100)...)
	r := e.start(p)
	e.until("all of partition 0", func() bool {
		st := r.Status()
		return len(st.Partitions) == 2 && st.Partitions[0].Read >= 100 && st.OpenWindows > 2
	})
	past := time.Now().Add(time.Second)
	e.until("ten times the idleness", func() bool { return time.Now().After(past) })
	if n := len(e.floors(p)); n != 0 {
		t.Fatalf("%d floors", n)
	}
	e.until("a position", func() bool { return r.Status().Partitions[0].Position > 0 })
	tx()
	e.until("partition 1 to be passed by", func() bool { return len(e.floors(p)) > 0 })
	e.untilRead(p)
	r.kill()
	want := e.oracle(p, e.floors(p)...)
	if got := e.outputs(p, ""); diff(want, got) != "" || !strings.Contains(strings.Join(got["results"], "\n"), `"`) {
		t.Error(diff(want, got))
	}
}

// openTransaction writes a record in a transaction; the returned function commits it.
func (e *env) openTransaction(rec record.Record) (commit func()) {
	e.t.Helper()
	p, err := kafka.NewProducer(e.client, unique("tx"), time.Minute)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(p.Close)
	for _, f := range []func() error{
		func() error { return p.InitTransactions(e.ctx()) }, p.Begin,
		func() error { return p.Send(e.ctx(), &rec) }, func() error { return p.Flush(e.ctx()) },
	} {
		if err := f(); err != nil {
			e.t.Fatal(err)
		}
	}
	return func() {
		e.t.Helper()
		if err := p.CommitTx(e.ctx()); err != nil {
			e.t.Fatal(err)
		}
	}
}
