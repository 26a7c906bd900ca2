package runtime_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/processor/live"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/runtime"
	"tapedeck.dev/tapedeck/processor/sessions"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
)

// receiver is a processor that takes replays; the test can drop it and make another.
type receiver struct {
	e   *env
	p   []*pipeline.Pipeline
	cfg sessions.Config
	rt  *runtime.Runtime
	srv *httptest.Server
}

func (e *env) receiver(change func(*sessions.Config), p ...*pipeline.Pipeline) *receiver {
	e.t.Helper()
	r := &receiver{e: e, p: p, cfg: sessions.Config{Consumer: e.client, Producer: e.client, Admin: e.admin, Log: e.log, CommitInterval: time.Millisecond, TxTimeout: time.Minute}}
	if change != nil {
		change(&r.cfg)
	}
	r.up()
	e.t.Cleanup(r.down)
	return r
}

func (r *receiver) up() {
	r.e.t.Helper()
	rt, err := runtime.New(r.p, func(p *pipeline.Pipeline) live.Config { return r.e.config(p) }, r.cfg)
	if err != nil {
		r.e.t.Fatal(err)
	}
	mux := http.NewServeMux()
	rt.Routes(mux)
	r.rt, r.srv = rt, httptest.NewServer(mux)
}

// down drops everything in memory, as a crash does: nothing is stored on the way.
func (r *receiver) down() {
	r.srv.Close()
	r.rt.Close()
}

// call returns the status and decodes the answer into out.
func (r *receiver) call(method, path string, body []byte, out any) (int, string) {
	r.e.t.Helper()
	req, err := http.NewRequestWithContext(r.e.ctx(), method, r.srv.URL+path, bytes.NewReader(body))
	if err != nil {
		r.e.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.e.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.e.t.Fatal(err)
	}
	if out != nil && resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(data, out); err != nil {
			r.e.t.Fatalf("%s %s: %v in %s", method, path, err, data)
		}
	}
	return resp.StatusCode, string(data)
}

func (r *receiver) open(name string, req session.Request) (session.Status, int, string) {
	r.e.t.Helper()
	b, err := json.Marshal(req)
	if err != nil {
		r.e.t.Fatal(err)
	}
	var st session.Status
	code, text := r.call("PUT", "/sessions/"+name, b, &st)
	return st, code, text
}

func (r *receiver) mustOpen(name string, req session.Request) session.Status {
	r.e.t.Helper()
	st, code, text := r.open(name, req)
	if code != http.StatusOK || st.State != session.Open {
		r.e.t.Fatalf("open %s: %d %s", name, code, text)
	}
	return st
}

func (r *receiver) put(name string, epoch int64, s seg) (session.Ack, int, string) {
	r.e.t.Helper()
	var ack session.Ack
	code, text := r.call("PUT", fmt.Sprintf("/sessions/%s/segments/%s/%d/%d?epoch=%d", name, s.tp.Topic, s.tp.Partition, s.start, epoch), s.data, &ack)
	if code != http.StatusOK {
		_ = json.Unmarshal([]byte(text), &ack)
	}
	return ack, code, text
}

func (r *receiver) status(name string) session.Status {
	r.e.t.Helper()
	var st session.Status
	if code, text := r.call("GET", "/sessions/"+name, nil, &st); code != http.StatusOK {
		r.e.t.Fatalf("status of %s: %d %s", name, code, text)
	}
	return st
}

func (r *receiver) finish(name string, epoch int64) (session.Status, int, string) {
	r.e.t.Helper()
	var st session.Status
	code, text := r.call("POST", fmt.Sprintf("/sessions/%s/finish?epoch=%d", name, epoch), nil, &st)
	return st, code, text
}

// seg is one segment object.
type seg struct {
	tp          kafka.TP
	start, next int64
	data        []byte
}

// archive is what an archiver would have kept of a pipeline's input and decisions.
type archive struct {
	req  session.Request
	segs map[kafka.TP][]seg
	recs map[kafka.TP][]record.Record
}

