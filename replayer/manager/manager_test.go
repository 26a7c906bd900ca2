package manager_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/jobstore"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
	"tapedeck.dev/tapedeck/shared/store"
)

const topic = "trips"

// quick is a lease that tests can wait for and that its owner renews in time on a slow machine, long one that they would never see the end of.
var (
	quick = manager.Settings{ID: "a", Lease: 2 * time.Second, Scan: 10 * time.Millisecond}
	long  = manager.Settings{ID: "a", Lease: time.Hour, Scan: 10 * time.Millisecond}
)

func as(s manager.Settings, id string) manager.Settings {
	s.ID = id
	return s
}

// rig is an archive, a receiver, and a gate before the receiver: closed, it takes only so many segments.
type rig struct {
	a     *replaytest.Archive
	rc    *replaytest.Receiver
	taken atomic.Int64
	limit atomic.Int64
}

func newRig(t *testing.T) *rig {
	g := &rig{a: replaytest.New()}
	g.a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 3, 90, 4)
	g.rc = replaytest.NewReceiver(t, session.Pipeline{Name: "p", Hash: "hash", Inputs: []string{topic}, DecisionsTopic: "p.decisions"})
	g.limit.Store(1 << 40)
	g.rc.Before = func(_, path string) int {
		if strings.Contains(path, "/segments/") && g.taken.Add(1) > g.limit.Load() {
			g.taken.Add(-1)
			return http.StatusServiceUnavailable
		}
		return 0
	}
	return g
}

func (g *rig) open() { g.limit.Store(1 << 40) }

