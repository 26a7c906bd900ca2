package run

import (
	"context"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/target"
)

// Execution is one run of a planned job under one epoch, whatever its target.
type Execution interface {
	// Execute delivers everything that is planned and compares. nil only if the target holds exactly the planned records. Errors: *Failure,
	// ErrFenced, or the cause of ctx's end.
	Execute(ctx context.Context) (*job.Outcome, error)
	// Progress is how far it is; it may be asked at any time.
	Progress() []job.Progress
}

// Processor is a target that speaks the session protocol.
type Processor struct {
	r *Runner
	c *target.Client
}

// To makes a processor a destination of this runner's jobs.
func (r *Runner) To(c *target.Client) *Processor { return &Processor{r: r, c: c} }

// Accepts reports why a request makes no sense for a processor, whatever the archive holds; nil where it does.
func (d *Processor) Accepts(r *job.Request) error { return r.CheckProcessor() }

// DryRun plans a request and asks the target whether it would take it. Nothing is repeated, nothing is changed.
func (d *Processor) DryRun(ctx context.Context, r *job.Request) (*Plan, error) {
	pipe, err := AskPipeline(ctx, d.c)
	if err != nil {
		return nil, err
	}
	plan, err := MakePlan(ctx, d.r.Source(), r, pipe)
	if err != nil {
		return nil, err
	}
	return plan, Ask(ctx, d.r.Source(), plan, r, d.c)
}

// Prepare plans a job, or finds the segments of its stored plan again. It repeats what may pass.
func (d *Processor) Prepare(ctx context.Context, j *job.Job) (*Plan, error) {
	return d.r.Prepare(ctx, j, d.c)
}

// Start prepares an execution of j, which has been planned as plan, under j's epoch.
func (d *Processor) Start(j *job.Job, plan *Plan) Execution { return d.r.NewRun(j, plan, d.c) }

// Cancel closes the job's session. A *Failure of ErrFinished where everything has been delivered and finished before.
func (d *Processor) Cancel(ctx context.Context, j *job.Job) (*job.Outcome, error) {
	return nil, d.r.CancelSession(ctx, j, d.c)
}