// archive cuts the input of a pipeline into segments at random places; each holds the schemas.
func (e *env) archive(p *pipeline.Pipeline, rng *rand.Rand, schemas ...segment.Schema) archive {
	e.t.Helper()
	topic := p.Source[0].Topic
	topics, err := e.admin.Topics(e.ctx(), topic)
	if err != nil {
		e.t.Fatal(err)
	}
	a := archive{segs: map[kafka.TP][]seg{}, recs: map[kafka.TP][]record.Record{}}
	a.req = session.Request{Pipeline: p.Name, Epoch: 1, Promise: session.Reproduce, EndMode: session.Hold}
	ends := e.ends(topic)
	for i, recs := range e.read(topic) {
		tp := kafka.TP{Topic: topic, Partition: i}
		a.recs[tp] = recs
		id := segment.LogIdentity{ClusterID: "c", TopicID: topics[topic].ID, Topic: topic, Partition: i, Isolation: "read_committed"}
		chain, start := segment.First(), int64(0)
		for start < ends[tp] {
			next := min(ends[tp], start+1+rng.Int64N(60))
			w, err := segment.NewWriter(id, start, "")
			if err != nil {
				e.t.Fatal(err)
			}
			for j := range recs {
				if recs[j].Offset >= start && recs[j].Offset < next {
					if _, err := w.Append(&recs[j]); err != nil {
						e.t.Fatal(err)
					}
				}
			}
			data, h, err := w.Close(next, chain, schemas)
			if err != nil {
				e.t.Fatal(err)
			}
			chain = segment.After(h, int64(len(data)))
			a.segs[tp] = append(a.segs[tp], seg{tp, start, next, data})
			start = next
		}
	}
	for i := range topics[topic].Partitions {
		tp := kafka.TP{Topic: topic, Partition: i}
		a.req.Ranges = append(a.req.Ranges, session.Range{TopicPartition: tp, TopicID: topics[topic].ID, Isolation: "read_committed", Until: ends[tp]})
	}
	for _, r := range e.read(p.DecisionsTopic())[0] {
		a.req.Decisions = append(a.req.Decisions, json.RawMessage(r.Value))
	}
	return a
}

// next returns the segment that holds the expected offset; false at the end.
func (a archive) next(tp kafka.TP, expected int64) (seg, bool) {
	for _, s := range a.segs[tp] {
		if s.next > expected {
			return s, true
		}
	}
	return seg{}, false
}

// send delivers everything in a random order of partitions, going where the receiver says. between is called before each segment.
func (r *receiver) send(name string, epoch int64, a archive, rng *rand.Rand, between func(i int)) {
	r.e.t.Helper()
	for i := 0; ; i++ {
		if between != nil {
			between(i)
		}
		var todo []seg
		for _, p := range r.status(name).Progress {
			if s, ok := a.next(p.TopicPartition, p.Expected); ok {
				todo = append(todo, s)
			}
		}
		if len(todo) == 0 {
			return
		}
		s := todo[rng.IntN(len(todo))]
		ack, code, text := r.put(name, epoch, s)
		if code == http.StatusServiceUnavailable && ack.Needs != nil {
			p, _ := a.next(*ack.Needs, 0)
			for _, st := range r.status(name).Progress {
				if st.TopicPartition == *ack.Needs {
					p, _ = a.next(*ack.Needs, st.Expected)
				}
			}
			if _, code, text = r.put(name, epoch, p); code != http.StatusOK {
				r.e.t.Fatalf("the segment that was asked for: %d %s", code, text)
			}
			continue
		}
		if code != http.StatusOK || ack.Expected != s.next {
			r.e.t.Fatalf("segment %v+%d: %d %s", s.tp, s.start, code, text)
		}
	}
}

