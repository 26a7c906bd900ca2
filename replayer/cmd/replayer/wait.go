package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/replayer/client"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/shared/service"
)

const (
	// unreachable is how long a replayer may be away (a restart, a takeover) before waiting for its job is given up.
	unreachable = 2 * time.Minute
	askAgain    = 500 * time.Millisecond // after a stream of events that has ended before the job
)

// waitFor shows a job's progress on stderr until it has ended, prints it, and returns its outcome as the exit status.
func waitFor(cmd *cobra.Command, r *remote, c *client.Client, name string) error {
	ctx, stop := signal.NotifyContext(ctxOf(cmd), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	v, err := follow(ctx, c, name, newMeter(cmd.ErrOrStderr()))
	if err != nil {
		return &service.ExitError{Code: exitNotRun, Err: err}
	}
	if err := r.print(cmd.OutOrStdout(), v, func(w io.Writer) error { return viewTable(w, v) }); err != nil {
		return err
	}
	if v.State == job.Completed {
		return gapsLeft(v)
	}
	why := fmt.Errorf("job %s is %s", name, v.State)
	if v.Error != "" {
		why = fmt.Errorf("job %s is %s: %s", name, v.State, v.Error)
	}
	return &service.ExitError{Code: exitOutcome, Err: why}
}

// follow watches a job's events until it has ended. The stream may break off while the job goes on: a replayer restarts, or another takes over.
func follow(ctx context.Context, c *client.Client, name string, m meter) (*manager.View, error) {
	defer m.end()
	answered := time.Now()
	for {
		var last *manager.View
		err := c.Watch(ctx, name, func(v *manager.View) {
			answered, last = time.Now(), v
			m.show(v)
		})
		switch {
		case last != nil && last.State.Ended():
			return last, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("interrupted; job %s goes on: wait for it with `replayer wait %s`", name, name)
		case err != nil && !client.Passing(err):
			return nil, err
		case time.Since(answered) > unreachable:
			return nil, fmt.Errorf("wait for job %s: no useful answer for %s; it may go on all the same, see `replayer status %s` when the replayer answers again: %w",
				name, unreachable, name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
}
