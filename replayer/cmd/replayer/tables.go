package main

import (
	"fmt"
	"io"
	"sort"
	"text/tabwriter"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
)

// table writes rows with aligned columns; the first is the heading.
func table(w io.Writer, rows [][]any) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, cell)
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

func planTable(w io.Writer, p *run.Plan) error {
	if p.Kafka != nil {
		fmt.Fprintf(w, "%s into %s (Kafka cluster %s)\n", p.Name, p.Target, p.Kafka.ClusterID)
	} else {
		fmt.Fprintf(w, "%s into %s (pipeline %s), %s, %s\n", p.Name, p.Target, p.Pipeline, p.Promise, p.EndMode)
	}
	rows := [][]any{{"TOPIC", "PARTITION", "FROM", "UNTIL", "SEGMENTS", "RECORDS ≤", "BYTES", "GAPS"}}
	for _, pp := range p.Partitions {
		var records, bytes int64
		for _, s := range pp.Segments {
			records += s.Count
			bytes += s.Bytes
		}
		rows = append(rows, []any{pp.Topic, pp.Partition, pp.From, pp.Until, len(pp.Segments), records, bytes, gaps(pp.Gaps)})
	}
	rows = append(rows, []any{"total", p.Totals.Partitions, "", "", p.Totals.Segments, p.Totals.Records, p.Totals.Bytes, ""})
	if err := table(w, rows); err != nil {
		return err
	}
	if err := figuresTable(w, p); err != nil {
		return err
	}
	if p.Kafka != nil {
		return kafkaPlanTable(w, p.Kafka)
	}
	if x := p.Windows; x != nil {
		fmt.Fprintf(w, "%d windows of %s: the first complete one is [%s, %s), the last [%s, %s); warm-up: %d segments, %d records, %d bytes\n", x.Count, time.Duration(x.SizeMs)*time.Millisecond,
			job.TimeText(x.First.Start), job.TimeText(x.First.End), job.TimeText(x.Last.Start), job.TimeText(x.Last.End), x.WarmUp.Segments, x.WarmUp.Records, x.WarmUp.Bytes)
	}
	if p.Decisions != nil {
		_, err := fmt.Fprintf(w, "with the decisions in %s [%d, %d)\n", p.Decisions.TopicPartition, p.Decisions.From, p.Decisions.Until)
		return err
	}
	return nil
}

func gaps(gs []segment.Skip) string {
	if len(gs) == 0 {
		return "-"
	}
	var s string
	for i, g := range gs {
		if i > 0 {
			s += " "
		}
		s += fmt.Sprintf("[%d,%d) %s", g.From, g.To, g.Class)
	}
	return s
}

func listTable(w io.Writer, views []*manager.View) error {
	rows := [][]any{{"NAME", "STATE", "TARGET", "PARTITIONS", "SEGMENTS", "BYTES", "CREATED", "ERROR"}}
	for _, v := range views {
		t := v.Totals
		rows = append(rows, []any{v.Name, v.State, v.Request.Target, of(t.PartitionsDone, t.Partitions), of(t.Segments, t.SegmentsPlanned),
			of(t.Bytes, t.BytesPlanned), v.CreatedAt.UTC().Format(time.RFC3339), first(v.Error, 60)})
	}
	return table(w, rows)
}

func of[T int | int64](n, all T) string { return fmt.Sprintf("%d/%d", n, all) }

func first(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func viewTable(w io.Writer, v *manager.View) error {
	fmt.Fprintf(w, "%s %s (target %s, epoch %d", v.Name, v.State, v.Request.Target, v.Epoch)
	if v.Owner != "" {
		fmt.Fprintf(w, ", at work: %s", v.Owner)
	}
	fmt.Fprintln(w, ")")
	if v.Error != "" {
		fmt.Fprintf(w, "reason: %s\n", v.Error)
	}
	if len(v.Partitions) > 0 {
		rows := [][]any{{"TOPIC", "PARTITION", "FROM", "UNTIL", "EXPECTED", "SEGMENTS", "RECORDS", "CHECKSUM", "PROOF"}}
		for _, p := range v.Partitions {
			proof := "-"
			if p.Delivered != nil {
				proof = "DIFFERS"
				if *p.Delivered == p.Planned {
					proof = "equal"
				}
			}
			rows = append(rows, []any{p.Topic, p.Partition, p.From, p.Until, p.Expected, of(p.Segments, p.SegmentsPlanned),
				p.Planned.Count, p.Planned.Checksum, proof})
		}
		if err := table(w, rows); err != nil {
			return err
		}
	}
	if err := gapsTable(w, v); err != nil {
		return err
	}
	if v.Restored != nil {
		return restoredTable(w, v.Restored)
	}
	if t := v.Target; t != nil {
		fmt.Fprintf(w, "emitted %d, late %d, future %d, poison %d\n", t.Emitted, t.Late, t.Future, t.Poison)
		if v.Request.Promise == session.Reproduce && !t.DecisionsCompared {
			fmt.Fprintln(w, "the decisions are those of the archive alone: the target could not compare them with the live decision log")
		}
		roles := make([]string, 0, len(t.Outputs))
		for role := range t.Outputs {
			roles = append(roles, role)
		}
		sort.Strings(roles)
		for _, role := range roles {
			fmt.Fprintf(w, "%s: %s\n", role, t.Outputs[role])
		}
	}
	return nil
}
