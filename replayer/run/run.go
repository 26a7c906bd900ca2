package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/metrics"
	"tapedeck.dev/tapedeck/replayer/target"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/session"
)

// Settings of the execution of a job.
type Settings struct {
	Parallel int // partitions sent at the same time, ≥ 1; as many segments are held in memory again, loaded ahead
	// HoldBytes may be held in memory past that where partitions wait for their time, at a speed or in order event-time; 0: nothing.
	HoldBytes    int64
	RetryTimeout time.Duration // how long nothing may go forward before the job fails
	Backoff      Backoff       // between tries
}

// Runner executes jobs. It holds no state of any of them.
type Runner struct {
	// Archive is ours: where jobs and marks of targets are, and the records too where Foreign is nil.
	Archive  *archive.Archive
	Foreign  Source // records written by others; nil for none
	Settings Settings
	Log      *zap.Logger
	Metrics  *metrics.Metrics
}

// Prepare asks the target for its pipeline and makes the plan, or finds the segments of the stored one. It repeats what may pass.
func (r *Runner) Prepare(ctx context.Context, j *job.Job, dest *target.Client) (*Plan, error) {
	if j.Plan != nil && j.Plan.Kafka != nil {
		return nil, failf("the job was planned for a target of type kafka, and targets.%s is a processor now: configure it as it was, or start a job with another name", dest.Config().Name)
	}
	if j.Plan != nil {
		return retry(ctx, r, "store", func(ctx context.Context) (*Plan, error) { return Replan(ctx, r.Source(), &j.Request, j.Plan) })
	}
	pipe, err := r.pipeline(ctx, dest)
	if err != nil {
		return nil, err
	}
	return retry(ctx, r, "store", func(ctx context.Context) (*Plan, error) { return MakePlan(ctx, r.Source(), &j.Request, pipe) })
}

func (r *Runner) pipeline(ctx context.Context, dest *target.Client) (*session.Pipeline, error) {
	return retry(ctx, r, "pipeline", func(ctx context.Context) (*session.Pipeline, error) { return AskPipeline(ctx, dest) })
}

// AskPipeline asks a target once what its pipeline reads. Definite refusals are a *Failure.
func AskPipeline(ctx context.Context, dest *target.Client) (*session.Pipeline, error) {
	p, err := dest.Pipeline(ctx)
	if err == nil {
		return p, nil
	}
	c := dest.Config()
	switch target.ClassOf(err) {
	case target.Missing:
		return nil, failf("target %s (%s) has no pipeline %s: check targets.%s.pipeline: %w", c.Name, c.URL, c.Pipeline, c.Name, err)
	case target.Refused, target.Conflict:
		return nil, failf("target %s does not tell its pipeline: %w", c.Name, err)
	}
	return nil, fmt.Errorf("ask target %s for its pipeline (targets.%s.url): %w", c.Name, c.Name, err)
}

// retry repeats f until it succeeds, fails for good, or has failed for the retry timeout.
func retry[T any](ctx context.Context, r *Runner, call string, f func(context.Context) (T, error)) (T, error) {
	var zero T
	begun := time.Now()
	for n := 1; ; n++ {
		out, err := f(ctx)
		if err == nil {
			return out, nil
		}
		var final *Failure
		switch {
		case ctx.Err() != nil:
			return zero, context.Cause(ctx)
		case errors.As(err, &final), errors.Is(err, ErrFenced):
			return zero, err
		case time.Since(begun) > r.Settings.RetryTimeout:
			return zero, failf("given up after %s (target.retry.timeout): %w", time.Since(begun).Round(time.Millisecond), err)
		}
		r.Metrics.Retries.WithLabelValues(call).Inc()
		r.Log.Warn("will try again", zap.String("call", call), zap.Int("attempt", n), zap.Error(err))
		if err := sleep(ctx, r.Settings.Backoff.wait(n)); err != nil {
			return zero, err
		}
	}
}

