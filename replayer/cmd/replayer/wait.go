package main

import (
	"context"
	"fmt"
	"io"
	"os"
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
	pollEvery = 300 * time.Millisecond
	// unreachable is how long a replayer may be away (a restart, a takeover) before waiting for its job is given up.
	unreachable = 2 * time.Minute
	lineEvery   = 5 * time.Second // between plain lines of progress
)

// waitFor shows a job's progress on stderr until it has ended, prints it, and returns its outcome as the exit status.
func waitFor(cmd *cobra.Command, r *remote, c *client.Client, name string) error {
	ctx, stop := signal.NotifyContext(ctxOf(cmd), os.Interrupt, syscall.SIGTERM)
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

func follow(ctx context.Context, c *client.Client, name string, m *meter) (*manager.View, error) {
	defer m.end()
	answered := time.Now()
	for {
		v, err := c.Get(ctx, name)
		switch {
		case err == nil:
			answered = time.Now()
			m.show(v)
			if v.State.Ended() {
				return v, nil
			}
		case ctx.Err() != nil:
			return nil, fmt.Errorf("interrupted; job %s goes on: wait for it with `replayer wait %s`", name, name)
		case !client.Passing(err):
			return nil, err
		case time.Since(answered) > unreachable:
			return nil, fmt.Errorf("wait for job %s: no useful answer for %s: %w", name, unreachable, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollEvery):
		}
	}
}

// meter shows progress: one line that is written over on a terminal, a line at each change of state and every few seconds elsewhere.
type meter struct {
	w        io.Writer
	terminal bool
	last     string
	state    job.State
	at       time.Time
	drawn    bool
}

func newMeter(w io.Writer) *meter {
	m := &meter{w: w}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			m.terminal = info.Mode()&os.ModeCharDevice != 0
		}
	}
	return m
}

func (m *meter) show(v *manager.View) {
	line := meterLine(v)
	if line == m.last {
		return
	}
	if m.terminal {
		fmt.Fprintf(m.w, "\r\x1b[K%s", line)
		m.drawn = true
	} else if v.State != m.state || time.Since(m.at) >= lineEvery {
		fmt.Fprintln(m.w, line)
		m.at = time.Now()
	}
	m.last, m.state = line, v.State
}

func (m *meter) end() {
	if m.drawn {
		fmt.Fprintln(m.w)
	}
}

func meterLine(v *manager.View) string {
	t := v.Totals
	if t.SegmentsPlanned == 0 {
		return fmt.Sprintf("%s %s", v.Name, v.State)
	}
	return fmt.Sprintf("%s %s %3d%%  segments %d/%d  partitions %d/%d  records %d  MiB %.1f/%.1f", v.Name, v.State,
		int64(t.Segments)*100/int64(t.SegmentsPlanned), t.Segments, t.SegmentsPlanned, t.PartitionsDone, t.Partitions, t.Records,
		float64(t.Bytes)/(1<<20), float64(t.BytesPlanned)/(1<<20))
}
