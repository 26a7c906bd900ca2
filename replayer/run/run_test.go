package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/metrics"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/replayer/target"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
)

const topic = "trips"

func pipe() session.Pipeline {
	return session.Pipeline{Name: "p", Hash: "hash", Inputs: []string{topic}, DecisionsTopic: "p.decisions"}
}

func newRunner(a *replaytest.Archive) *run.Runner {
	return &run.Runner{Archive: a.Archive, Log: zap.NewNop(), Metrics: metrics.New(prometheus.NewRegistry()),
		Settings: run.Settings{Parallel: 3, RetryTimeout: 2 * time.Minute, Backoff: run.Backoff{Min: time.Millisecond, Max: 4 * time.Millisecond}}}
}

func client(t *testing.T, r *replaytest.Receiver) *target.Client {
	c, err := target.NewClient(r.Config(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func request(t *testing.T, fields string) *job.Request {
	t.Helper()
	r, err := job.ParseRequest([]byte(`{"name":"j","target":"proc"` + fields + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newJob(r *job.Request) *job.Job {
	j := job.New(*r, "me", 15000, time.Now())
	j.ID = "job-1"
	return &j
}

func testCtx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// replay plans and executes.
func replay(t *testing.T, ctx context.Context, r *run.Runner, j *job.Job, dest *target.Client) (*job.Outcome, *run.Run, error) {
	t.Helper()
	plan, err := r.Prepare(ctx, j, dest)
	if err != nil {
		return nil, nil, err
	}
	j.Plan = plan.Pin()
	x := r.NewRun(j, plan, dest)
	out, err := x.Execute(ctx)
	return out, x, err
}

// same checks that the receiver took exactly the wanted records of each partition, in order.
func same(t *testing.T, a *replaytest.Archive, rc *replaytest.Receiver, want func(*record.Record) bool) {
	t.Helper()
	for tp, recs := range a.Records {
		if tp.Topic != topic {
			continue
		}
		got := rc.Taken("j", tp)
		i := 0
		for k := range recs {
			if !want(&recs[k]) {
				continue
			}
			if i >= len(got) || !record.Equal(&got[i], &recs[k]) {
				t.Fatalf("%s: record %d of the replay is not offset %d", tp, i, recs[k].Offset)
			}
			i++
		}
		if i != len(got) {
			t.Fatalf("%s: %d records too many", tp, len(got)-i)
		}
	}
}

func all(*record.Record) bool { return true }

func TestEveryRecordOnceInOrderWhateverHappens(t *testing.T) {
	seeds := uint64(15)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			a := replaytest.New()
			a.Fill(t, rng, topic, 5, 120, 9)
			a.Decide(t, "p.decisions", replaytest.Origin(topic, 5))
			rc := replaytest.NewReceiver(t, pipe())
			rc.MaxSkew = []int64{0, 4000, 50000}[seed%3]
			var mu sync.Mutex
			trouble := 0
			roll := func(n int) bool {
				mu.Lock()
				defer mu.Unlock()
				if trouble > 150 || rng.IntN(n) != 0 { // it ends at some time
					return false
				}
				trouble++
				return true
			}
			rc.Before = func(method, path string) int {
				switch {
				case roll(9):
					return -1
				case roll(9):
					return http.StatusServiceUnavailable
				case roll(20):
					return http.StatusBadGateway
				case roll(25):
					rc.Restart(false)
				case roll(60):
					rc.Restart(true)
				case roll(6):
					rc.StoreAll()
				}
				return 0
			}
			rc.After = func(string, string) bool { return roll(10) }
			r := newRunner(a)
			// As it comes; cut into single records, which wait for each other; cut into few.
			pace := []string{"", `,"order":"event-time","maxSkew":1000`, `,"speed":1000`}[seed/3%3]
			out, _, err := replay(t, testCtx(t), r, newJob(request(t, pace)), client(t, rc))
			if err != nil {
				t.Fatal(err)
			}
			same(t, a, rc, all)
			if out.Emitted != 600 || out.Outputs["results"] != "j.out" {
				t.Errorf("outcome %+v", out)
			}
			if rc.State("j") != session.Finished {
				t.Errorf("session is %s", rc.State("j"))
			}
		})
	}
}

func TestRangesInsideSegments(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(7, 7)), topic, 3, 100, 30)
	rc := replaytest.NewReceiver(t, pipe())
	j := newJob(request(t, `,"promise":"recompute","from":{"kind":"offset","value":11},"until":{"kind":"offset","value":63},
		"bounds":{"trips/1":{"from":"earliest"},"trips/2":{"until":"end"}}`))
	if _, _, err := replay(t, testCtx(t), newRunner(a), j, client(t, rc)); err != nil {
		t.Fatal(err)
	}
	same(t, a, rc, func(r *record.Record) bool {
		return (r.Partition == 1 || r.Offset >= 11) && (r.Partition == 2 || r.Offset < 63)
	})
}

// A bound in time chooses record by record, whatever the order of timestamps, and the receiver, which knows offsets only, need not know.
func TestTimeBoundsRecordByRecord(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(8, 8)), topic, 12, 150, 10)
	rc := replaytest.NewReceiver(t, pipe())
	j := newJob(request(t, `,"promise":"recompute","from":{"kind":"timestamp","value":30500},"until":{"kind":"timestamp","value":121000}`))
	out, _, err := replay(t, testCtx(t), newRunner(a), j, client(t, rc))
	if err != nil {
		t.Fatal(err)
	}
	in := func(r *record.Record) bool { return r.Timestamp >= 30500 && r.Timestamp < 121000 }
	same(t, a, rc, in)
	straggler := false // a record outside the bounds between two inside: else a range of offsets would do
	for _, recs := range a.Records {
		before, outside := false, false
		for i := range recs {
			straggler = straggler || in(&recs[i]) && outside
			before = before || in(&recs[i])
			outside = outside || before && !in(&recs[i])
		}
	}
	if !straggler || out.Emitted == 0 {
		t.Fatalf("the data proves nothing: straggler %v, emitted %d", straggler, out.Emitted)
	}
}