// Run is one execution of a job, from the opening of the session to the proof.
type Run struct {
	r     *Runner
	dest  *target.Client
	job   *job.Job
	plan  *Plan
	track *tracker
	req   session.Request
	log   *zap.Logger

	lacking lacking
	keep    *job.Keeper // nil: every record of the ranges
}

// NewRun prepares an execution of j, which has been planned as plan, under j's epoch.
func (r *Runner) NewRun(j *job.Job, plan *Plan, dest *target.Client) *Run {
	return &Run{r: r, dest: dest, job: j, plan: plan, keep: j.Request.Filter.Keeper(), lacking: r.newLacking(),
		track: newTracker(plan, j.Progress, r.trackerOptions(plan, &j.Request)),
		log:   r.Log.With(zap.String("job", j.Request.Name), zap.Int64("epoch", j.Epoch))}
}

// Progress is how far the run is; it may be asked at any time.
func (x *Run) Progress() []job.Progress { return x.track.snapshot() }

// Execute delivers everything that is planned and compares. It returns nil only if the target took exactly the planned records. Errors: *Failure,
// ErrFenced, or the cause of ctx's end.
func (x *Run) Execute(ctx context.Context) (*job.Outcome, error) {
	if err := x.prepareRequest(ctx); err != nil {
		return nil, err
	}
	st, err := x.open(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := x.track.setAll(st.Progress); err != nil {
		return nil, &Failure{err}
	}

	x.log.Info("session open")
	// The workers end when the tracker stops: at the end, at a failure, or with ctx.
	g, gctx := errgroup.WithContext(ctx)
	unwatch := x.track.until(gctx)
	defer unwatch()
	for range x.r.Settings.Parallel {
		g.Go(func() error { return x.loader(gctx) })
		g.Go(func() error { return x.sender(gctx) })
	}
	g.Go(func() error {
		var err error
		st, err = x.deliver(gctx, st)
		x.track.stop(err)
		return err
	})
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	return x.compare(st)
}

func (x *Run) prepareRequest(ctx context.Context) error {
	pipe, err := x.r.pipeline(ctx, x.dest)
	if err != nil {
		return err
	}
	if x.plan.PipelineHash != "" && pipe.Hash != x.plan.PipelineHash {
		return failf("pipeline %s has changed since the job was planned (hash %.12s, now %.12s): half of each would be the result of neither; start a new job",
			x.plan.Pipeline, x.plan.PipelineHash, pipe.Hash)
	}
	decisions, err := retry(ctx, x.r, "store", func(ctx context.Context) ([]json.RawMessage, error) {
		return readDecisions(ctx, x.r.Source(), x.plan.Decisions)
	})
	if err != nil {
		return err
	}
	x.req = sessionRequest(x.plan, &x.job.Request, decisions)
	x.req.Sender, x.req.Epoch = x.job.ID, x.job.Epoch
	return nil
}

// sessionRequest is what a job with this plan asks of its target.
func sessionRequest(plan *Plan, r *job.Request, decisions []json.RawMessage) session.Request {
	req := session.Request{Pipeline: plan.Pipeline, PipelineHash: plan.PipelineHash, Promise: plan.Promise, EndMode: plan.EndMode,
		Schemas: r.Schemas, Decisions: decisions}
	for _, p := range plan.Partitions {
		req.Ranges = append(req.Ranges, session.Range{TopicPartition: p.TopicPartition, TopicID: p.TopicID, Isolation: p.Isolation,
			From: p.From, Until: p.Until, Gaps: p.Gaps, Before: p.Before})
	}
	if w := plan.Windows; w != nil {
		req.Windows = &session.Windows{From: w.First.Start, Until: w.Last.End}
	}
	return req
}

// Ask asks the target once whether it would take what is planned. A refusal is a *Failure.
func Ask(ctx context.Context, arch Source, plan *Plan, r *job.Request, dest *target.Client) error {
	decisions, err := readDecisions(ctx, arch, plan.Decisions)
	if err != nil {
		return err
	}
	req := sessionRequest(plan, r, decisions)
	req.Epoch = 1
	err = dest.Check(ctx, req)
	switch target.ClassOf(err) {
	case target.Conflict, target.Refused, target.Missing:
		return failf("target %s would refuse this replay: %w", dest.Config().Name, err)
	}
	if err != nil {
		return fmt.Errorf("ask target %s (targets.%s.url): %w", dest.Config().Name, dest.Config().Name, err)
	}
	return nil
}

// open opens the session, or takes it over from a lower epoch, or finds it again after the target's restart.
func (x *Run) open(ctx context.Context) (*session.Status, error) {
	return retry(ctx, x.r, "open", func(ctx context.Context) (*session.Status, error) {
		st, err := x.dest.Open(ctx, x.job.Request.Name, x.req)
		if err == nil {
			return st, x.check(st)
		}
		switch target.ClassOf(err) {
		case target.Conflict:
			return nil, x.conflict(ctx, err)
		case target.Refused, target.Missing:
			return nil, failf("the target refuses to open the session: %w", err)
		}
		return nil, fmt.Errorf("open the session: %w", err)
	})
}

// check looks for the ends of a session in its status.
func (x *Run) check(st *session.Status) error {
	switch {
	case st.Sender != x.job.ID: // before the epoch, which says nothing across jobs
		return failf("session %s at target %s belongs to another job of that name (another archive's, or one that was there before); start a job with another name",
			x.job.Request.Name, x.job.Request.Target)
	case st.Epoch > x.job.Epoch:
		return fmt.Errorf("the session has epoch %d: %w", st.Epoch, ErrFenced)
	case st.State == session.Failed:
		return failf("the target's session has failed: %s", st.Error)
	case st.State == session.Cancelled:
		return failf("the session was cancelled at the target; start a job with another name")
	}
	return nil
}

// conflict finds out what a 409 to the opening means.
func (x *Run) conflict(ctx context.Context, refused error) error {
	st, err := x.dest.Status(ctx, x.job.Request.Name)
	switch {
	case target.ClassOf(err) == target.Missing: // there is no session that could be another replayer's
		return failf("the target refuses to open the session: %w", refused)
	case err != nil:
		return fmt.Errorf("the target answers %w; and its status: %w", refused, err)
	}
	if err := x.check(st); err != nil {
		return err
	}
	return failf("the target refuses to open the session: %w", refused)
}

// deliver waits until everything has been accepted, finishes the session, and begins again where the target went back in between.
func (x *Run) deliver(ctx context.Context, st *session.Status) (*session.Status, error) {
	var since time.Time // when this attempt to finish began
	for n := 1; ; n++ {
		if !x.track.allDone() {
			return nil, x.track.failure()
		}
		if st.State == session.Finished {
			return st, nil
		}
		if n == 1 {
			x.log.Info("everything delivered")
		}
		if since.IsZero() {
			since = time.Now()
		}
		next, err := x.finish(ctx)
		if err != nil {
			return nil, err
		}
		if st = next; st.State == session.Finished {
			return st, nil
		}
		// Not finished yet, or back at older offsets: nothing is lost by asking again.
		back, err := x.track.setAll(st.Progress)
		if err != nil {
			return nil, &Failure{err}
		}
		if back {
			x.r.Metrics.Rewinds.Inc()
			if err := x.track.stuck(); err != nil {
				return nil, failf("finish the session: %w", err)
			}
			since, n = time.Time{}, 0
		} else if d := time.Since(since); d > x.r.Settings.RetryTimeout {
			return nil, failf("the target has everything, and has not finished the session for %s (target.retry.timeout)", d.Round(time.Millisecond))
		}
		if err := sleep(ctx, x.r.Settings.Backoff.wait(n)); err != nil {
			return nil, err
		}
	}
}

func (x *Run) finish(ctx context.Context) (*session.Status, error) {
	return retry(ctx, x.r, "finish", func(ctx context.Context) (*session.Status, error) {
		st, err := x.dest.Finish(ctx, x.job.Request.Name, x.job.Epoch)
		if err == nil {
			return st, x.check(st)
		}
		switch target.ClassOf(err) {
		case target.Missing: // the target has restarted and forgotten
			return x.open(ctx)
		case target.Conflict: // a lower epoch, or not everything is there (any more)
			st, statusErr := x.dest.Status(ctx, x.job.Request.Name)
			if statusErr != nil {
				return nil, fmt.Errorf("finish the session: %w; and its status: %w", err, statusErr)
			}
			return st, x.check(st)
		case target.Refused:
			return nil, failf("the target refuses to finish the session: %w", err)
		}
		return nil, fmt.Errorf("finish the session: %w", err)
	})
}

// compare is the postcondition: the target took what was planned, of each partition each record once.
func (x *Run) compare(st *session.Status) (*job.Outcome, error) {
	planned := x.track.proofs()
	var total int64
	for _, s := range st.Progress {
		want, ok := planned[s.TopicPartition]
		if !ok {
			return nil, failf("the target reports %s, which was not planned", s.TopicPartition)
		}
		if got := job.ProofOf(s); got != want {
			return nil, failf("delivered is not planned: %s: the target took %d records (first %d, last %d, checksum %s), the archive holds %d (first %d, last %d, checksum %s)",
				s.TopicPartition, got.Count, got.First, got.Last, got.Checksum, want.Count, want.First, want.Last, want.Checksum)
		}
		delete(planned, s.TopicPartition)
		total += want.Count
	}
	for tp := range planned {
		return nil, failf("delivered is not planned: the target reports nothing of %s", tp)
	}
	if total == 0 {
		return nil, failf("the window holds no record")
	}
	if w := x.plan.Windows; w != nil && x.plan.EndMode == session.Hold {
		if err := checkClosed(w, st.Progress); err != nil {
			return nil, err
		}
	}
	return &job.Outcome{Progress: st.Progress, Outputs: st.Outputs, Emitted: st.Emitted, Late: st.Late, Future: st.Future, Poison: st.Poison,
		DecisionsCompared: st.DecisionsCompared}, nil
}

// ErrFinished: the session to cancel has finished already.
var ErrFinished = errors.New("the session has finished")

// CancelSession closes a job's session at its target. nil where there is none, or it is another job's. ErrFinished where everything has
// been delivered and finished before.
func (r *Runner) CancelSession(ctx context.Context, j *job.Job, dest *target.Client) error {
	name := j.Request.Name
	_, err := retry(ctx, r, "cancel", func(ctx context.Context) (struct{}, error) {
		var none struct{}
		// Whose session it is cannot change: nobody opens one under a name that is taken.
		st, err := dest.Status(ctx, name)
		if err == nil && st.Sender != j.ID {
			r.Log.Info("the target's session of this name is another job's and is left alone", zap.String("job", name))
			return none, nil
		}
		if err == nil {
			err = dest.Cancel(ctx, name, j.Epoch)
		}
		if err == nil {
			return none, nil
		}
		switch target.ClassOf(err) {
		case target.Missing:
			return none, nil
		case target.Conflict:
			st, statusErr := dest.Status(ctx, name)
			switch {
			case statusErr != nil:
				return none, fmt.Errorf("cancel the session: %w; and its status: %w", err, statusErr)
			case st.Epoch > j.Epoch:
				return none, ErrFenced
			case st.State == session.Finished:
				return none, &Failure{ErrFinished}
			case st.State != session.Open:
				return none, nil // failed or cancelled: there is nothing left to close
			}
			return none, failf("the target refuses to cancel the session: %w", err)
		case target.Refused:
			return none, failf("the target refuses to cancel the session: %w", err)
		}
		return none, fmt.Errorf("cancel the session: %w", err)
	})
	return err
}
