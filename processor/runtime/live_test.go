package runtime_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/processor/live"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// run is a live run that the test can kill.
type run struct {
	*live.Runner
	kill func() // waits until it is gone; nothing is committed on the way
}

func (e *env) config(p *pipeline.Pipeline) live.Config {
	return live.Config{
		Pipeline: p, Consumer: e.client, Producer: e.client, Admin: e.admin, Log: e.log,
		CommitInterval: 20 * time.Millisecond, MetadataInterval: 50 * time.Millisecond, TxTimeout: time.Minute, SessionTimeout: 20 * time.Second,
		InstanceID: "a",
	}
}

func (e *env) start(p *pipeline.Pipeline, change ...func(*live.Config)) *run {
	e.t.Helper()
	cfg := e.config(p)
	for _, f := range change {
		f(&cfg)
	}
	r, err := live.NewRunner(cfg)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	kill := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			e.t.Errorf("runner: %v", err)
		}
	}
	e.t.Cleanup(kill)
	return &run{r, kill}
}

// settle aborts what a killed process left open, as the broker does when the transaction's time is over; who reads waits for that.
func (e *env) settle(p *pipeline.Pipeline) {
	e.t.Helper()
	id := "tapedeck." + p.Name
	if p.Keyed {
		id += ".a"
	}
	next, err := kafka.NewProducer(e.client, id, 0)
	if err != nil {
		e.t.Fatal(err)
	}
	defer next.Close()
	if err := next.InitTransactions(e.ctx()); err != nil {
		e.t.Fatal(err)
	}
}

// ends are the log ends of a topic.
func (e *env) ends(topic string) map[kafka.TP]int64 {
	e.t.Helper()
	topics, err := e.admin.Topics(e.ctx(), topic)
	if err != nil {
		e.t.Fatal(err)
	}
	var tps []kafka.TP
	for p := range topics[topic].Partitions {
		tps = append(tps, kafka.TP{Topic: topic, Partition: p})
	}
	logs, err := e.admin.Offsets(e.ctx(), tps)
	if err != nil {
		e.t.Fatal(err)
	}
	m := map[kafka.TP]int64{}
	for tp, l := range logs {
		m[tp] = l.End
	}
	return m
}

// untilRead waits until the group has committed everything in the pipeline's input.
func (e *env) untilRead(p *pipeline.Pipeline) {
	e.t.Helper()
	ends := e.ends(p.Source[0].Topic)
	tps := make([]kafka.TP, 0, len(ends))
	for tp := range ends {
		tps = append(tps, tp)
	}
	e.until("positions at the log end", func() bool {
		got, err := e.admin.CommittedOffsets(e.ctx(), "tapedeck."+p.Name, tps)
		if err != nil {
			return false // the group may not be there yet
		}
		for tp, end := range ends {
			if o, ok := got[tp]; !ok || o.Offset < end {
				return false
			}
		}
		return true
	})
}

// oracle is what the engine alone makes of the input, read partition by partition. floors as decided.
func (e *env) oracle(p *pipeline.Pipeline, floors ...engine.Floor) map[string][]string {
	e.t.Helper()
	eng, err := engine.New(p, nil, floors)
	if err != nil {
		e.t.Fatal(err)
	}
	input := e.read(p.Source[0].Topic)
	for i := range int32(len(input)) {
		eng.AddPartition(kafka.TP{Topic: p.Source[0].Topic, Partition: i}, engine.Commit{MaxAtLow: engine.NoTime, Emitted: engine.NoTime})
	}
	for i := range int32(len(input)) {
		if _, err := eng.Feed(kafka.TP{Topic: p.Source[0].Topic, Partition: i}, input[i]); err != nil {
			e.t.Fatal(err)
		}
	}
	for tp, end := range e.ends(p.Source[0].Topic) {
		eng.Advance(tp, end) // past a transaction's marker: a floor may be there
	}
	outs := eng.Take()
	m := map[string][]string{}
	for _, k := range []engine.Kind{engine.Result, engine.Late, engine.Future, engine.Poison} {
		parts := map[int32][]string{}
		for _, o := range outs {
			if o.Kind == k {
				parts[o.Record.Partition] = append(parts[o.Record.Partition], line(o.Record))
			}
		}
		for i := range int32(64) {
			m[k.String()] = append(m[k.String()], parts[i]...)
		}
	}
	return m
}

func (e *env) wantOutputs(p *pipeline.Pipeline, suffix string, want map[string][]string) {
	e.t.Helper()
	for _, role := range []string{"results", "late", "future", "poison"} {
		if len(want[role]) == 0 {
			e.t.Fatalf("the test's input makes no %s", role)
		}
	}
	if d := diff(want, e.outputs(p, suffix)); d != "" {
		e.t.Error(d)
	}
}