// 64 partitions, 2 at a time, and a receiver that lets none be more than 1 ms ahead of the furthest behind: what it names must come first,
// or nothing moves any more.
func TestNoDeadlockAtTinyLimits(t *testing.T) {
	a := replaytest.New()
	rng := rand.New(rand.NewPCG(3, 3))
	for p := range int32(64) {
		tp := record.TopicPartition{Topic: topic, Partition: p}
		var offset int64
		for range 6 {
			var recs []record.Record
			for range 1 + rng.IntN(3) {
				// Later partitions are older: choosing by what was sent so far alone does not help at the beginning.
				recs = append(recs, replaytest.Record(tp, offset, 100*offset+int64(64-p)*37))
				offset++
			}
			a.Segment(t, tp, offset, recs)
		}
	}
	rc := replaytest.NewReceiver(t, pipe())
	rc.MaxSkew = 1
	r := newRunner(a)
	r.Settings.Parallel = 2
	if _, _, err := replay(t, testCtx(t), r, newJob(request(t, `,"promise":"recompute"`)), client(t, rc)); err != nil {
		t.Fatal(err)
	}
	same(t, a, rc, all)
	if rc.Busy() == 0 {
		t.Error("the receiver was never at its limit: the test proves nothing")
	}
}

// However long a target refuses, no more is held in memory than what is loaded ahead and what is being sent.
func TestMemoryStaysFlatWhileTheTargetIsBusy(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(4, 4)), topic, 32, 40, 4)
	rc := replaytest.NewReceiver(t, pipe())
	ctx, cancel := context.WithCancel(testCtx(t))
	var refused atomic.Int64
	rc.Before = func(method, path string) int {
		if strings.Contains(path, "/segments/") {
			if refused.Add(1) == 300 {
				cancel()
			}
			return http.StatusServiceUnavailable
		}
		return 0
	}
	var loads atomic.Int64
	a.Mem.SetBefore(func(_ context.Context, op, key string) error {
		if op == "get" && strings.HasSuffix(key, ".avro") {
			loads.Add(1)
		}
		return nil
	})
	r := newRunner(a)
	_, x, err := replay(t, ctx, r, newJob(request(t, `,"promise":"recompute"`)), client(t, rc))
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if n := loads.Load(); n == 0 || n > int64(2*r.Settings.Parallel) {
		t.Errorf("%d segments loaded while none was accepted, at most %d may be held", n, 2*r.Settings.Parallel)
	}
	for _, p := range x.Progress() {
		if p.Expected != 0 || p.Segments != 0 {
			t.Errorf("%+v", p)
		}
	}
}

