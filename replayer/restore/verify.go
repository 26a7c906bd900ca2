package restore

import (
	"context"
	"fmt"
	"slices"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/offsetmap"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

// verify is the postcondition: what the target has committed, read from it anew, is what the archive holds, and lies in the target's log with nothing
// else in between.
func (x *execution) verify(ctx context.Context) (*job.Outcome, error) {
	if err := x.d.step(ctx, "before "+stepVerify, -1); err != nil {
		return nil, err
	}
	l := newLedger()
	if err := readLog(ctx, x.d.client(nil), x.d.admin, progressTP(x.k), l.add); err != nil {
		return nil, fmt.Errorf("read the progress of the job: %w", err)
	}
	out := &job.Outcome{Restored: &job.Restored{ClusterID: x.k.ClusterID, Notes: slices.Clone(x.k.Warnings)}}
	byTarget := map[kafka.TP]*written{}
	var total int64
	for i, p := range x.parts {
		s, err := l.of(partID{x.job.ID, p.rng.TopicPartition}, p.rng.From)
		if err != nil {
			return nil, &run.Failure{Err: err}
		}
		if err := x.compare(p, &s); err != nil {
			return nil, err
		}
		total += s.Proof.Count
		w := byTarget[p.to]
		if w == nil {
			w = &written{tp: p.to, from: p.from}
			byTarget[p.to] = w
		}
		w.add(&s)
		out.Progress = append(out.Progress, session.Progress{TopicPartition: p.rng.TopicPartition, Expected: s.Next, Count: s.Proof.Count, First: s.Proof.First,
			Last: s.Proof.Last, Checksum: s.Proof.Checksum})
		out.Restored.Parts = append(out.Restored.Parts, restored(&x.k.Parts[i], &s))
		if s.Changed > 0 {
			out.Restored.Notes = append(out.Restored.Notes, fmt.Sprintf("%s: %d records have another timestamp: 0 became 1 ms, and what lies beyond ±%d ms its nearest end",
				p.rng.TopicPartition, s.Changed, int64(lastMs)))
		}
	}
	if total == 0 {
		return nil, run.Failf("the window holds no record")
	}
	if err := x.look(ctx, byTarget); err != nil {
		return nil, err
	}
	return out, nil
}

// compare holds what is committed of a partition against the archive.
func (x *execution) compare(p *part, s *state) error {
	x.mu.Lock()
	want, verified := p.proof, p.verified
	x.mu.Unlock()
	if s.Next != p.rng.Until || verified != p.rng.Until {
		return run.Failf("delivered is not planned: %s: committed up to %d, read up to %d, planned up to %d", p.rng.TopicPartition, s.Next, verified, p.rng.Until)
	}
	if s.Proof != want {
		return run.Failf("delivered is not planned: %s: the target has %d records (first %d, last %d, checksum %s), the archive holds %d (first %d, last %d, checksum %s)",
			p.rng.TopicPartition, s.Proof.Count, s.Proof.First, s.Proof.Last, s.Proof.Checksum, want.Count, want.First, want.Last, want.Checksum)
	}
	var n int64
	for _, r := range s.entry.Runs {
		n += r.Len
	}
	runs := s.entry.Runs
	if n != want.Count || n > 0 && (runs[0].Old != want.First || runs[len(runs)-1].Old+runs[len(runs)-1].Len-1 != want.Last) {
		return run.Failf("delivered is not planned: %s: the offset map has %d records, the archive %d", p.rng.TopicPartition, n, want.Count)
	}
	return nil
}

// written is what a job wrote into one partition of the target.
type written struct {
	tp      kafka.TP
	from    int64 // nothing is below
	runs    []offsetmap.Run
	sources int
	commits int64
}

func (w *written) add(s *state) {
	w.runs = append(w.runs, s.entry.Runs...)
	w.sources++
	w.commits += s.Commits
}

// gaps are the ranges of the target's log, from its end when the job was planned to the last record of the job, that hold no record of the job; size is
// the sum of their lengths.
func (w *written) gaps() (gaps []kafka.Span, size int64) {
	slices.SortFunc(w.runs, func(a, b offsetmap.Run) int { return int(max(-1, min(1, a.New-b.New))) })
	at := w.from
	for _, r := range w.runs {
		if r.New > at {
			gaps = append(gaps, kafka.Span{First: at, Count: r.New - at})
			size += r.New - at
		}
		at = r.New + r.Len
	}
	return gaps, size
}

// fewGaps is up to how many gaps are looked at one by one; of more the whole range is read.
const fewGaps = 16

// look holds what was committed against the target's log.
func (x *execution) look(ctx context.Context, byTarget map[kafka.TP]*written) error {
	var tps []kafka.TP
	for tp, w := range byTarget {
		if len(w.runs) > 0 {
			tps = append(tps, tp)
		}
	}
	logs, err := x.d.admin.Offsets(ctx, tps)
	if err != nil {
		return err
	}
	for _, tp := range tps {
		w := byTarget[tp]
		gaps, size := w.gaps()
		first, end := w.runs[0].New, w.runs[len(w.runs)-1].New+w.runs[len(w.runs)-1].Len
		for i := 1; i < len(w.runs); i++ {
			if w.runs[i-1].New+w.runs[i-1].Len > w.runs[i].New {
				return run.Failf("delivered is not planned: %s has two records at offset %d", tp, w.runs[i].New)
			}
		}
		switch log := logs[tp]; {
		case first < w.from:
			return run.Failf("delivered is not planned: %s has a record of the job at offset %d, and its log ended at %d before", tp, first, w.from)
		case log.Start > first:
			return run.Failf("the target has deleted restored records of %s: its log begins at %d, and the first of them was at %d; check the topic's retention", tp, log.Start, first)
		case log.End < end:
			return run.Failf("the target has lost restored records of %s: its log ends at %d, and they were committed up to %d", tp, log.End, end)
		}
		// Each commit leaves one marker, and the last one lies behind the last record. Where the gaps have just that many offsets, nothing else is there. More
		// are left by transactions that were aborted, or by somebody else.
		if x.k.Append || w.sources == 1 && size == w.commits-1 {
			continue
		}
		if err := x.alone(ctx, w, gaps); err != nil {
			return err
		}
	}
	return nil
}

// alone looks for records of others in the gaps.
func (x *execution) alone(ctx context.Context, w *written, gaps []kafka.Span) error {
	if len(gaps) > fewGaps {
		last := gaps[len(gaps)-1]
		gaps = []kafka.Span{{First: gaps[0].First, Count: last.First + last.Count - gaps[0].First}}
	}
	for _, g := range gaps {
		i := 0
		other := int64(-1)
		_, err := scan(ctx, x.d.client(nil), w.tp, g.First, g.First+g.Count, func(rec *record.Record) (bool, error) {
			for i < len(w.runs) && w.runs[i].New+w.runs[i].Len <= rec.Offset {
				i++
			}
			if i == len(w.runs) || rec.Offset < w.runs[i].New {
				other = rec.Offset
			}
			return other < 0, nil
		})
		if err != nil {
			return err
		}
		if other >= 0 {
			return run.Failf("delivered is not planned: %s of the target holds a record at offset %d, between those of the job, that is not of the job: something else writes to it", w.tp, other)
		}
	}
	return nil
}