// The worked example of docs/semantics.md, through Kafka.
func TestLiveWorkedExample(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic, name := unique("trips"), unique("worked")
	p := parse(t, fmt.Sprintf("name: %s\nsources: [{topic: %s, format: json, eventTime: {field: t, unit: s}, delay: 10s}]\n"+
		"window: {tumbling: {size: 10s}}\naggregates: {total: sum(price)}\noutput: {topic: %s-out, partitions: 1}\n", name, topic, name))
	e.topic(topic, 2)
	for i, log := range [][][2]int{{{3, 5}, {12, 7}, {31, 2}, {34, 1}}, {{4, 11}, {15, 13}, {8, 17}, {33, 19}, {6, 23}}} {
		for _, r := range log {
			e.produce(record.Record{Topic: topic, Partition: int32(i), Timestamp: base, Value: fmt.Appendf(nil, `{"t":%d,"price":%d}`, r[0], r[1])})
		}
	}
	r := e.start(p)
	e.untilRead(p)
	e.until("running", func() bool { return r.Status().State == live.Running })
	got := strings.Join(e.lines(p.Output.Topic), "\n")
	for _, want := range []string{`\"window_end\":10000,\"total\":33}`, `\"window_end\":20000,\"total\":20}`} {
		if !strings.Contains(got, want) {
			t.Errorf("results lack %s:\n%s", want, got)
		}
	}
	if n := len(e.lines(p.Output.Topic)); n != 2 {
		t.Errorf("%d results, want 2:\n%s", n, got)
	}
	if late := e.lines(p.Output.Topic + ".late"); len(late) != 1 || !strings.HasPrefix(late[0], "1 ") || !strings.Contains(late[0], `{\"t\":6,`) {
		t.Errorf("late: %v", late)
	}
	e.until("the status", func() bool {
		st := r.Status()
		return st.Emitted == 2 && st.Late == 1 && st.OpenWindows == 1 && st.Watermark != nil && *st.Watermark == 23000 &&
			st.HeldBy != nil && st.HeldBy.Partition == 1 && len(st.Partitions) == 2 && st.Partitions[1].Lag == 0
	})
}

// However often and wherever the run is killed, a reader of committed records sees what an undisturbed run writes.
func TestLiveKilledAnywhere(t *testing.T) {
	t.Parallel()
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprintf("keyed=%v", keyed), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			topic := unique("trips")
			p := fares(t, unique("fares"), topic, keyed)
			e.topic(topic, 3)
			rng := rand.New(rand.NewPCG(1, 2))
			trips := trips(11, topic, 3, 400)
			for len(trips) > 0 {
				r := e.start(p, func(c *live.Config) { c.CommitInterval = 5 * time.Millisecond })
				n := min(len(trips), 1+rng.IntN(250))
				e.produce(trips[:n]...)
				trips = trips[n:]
				// Sometimes before it has done anything, sometimes in the middle of a commit.
				kill := time.Now().Add(time.Duration(rng.IntN(400)) * time.Millisecond)
				e.until("the kill", func() bool { return time.Now().After(kill) || r.Status().Commits >= int64(1+rng.IntN(20)) })
				r.kill()
			}
			e.start(p)
			e.untilRead(p)
			e.wantOutputs(p, "", e.oracle(p))
		})
	}
}

// Another process stands by and takes over; a process that lost its place writes nothing more.
func TestLiveStandby(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := fares(t, unique("fares"), topic, false)
	e.topic(topic, 3)
	trips := trips(12, topic, 3, 300)
	a, b := e.start(p), e.start(p)
	e.produce(trips[:300]...)
	running := func(r *run) bool { s := r.Status().State; return s == live.Running || s == live.CatchingUp }
	e.until("one of two to run", func() bool { return running(a) || running(b) })
	if running(a) && running(b) {
		t.Fatal("both run")
	}
	e.untilRead(p)
	active, other := a, b
	if running(b) {
		active, other = b, a
	}
	active.kill()
	e.produce(trips[300:]...)
	e.until("the other to run", func() bool { return running(other) })
	e.untilRead(p)
	e.wantOutputs(p, "", e.oracle(p))
}

// Keyed pipelines scale over the group: 1 → 2 → 1 processes.
func TestLiveKeyedScales(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := fares(t, unique("fares"), topic, true)
	e.topic(topic, 4)
	trips := trips(13, topic, 4, 300)
	a := e.start(p)
	e.produce(trips[:400]...)
	e.untilRead(p)
	b := e.start(p, func(c *live.Config) { c.InstanceID = "b" })
	e.until("both to have partitions", func() bool { return len(a.Status().Partitions) == 2 && len(b.Status().Partitions) == 2 })
	e.produce(trips[400:800]...)
	e.untilRead(p)
	a.kill()
	e.produce(trips[800:]...)
	e.untilRead(p)
	e.until("one to have all", func() bool { return len(b.Status().Partitions) == 4 })
	e.wantOutputs(p, "", e.oracle(p))
}
