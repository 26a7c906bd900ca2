package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/processor/live"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/sessions"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
)

func (e *env) untilFailed(r *run, want ...string) {
	e.t.Helper()
	e.until("FAILED", func() bool { return r.Status().State == live.Failed })
	for _, w := range want {
		if !strings.Contains(r.Status().Error, w) {
			e.t.Errorf("%q lacks %q", r.Status().Error, w)
		}
	}
}

// An open window needs records that Kafka no longer has.
func TestLivePositionGone(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.lived(31, 2, 50, false)
	if err := e.admin.DeleteRecords(e.ctx(), e.ends(p.Source[0].Topic)); err != nil {
		t.Fatal(err)
	}
	before := e.outputs(p, "")
	r := e.start(p)
	e.untilFailed(r, "no longer in Kafka", "POST /replays", p.Source[0].Topic+"-")
	if d := diff(before, e.outputs(p, "")); d != "" {
		t.Error(d)
	}
}

func TestLiveRefusals(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.lived(32, 2, 50, false)
	t.Run("another pipeline under the name", func(t *testing.T) {
		changed := *p
		changed.Hash = "ffff"
		e.untilFailed(e.start(&changed), "was changed", "new name")
	})
	t.Run("topic re-created", func(t *testing.T) {
		topic := p.Source[0].Topic
		if err := e.admin.DeleteTopic(e.ctx(), topic); err != nil {
			t.Fatal(err)
		}
		e.topic(topic, 2)
		e.untilFailed(e.start(p), "re-created")
	})
	t.Run("decisions deleted", func(t *testing.T) {
		q := e.lived(33, 1, 20, false)
		if err := e.admin.DeleteTopic(e.ctx(), q.DecisionsTopic()); err != nil {
			t.Fatal(err)
		}
		e.untilFailed(e.start(q), "no origin")
	})
	t.Run("unfit output", func(t *testing.T) {
		topic := unique("trips")
		q := fares(t, unique("fares"), topic, false)
		e.topic(topic, 1)
		if err := e.admin.CreateTopic(e.ctx(), q.Output.Topic, 3, 0, map[string]string{"cleanup.policy": "compact"}); err != nil {
			t.Fatal(err)
		}
		e.untilFailed(e.start(q), q.Output.Topic, "cleanup.policy")
	})
	t.Run("keyed topic grows", func(t *testing.T) {
		topic := unique("trips")
		q := fares(t, unique("fares"), topic, true)
		e.topic(topic, 1)
		r := e.start(q)
		e.until("running", func() bool { return r.Status().State == live.Running })
		if err := e.admin.CreatePartitions(e.ctx(), topic, 2); err != nil {
			t.Fatal(err)
		}
		e.untilFailed(r, "has grown")
	})
}

// The input topic appears after the processor.
func TestLiveWaitsForItsInput(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := fares(t, unique("fares"), topic, false)
	r := e.start(p)
	e.until("RETRYING", func() bool { st := r.Status(); return st.State == live.Retrying && strings.Contains(st.Error, topic) })
	e.topic(topic, 1)
	e.until("RUNNING", func() bool { return r.Status().State == live.Running })
}

