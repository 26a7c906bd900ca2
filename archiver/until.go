package archiver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/service"
)

// tellProgress is between two log lines of a run to the end.
const tellProgress = 10 * time.Second

// Backup is the outcome of a run to the ends that the partitions had when it began.
type Backup struct {
	Complete   bool              `json:"complete"` // it came to its end; false: interrupted or out of time
	Findings   []string          `json:"findings"` // why not everything is archived, or what was lost; empty: none
	Missing    []string          `json:"missing"`  // named in topics, and not in Kafka
	Partitions []BackupPartition `json:"partitions"`
}

// BackupPartition is one partition of a Backup. Offsets are half-open ranges: [Start, Next) was archived by this run.
type BackupPartition struct {
	Topic     string           `json:"topic"`
	Partition int32            `json:"partition"`
	State     partition.State  `json:"state"`
	Reason    partition.Reason `json:"reason,omitempty"`
	Error     string           `json:"lastError,omitempty"`
	Start     int64            `json:"start"`       // next of the chain when the run began; −1: not known
	Next      int64            `json:"next"`        // next of the chain now
	Until     int64            `json:"until"`       // what the run was to archive to, frozen when it began
	Records   int64            `json:"records"`     // in segments that this run wrote
	Segments  int64            `json:"segments"`    // that this run wrote
	Lost      int64            `json:"lostOffsets"` // recorded as lost by this run
	// Pending offsets lay behind Until when the run began, held back by a transaction that was open.
	Pending int64 `json:"pendingOffsets"`
}