func TestReceiverThatLiesIsFound(t *testing.T) {
	lies := map[string]func(*session.Status){
		"count":     func(s *session.Status) { s.Progress[1].Count-- },
		"first":     func(s *session.Status) { s.Progress[1].First++ },
		"last":      func(s *session.Status) { s.Progress[1].Last-- },
		"checksum":  func(s *session.Status) { s.Progress[1].Checksum = strings.Repeat("0", 16) },
		"missing":   func(s *session.Status) { s.Progress = s.Progress[:1] },
		"unplanned": func(s *session.Status) { s.Progress[1].Partition = 9 },
		"twice":     func(s *session.Status) { s.Progress[1] = s.Progress[0] },
	}
	for what, lie := range lies {
		t.Run(what, func(t *testing.T) {
			a := replaytest.New()
			a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 20, 5)
			rc := replaytest.NewReceiver(t, pipe())
			rc.Lie = lie
			_, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, `,"promise":"recompute"`)), client(t, rc))
			wantFailure(t, err, "not planned")
		})
	}
}

func wantFailure(t *testing.T, err error, parts ...string) {
	t.Helper()
	var f *run.Failure
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want a failure with %q", err, parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("got %q, want it to say %q", err, p)
		}
	}
}

func TestDecisionsTravelInOrder(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 20, 5)
	a.Decide(t, "p.decisions", replaytest.Origin(topic, 2), `{"kind":"floor","topic":"trips","partition":0,"offset":3,"w":9}`)
	a.Decide(t, "p.decisions", `{"kind":"floor","topic":"trips","partition":1,"offset":4,"w":8}`)
	rc := replaytest.NewReceiver(t, pipe())
	if _, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, "")), client(t, rc)); err != nil {
		t.Fatal(err)
	}
	got := rc.Opened()[0].Decisions
	want := []string{replaytest.Origin(topic, 2), `{"kind":"floor","topic":"trips","partition":0,"offset":3,"w":9}`,
		`{"kind":"floor","topic":"trips","partition":1,"offset":4,"w":8}`}
	if len(got) != len(want) {
		t.Fatalf("%d decisions, want %d", len(got), len(want))
	}
	for i := range want {
		if string(got[i]) != want[i] {
			t.Errorf("decision %d: %s, want %s", i, got[i], want[i])
		}
	}
}

// The log may grow while the job runs; a second opening must have the body of the first.
func TestDecisionsArePinnedByThePlan(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 20, 5)
	a.Decide(t, "p.decisions", replaytest.Origin(topic, 2))
	rc := replaytest.NewReceiver(t, pipe())
	dest := client(t, rc)
	r := newRunner(a)
	j := newJob(request(t, ""))
	plan, err := r.Prepare(testCtx(t), j, dest)
	if err != nil {
		t.Fatal(err)
	}
	// As after a restart: the plan comes back from JSON.
	stored, err := json.Marshal(plan.Pin())
	if err != nil {
		t.Fatal(err)
	}
	j.Plan = new(job.Pinned)
	if err := json.Unmarshal(stored, j.Plan); err != nil {
		t.Fatal(err)
	}
	a.Decide(t, "p.decisions", `{"kind":"floor","topic":"trips","partition":1,"offset":4,"w":8}`)
	for epoch := int64(1); epoch <= 2; epoch++ {
		j.Epoch = epoch
		if _, _, err := replay(t, testCtx(t), r, j, dest); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range rc.Opened() {
		if len(o.Decisions) != 1 {
			t.Errorf("epoch %d opened with %d decisions, the plan has 1", o.Epoch, len(o.Decisions))
		}
	}
}

func TestFencedByAHigherEpoch(t *testing.T) {
	for _, at := range []string{"/segments/", "/finish"} {
		a := replaytest.New()
		a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 60, 3)
		rc := replaytest.NewReceiver(t, pipe())
		dest := client(t, rc)
		var once sync.Once
		rc.Before = func(_, path string) int {
			if strings.Contains(path, at) {
				once.Do(func() {
					next := rc.Opened()[0]
					next.Epoch = 7
					if _, err := dest.Open(context.Background(), "j", next); err != nil {
						t.Error(err)
					}
				})
			}
			return 0
		}
		_, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, `,"promise":"recompute"`)), dest)
		if !errors.Is(err, run.ErrFenced) {
			t.Errorf("fenced at %s: %v", at, err)
		}
	}
}

