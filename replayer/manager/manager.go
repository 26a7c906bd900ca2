// Package manager owns the jobs that this replayer works on, and watches those of the others: it starts, renews, takes over and
// releases, by the rule of job.Next and the sequences of jobstore.
package manager

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/jobstore"
	"tapedeck.dev/tapedeck/replayer/metrics"
	"tapedeck.dev/tapedeck/replayer/run"
)

// Settings of a Manager.
type Settings struct {
	ID    string        // of this replayer, unique among those that share the archive
	Lease time.Duration // renewed every third of it
	Scan  time.Duration // between looks at the other replayers' jobs
	// Stable says that ID is kept over restarts: what it owned before is taken up again at once.
	Stable bool
}

// releaseTimeout bounds how long a shutdown waits for the store to take a release.
const releaseTimeout = 5 * time.Second

// quietScans is how many scans pass between two looks at a job that nobody needs to work on.
const quietScans = 10

// Manager of jobs. Safe for concurrent use.
type Manager struct {
	jobs    *jobstore.Store
	arch    run.Source
	targets map[string]Destination
	set     Settings
	log     *zap.Logger
	metrics *metrics.Metrics

	mu      sync.Mutex
	seen    map[string]*seen
	workers map[string]*worker
	base    context.Context // of the workers; nil before Run and after its end
	closed  chan struct{}
	wg      sync.WaitGroup
	scanned error             // why the last scan did not work, nil if it did
	odd     map[string]string // jobs that could not be looked at, and why, so that each is logged once
}

// seen is what this replayer has seen of a job.
type seen struct {
	entry *jobstore.Entry
	since time.Time // when this entry was first seen, on our clock
	skip  int       // scans to leave out
}

// New makes a Manager. targets are by name.
func New(jobs *jobstore.Store, arch run.Source, targets map[string]Destination, set Settings, log *zap.Logger, m *metrics.Metrics) *Manager {
	return &Manager{jobs: jobs, arch: arch, targets: targets, set: set, log: log, metrics: m,
		seen: map[string]*seen{}, workers: map[string]*worker{}, closed: make(chan struct{}), odd: map[string]string{}}
}

// Errors for callers. The rest are *job.IllegalError, *run.Failure, jobstore.ErrNotFound, or of the store.
var (
	// ErrOther: a job of this name exists with another request.
	ErrOther = errors.New("a job of this name exists and asks for something else")
	// ErrBadRequest: the request cannot be accepted by this replayer.
	ErrBadRequest = errors.New("bad request")
	// ErrClosing: this replayer is starting or shutting down.
	ErrClosing = errors.New("the replayer is starting or shutting down; try again")
)

// Run scans until ctx ends, then stops what it runs, gives it up for others to take, and waits for it.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	m.base = ctx
	m.mu.Unlock()
	tick := time.NewTicker(m.set.Scan)
	defer tick.Stop()
	for first := true; ctx.Err() == nil; {
		err := m.scan(ctx, first)
		if err != nil && ctx.Err() == nil {
			m.log.Warn("look at the jobs in the store", zap.Error(err))
		}
		first = first && err != nil
		m.mu.Lock()
		m.scanned = err
		m.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	m.mu.Lock()
	m.base = nil
	close(m.closed)
	m.mu.Unlock()
	m.wg.Wait()
	return nil
}

// Closed is closed when the manager begins to shut down.
func (m *Manager) Closed() <-chan struct{} { return m.closed }

// Ready returns why jobs cannot be worked on now, or nil.
func (m *Manager) Ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.base == nil {
		return ErrClosing
	}
	return m.scanned
}

// scan looks at every job once and takes over what is free.
func (m *Manager) scan(ctx context.Context, first bool) error {
	names, err := m.jobs.Names(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		m.complain(name, m.look(ctx, name, first))
	}
	m.count()
	return ctx.Err()
}

// complain logs what is wrong with a job when it changes: one bad job must not fill the log, nor keep the others from running.
func (m *Manager) complain(name string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	m.mu.Lock()
	changed := m.odd[name] != text
	m.odd[name] = text
	m.mu.Unlock()
	if changed && err != nil {
		m.log.Warn("look at a job", zap.String("job", name), zap.Error(err))
	}
}

