// Package inspect provides the archiver's commands that look at an archive: inspect, verify and accept-gap.
package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
)

// Output formats of -o.
const (
	JSON  = "json"
	Table = "table"
)

// parallel bounds the partitions that are inspected at a time.
const parallel = 8

// Inspect writes one entry per partition of the topics (all where empty), by topic and partition. A topic that is named
// and not there is an error, and so is an address at which there is nothing at all; an archive without segments is an empty answer.
func Inspect(ctx context.Context, w io.Writer, a *archive.Archive, topics []string, format string) error {
	infos, err := infos(ctx, a, topics)
	if err != nil {
		return err
	}
	if format == JSON {
		return writeJSON(w, infos)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOPIC\tPARTITION\tSTART\tNEXT\tRECORDS\tSEGMENTS\tBYTES\tFIRST TIMESTAMP\tLAST TIMESTAMP\tGAPS")
	for _, i := range infos {
		first, last := "-", "-"
		if i.Records > 0 {
			first, last = timestamp(i.MinTimestamp), timestamp(i.MaxTimestamp)
		}
		gaps := make([]string, len(i.Gaps))
		for k, g := range i.Gaps {
			gaps[k] = fmt.Sprintf("[%d,%d) %s", g.From, g.To, g.Class)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", i.Topic, i.Partition, i.Start, i.Next, i.Records, i.Segments, i.Bytes,
			first, last, orDash(strings.Join(gaps, ", ")))
	}
	return t.Flush()
}

func infos(ctx context.Context, a *archive.Archive, topics []string) ([]*archive.PartitionInfo, error) {
	tps, err := a.List(ctx, topics...)
	if err != nil {
		return nil, err
	}
	if err := allThere(topics, tps, a); err != nil {
		return nil, err
	}
	if len(tps) == 0 {
		objs, _, err := a.Store().List(ctx, "", "", 1)
		if err != nil {
			return nil, fmt.Errorf("look for anything: %w", err)
		}
		if len(objs) == 0 {
			return nil, fmt.Errorf("there is nothing at %s: the address is wrong, or no archiver has started over it yet", a.Store())
		}
	}
	infos := make([]*archive.PartitionInfo, len(tps))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, tp := range tps {
		g.Go(func() (err error) {
			infos[i], err = a.Inspect(ctx, tp)
			return err
		})
	}
	return infos, g.Wait()
}

func allThere(topics []string, tps []record.TopicPartition, a *archive.Archive) error {
	have := map[string]bool{}
	for _, tp := range tps {
		have[tp.Topic] = true
	}
	for _, topic := range topics {
		if !have[topic] {
			return fmt.Errorf("topic %s is %w at %s below %s/ (archiver inspect without --topic shows what is there)", topic, archive.ErrNotArchived, a.Store(), a.TopicsDir())
		}
	}
	return nil
}

// Verify reads the archive in full and writes a report. It returns the number of findings; an error means that it could
// not run.
func Verify(ctx context.Context, w io.Writer, a *archive.Archive, topics []string, format string) (findings int, err error) {
	r, err := a.Verify(ctx, topics...)
	if err != nil {
		return 0, err
	}
	if format == JSON {
		return len(r.Findings), writeJSON(w, r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(r.Findings) > 0 {
		fmt.Fprintln(t, "FINDING\tTOPIC\tPARTITION\tOBJECT\tBYTE\tTEXT")
	}
	for _, f := range r.Findings {
		at := "-"
		if f.Kind == archive.KindCorrupt {
			at = fmt.Sprint(f.Offset)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\n", f.Kind, f.Topic, f.Partition, orDash(f.Object), at, f.Text)
	}
	if err := t.Flush(); err != nil {
		return len(r.Findings), err
	}
	verdict := "clean"
	if n := len(r.Findings); n > 0 {
		verdict = fmt.Sprintf("%d findings", n)
	}
	_, err = fmt.Fprintf(w, "%d partitions, %d segments, %d records, %d bytes: %s\n", r.Partitions, r.Segments, r.Records, r.Bytes, verdict)
	return len(r.Findings), err
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// timestamp renders milliseconds since the Unix epoch; −1 is "none" in Kafka.
func timestamp(ms int64) string {
	if ms == -1 {
		return "none"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
