package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/run"
)

// Destination is one target of the configuration, of whatever type.
type Destination interface {
	// Accepts reports why a request makes no sense for this type of target, whatever the archive holds; nil where it does.
	Accepts(r *job.Request) error
	// DryRun plans a request and asks the target whether it would take it. Nothing is repeated, nothing is changed.
	DryRun(ctx context.Context, r *job.Request) (*run.Plan, error)
	// Prepare plans a job, or finds the segments of its stored plan again. It repeats what may pass.
	Prepare(ctx context.Context, j *job.Job) (*run.Plan, error)
	// Start prepares an execution of a planned job under the job's epoch.
	Start(j *job.Job, plan *run.Plan) run.Execution
	// Cancel ends at the target what the job began there; the outcome, where there is one, says what is left. Errors: *run.Failure (of run.ErrFinished
	// where everything had been delivered before), run.ErrFenced, or the cause of ctx's end.
	Cancel(ctx context.Context, j *job.Job) (*job.Outcome, error)
}

func (m *Manager) targetOf(r *job.Request) (Destination, error) {
	if d := m.targets[r.Target]; d != nil {
		return d, nil
	}
	known := slices.Sorted(maps.Keys(m.targets))
	if len(known) == 0 {
		return nil, fmt.Errorf("%w: target %q is unknown: this replayer has no targets; configure targets.<name>.type and what it needs", ErrBadRequest, r.Target)
	}
	return nil, fmt.Errorf("%w: target %q is unknown; configured: %v", ErrBadRequest, r.Target, known)
}

// accepting returns the destination of a new request that makes sense for it.
func (m *Manager) accepting(r *job.Request) (Destination, error) {
	d, err := m.targetOf(r)
	if err != nil {
		return nil, err
	}
	if err := d.Accepts(r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	return d, nil
}