func req(t *testing.T, fields string) *job.Request {
	t.Helper()
	r, err := job.ParseRequest([]byte(`{"name":"j","target":"proc","promise":"recompute"` + fields + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func start(t *testing.T, n *replaytest.Node) {
	t.Helper()
	if _, created, err := n.Create(t.Context(), req(t, "")); err != nil || !created {
		t.Fatal(created, err)
	}
}

func state(t *testing.T, n *replaytest.Node) job.State {
	t.Helper()
	v, err := n.Get(context.Background(), "j")
	if err != nil {
		t.Fatal(err)
	}
	return v.State
}

func waitState(t *testing.T, n *replaytest.Node, want job.State) *manager.View {
	t.Helper()
	var v *manager.View
	replaytest.Until(t, "the job is "+string(want), func() bool {
		var err error
		if v, err = n.Get(context.Background(), "j"); err != nil {
			t.Fatal(err)
		}
		if v.State.Ended() && v.State != want {
			t.Fatalf("the job is %s: %s", v.State, v.Error)
		}
		return v.State == want
	})
	return v
}

// delivered checks that the receiver took every record once, in order.
func (g *rig) delivered(t *testing.T) {
	t.Helper()
	for tp, want := range g.a.Records {
		got := g.rc.Taken("j", tp)
		if !slices.EqualFunc(got, want, func(x, y record.Record) bool { return record.Equal(&x, &y) }) {
			t.Errorf("%s: took %d records, want the %d archived, each once and in order", tp, len(got), len(want))
		}
	}
}

// events lists what made the entries of the job.
func (g *rig) events(t *testing.T) []job.Event {
	t.Helper()
	var out []job.Event
	js := jobstore.New(g.a.Mem)
	last, err := js.Load(t.Context(), "j", nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range last.N + 1 {
		e, err := js.At(t.Context(), "j", n)
		if err != nil {
			t.Fatal(err)
		}
		if e.Event != job.Renew {
			out = append(out, e.Event)
		}
	}
	return out
}

func TestAJobRuns(t *testing.T) {
	g := newRig(t)
	n := replaytest.Start(t, g.a, g.rc, long)
	start(t, n)
	v := waitState(t, n, job.Completed)
	g.delivered(t)
	if v.Totals.Segments != v.Totals.SegmentsPlanned || v.Totals.Bytes != v.Totals.BytesPlanned || v.Totals.Records != 270 || v.Totals.PartitionsDone != 3 {
		t.Errorf("totals %+v", v.Totals)
	}
	for _, p := range v.Partitions {
		if p.Delivered == nil || *p.Delivered != p.Planned || p.Planned.Count != 90 || p.Expected != p.Until {
			t.Errorf("partition %+v", p)
		}
	}
	if v.Target == nil || v.Target.Emitted != 270 || v.Owner != "" || v.StartedAt == nil || v.FinishedAt == nil || len(v.Possible) != 0 {
		t.Errorf("view %+v", v)
	}
	if got := g.events(t); !slices.Equal(got, []job.Event{jobstore.Created, job.Started, job.Delivered}) {
		t.Errorf("events %v", got)
	}
	replaytest.Until(t, "nothing is at work", func() bool { return len(n.Working()) == 0 })
}

func TestSameRequestSameJob(t *testing.T) {
	g := newRig(t)
	a := replaytest.Start(t, g.a, g.rc, long)
	b := replaytest.Start(t, g.a, g.rc, as(long, "b"))
	start(t, a)
	waitState(t, a, job.Completed)
	if v, created, err := b.Create(t.Context(), req(t, "")); err != nil || created || v.State != job.Completed || !v.Existing {
		t.Errorf("again: %v %v %v", v, created, err)
	}
	if _, _, err := b.Create(t.Context(), req(t, `,"endMode":"drain"`)); !errors.Is(err, manager.ErrOther) {
		t.Errorf("another request: %v", err)
	}
	r := req(t, "")
	r.Target = "prox"
	if _, _, err := a.Create(t.Context(), r); !errors.Is(err, manager.ErrBadRequest) || !strings.Contains(err.Error(), "[proc]") {
		t.Errorf("unknown target: %v", err)
	}
	if puts := g.rc.Puts(); puts == 0 {
		t.Error("nothing was sent")
	}
}

func TestPauseAndResume(t *testing.T) {
	g := newRig(t)
	a := replaytest.Start(t, g.a, g.rc, long)
	g.limit.Store(20)
	start(t, a)
	replaytest.Until(t, "20 segments are there", func() bool { return g.taken.Load() == 20 })
	if _, err := a.Do(t.Context(), "j", job.Pause); err != nil {
		t.Fatal(err)
	}
	replaytest.Until(t, "the worker has stopped", func() bool { return len(a.Working()) == 0 })
	puts := g.rc.Puts()
	g.open()
	if v := waitState(t, a, job.Paused); v.Owner != "" {
		t.Errorf("paused and owned by %q", v.Owner)
	}
	if g.rc.Puts() != puts {
		t.Error("segments were sent while the job was paused")
	}
	if v, err := a.Do(t.Context(), "j", job.Pause); err != nil || v.State != job.Paused {
		t.Errorf("a second pause: %v", err)
	}
	v, err := a.Do(t.Context(), "j", job.Resume)
	if err != nil || v.Epoch != 2 {
		t.Fatalf("resume: %+v %v", v, err)
	}
	waitState(t, a, job.Completed)
	g.delivered(t)
	var illegal *job.IllegalError
	if _, err := a.Do(t.Context(), "j", job.Pause); !errors.As(err, &illegal) {
		t.Errorf("pause of a completed job: %v", err)
	}
	if _, err := a.Do(t.Context(), "nobody", job.Pause); !errors.Is(err, jobstore.ErrNotFound) {
		t.Errorf("pause of no job: %v", err)
	}
}

// Paused and resumed by another replayer before the owner's next renewal: the owner is refused by the target, and stops.
func TestPauseAndResumeBehindTheOwnersBack(t *testing.T) {
	g := newRig(t)
	a := replaytest.Start(t, g.a, g.rc, long) // renews every 20 minutes
	b := replaytest.Start(t, g.a, g.rc, as(long, "b"))
	g.limit.Store(10)
	start(t, a)
	replaytest.Until(t, "10 segments are there", func() bool { return g.taken.Load() == 10 })
	for _, e := range []job.Event{job.Pause, job.Resume} {
		if _, err := b.Do(t.Context(), "j", e); err != nil {
			t.Fatal(err)
		}
	}
	replaytest.Until(t, "B has opened the session", func() bool { o := g.rc.Opened(); return o[len(o)-1].Epoch == 2 })
	g.open()
	waitState(t, b, job.Completed)
	g.delivered(t)
	replaytest.Until(t, "A has stopped", func() bool { return len(a.Working()) == 0 })
	if got := g.events(t); !slices.Equal(got, []job.Event{jobstore.Created, job.Started, job.Pause, job.Resume, job.Delivered}) {
		t.Errorf("events %v", got)
	}
}

func TestCancel(t *testing.T) {
	for _, paused := range []bool{false, true} { // a paused job is cancelled under a higher epoch than its session's
		g := newRig(t)
		a := replaytest.Start(t, g.a, g.rc, long)
		g.limit.Store(10)
		start(t, a)
		replaytest.Until(t, "10 segments are there", func() bool { return g.taken.Load() == 10 })
		if paused {
			if _, err := a.Do(t.Context(), "j", job.Pause); err != nil {
				t.Fatal(err)
			}
		}
		if v, err := a.Do(t.Context(), "j", job.Cancel); err != nil || v.State != job.Cancelling {
			t.Fatalf("cancel: %v", err)
		}
		if v := waitState(t, a, job.Cancelled); paused != (v.Epoch == 2) {
			t.Errorf("paused %v: cancelled under epoch %d", paused, v.Epoch)
		}
		if s := g.rc.State("j"); s != session.Cancelled {
			t.Errorf("the session is %s", s)
		}
	}
}

// Two archives, even copies of each other, and one target: a name belongs to the job that opened it, and the other one's job is told at
// once, whatever the epochs, and does no harm to the session, however it ends.
func TestSameNameFromAnotherArchive(t *testing.T) {
	for _, higher := range []bool{false, true} {
		g, o := newRig(t), newRig(t)
		first := replaytest.Start(t, g.a, g.rc, long)
		second := replaytest.Start(t, o.a, g.rc, long)
		g.limit.Store(10)
		start(t, first)
		replaytest.Until(t, "10 segments are there", func() bool { return g.taken.Load() == 10 })
		if higher { // than that of the other job
			for _, e := range []job.Event{job.Pause, job.Resume} {
				if _, err := first.Do(t.Context(), "j", e); err != nil {
					t.Fatal(err)
				}
			}
			replaytest.Until(t, "epoch 2 is there", func() bool { n := g.rc.Opened(); return n[len(n)-1].Epoch == 2 })
		}
		start(t, second)
		if v := waitState(t, second, job.Failed); !strings.Contains(v.Error, "another job") || v.Epoch != 1 {
			t.Errorf("epoch %d: %s", v.Epoch, v.Error)
		}
		// Again and again, until its epoch is above the other's.
		for range 3 {
			if _, err := second.Do(t.Context(), "j", job.Retry); err != nil {
				t.Fatal(err)
			}
			replaytest.Until(t, "it has failed again", func() bool { return state(t, second) == job.Failed })
		}
		if _, err := second.Do(t.Context(), "j", job.Cancel); err != nil {
			t.Fatal(err)
		}
		replaytest.Until(t, "the job is cancelled", func() bool { return state(t, second) == job.Cancelled })
		if s := g.rc.State("j"); s != session.Open {
			t.Errorf("the first job's session is %s", s)
		}
		g.open()
		waitState(t, first, job.Completed)
		g.delivered(t)
	}
}

// Killed after the target had finished and before COMPLETED was written; then cancelled by another, which takes over: too late, and
// the job says what is true.
func TestCancelThatComesTooLate(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a := replaytest.Start(t, g.a, g.rc, quick)
	b := replaytest.Start(t, g.a, g.rc, as(quick, "b"))
	g.rc.After = func(_, path string) bool {
		if strings.HasSuffix(path, "/finish") {
			a.Jobs.Cut(true)
		}
		return false
	}
	start(t, a)
	replaytest.Until(t, "the session has finished", func() bool { return g.rc.State("j") == session.Finished })
	if _, err := b.Do(t.Context(), "j", job.Cancel); err != nil {
		t.Fatal(err)
	}
	v := waitState(t, b, job.Completed)
	g.delivered(t)
	if v.Epoch != 2 || v.Target == nil {
		t.Errorf("%+v", v)
	}
}

func TestRetryAfterARepair(t *testing.T) {
	g := newRig(t)
	key := g.a.Keys(record.TopicPartition{Topic: topic})[5]
	whole, err := g.a.Mem.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	whole = slices.Clone(whole)
	g.a.Damage(t, key)
	n := replaytest.Start(t, g.a, g.rc, long)
	start(t, n)
	v := waitState(t, n, job.Failed)
	if !strings.Contains(v.Error, key) || !strings.Contains(v.Error, "at byte") || v.FinishedAt == nil {
		t.Errorf("%+v", v)
	}
	g.a.Mem.Put(key, whole)
	if _, err := n.Do(t.Context(), "j", job.Retry); err != nil {
		t.Fatal(err)
	}
	replaytest.Until(t, "the job has completed", func() bool { return state(t, n) == job.Completed })
	g.delivered(t)
}

func TestFailedJobCanBeCancelled(t *testing.T) {
	g := newRig(t)
	g.a.Damage(t, g.a.Keys(record.TopicPartition{Topic: topic})[5])
	n := replaytest.Start(t, g.a, g.rc, long)
	start(t, n)
	waitState(t, n, job.Failed)
	if _, err := n.Do(t.Context(), "j", job.Cancel); err != nil {
		t.Fatal(err)
	}
	replaytest.Until(t, "the job is cancelled", func() bool { return state(t, n) == job.Cancelled })
	if s := g.rc.State("j"); s != session.Cancelled {
		t.Errorf("the session is %s", s)
	}
}

// A is cut off from the store, and goes on sending (a sleeper that wakes, a partitioned network). B takes over after the lease; A is refused by
// the target, and every record arrives once.
func TestTakeoverFencesTheZombie(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a := replaytest.Start(t, g.a, g.rc, quick)
	b := replaytest.Start(t, g.a, g.rc, as(quick, "b"))
	g.limit.Store(20)
	start(t, a)
	replaytest.Until(t, "20 segments are there", func() bool { return g.taken.Load() == 20 })
	a.Jobs.Cut(true)
	replaytest.Until(t, "B is at work", func() bool { return slices.Contains(b.Working(), "j") })
	replaytest.Until(t, "B has opened the session", func() bool { o := g.rc.Opened(); return o[len(o)-1].Epoch == 2 })
	g.open() // now both of them send
	v := waitState(t, b, job.Completed)
	g.delivered(t)
	if v.Epoch != 2 {
		t.Errorf("completed under epoch %d", v.Epoch)
	}
	replaytest.Until(t, "A has stopped by itself", func() bool { return len(a.Working()) == 0 })
	a.Jobs.Cut(false)
	if got := g.events(t); !slices.Equal(got, []job.Event{jobstore.Created, job.Started, job.Takeover, job.Delivered}) {
		t.Errorf("events %v", got)
	}
}

// Nobody takes a job whose owner renews.
func TestARenewedJobIsLeftAlone(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a := replaytest.Start(t, g.a, g.rc, quick)
	b := replaytest.Start(t, g.a, g.rc, as(quick, "b"))
	g.limit.Store(10)
	start(t, a)
	entries := func() int {
		n := 0
		for _, k := range g.a.Mem.Keys() {
			if strings.HasPrefix(k, jobstore.Dir) {
				n++
			}
		}
		return n
	}
	replaytest.Until(t, "A has renewed for several leases", func() bool { return entries() > 12 })
	v, err := b.Get(t.Context(), "j")
	if err != nil || v.Owner != "a" || v.Epoch != 1 {
		t.Errorf("%+v %v", v, err)
	}
	if v.Totals.Segments == 0 {
		t.Error("another replayer sees no progress of a job that renews")
	}
	g.open()
	waitState(t, b, job.Completed)
	g.delivered(t)
}

// A clean shutdown gives the job up: no lease is waited for.
func TestShutdownReleases(t *testing.T) {
	g := newRig(t)
	a := replaytest.Start(t, g.a, g.rc, long)
	g.limit.Store(10)
	start(t, a)
	replaytest.Until(t, "10 segments are there", func() bool { return g.taken.Load() == 10 })
	a.Stop()
	if err := a.Ready(); !errors.Is(err, manager.ErrClosing) {
		t.Errorf("ready after the end: %v", err)
	}
	g.open()
	b := replaytest.Start(t, g.a, g.rc, as(long, "b"))
	waitState(t, b, job.Completed)
	g.delivered(t)
	if got := g.events(t); !slices.Equal(got, []job.Event{jobstore.Created, job.Started, job.Release, job.Takeover, job.Delivered}) {
		t.Errorf("events %v", got)
	}
}

// Killed and started again under the same configured id: no lease is waited for. Under another id it is.
func TestRestartUnderTheSameID(t *testing.T) {
	g := newRig(t)
	a := replaytest.Start(t, g.a, g.rc, long)
	g.limit.Store(10)
	start(t, a)
	replaytest.Until(t, "10 segments are there", func() bool { return g.taken.Load() == 10 })
	a.Jobs.Cut(true) // as dead as it can be in this process
	other := replaytest.Start(t, g.a, g.rc, as(long, "b"))
	again := long
	again.Stable = true
	n := replaytest.Start(t, g.a, g.rc, again)
	g.open()
	waitState(t, n, job.Completed)
	g.delivered(t)
	if len(other.Working()) != 0 {
		t.Error("another replayer did not wait for the lease")
	}
}

// A create that arrives after its caller has given up is a job all the same, and runs after the lease.
func TestACreateThatArrivesLateRuns(t *testing.T) {
	g := newRig(t)
	n := replaytest.Start(t, g.a, g.rc, quick)
	ctx, cancel := context.WithCancel(t.Context())
	g.a.Mem.SetBefore(func(_ context.Context, op, _ string) error {
		if op == store.OpCreate {
			cancel()
			return store.ErrUnknown
		}
		return nil
	})
	g.a.Mem.SetAfter(nil)
	if _, _, err := n.Create(ctx, req(t, "")); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// The late arrival, as the store would apply it.
	g.a.Mem.SetBefore(nil)
	if _, err := jobstore.New(g.a.Mem).Create(t.Context(), job.New(*req(t, ""), "a", quick.Lease.Milliseconds(), time.Now())); err != nil {
		t.Fatal(err)
	}
	waitState(t, n, job.Completed)
	g.delivered(t)
}

// One job that cannot be read must not keep the others from running or from being listed.
func TestAnUnreadableJobIsAlone(t *testing.T) {
	g := newRig(t)
	g.a.Mem.Put(jobstore.Key("bad", 0), []byte(`{"format":99}`))
	n := replaytest.Start(t, g.a, g.rc, long)
	start(t, n)
	waitState(t, n, job.Completed)
	views, err := n.List(t.Context())
	if err != nil || len(views) != 2 || views[0].State != manager.Unreadable || !strings.Contains(views[0].Error, "upgrade") || views[1].State != job.Completed {
		t.Errorf("%v %v", views, err)
	}
}

// vague never says whether it has taken an entry of one job.
type vague struct {
	store.Store
	prefix string
}

func (v vague) Create(ctx context.Context, key string, data []byte, with ...store.Attributes) error {
	if strings.HasPrefix(key, v.prefix) {
		return store.ErrUnknown
	}
	return v.Store.Create(ctx, key, data, with...)
}

// Nor must one that the store does not let anybody take over.
func TestATakeoverWithoutAnAnswerIsAlone(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.limit.Store(10)
	a := replaytest.Start(t, g.a, g.rc, long)
	first := req(t, "")
	first.Name = "a" // looked at before j
	if _, _, err := a.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	start(t, a)
	replaytest.Until(t, "both run", func() bool { return len(a.Working()) == 2 })
	a.Stop() // and lets both go
	g.open()
	b := replaytest.StartOn(t, vague{g.a.Mem, jobstore.Dir + "a/"}, g.rc, as(quick, "b"))
	waitState(t, b, job.Completed)
	g.delivered(t)
}

func TestPlans(t *testing.T) {
	g := newRig(t)
	n := replaytest.Start(t, g.a, g.rc, long)
	dry, err := n.DryRun(t.Context(), req(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	if len(g.rc.Opened()) != 0 {
		t.Error("a dry run opened a session")
	}
	if views, err := n.List(t.Context()); err != nil || len(views) != 0 {
		t.Errorf("a dry run made a job: %v %v", views, err)
	}
	start(t, n)
	waitState(t, n, job.Completed)
	p, err := n.Plan(t.Context(), "j")
	if err != nil {
		t.Fatal(err)
	}
	if p.Totals != dry.Totals || len(p.Partitions) != 3 {
		t.Fatalf("the run's plan %+v, the dry run's %+v", p.Totals, dry.Totals)
	}
	for i := range p.Partitions {
		if !slices.Equal(p.Partitions[i].Segments, dry.Partitions[i].Segments) {
			t.Errorf("%s: other segments", p.Partitions[i].TopicPartition)
		}
	}
}

// A sleeps between planning and opening its session. Meanwhile B takes the job over, finds no session to close, and the job is CANCELLED. When A wakes, the target
// has nothing against its epoch; what it opens is closed by A itself, as soon as it learns of the end.
func TestCancelledBehindASleeper(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.limit.Store(0)
	var asked atomic.Int64
	sleeping, wake := make(chan struct{}), make(chan struct{})
	before := g.rc.Before
	g.rc.Before = func(method, path string) int {
		if strings.HasPrefix(path, "/pipelines/") && asked.Add(1) == 2 { // the first is for the plan
			close(sleeping)
			<-wake
		}
		return before(method, path)
	}
	a := replaytest.Start(t, g.a, g.rc, quick)
	b := replaytest.Start(t, g.a, g.rc, as(quick, "b"))
	start(t, a)
	<-sleeping
	a.Jobs.Cut(true)
	if _, err := b.Do(t.Context(), "j", job.Cancel); err != nil {
		t.Fatal(err)
	}
	if v := waitState(t, b, job.Cancelled); v.Epoch != 2 || len(g.rc.Opened()) != 0 {
		t.Fatalf("cancelled under epoch %d, after %d sessions were opened", v.Epoch, len(g.rc.Opened()))
	}
	close(wake)
	replaytest.Until(t, "A has opened the session", func() bool { return g.rc.State("j") == session.Open })
	a.Jobs.Cut(false)
	replaytest.Until(t, "A has closed it", func() bool { return g.rc.State("j") == session.Cancelled })
	replaytest.Until(t, "A has stopped", func() bool { return len(a.Working()) == 0 })
	if got := g.events(t); !slices.Equal(got, []job.Event{jobstore.Created, job.Started, job.Cancel, job.Takeover, job.CancelDone}) {
		t.Errorf("events %v", got)
	}
}

// odd is a destination whose executions end with an error of no known kind.
type odd struct{ manager.Destination }

func (odd) Start(*job.Job, *run.Plan) run.Execution { return oddRun{} }

type oddRun struct{}

func (oddRun) Execute(context.Context) (*job.Outcome, error) {
	return nil, errors.New("out of the blue")
}
func (oddRun) Progress() []job.Progress { return nil }

// An error of no known kind ends the job, with its text. It must not go from one replayer to the next for ever.
func TestAnUnknownErrorEndsTheJob(t *testing.T) {
	g := newRig(t)
	n := replaytest.StartOn(t, g.a.Mem, g.rc, long, func(_ *run.Runner, targets map[string]manager.Destination) {
		targets["proc"] = odd{targets["proc"]}
	})
	start(t, n)
	if v := waitState(t, n, job.Failed); v.Error != "out of the blue" || v.Epoch != 1 {
		t.Errorf("epoch %d: %s", v.Epoch, v.Error)
	}
}
