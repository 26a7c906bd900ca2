package runtime_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"tapedeck.dev/tapedeck/processor/live"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/sessions"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
)

// changed is another version of the same pipeline.
func changed(t *testing.T, p *pipeline.Pipeline) *pipeline.Pipeline {
	t.Helper()
	c := parse(t, fmt.Sprintf(`
name: %s
sources:
  - topic: %s
    format: json
    eventTime: {field: t, unit: ms}
    delay: 2s
    maxFuture: 1h
groupBy: [user]
window: {tumbling: {size: 1s}}
aggregates: {total: max(price), n: count()}
output: {topic: %s, partitions: 3}
`, p.Name, p.Source[0].Topic, p.Output.Topic))
	if c.Hash == p.Hash {
		t.Fatal("the changed pipeline has the same hash")
	}
	return c
}

// half of each pipeline would be the result of neither, whatever was promised.
func TestSessionFailsWhenItsPipelineChanges(t *testing.T) {
	t.Parallel()
	for _, promise := range []session.Promise{session.Recompute, session.Reproduce} {
		t.Run(string(promise), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			p := e.lived(31, 2, 200, false)
			a := e.archive(p, rand.New(rand.NewPCG(1, 2)))
			if a.req.Promise = promise; promise == session.Recompute {
				a.req.Decisions = nil
			}
			r := e.receiver(nil, p)
			r.mustOpen("again", a.req)
			for _, segs := range a.segs {
				for i := range len(segs) / 2 {
					if _, code, text := r.put("again", 1, segs[i]); code != http.StatusOK {
						t.Fatal(code, text)
					}
				}
			}
			r.down()
			r.p = []*pipeline.Pipeline{changed(t, p)}
			r.up()
			// Whoever calls first: here the sender, that goes on as if nothing had happened.
			for _, segs := range a.segs {
				if _, code, text := r.put("again", 1, segs[0]); code != http.StatusConflict || !strings.Contains(text, "hash") {
					t.Errorf("segment: %d %s", code, text)
				}
			}
			if _, code, text := r.finish("again", 1); code != http.StatusConflict || !strings.Contains(text, "hash") {
				t.Errorf("finish: %d %s", code, text)
			}
			if st := r.status("again"); st.State != session.Failed || !strings.Contains(st.Error, p.Hash[:12]) {
				t.Errorf("%+v", st)
			}
			// The old file does not bring it back: it ended.
			r.down()
			r.p = []*pipeline.Pipeline{p}
			r.up()
			if st, code, text := r.open("again", a.req); code != http.StatusOK || st.State != session.Failed {
				t.Errorf("open again: %d %s", code, text)
			}
		})
	}
}

// A sender that planned with another pipeline is told so before anything is sent.
func TestSessionOfAnotherPipelineHashIsRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.lived(32, 1, 20, false)
	a := e.archive(p, rand.New(rand.NewPCG(1, 2)))
	r := e.receiver(nil, p)
	a.req.PipelineHash = changed(t, p).Hash
	if _, code, text := r.open("again", a.req); code != http.StatusConflict || !strings.Contains(text, "hash") {
		t.Errorf("another hash: %d %s", code, text)
	}
	if code, text := r.call("GET", "/sessions/again", nil, nil); code != http.StatusNotFound {
		t.Errorf("a refused session is there: %d %s", code, text)
	}
	a.req.PipelineHash = p.Hash
	r.mustOpen("again", a.req)
}

// A cancel needs no take-over, whether or not the session is in memory; only a replaced replayer is refused.
func TestCancelUnderAHigherEpoch(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.lived(33, 2, 100, false)
	a := e.archive(p, rand.New(rand.NewPCG(1, 2)))
	a.req.Epoch = 2
	for _, restart := range []bool{false, true} {
		r := e.receiver(nil, p)
		name := fmt.Sprintf("restarted-%v", restart)
		r.mustOpen(name, a.req)
		again := func() {
			if restart {
				r.down()
				r.up()
			}
		}
		call := func(epoch int) (int, string) {
			again()
			return r.call("DELETE", fmt.Sprintf("/sessions/%s?epoch=%d", name, epoch), nil, nil)
		}
		if code, text := call(1); code != http.StatusConflict || !strings.Contains(text, "replaced") {
			t.Errorf("%s, lower epoch: %d %s", name, code, text)
		}
		if code, text := call(3); code != http.StatusOK {
			t.Errorf("%s, higher epoch: %d %s", name, code, text)
		}
		if code, text := call(3); code != http.StatusOK {
			t.Errorf("%s, repeated: %d %s", name, code, text)
		}
		if code, text := call(2); code != http.StatusConflict || !strings.Contains(text, "replaced") {
			t.Errorf("%s, lower epoch after the end: %d %s", name, code, text)
		}
		if st := r.status(name); st.State != session.Cancelled || st.Epoch != 3 {
			t.Errorf("%s: %+v", name, st)
		}
	}
}