// A run that goes on where another was killed reads only what the stored proof does not cover, and still proves everything.
func TestGoesOnFromStoredProof(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 100, 4)
	rc := replaytest.NewReceiver(t, pipe())
	dest := client(t, rc)
	r := newRunner(a)
	j := newJob(request(t, `,"promise":"recompute"`))
	ctx, cancel := context.WithCancel(testCtx(t))
	var puts atomic.Int64
	rc.Before = func(_, path string) int {
		if strings.Contains(path, "/segments/") && puts.Add(1) == 20 {
			cancel()
		}
		return 0
	}
	_, x, err := replay(t, ctx, r, j, dest)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	j.Progress, j.Epoch = x.Progress(), 2
	planned, covered := 0, 0
	for tp := range a.Records {
		for range a.Keys(tp) {
			planned++
		}
	}
	for _, p := range j.Progress {
		for _, k := range a.Keys(p.TopicPartition) {
			n, err := segment.ParseName("topics", k)
			if err != nil {
				t.Fatal(err)
			}
			if n.Start < p.Verified && n.Start < p.Expected {
				covered++
			}
		}
	}
	a.Mem.ResetCounts()
	if _, _, err := replay(t, testCtx(t), r, j, dest); err != nil {
		t.Fatal(err)
	}
	same(t, a, rc, all)
	// One segment per partition may be on its way when the first run ends.
	if got := a.Mem.Counts()["get"]; covered < 10 || got > planned-covered+2 {
		t.Errorf("%d objects read in the second run of %d planned, %d covered by the stored proof", got, planned, covered)
	}
}

// A stored proof that does not fit the plan, or cannot be read, must not be believed, nor must it end the job.
func TestForgetsAProofThatDoesNotFit(t *testing.T) {
	for _, readable := range []bool{true, false} {
		a := replaytest.New()
		a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 1, 60, 4)
		rc := replaytest.NewReceiver(t, pipe())
		j := newJob(request(t, `,"promise":"recompute"`))
		tp := record.TopicPartition{Topic: topic}
		at := int64(-1)
		for _, k := range a.Keys(tp) {
			if n, _ := segment.ParseName("topics", k); n.Start > 20 {
				at = n.Start // a border of segments
				break
			}
		}
		proof := job.Proof{Count: 3, Last: 9, Checksum: job.Hex(1)}
		if readable {
			at--
		} else {
			proof.Checksum = "sha256:1"
		}
		j.Progress = []job.Progress{{TopicPartition: tp, Expected: 20, Verified: at, Proof: proof}}
		if _, _, err := replay(t, testCtx(t), newRunner(a), j, client(t, rc)); err != nil {
			t.Fatalf("readable %v: %v", readable, err)
		}
		same(t, a, rc, all)
	}
}

func TestPartitionsWithoutRecordsTakePart(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 30, 5)
	two := record.TopicPartition{Topic: topic, Partition: 2}
	a.Segment(t, two, 3, nil) // only markers
	a.Segment(t, two, 7, nil)
	a.Decide(t, "p.decisions", replaytest.Origin(topic, 4)) // trips-3 was never written to
	rc := replaytest.NewReceiver(t, pipe())
	dest := client(t, rc)
	r := newRunner(a)
	j := newJob(request(t, ""))
	if _, _, err := replay(t, testCtx(t), r, j, dest); err != nil {
		t.Fatal(err)
	}
	// And again from the stored plan.
	j.Epoch = 2
	if _, _, err := replay(t, testCtx(t), r, j, dest); err != nil {
		t.Fatal(err)
	}
	for _, o := range rc.Opened() {
		var got []string
		for _, g := range o.Ranges {
			got = append(got, fmt.Sprintf("%s [%d,%d) %s", g.TopicPartition, g.From, g.Until, g.TopicID))
		}
		if len(got) != 4 || got[2] != "trips-2 [0,7) id-trips" || got[3] != "trips-3 [0,0) id-trips" {
			t.Errorf("epoch %d: ranges %q", o.Epoch, got)
		}
	}
}

