package runtime_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/processor/pipeline"
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
	for _, promise := range []session.Promise{session.Recompute, session.Reproduce} {
		t.Run(string(promise), func(t *testing.T) {
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