// What a schema id means today in the registry says nothing about what it meant to the live run: the live log is gone, the archived
// decisions lack that id 2 was unknown, and the registry has an id 2 by now.
func TestReproduceTakesNoSchemaFromTheRegistrySilently(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := avroPipeline(t, topic)
	e.topic(topic, 1)
	reg := &registry{}
	run := e.start(p, func(c *live.Config) { c.Lookup = reg.lookup })
	for _, v := range [][]byte{avroTrip(1, 3, 5), avroTrip(2, 4, 50), avroTrip(1, 5, 7), avroTrip(1, 30, 1)} {
		e.produce(record.Record{Topic: topic, Timestamp: base, Value: v})
	}
	e.untilRead(p)
	run.kill()
	want := e.outputs(p, "")
	a := e.archive(p, rand.New(rand.NewPCG(1, 1)), segment.Schema{ID: 1, Type: "AVRO", Text: tripSchema})
	var asked atomic.Int64
	r := e.receiver(func(c *sessions.Config) {
		c.Lookup = func(_ context.Context, id int) (segment.Schema, error) {
			asked.Add(1)
			return segment.Schema{ID: id, Type: "AVRO", Text: tripSchema}, nil
		}
	}, p)
	if st := r.mustOpen("compared", a.req); !st.DecisionsCompared {
		t.Errorf("with the live log: %+v", st)
	}
	if err := e.admin.DeleteTopic(e.ctx(), p.DecisionsTopic()); err != nil {
		t.Fatal(err)
	}
	r.down()
	r.up()
	if st := r.status("compared"); !st.DecisionsCompared {
		t.Errorf("after a restart: %+v", st)
	}
	send := func(name string, req session.Request) session.Status {
		t.Helper()
		a := a
		a.req = req
		if st := r.mustOpen(name, req); st.DecisionsCompared {
			t.Errorf("%s: compared with a log that is gone", name)
		}
		r.send(name, 1, a, rand.New(rand.NewPCG(1, 1)), nil)
		st, code, text := r.finish(name, 1)
		if code != http.StatusOK {
			t.Fatalf("finish %s: %d %s", name, code, text)
		}
		return st
	}
	send("whole", a.req)
	if d := diff(want, e.outputs(p, ".replay.whole")); d != "" || asked.Load() != 0 {
		t.Errorf("with every decision: registry asked %d times, %s", asked.Load(), d)
	}

	lacks := a.req
	lacks.Decisions = lacks.Decisions[:1]
	r.mustOpen("lacks", lacks)
	var code int
	var text string
	for _, s := range a.segs[kafka.TP{Topic: topic}] {
		if _, code, text = r.put("lacks", 1, s); code != http.StatusOK {
			break
		}
	}
	for _, word := range []string{"FAILED", topic + "-0@1", "schema id 2", "recompute", `"schemas": "registry"`} {
		if st := r.status("lacks"); code != http.StatusConflict || !strings.Contains(string(st.State)+st.Error, word) {
			t.Errorf("no %s in %d %s, %s: %s", word, code, text, st.State, st.Error)
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the registry was asked %d times", asked.Load())
	}

	// Whoever asks for it gets the registry's answer, and recompute does by itself.
	lacks.Schemas = session.FromRegistry
	if st := send("allowed", lacks); asked.Load() == 0 || st.Poison != 0 {
		t.Errorf("registry asked %d times: %+v", asked.Load(), st)
	}
	lacks.Schemas, lacks.Promise = "", session.Recompute
	if st := send("recomputed", lacks); st.Poison != 0 {
		t.Errorf("%+v", st)
	}
}

// Two senders that ask for the same under one name are told apart, in memory and from what is stored.
func TestSessionBelongsToItsSender(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.lived(34, 1, 20, false)
	a := e.archive(p, rand.New(rand.NewPCG(1, 2)))
	a.req.Sender, a.req.Epoch = "first", 3
	r := e.receiver(nil, p)
	r.mustOpen("again", a.req)
	for range 2 {
		for _, epoch := range []int64{1, 3, 9} {
			other := a.req
			other.Sender, other.Epoch = "second", epoch
			if _, code, text := r.open("again", other); code != http.StatusConflict || !strings.Contains(text, "another request") {
				t.Errorf("epoch %d: %d %s", epoch, code, text)
			}
		}
		if st := r.status("again"); st.Sender != "first" || st.Epoch != 3 || st.State != session.Open {
			t.Errorf("%+v", st)
		}
		r.down()
		r.up()
	}
	r.mustOpen("again", a.req)
}