// A partition without a record in the window takes part with an empty range, at the first run and from the stored plan.
func TestEmptyWindowsTakePart(t *testing.T) {
	one := record.TopicPartition{Topic: topic, Partition: 1}
	for fields, want := range map[string]string{
		`,"bounds":{"trips/1":{"until":{"kind":"offset","value":0}}}`: "[0,0)",
		`,"from":{"kind":"timestamp","value":5000}`:                   "[0,0)",
		`,"bounds":{"trips/1":{"from":{"kind":"offset","value":3}}}`:  "[3,8)", // offsets, and no record among them
		`,"bounds":{"trips/1":{"from":{"kind":"offset","value":8}}}`:  "[8,8)", // the end of what is archived
	} {
		a := replaytest.New()
		a.Segment(t, record.TopicPartition{Topic: topic}, 9, []record.Record{replaytest.Record(record.TopicPartition{Topic: topic}, 7, 7000)})
		a.Segment(t, one, 3, []record.Record{replaytest.Record(one, 0, 1), replaytest.Record(one, 1, 2)})
		a.Segment(t, one, 8, nil)
		rc := replaytest.NewReceiver(t, pipe())
		dest, r := client(t, rc), newRunner(a)
		j := newJob(request(t, `,"promise":"recompute"`+fields))
		for range 2 {
			out, _, err := replay(t, testCtx(t), r, j, dest)
			if err != nil {
				t.Fatal(fields, err)
			}
			if o := rc.Opened(); len(o[0].Ranges) != 2 || fmt.Sprintf("[%d,%d)", o[0].Ranges[1].From, o[0].Ranges[1].Until) != want || out.Emitted != 1 {
				t.Errorf("%s: ranges %+v, %d records", fields, o[0].Ranges, out.Emitted)
			}
			j.Epoch++
		}
	}
}

// What the request says about schemas, or its promise where it says nothing, goes with the session; and what the target could not
// compare is told.
func TestSchemasGoWithTheSession(t *testing.T) {
	for fields, want := range map[string]session.SchemaSource{
		``:                       session.FromSegment,
		`,"schemas":"registry"`:  session.FromRegistry,
		`,"promise":"recompute"`: session.FromRegistry,
		`,"promise":"recompute","schemas":"segment"`: session.FromSegment,
	} {
		a := replaytest.New()
		a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 1, 10, 5)
		a.Decide(t, "p.decisions", replaytest.Origin(topic, 1))
		rc := replaytest.NewReceiver(t, pipe())
		rc.Lie = func(st *session.Status) { st.DecisionsCompared = true }
		out, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, fields)), client(t, rc))
		if err != nil {
			t.Fatal(err)
		}
		if o := rc.Opened()[0]; o.Schemas != want || o.PipelineHash != "hash" {
			t.Errorf("%s: schemas %q, pipeline hash %q", fields, o.Schemas, o.PipelineHash)
		}
		if !out.DecisionsCompared {
			t.Errorf("%s: outcome %+v", fields, out)
		}
	}
}

func TestPipelineThatChangedIsRefused(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 1, 10, 5)
	rc := replaytest.NewReceiver(t, pipe())
	dest := client(t, rc)
	r := newRunner(a)
	j := newJob(request(t, `,"promise":"recompute"`))
	plan, err := r.Prepare(testCtx(t), j, dest)
	if err != nil {
		t.Fatal(err)
	}
	j.Plan = plan.Pin()
	rc.Pipe.Hash = "other"
	_, _, err = replay(t, testCtx(t), r, j, dest)
	wantFailure(t, err, "has changed")
}

// Between the last look at the pipeline and the opening of the session it can still change: the target decides.
func TestPipelineThatChangesJustBeforeTheOpening(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 1, 10, 5)
	rc := replaytest.NewReceiver(t, pipe())
	rc.Before = func(method, path string) int {
		if method == http.MethodPut && path == "/sessions/j" {
			rc.Pipe.Hash = "other"
		}
		return 0
	}
	_, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, `,"promise":"recompute"`)), client(t, rc))
	wantFailure(t, err, "refuses to open the session", "planned with pipeline hash hash")
	if rc.Puts() != 0 {
		t.Errorf("%d segments were sent", rc.Puts())
	}
}

func TestTargetThatDoesNotAnswerFailsTheJobInTheEnd(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 10, 5)
	for _, where := range []string{"/pipelines/", "/sessions/j/segments/", "/sessions/j/finish"} {
		rc := replaytest.NewReceiver(t, pipe())
		rc.Before = func(_, path string) int {
			if strings.HasPrefix(path, where) {
				return -1
			}
			return 0
		}
		r := newRunner(a)
		r.Settings.RetryTimeout = 50 * time.Millisecond
		_, _, err := replay(t, testCtx(t), r, newJob(request(t, `,"promise":"recompute"`)), client(t, rc))
		wantFailure(t, err, "target.retry.timeout")
	}
}