// look refreshes one job, and takes it over where that is due. It takes no longer than a lease: a store may refuse to say for ever whether it has taken an entry of
// one job, and the others must not wait for that. (An entry that arrives later is one of a job that is ours and not at work, and waits for the lease.)
func (m *Manager) look(ctx context.Context, name string, first bool) error {
	ctx, cancel := context.WithTimeout(ctx, m.set.Lease)
	defer cancel()
	m.mu.Lock()
	s := m.seen[name]
	_, working := m.workers[name]
	var known *jobstore.Entry
	if s != nil {
		known = s.entry
		if working || s.entry.Job.State.Final() {
			m.mu.Unlock()
			return nil
		}
		if !s.entry.Job.State.Owned() && s.skip > 0 {
			s.skip--
			m.mu.Unlock()
			return nil
		}
	}
	m.mu.Unlock()
	e, err := m.jobs.Load(ctx, name, known)
	if err != nil {
		return err
	}
	since := m.note(e)
	if !e.Job.State.Owned() || working {
		return nil
	}
	next, act, err := m.jobs.Apply(ctx, name, e, job.Ask{Event: job.Takeover, By: m.set.ID, LeaseMs: m.set.Lease.Milliseconds(),
		Elapsed: time.Since(since), Restarted: first && m.set.Stable, At: time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("take over job %s: %w", name, err)
	}
	m.note(next)
	if act.Kind == job.Append {
		m.metrics.Takeovers.Inc()
		m.log.Info("took over a job", zap.String("job", name), zap.Int64("epoch", next.Job.Epoch), zap.String("from", e.Job.Owner))
		m.start(next)
	}
	return nil
}

// note remembers an entry if it is newer than the one known, and returns since when the newest has been known.
func (m *Manager) note(e *jobstore.Entry) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[e.Job.Request.Name]
	if s == nil || s.entry.N < e.N {
		s = &seen{entry: e, since: time.Now()}
		m.seen[e.Job.Request.Name] = s
	}
	s.skip = quietScans
	return s.since
}

func (m *Manager) count() {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := map[job.State]int{}
	for _, s := range m.seen {
		n[s.entry.Job.State]++
	}
	for _, s := range job.States {
		m.metrics.Jobs.WithLabelValues(string(s)).Set(float64(n[s]))
	}
	m.metrics.Running.Set(float64(len(m.workers)))
}

// Create makes a job, or finds the one that was made by the same request. created tells which.
func (m *Manager) Create(ctx context.Context, r *job.Request) (v *View, created bool, err error) {
	if _, err := m.accepting(r); err != nil {
		return nil, false, err
	}
	if err := m.open(); err != nil {
		return nil, false, err
	}
	j := job.New(*r, m.set.ID, m.set.Lease.Milliseconds(), time.Now().UTC())
	j.ID = rand.Text()
	e, err := m.jobs.Create(ctx, j)
	switch {
	case err == nil:
		m.note(e)
		m.log.Info("new job", zap.String("job", r.Name), zap.String("target", r.Target))
		m.start(e)
		return m.view(e), true, nil
	case !errors.Is(err, jobstore.ErrMoved):
		return nil, false, err
	}
	if e, err = m.load(ctx, r.Name); err != nil {
		return nil, false, err
	}
	if !job.Same(&e.Job.Request, r) {
		return nil, false, fmt.Errorf("job %s: %w: take another name", r.Name, ErrOther)
	}
	v = m.view(e)
	v.Existing = true
	return v, false, nil
}

func (m *Manager) open() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.base == nil {
		return ErrClosing
	}
	return nil
}