// wantProof checks the session's counters against the records.
func (a archive) wantProof(t *testing.T, st session.Status) {
	t.Helper()
	for _, p := range st.Progress {
		recs := a.recs[p.TopicPartition]
		var sum uint64
		first, last := int64(-1), int64(-1)
		for _, s := range a.segs[p.TopicPartition] {
			r, err := segment.NewReader("x", s.data)
			if err != nil {
				t.Fatal(err)
			}
			var rec record.Record
			for r.Next(&rec) == nil {
				sum += segment.Checksum(r.Datum())
			}
		}
		if len(recs) > 0 {
			first, last = recs[0].Offset, recs[len(recs)-1].Offset
		}
		if p.Count != int64(len(recs)) || p.First != first || p.Last != last || p.Checksum != fmt.Sprintf("%016x", sum) {
			t.Errorf("proof of %s: %d records [%d, %d] %s; want %d records [%d, %d] %016x", p.TopicPartition, p.Count, p.First, p.Last, p.Checksum, len(recs), first, last, sum)
		}
	}
}

// lived makes a pipeline, runs it live over n trips and stops it.
func (e *env) lived(seed uint64, partitions int32, n int, keyed bool) *pipeline.Pipeline {
	e.t.Helper()
	topic := unique("trips")
	p := fares(e.t, unique("fares"), topic, keyed)
	e.topic(topic, partitions)
	e.produce(trips(seed, topic, partitions, n)...)
	r := e.start(p)
	e.untilRead(p)
	r.kill()
	return p
}

// A replay writes the bytes of the live run, in whatever order the partitions arrive, and the input topics need not exist.
func TestReplayEqualsLive(t *testing.T) {
	t.Parallel()
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprintf("keyed=%v", keyed), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			rng := rand.New(rand.NewPCG(3, 4))
			p := e.lived(21, 3, 300, keyed)
			want := e.oracle(p)
			e.wantOutputs(p, "", want)
			a := e.archive(p, rng)
			if err := e.admin.DeleteTopic(e.ctx(), p.Source[0].Topic); err != nil {
				t.Fatal(err)
			}
			r := e.receiver(nil, p)
			st := r.mustOpen("again", a.req)
			if st.Outputs["results"] != p.Output.Topic+".replay.again" || st.Outputs["late"] != p.Output.Topic+".late.replay.again" {
				t.Errorf("outputs %v", st.Outputs)
			}
			r.send("again", 1, a, rng, nil)
			st, code, text := r.finish("again", 1)
			if code != http.StatusOK || st.State != session.Finished {
				t.Fatalf("finish: %d %s", code, text)
			}
			a.wantProof(t, st)
			if st.Emitted != int64(len(want["results"])) || st.Late != int64(len(want["late"])) || st.Future != int64(len(want["future"])) || st.Poison != int64(len(want["poison"])) {
				t.Errorf("counts %+v", st)
			}
			e.wantOutputs(p, ".replay.again", want)
			// Finishing again and opening again tell the same.
			if again, code, _ := r.finish("again", 1); code != http.StatusOK || again.Emitted != st.Emitted {
				t.Errorf("finish again: %d %+v", code, again)
			}
			if again, code, text := r.open("again", a.req); code != http.StatusOK || again.State != session.Finished {
				t.Errorf("open again: %d %s", code, text)
			}
			e.wantOutputs(p, ".replay.again", want)
		})
	}
}

// The processor is dropped at random points; expected offsets go back, outputs and proof stay right.
func TestReplaySurvivesCrashes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	rng := rand.New(rand.NewPCG(5, 6))
	p := e.lived(22, 3, 300, false)
	want := e.oracle(p)
	a := e.archive(p, rng)
	// Commits at some segments only, so that much of what is acknowledged is lost.
	r := e.receiver(func(c *sessions.Config) { c.CommitInterval = time.Hour; c.CommitRecords = 100 }, p)
	r.mustOpen("again", a.req)
	crashes, wentBack := 0, 0
	r.send("again", 1, a, rng, func(i int) {
		if i%7 != 6 || crashes == 8 {
			return
		}
		crashes++
		before := map[kafka.TP]int64{}
		for _, p := range r.status("again").Progress {
			before[p.TopicPartition] = p.Expected
		}
		r.down()
		r.up()
		for _, p := range r.status("again").Progress {
			if p.Expected < before[p.TopicPartition] {
				wentBack++
			}
		}
	})
	if crashes < 3 || wentBack == 0 {
		t.Fatalf("%d crashes, %d positions went back: the test shows nothing", crashes, wentBack)
	}
	st, code, text := r.finish("again", 1)
	if code != http.StatusOK {
		t.Fatalf("finish: %d %s", code, text)
	}
	a.wantProof(t, st)
	e.wantOutputs(p, ".replay.again", want)
}