// New partitions appear while the pipeline is killed again and again; the floors are what a replay obeys.
func TestLiveGrowsKilledAnywhere(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := fares(t, unique("fares"), topic, false)
	e.topic(topic, 1)
	rng := rand.New(rand.NewPCG(5, 5))
	all := trips(34, topic, 4, 200)
	for parts := int32(1); parts <= 4; parts++ {
		if parts > 1 {
			if err := e.admin.CreatePartitions(e.ctx(), topic, parts); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 4 {
			var recs []record.Record
			for j, r := range all {
				if r.Partition < parts && j%16 == int(parts-1)*4+i {
					recs = append(recs, r)
				}
			}
			r := e.start(p, func(c *live.Config) { c.CommitInterval = 5 * time.Millisecond })
			e.produce(recs...)
			if i == 3 {
				e.untilRead(p) // what comes next is new to it
			}
			kill := time.Now().Add(time.Duration(rng.IntN(500)) * time.Millisecond)
			e.until("the kill", func() bool { return time.Now().After(kill) })
			r.kill()
		}
	}
	r := e.start(p)
	e.until("all partitions", func() bool { return len(r.Status().Partitions) == 4 })
	e.untilRead(p)
	r.kill()
	var values [][]byte
	for _, r := range e.read(p.DecisionsTopic())[0] {
		values = append(values, r.Value)
	}
	log, err := decision.ParseLog(values)
	if err != nil {
		t.Fatal(err)
	}
	if len(log.Floors) != 3 {
		t.Errorf("floors %v, want one of each new partition", log.Floors)
	}
	var floors []engine.Floor
	for _, f := range log.Floors {
		floors = append(floors, engine.Floor{TP: f.TopicPartition, Offset: f.Offset, W: f.W})
	}
	if d := diff(e.oracle(p, floors...), e.outputs(p, "")); d != "" {
		t.Error(d)
	}
	if late := e.lines(p.Output.Topic + ".late"); len(late) == 0 {
		t.Error("nothing is late: the test shows little")
	}
}

const tripSchema = `{"type":"record","name":"trip","fields":[{"name":"t","type":"long"},{"name":"price","type":"long"}]}`

// avroTrip is in the wire format; both values are below 64 so that each is one byte of zig-zag.
func avroTrip(id byte, t, price int8) []byte {
	return []byte{0, 0, 0, 0, id, byte(t << 1), byte(price << 1)}
}

func avroPipeline(t *testing.T, topic string) *pipeline.Pipeline {
	name := unique("avro")
	return parse(t, fmt.Sprintf("name: %s\nsources: [{topic: %s, format: avro, schema: '%s', eventTime: {field: t, unit: s}, delay: 0s}]\n"+
		"window: {tumbling: {size: 10s}}\naggregates: {total: sum(price)}\noutput: {topic: %s-out, partitions: 1}\n", name, topic, tripSchema, name))
}

// registry is one that can be told to be down.
type registry struct {
	down  atomic.Bool
	calls atomic.Int64
}

func (r *registry) lookup(_ context.Context, id int) (segment.Schema, error) {
	r.calls.Add(1)
	switch {
	case r.down.Load():
		return segment.Schema{}, fmt.Errorf("get schema %d: %w", id, schema.ErrUnavailable)
	case id == 1:
		return segment.Schema{ID: 1, Type: "AVRO", Text: tripSchema}, nil
	}
	return segment.Schema{}, fmt.Errorf("get schema %d: %w", id, schema.ErrNoSuchID)
}

// A registry that is away blocks and decides nothing; a definite "no such id" is written down, and a replay obeys it even
// when the id has come to exist since.
func TestUnknownSchemaIsADecision(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := avroPipeline(t, topic)
	e.topic(topic, 1)
	reg := &registry{}
	reg.down.Store(true)
	r := e.start(p, func(c *live.Config) { c.Lookup = reg.lookup })
	for _, v := range [][]byte{avroTrip(1, 3, 5), avroTrip(2, 4, 50), avroTrip(1, 5, 7), avroTrip(1, 30, 1)} {
		e.produce(record.Record{Topic: topic, Timestamp: base, Value: v})
	}
	e.until("BLOCKED", func() bool {
		st := r.Status()
		return st.State == live.Blocked && strings.Contains(st.Error, "schema id 1") && len(st.Partitions) == 1 && st.Partitions[0].Waiting != ""
	})
	calls := reg.calls.Load()
	e.until("another try", func() bool { return reg.calls.Load() > calls })
	if got := len(e.read(p.DecisionsTopic())[0]); got != 1 {
		t.Errorf("%d decisions while the registry is away, want the origin alone", got)
	}
	reg.down.Store(false)
	e.untilRead(p)
	r.kill()
	dec := e.read(p.DecisionsTopic())[0]
	if len(dec) != 2 || string(dec[1].Value) != fmt.Sprintf(`{"v":1,"kind":"unknownSchema","topic":%q,"partition":0,"offset":1,"id":2}`, topic) {
		t.Fatalf("decisions %v", dec)
	}
	got := e.outputs(p, "")
	if len(got["results"]) != 1 || !strings.Contains(got["results"][0], `\"total\":12}`) || len(got["poison"]) != 1 {
		t.Errorf("%v", got)
	}

	a := e.archive(p, rand.New(rand.NewPCG(1, 1)), segment.Schema{ID: 1, Type: "AVRO", Text: tripSchema})
	everything := func(_ context.Context, id int) (segment.Schema, error) {
		return segment.Schema{ID: id, Type: "AVRO", Text: tripSchema}, nil
	}
	rc := e.receiver(func(c *sessions.Config) { c.Lookup = everything }, p)
	rc.mustOpen("again", a.req)
	rc.send("again", 1, a, rand.New(rand.NewPCG(1, 1)), nil)
	if _, code, text := rc.finish("again", 1); code != http.StatusOK {
		t.Fatalf("finish: %d %s", code, text)
	}
	if d := diff(got, e.outputs(p, ".replay.again")); d != "" {
		t.Error(d)
	}

	// Neither segment nor registry has it, and no decision: refused, not decided anew.
	a = e.archive(p, rand.New(rand.NewPCG(1, 1)))
	a.req.Schemas = session.FromRegistry
	none := func(_ context.Context, id int) (segment.Schema, error) { return segment.Schema{}, schema.ErrNoSuchID }
	rn := e.receiver(func(c *sessions.Config) { c.Lookup = none }, p)
	rn.mustOpen("none", a.req)
	if _, code, text := rn.put("none", 1, a.segs[kafka.TP{Topic: topic}][0]); code != http.StatusUnprocessableEntity || !strings.Contains(text, "schema id 1") {
		t.Errorf("%d %s", code, text)
	}
	gone := func(_ context.Context, id int) (segment.Schema, error) {
		return segment.Schema{}, schema.ErrUnavailable
	}
	rg := e.receiver(func(c *sessions.Config) { c.Lookup = gone }, p)
	if _, code, text := rg.put("none", 1, a.segs[kafka.TP{Topic: topic}][0]); code != http.StatusServiceUnavailable || !strings.Contains(text, "repeat") {
		t.Errorf("%d %s", code, text)
	}
}

// The partition that waits for the registry does not hold up the others, and markers behind what waits do not skip it.
func TestBlockedPartitionLosesNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := avroPipeline(t, topic)
	e.topic(topic, 2)
	reg := &registry{}
	var down atomic.Bool // for id 9 alone
	var once sync.Once
	blocked := make(chan struct{})
	lookup := func(ctx context.Context, id int) (segment.Schema, error) {
		if id == 9 {
			once.Do(func() { close(blocked) })
			if down.Load() {
				return segment.Schema{}, errors.New("no answer")
			}
			return segment.Schema{ID: 9, Type: "AVRO", Text: tripSchema}, nil
		}
		return reg.lookup(ctx, 1)
	}
	down.Store(true)
	r := e.start(p, func(c *live.Config) { c.Lookup = lookup })
	e.produce(record.Record{Topic: topic, Partition: 0, Timestamp: base, Value: avroTrip(9, 3, 5)},
		record.Record{Topic: topic, Partition: 0, Timestamp: base, Value: avroTrip(1, 30, 1)})
	<-blocked
	for i := range 5 {
		e.produce(record.Record{Topic: topic, Partition: 1, Timestamp: base, Value: avroTrip(1, int8(3+i*9), 2)})
	}
	e.until("the other partition", func() bool {
		st := r.Status()
		return len(st.Partitions) == 2 && st.Partitions[1].Read == 5 && st.Partitions[0].Read == 0
	})
	down.Store(false)
	e.untilRead(p)
	got := strings.Join(e.lines(p.Output.Topic), "\n")
	if !strings.Contains(got, `\"window_end\":10000,\"total\":7}`) {
		t.Errorf("%s", got)
	}
}

// A group over a topic that is gone elects nobody. A process that stands by must notice, and not stand by for ever.
func TestStandbyWithoutATopicEnds(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := fares(t, unique("fares"), topic, false)
	e.topic(topic, 1)
	e.produce(trips(1, topic, 1, 20)...)
	e.start(p)
	e.untilRead(p)
	second := e.start(p)
	e.until("the second process to stand by", func() bool { return second.Status().State == live.Standby })
	if err := e.admin.DeleteTopic(e.ctx(), p.DecisionsTopic()); err != nil {
		t.Fatal(err)
	}
	e.until("the second process to begin anew", func() bool { return second.Status().Restarts > 0 })
}