// Do applies what a user asks for.
func (m *Manager) Do(ctx context.Context, name string, event job.Event) (*View, error) {
	if err := m.open(); err != nil {
		return nil, err
	}
	known, err := m.load(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := m.targetOf(&known.Job.Request); err != nil && event != job.Pause {
		return nil, err
	}
	e, act, err := m.jobs.Apply(ctx, name, known, job.Ask{Event: event, By: m.set.ID, LeaseMs: m.set.Lease.Milliseconds(), At: time.Now().UTC()})
	if err != nil {
		return nil, err
	}
	m.note(e)
	switch act.Kind {
	case job.Refuse:
		return nil, act.Err
	case job.Append:
		m.log.Info("job changed", zap.String("job", name), zap.String("event", string(event)), zap.String("state", string(e.Job.State)))
		if e.Job.State.Owned() && e.Job.Owner == m.set.ID && e.Job.Epoch > known.Job.Epoch {
			m.start(e)
		} else {
			m.poke(name)
		}
	}
	return m.view(e), nil
}

// Get returns a job.
func (m *Manager) Get(ctx context.Context, name string) (*View, error) {
	e, err := m.load(ctx, name)
	if err != nil {
		return nil, err
	}
	return m.view(e), nil
}

// Glance returns a job as this replayer knows it, without a call to the store (nil: not at all), and whether it is at work on it.
func (m *Manager) Glance(name string) (v *View, working bool) {
	m.mu.Lock()
	s := m.seen[name]
	_, working = m.workers[name]
	m.mu.Unlock()
	if s == nil {
		return nil, working
	}
	return m.view(s.entry), working
}

// load returns a job's newest entry; what cannot change any more is not asked for again.
func (m *Manager) load(ctx context.Context, name string) (*jobstore.Entry, error) {
	if !job.ValidName(name) {
		return nil, fmt.Errorf("job %.80q: %w", name, jobstore.ErrNotFound)
	}
	m.mu.Lock()
	var known *jobstore.Entry
	if s := m.seen[name]; s != nil {
		known = s.entry
	}
	m.mu.Unlock()
	if known != nil && known.Job.State.Final() {
		return known, nil
	}
	e, err := m.jobs.Load(ctx, name, known)
	if err != nil {
		return nil, err
	}
	m.note(e)
	return e, nil
}

// Unreadable stands for the state in a listing where a job's newest entry cannot be read.
const Unreadable job.State = "UNREADABLE"

// List returns every job, by name.
func (m *Manager) List(ctx context.Context) ([]*View, error) {
	names, err := m.jobs.Names(ctx)
	if err != nil {
		return nil, err
	}
	views := make([]*View, 0, len(names))
	for _, name := range names {
		v, err := m.Get(ctx, name)
		if err != nil {
			// One job that this version cannot read must not hide the others.
			v = &View{Name: name, State: Unreadable, Error: err.Error(), Possible: []job.Event{}}
			v.Request.Name = name
		}
		views = append(views, v)
	}
	return views, nil
}

// DryRun plans a request and asks the target whether it would take it, without making a job.
func (m *Manager) DryRun(ctx context.Context, r *job.Request) (*run.Plan, error) {
	dest, err := m.accepting(r)
	if err != nil {
		return nil, err
	}
	return dest.DryRun(ctx, r)
}

// Plan returns the plan of a job: the stored one, with its segments.
func (m *Manager) Plan(ctx context.Context, name string) (*run.Plan, error) {
	e, err := m.load(ctx, name)
	if err != nil {
		return nil, err
	}
	if e.Job.Plan == nil {
		return nil, fmt.Errorf("job %s: %w", name, ErrNoPlan)
	}
	return run.Replan(ctx, m.arch, &e.Job.Request, e.Job.Plan)
}

// ErrNoPlan: the job has not been planned yet, or could not be.
var ErrNoPlan = errors.New("the job has no plan (yet)")

func (m *Manager) view(e *jobstore.Entry) *View {
	m.mu.Lock()
	w := m.workers[e.Job.Request.Name]
	m.mu.Unlock()
	var live []job.Progress
	var now *run.Live
	if w != nil && w.epoch == e.Job.Epoch && e.Job.State.Owned() {
		if x := w.run.Load(); x != nil {
			live = (*x).Progress()
			if l, ok := (*x).(run.Watched); ok {
				at := l.Live()
				now = &at
			}
		}
	}
	return view(e, live, now)
}

// Working lists the jobs that this replayer is at work on, sorted.
func (m *Manager) Working() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.workers))
}