// RunUntilNow freezes the ends of all partitions selected, archives exactly to them, and returns. It is no member of the group: it takes all
// partitions itself, and stores positions in the group only while that has no member. Beside a running archiver it is safe (the chain decides) and does
// the work twice. An error means that it could not begin; where ctx ends first the Backup is not complete.
func (a *Archiver) RunUntilNow(ctx context.Context) (*Backup, error) {
	b := &Backup{}
	err := a.archive(ctx, func(ctx context.Context, l *loop, wat *watcher) error {
		look := wat.alone()
		pending, err := l.freeze(ctx, look, b)
		if err != nil {
			return err
		}
		err = l.runToEnds(ctx)
		b.Complete = err == nil
		l.report(b, pending)
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// freeze reads the ends of all partitions of the topics selected and takes the partitions. It returns, per partition, how many offsets
// open transactions hold back.
func (l *loop) freeze(ctx context.Context, look *watcher, b *Backup) (pending map[kafka.TP]int64, err error) {
	seen, all, err := look.look(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for topics: %w", err)
	}
	b.Missing = append([]string{}, seen.missing...)
	l.topics, l.everHad = seen.selected, true
	var tps []kafka.TP
	for _, name := range seen.selected {
		for p := range all[name].Partitions {
			tps = append(tps, kafka.TP{Topic: name, Partition: p})
		}
	}
	// The stable ends come first: what is above them a moment later is not taken for held back by a transaction where it is newer.
	l.ends, err = look.admin.StableOffsets(ctx, tps, l.set.Isolation)
	if err != nil {
		return nil, fmt.Errorf("read the ends of %d partitions: %w", len(tps), err)
	}
	pending, err = l.heldBack(ctx, look.admin, tps)
	if err != nil {
		return nil, err
	}
	l.log.Info("archiving to the ends that the partitions have now", zap.Int("topics", len(seen.selected)), zap.Int("partitions", len(tps)))
	for _, tp := range tps {
		l.assign(tp)
	}
	l.ownedChanged()
	return pending, nil
}

// heldBack finds what lies between the last stable offset and the log's end. The end may have moved since the freeze, so that a partition
// without an open transaction is asked for its stable offset again.
func (l *loop) heldBack(ctx context.Context, admin *kafka.Admin, tps []kafka.TP) (map[kafka.TP]int64, error) {
	ranges, err := admin.Offsets(ctx, tps)
	if err != nil {
		return nil, fmt.Errorf("read the ends of %d partitions: %w", len(tps), err)
	}
	again, err := admin.StableOffsets(ctx, tps, l.set.Isolation)
	if err != nil {
		return nil, fmt.Errorf("read the ends of %d partitions: %w", len(tps), err)
	}
	pending := map[kafka.TP]int64{}
	for _, tp := range tps {
		if n := ranges[tp].End - again[tp]; n > 0 && again[tp] == l.ends[tp] {
			pending[tp] = n
		}
	}
	return pending, nil
}

// runToEnds turns the loop until every partition has come to its end.
func (l *loop) runToEnds(ctx context.Context) error {
	told := time.Now()
	for {
		left := 0
		for _, a := range l.parts {
			if !a.p.Done() {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if time.Since(told) > tellProgress {
			told = time.Now()
			l.log.Info("archiving", zap.Int("partitions left", left), zap.Int("of", len(l.parts)), zap.NamedError("waiting for", l.work.trouble.any()))
		}
		if err := l.turn(ctx); err != nil {
			return err
		}
	}
}

// report fills in what became of the partitions.
func (l *loop) report(b *Backup, pending map[kafka.TP]int64) {
	b.Findings, b.Partitions = []string{}, make([]BackupPartition, 0, len(l.parts))
	find := func(format string, args ...any) { b.Findings = append(b.Findings, fmt.Sprintf(format, args...)) }
	if len(b.Missing) > 0 {
		find("topics that are named are not in Kafka: %s", strings.Join(b.Missing, ", "))
	} else if len(l.topics) == 0 {
		find("topics.regex matches no topic: nothing was archived")
	}
	tps := make([]kafka.TP, 0, len(l.parts))
	for tp := range l.parts {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, func(a, b kafka.TP) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	for _, tp := range tps {
		s := l.parts[tp].p.Status()
		p := BackupPartition{Topic: tp.Topic, Partition: tp.Partition, State: s.State, Reason: s.Reason, Start: s.Begin, Next: s.Archived, Until: l.ends[tp],
			Records: s.Records, Segments: s.Segments, Lost: s.Lost, Pending: pending[tp]}
		if s.State != partition.Finished {
			p.Error = s.Error
		}
		switch {
		case s.State == partition.Stopped:
			find("%s stopped: %s: %s", tp, s.Reason, s.Error)
		case !b.Complete && !l.parts[tp].p.Done():
			find("%s: not archived to %d, but to %d", tp, p.Until, p.Next)
		}
		if s.Lost > 0 {
			find("%s: %d offsets were removed from Kafka before they were archived, and are recorded as lost", tp, s.Lost)
		}
		b.Partitions = append(b.Partitions, p)
	}
}

// Code is the exit status: 0 all archived, 1 with a finding, 2 where the run did not come to its end.
func (b *Backup) Code() int {
	switch {
	case !b.Complete:
		return 2
	case len(b.Findings) > 0:
		return 1
	}
	return 0
}

// Write writes the backup as a table with its findings, or as JSON.
func (b *Backup) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(b)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOPIC\tPARTITION\tSTATE\tSTART\tNEXT\tUNTIL\tRECORDS\tSEGMENTS\tLOST\tPENDING")
	var records, segments int64
	for _, p := range b.Partitions {
		state := string(p.State)
		if p.Reason != "" {
			state += " " + string(p.Reason)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", p.Topic, p.Partition, state, p.Start, p.Next, p.Until, p.Records, p.Segments, p.Lost, p.Pending)
		records, segments = records+p.Records, segments+p.Segments
	}
	if err := t.Flush(); err != nil {
		return err
	}
	verdict := "all archived"
	switch {
	case !b.Complete:
		verdict = "not complete: interrupted or out of time"
	case len(b.Findings) > 0:
		verdict = fmt.Sprintf("%d findings", len(b.Findings))
	}
	for _, f := range b.Findings {
		fmt.Fprintln(w, "finding:", f)
	}
	_, err := fmt.Fprintf(w, "%d partitions, %d segments, %d records: %s\n", len(b.Partitions), segments, records, verdict)
	return err
}

// RunCommand returns `run --until now`.
func RunCommand() *cobra.Command {
	var until, output string
	var bound time.Duration
	c := service.JobCommand("archiver", "run --until now", "Archive to the present ends of all partitions, then exit: for a nightly backup", Keys(),
		func(ctx context.Context, f *service.Frame, out io.Writer) error {
			b, err := runUntil(ctx, f, until, output, bound)
			if err != nil {
				return &service.ExitError{Code: 2, Err: err}
			}
			if err := b.Write(out, output == "json"); err != nil {
				return &service.ExitError{Code: 2, Err: fmt.Errorf("write the result: %w", err)}
			}
			if code := b.Code(); code != 0 {
				return &service.ExitError{Code: code}
			}
			return nil
		}, ConnectorFile)
	c.Long = `Archive to the present ends of all partitions that the configuration selects, then exit: for a nightly backup.

The ends are read once, at the start; each partition is archived exactly to its end and its last segment ends there, whatever arrives
meanwhile. With isolation.level=read_committed the end is the last stable offset: what an open transaction holds back (PENDING) is left for the
next run. The command is no member of the group and takes all partitions itself; it serves no HTTP. Settings are those of the service
(archiver --help).

Exit status: 0 all archived; 1 with a finding (a partition stopped, offsets recorded as lost, a topic is missing); 2 where it could not
begin, was interrupted, or --timeout passed.`
	c.Example = "  archiver run --until now --config archiver.yaml -o json"
	c.Flags().StringVar(&until, "until", "", "where to end: now (required)")
	c.Flags().StringVarP(&output, "output", "o", "table", "output format: json or table")
	c.Flags().DurationVar(&bound, "timeout", 0, "give up after so long (exit status 2); 0: never")
	return c
}

func runUntil(ctx context.Context, f *service.Frame, until, output string, bound time.Duration) (*Backup, error) {
	switch {
	case until != "now":
		return nil, errors.New("--until: want now; to archive without an end run archiver without `run`")
	case output != "json" && output != "table":
		return nil, fmt.Errorf("-o %q is neither json nor table", output)
	case bound < 0:
		return nil, errors.New("--timeout: want a duration of 0 or more")
	}
	if bound > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, bound)
		defer cancel()
	}
	var b *Backup
	err := prepared(ctx, f, func(t *Tasks) (err error) {
		b, err = t.all[0].RunUntilNow(ctx) // it is no member of a group: one takes all partitions
		return err
	})
	return b, err
}
