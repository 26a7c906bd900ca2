package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/jobstore"
	"tapedeck.dev/tapedeck/replayer/run"
)

// Why a worker's context ended. Shutdown is the base context's own end.
var (
	errMoved  = errors.New("the job is not ours to work on any more")
	errCancel = errors.New("the job is to be cancelled")
)

// worker is one job at work in this process, under one epoch.
type worker struct {
	m     *Manager
	name  string
	epoch int64
	log   *zap.Logger
	run   atomic.Pointer[run.Execution]
	poked chan struct{}
	stop  context.CancelCauseFunc
	done  chan struct{} // closed when it has ended
	last  atomic.Pointer[jobstore.Entry]
}

// start begins to work on a job that this replayer owns by e. A worker of an older epoch ends first.
func (m *Manager) start(e *jobstore.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.base == nil {
		return // shutting down: another replayer takes it after the lease
	}
	name := e.Job.Request.Name
	ctx, cancel := context.WithCancelCause(m.base)
	w := &worker{m: m, name: name, epoch: e.Job.Epoch, poked: make(chan struct{}, 1), stop: cancel, done: make(chan struct{}),
		log: m.log.With(zap.String("job", name), zap.Int64("epoch", e.Job.Epoch))}
	w.last.Store(e)
	old := m.workers[name]
	if old != nil {
		old.stop(errMoved)
	}
	m.workers[name] = w
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		defer close(w.done)
		defer cancel(nil)
		if old != nil {
			<-old.done
		}
		w.work(ctx)
		m.mu.Lock()
		if m.workers[name] == w {
			delete(m.workers, name)
		}
		m.mu.Unlock()
	}()
}

// poke has the worker of a job look at the store now rather than at its next renewal.
func (m *Manager) poke(name string) {
	m.mu.Lock()
	w := m.workers[name]
	m.mu.Unlock()
	if w == nil {
		return
	}
	select {
	case w.poked <- struct{}{}:
	default:
	}
}

// work keeps the lease and does what the job's state asks for.
func (w *worker) work(ctx context.Context) {
	keepCtx, stopKeeping := context.WithCancel(ctx)
	runCtx, stopRun := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { w.keep(keepCtx, stopRun) })
	err := w.act(ctx, runCtx)
	stopKeeping()
	keeping.Wait()
	stopRun(nil)
	switch {
	case err == nil:
	case errors.Is(err, errMoved), errors.Is(err, run.ErrFenced):
		w.log.Info("stopped working on the job: it is paused, or another replayer's", zap.Error(err))
		w.closeLate(ctx)
	default:
		w.release(ctx)
	}
}

// closeLate closes a session that this worker may have opened after the job's end. A sleeper wakes between planning and opening; meanwhile another has taken the
// job over and found no session to close, and the job is CANCELLED. The target has nothing against the sleeper's epoch then, and nobody would ever come back to
// its session.
func (w *worker) closeLate(ctx context.Context) {
	j := w.last.Load().Job
	if j.State != job.Cancelled || w.run.Load() == nil {
		return
	}
	dest, err := w.m.targetOf(&j.Request)
	if err == nil {
		j.Epoch = w.epoch // no more than what is ours to close
		_, err = dest.Cancel(ctx, &j)
	}
	if err != nil && !errors.Is(err, run.ErrFenced) {
		w.log.Warn("close what was opened at the target after the job had been cancelled", zap.Error(err))
	}
}

// act does the work; nil: the job has ended, and it is written. runCtx is the part of ctx in which segments may be sent.
func (w *worker) act(ctx, runCtx context.Context) error {
	dest, err := w.m.targetOf(&w.last.Load().Job.Request)
	if err != nil {
		return w.end(ctx, job.Ask{Event: job.Error, Error: err.Error()})
	}
	if w.last.Load().Job.State != job.Cancelling {
		out, err := w.deliver(runCtx, dest)
		if !errors.Is(err, errCancel) {
			return w.outcome(ctx, out, err)
		}
	}
	j := w.last.Load().Job
	left, err := dest.Cancel(ctx, &j)
	switch {
	case err == nil:
		return w.end(ctx, job.Ask{Event: job.CancelDone, Target: left})
	case errors.Is(err, run.ErrFinished) && j.Plan != nil:
		// The cancel came too late: everything is there. Say so, with the proof.
		out, err := w.deliver(ctx, dest)
		return w.outcome(ctx, out, err)
	}
	return w.outcome(ctx, nil, err)
}

func (w *worker) outcome(ctx context.Context, out *job.Outcome, err error) error {
	var failure *run.Failure
	switch {
	case err == nil:
		return w.end(ctx, job.Ask{Event: job.Delivered, Target: out})
	case errors.As(err, &failure):
		return w.end(ctx, job.Ask{Event: job.Error, Error: failure.Error()})
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errMoved), errors.Is(err, run.ErrFenced):
		return err
	}
	// Nobody expects it. Were the job released, another replayer would take it at once and get as far, again and again.
	return w.end(ctx, job.Ask{Event: job.Error, Error: err.Error()})
}

