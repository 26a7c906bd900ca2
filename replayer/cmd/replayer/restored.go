package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"tapedeck.dev/tapedeck/replayer/job"
)

// kafkaPlanTable says where a restore would write, and what it would do to the target besides.
func kafkaPlanTable(w io.Writer, k *job.KafkaPlan) error {
	fmt.Fprintln(w)
	rows := [][]any{{"FROM", "INTO", "LOG END", "LANE"}}
	for _, p := range k.Parts {
		rows = append(rows, []any{p.TopicPartition, p.To, p.Begin, p.Lane})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	for _, t := range k.Topics {
		if !t.Create {
			continue
		}
		fmt.Fprintf(w, "creates %s: %d partitions, replication factor %s", t.Name, t.Partitions, orDefault(t.Replication))
		for _, key := range slices.Sorted(maps.Keys(t.Config)) {
			fmt.Fprintf(w, ", %s=%s", key, t.Config[key])
		}
		fmt.Fprintln(w)
	}
	for _, warning := range k.Warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
	if r := k.Registry; r != nil {
		for _, s := range r.Schemas {
			to := "a new id"
			if s.To >= 0 {
				to = fmt.Sprintf("id %d", s.To)
			}
			fmt.Fprintf(w, "schema %s version %d, id %d: %s as %s\n", s.Subject, s.Version, s.ID, s.Action, to)
		}
		for _, l := range r.Levels {
			fmt.Fprintf(w, "compatibility level %s of subject %s: %s\n", l.Level, l.Subject, l.Action)
		}
		for _, topic := range slices.Sorted(maps.Keys(r.Rewritten)) {
			fmt.Fprintf(w, "records of %s get other ids, so their bytes change: %d ids\n", topic, len(r.Rewritten[topic]))
		}
		notes(w, r.Notes)
	}
	if g := k.Groups; g != nil {
		for _, p := range g.Groups {
			fmt.Fprintf(w, "group %s becomes %s: %d positions\n", p.Group, p.To, p.Positions)
		}
		notes(w, g.Notes)
	}
	return nil
}

func orDefault(n int) string {
	if n == 0 {
		return "as the brokers have it"
	}
	return fmt.Sprint(n)
}

func notes(w io.Writer, list []string) {
	for _, n := range list {
		fmt.Fprintln(w, "note:", n)
	}
}

// restoredTable says what a target Kafka got.
func restoredTable(w io.Writer, r *job.Restored) error {
	rows := [][]any{{"FROM", "INTO", "RECORDS", "FIRST", "LAST", "TIMESTAMPS CHANGED", "IDS CHANGED"}}
	for _, p := range r.Parts {
		rows = append(rows, []any{p.TopicPartition, p.To, p.Records, p.First, p.Last, p.TimestampsChanged, p.Rewritten})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	notes(w, r.Notes)
	for _, g := range r.Groups {
		for _, p := range g.Positions {
			switch {
			case p.New < 0:
				fmt.Fprintf(w, "group %s as %s: %s at %d is left out: %s\n", g.Group, g.To, p.TopicPartition, p.Old, p.Note)
			default:
				fmt.Fprintf(w, "group %s as %s: %s at %d is %s at %d %s\n", g.Group, g.To, p.TopicPartition, p.Old, p.Target, p.New, p.Note)
			}
		}
	}
	return nil
}