func TestReplayProtocol(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	rng := rand.New(rand.NewPCG(7, 8))
	p := e.lived(23, 2, 200, false)
	a := e.archive(p, rng)
	r := e.receiver(nil, p)
	tp0 := kafka.TP{Topic: p.Source[0].Topic}
	first, second := a.segs[tp0][0], a.segs[tp0][1]

	if _, code, text := r.put("again", 1, first); code != http.StatusNotFound {
		t.Errorf("a segment before the session: %d %s", code, text)
	}
	r.mustOpen("again", a.req)
	t.Run("skip", func(t *testing.T) {
		if ack, code, text := r.put("again", 1, second); code != http.StatusConflict || ack.Expected != 0 {
			t.Errorf("%d %s", code, text)
		}
	})
	t.Run("corrupt", func(t *testing.T) {
		bad := first
		bad.data = bytes.Clone(first.data)
		bad.data[len(bad.data)-30] ^= 1
		_, code, text := r.put("again", 1, bad)
		if code != http.StatusUnprocessableEntity || !strings.Contains(text, tp0.String()) {
			t.Errorf("%d %s", code, text)
		}
		if got := r.status("again").Progress[0]; got.Expected != 0 || got.Count != 0 {
			t.Errorf("a corrupt segment had an effect: %+v", got)
		}
	})
	t.Run("other content", func(t *testing.T) {
		wrong := first
		wrong.data = second.data
		if _, code, text := r.put("again", 1, wrong); code != http.StatusUnprocessableEntity {
			t.Errorf("%d %s", code, text)
		}
	})
	t.Run("other partition", func(t *testing.T) {
		wrong := first
		wrong.tp.Partition = 9
		if _, code, text := r.put("again", 1, wrong); code != http.StatusNotFound {
			t.Errorf("%d %s", code, text)
		}
	})
	t.Run("repeat", func(t *testing.T) {
		for range 2 {
			if ack, code, text := r.put("again", 1, first); code != http.StatusOK || ack.Expected != first.next {
				t.Errorf("%d %s", code, text)
			}
		}
		if got := r.status("again").Progress[0]; got.Count != first.next {
			t.Errorf("a repeated segment was counted twice: %+v", got)
		}
	})
	t.Run("finish too early", func(t *testing.T) {
		if _, code, text := r.finish("again", 1); code != http.StatusConflict || !strings.Contains(text, tp0.String()) {
			t.Errorf("%d %s", code, text)
		}
	})
	t.Run("take over", func(t *testing.T) {
		other := a.req
		other.EndMode = session.Drain
		if _, code, text := r.open("again", other); code != http.StatusConflict {
			t.Errorf("another request: %d %s", code, text)
		}
		taken := a.req
		taken.Epoch = 5
		if st := r.mustOpen("again", taken); st.Epoch != 5 || st.Progress[0].Expected != first.next {
			t.Errorf("%+v", st)
		}
		for _, epoch := range []int64{1, 6} {
			if _, code, text := r.put("again", epoch, second); code != http.StatusConflict || !strings.Contains(text, "epoch") {
				t.Errorf("segment of epoch %d: %d %s", epoch, code, text)
			}
			if _, code, text := r.finish("again", epoch); code != http.StatusConflict || !strings.Contains(text, "epoch") {
				t.Errorf("finish of epoch %d: %d %s", epoch, code, text)
			}
		}
		if _, code, text := r.open("again", a.req); code != http.StatusConflict || !strings.Contains(text, "replaced") {
			t.Errorf("open of the old epoch: %d %s", code, text)
		}
		// The epoch survives a crash, or the old replayer could come back.
		r.down()
		r.up()
		if _, code, text := r.put("again", 1, second); code != http.StatusConflict || !strings.Contains(text, "epoch") {
			t.Errorf("after a crash: %d %s", code, text)
		}
	})
	t.Run("another processor", func(t *testing.T) {
		// A second processor takes the session: the first is fenced at its next commit and goes on from what the second stored.
		r.send("again", 5, a, rand.New(rand.NewPCG(1, 1)), func(i int) {
			if i == 3 {
				o := e.receiver(nil, p)
				next, _ := a.next(tp0, r.status("again").Progress[0].Expected)
				// Its expected offset has gone back, perhaps.
				start := int64(0)
				for _, s := range o.status("again").Progress {
					if s.TopicPartition == tp0 {
						start = s.Expected
					}
				}
				if s, ok := a.next(tp0, start); ok {
					next = s
				}
				if _, code, text := o.put("again", 5, next); code != http.StatusOK {
					t.Errorf("second processor: %d %s", code, text)
				}
				s, ok := a.next(tp0, r.status("again").Progress[0].Expected)
				if !ok {
					t.Fatal("nothing left to send")
				}
				if _, code, _ := r.put("again", 5, s); code == http.StatusOK {
					t.Error("the first processor stored something after it was fenced")
				}
			}
		})
		if _, code, text := r.finish("again", 5); code != http.StatusOK {
			t.Errorf("finish: %d %s", code, text)
		}
		e.wantOutputs(p, ".replay.again", e.oracle(p))
	})
	t.Run("wiped output", func(t *testing.T) {
		if err := e.admin.DeleteTopic(e.ctx(), p.Output.Topic+".replay.again"); err != nil {
			t.Fatal(err)
		}
		taken := a.req
		taken.Epoch = 6
		if _, code, text := r.open("again", taken); code != http.StatusConflict || !strings.Contains(text, "deleted") {
			t.Errorf("%d %s", code, text)
		}
	})
	t.Run("foreign topics", func(t *testing.T) {
		e.topic(p.Output.Topic+".replay.other", 3)
		if _, code, text := r.open("other", a.req); code != http.StatusConflict || !strings.Contains(text, "another name") {
			t.Errorf("%d %s", code, text)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		r.mustOpen("third", a.req)
		var st session.Status
		if code, text := r.call("DELETE", "/sessions/third?epoch=0", nil, nil); code != http.StatusConflict {
			t.Errorf("cancel of an old epoch: %d %s", code, text)
		}
		for range 2 {
			if code, text := r.call("DELETE", "/sessions/third?epoch=1", nil, &st); code != http.StatusOK || st.State != session.Cancelled {
				t.Errorf("%d %s", code, text)
			}
		}
		if _, code, text := r.put("third", 1, first); code != http.StatusConflict {
			t.Errorf("segment after cancel: %d %s", code, text)
		}
		var all []session.Status
		if code, text := r.call("GET", "/sessions", nil, &all); code != http.StatusOK || len(all) != 2 || all[0].Name != "again" || all[1].State != session.Cancelled {
			t.Errorf("%d %s", code, text)
		}
	})
	t.Run("bad requests", func(t *testing.T) {
		for path, want := range map[string]int{
			"/sessions/Again": http.StatusBadRequest, "/sessions/again/segments/x/0/0": http.StatusBadRequest,
			"/sessions/again/segments/x/-1/0?epoch=1": http.StatusBadRequest, "/sessions/again/segments/x/0/z?epoch=1": http.StatusBadRequest,
		} {
			if code, text := r.call("PUT", path, []byte(`{"pipeline":"x"}`), nil); code != want {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
		if code, text := r.call("PUT", "/sessions/again", []byte(`{"pipelin":"x"}`), nil); code != http.StatusBadRequest || !strings.Contains(text, "pipelin") {
			t.Errorf("unknown field: %d %s", code, text)
		}
	})
}

// At the limit the partition that holds the watermark back goes first, and the replay still ends.
func TestReplayLimit(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	rng := rand.New(rand.NewPCG(9, 9))
	p := e.lived(24, 3, 300, false)
	a := e.archive(p, rng)
	r := e.receiver(func(c *sessions.Config) { c.MaxStateBytes = 40_000 }, p)
	r.mustOpen("again", a.req)
	tp0 := kafka.TP{Topic: p.Source[0].Topic}
	refused := false
	for _, s := range a.segs[tp0] {
		ack, code, text := r.put("again", 1, s)
		if code == http.StatusServiceUnavailable {
			if ack.Needs == nil || *ack.Needs == tp0 || ack.Expected != s.start {
				t.Errorf("%s", text)
			}
			refused = true
			break
		}
	}
	if !refused {
		t.Fatal("the limit had no effect")
	}
	r.send("again", 1, a, rng, nil)
	if _, code, text := r.finish("again", 1); code != http.StatusOK {
		t.Fatalf("finish: %d %s", code, text)
	}
	e.wantOutputs(p, ".replay.again", e.oracle(p))
}

func TestReplayDrain(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	rng := rand.New(rand.NewPCG(10, 10))
	p := e.lived(25, 2, 200, false)
	a := e.archive(p, rng)
	a.req.EndMode = session.Drain
	r := e.receiver(nil, p)
	r.mustOpen("all", a.req)
	r.send("all", 1, a, rng, nil)
	st, code, text := r.finish("all", 1)
	if code != http.StatusOK {
		t.Fatalf("finish: %d %s", code, text)
	}
	live := e.oracle(p)["results"]
	drained := 0
	for _, l := range e.lines(p.Output.Topic + ".replay.all") {
		if strings.Contains(l, "tapedeck-drained") {
			drained++
		}
	}
	if drained == 0 || st.Emitted != int64(len(live)+drained) {
		t.Errorf("%d live results, %d drained, %d in all", len(live), drained, st.Emitted)
	}
}

// The live decision log holds what the archive lacks: the replay could differ, and is refused.
func TestReplayWithDecisionsBehind(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	rng := rand.New(rand.NewPCG(11, 11))
	topic := unique("trips")
	p := fares(t, unique("fares"), topic, false)
	e.topic(topic, 2)
	all := trips(26, topic, 3, 200)
	var two, three []record.Record
	for _, r := range all {
		if r.Partition < 2 {
			two = append(two, r)
		}
	}
	three = all
	run := e.start(p)
	e.produce(two...)
	e.untilRead(p)
	if err := e.admin.CreatePartitions(e.ctx(), topic, 3); err != nil {
		t.Fatal(err)
	}
	e.until("the third partition", func() bool { return len(run.Status().Partitions) == 3 })
	e.produce(three...)
	e.untilRead(p)
	run.kill()
	a := e.archive(p, rng)
	if len(a.req.Decisions) != 2 {
		t.Fatalf("decisions %s, want origin and floor", a.req.Decisions)
	}
	r := e.receiver(nil, p)
	behind := a.req
	behind.Decisions = a.req.Decisions[:1]
	behind.Ranges = a.req.Ranges[:2]
	if _, code, text := r.open("behind", behind); code != http.StatusUnprocessableEntity || !strings.Contains(text, "archive it first") {
		t.Errorf("%d %s", code, text)
	}
	// With the floor, a partition that appeared late is replayed as it was.
	r.mustOpen("again", a.req)
	r.send("again", 1, a, rng, nil)
	if _, code, text := r.finish("again", 1); code != http.StatusOK {
		t.Fatalf("finish: %d %s", code, text)
	}
	e.wantOutputs(p, ".replay.again", e.outputs(p, ""))
}

// Partitions arrive at the same time, each from its own sender.
func TestReplayConcurrently(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	rng := rand.New(rand.NewPCG(12, 12))
	p := e.lived(27, 4, 300, false)
	a := e.archive(p, rng)
	r := e.receiver(nil, p)
	r.mustOpen("again", a.req)
	var wg sync.WaitGroup
	for tp := range a.segs {
		wg.Go(func() {
			for _, s := range a.segs[tp] {
				if ack, code, text := r.put("again", 1, s); code != http.StatusOK || ack.Expected != s.next {
					t.Errorf("segment %v+%d: %d %s", s.tp, s.start, code, text)
					return
				}
			}
		})
		wg.Go(func() { r.status("again") })
	}
	wg.Wait()
	st, code, text := r.finish("again", 1)
	if code != http.StatusOK {
		t.Fatalf("finish: %d %s", code, text)
	}
	a.wantProof(t, st)
	e.wantOutputs(p, ".replay.again", e.oracle(p))
}