// deliver plans, if that has not been done, sends and compares.
func (w *worker) deliver(ctx context.Context, dest Destination) (*job.Outcome, error) {
	j := w.last.Load().Job
	plan, err := dest.Prepare(ctx, &j)
	if err != nil {
		return nil, err
	}
	if j.State == job.Starting {
		e, act, err := w.apply(ctx, job.Ask{Event: job.Started, Plan: plan.Pin()})
		if err != nil {
			return nil, err
		}
		switch {
		case act.Kind == job.Fenced || e.Job.Epoch != w.epoch:
			return nil, errMoved
		case e.Job.State == job.Cancelling:
			return nil, errCancel
		case e.Job.State != job.Running:
			return nil, errMoved
		}
		j = e.Job
	}
	x := dest.Start(&j, plan)
	w.run.Store(&x)
	w.log.Info("sending", zap.Int("partitions", plan.Totals.Partitions), zap.Int("segments", plan.Totals.Segments), zap.Int64("bytes", plan.Totals.Bytes))
	return x.Execute(ctx)
}

// progress is what is stored with the job; nil before sending.
func (w *worker) progress() []job.Progress {
	if x := w.run.Load(); x != nil {
		return (*x).Progress()
	}
	return nil
}

// apply writes what this worker says, until the store takes it, or it turns out that it has no say any more, or ctx ends.
func (w *worker) apply(ctx context.Context, ask job.Ask) (*jobstore.Entry, job.Action, error) {
	ask.By, ask.Epoch, ask.LeaseMs, ask.Progress = w.m.set.ID, w.epoch, w.m.set.Lease.Milliseconds(), w.progress()
	for n := 1; ; n++ {
		ask.At = time.Now().UTC()
		e, act, err := w.m.jobs.Apply(ctx, w.name, w.last.Load(), ask)
		if err == nil {
			w.saw(e)
			return e, act, nil
		}
		if ctx.Err() != nil {
			return nil, act, context.Cause(ctx)
		}
		w.log.Warn("write the job's state, will try again", zap.String("event", string(ask.Event)), zap.Error(err))
		select {
		case <-ctx.Done():
			return nil, act, context.Cause(ctx)
		case <-time.After(min(time.Duration(n)*200*time.Millisecond, 5*time.Second)):
		}
	}
}

// saw keeps the newest entry; the keeper and the worker may come here in either order.
func (w *worker) saw(e *jobstore.Entry) {
	w.m.note(e)
	for {
		cur := w.last.Load()
		if cur.N >= e.N || w.last.CompareAndSwap(cur, e) {
			return
		}
	}
}

// end writes the job's end. An end that is not possible any more has been overtaken by another, and is dropped.
func (w *worker) end(ctx context.Context, ask job.Ask) error {
	e, act, err := w.apply(ctx, ask)
	if err != nil {
		return err
	}
	switch act.Kind {
	case job.Append:
		w.m.metrics.Ended.WithLabelValues(string(e.Job.State)).Inc()
		w.log.Info("job ended", zap.String("state", string(e.Job.State)), zap.String("error", e.Job.Error))
		return nil
	case job.Fenced:
		return fmt.Errorf("%s under epoch %d, and the job has %d: %w", ask.Event, w.epoch, e.Job.Epoch, errMoved)
	}
	return fmt.Errorf("%s, and the job is %s: %w", ask.Event, e.Job.State, errMoved)
}

// keep renews the lease every third of it, and watches for what users and other replayers do. It stops the run where the job
// is paused or taken (errMoved), or cancelled (errCancel).
func (w *worker) keep(ctx context.Context, stopRun context.CancelCauseFunc) {
	tick := time.NewTicker(max(w.m.set.Lease/3, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.poked:
		}
		e, act, err := w.m.jobs.Apply(ctx, w.name, w.last.Load(), job.Ask{Event: job.Renew, By: w.m.set.ID, Epoch: w.epoch,
			LeaseMs: w.m.set.Lease.Milliseconds(), Progress: w.progress(), At: time.Now().UTC()})
		if err != nil {
			// Going on is safe: if somebody takes the job over, the target refuses us.
			if ctx.Err() == nil {
				w.m.metrics.LeaseFails.Inc()
				w.log.Warn("renew the lease", zap.Error(err))
			}
			continue
		}
		w.saw(e)
		switch {
		case act.Kind == job.Fenced:
			stopRun(errMoved)
			return
		case e.Job.State == job.Cancelling:
			stopRun(errCancel) // the first call counts
		}
	}
}

// release gives the job up, so that another replayer, or this one after its restart, goes on without waiting for the lease.
func (w *worker) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	e, act, err := w.m.jobs.Apply(ctx, w.name, w.last.Load(), job.Ask{Event: job.Release, By: w.m.set.ID, Epoch: w.epoch,
		LeaseMs: w.m.set.Lease.Milliseconds(), Progress: w.progress(), At: time.Now().UTC()})
	if err != nil {
		w.log.Warn("release the job; another replayer takes it over after the lease", zap.Error(err))
		return
	}
	w.m.note(e)
	w.log.Info("released the job", zap.Bool("released", act.Kind == job.Append), zap.String("state", string(e.Job.State)))
}
