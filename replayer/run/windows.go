package run

import (
	"context"
	"math"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

// A job of some windows computes them anew without the rest. Let F be where the first whole window begins and U where the last one ends.
//
// It begins, per partition, where no record before can be of such a window: event times run ahead of record timestamps by maxFuture at most (what does
// so by more is a future record, and set aside), so records with timestamps < F − maxFuture have event times < F. The receiver is told the greatest
// timestamp that was left out, and refuses where it could spoil a window. That no earlier progress is known does not change what is late:
// engine.Only says why.
//
// It ends where nothing of such a window can come any more: U plus the delay has been reached, so that the windows are closed, and what is late for them
// has come. Where event times are timestamps, the archive tells that. Where they are a field's, only maxLag does; without it, everything up to the
// frontier is read. Whether the windows were closed is known for sure at the end, and a job that holds is COMPLETED only if they were.

// sincePlanner is a Source that can plan from a point in record time on.
type sincePlanner interface {
	PlanSince(ctx context.Context, r archive.Since) (*archive.PartitionPlan, error)
}

// planWindows plans the partitions of a request for windows.
func planWindows(ctx context.Context, arch Source, r *job.Request, pipe *session.Pipeline) ([]archive.PartitionPlan, *job.WindowsPlan, error) {
	planner, ok := arch.(sincePlanner)
	if !ok {
		return nil, nil, failf("windows of an archive that others wrote are not in this version; give from and until")
	}
	if pipe.WindowMs <= 0 {
		return nil, nil, failf("target %s does not say what windows pipeline %s has (windowMs and sources in its answer to GET /pipelines/%s), and without that no warm-up can be planned; "+
			"give from and until", r.Target, pipe.Name, pipe.Name)
	}
	w, err := r.Windows.Within(pipe.WindowMs)
	if err != nil {
		return nil, nil, failf("windows: %w", err)
	}
	chosen, err := choose(ctx, arch, r, pipe.Inputs)
	if err != nil {
		return nil, nil, err
	}
	parts := make([]archive.PartitionPlan, len(chosen.tps))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(planParallel)
	for i, tp := range chosen.tps {
		q, err := since(r, w, pipe, tp)
		if err != nil {
			return nil, nil, err
		}
		g.Go(func() error {
			p, err := planner.PlanSince(gctx, q)
			if err != nil {
				return wrapDefinite(err)
			}
			parts[i] = *p
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	for i := range parts {
		w.WarmUp.AddBefore(parts[i].Segments, w.First.Start)
	}
	if err := checkSome(w, parts); err != nil {
		return nil, nil, err
	}
	return parts, w, checkLost(r, parts)
}

// since says which records of a partition its windows need.
func since(r *job.Request, w *job.WindowsPlan, pipe *session.Pipeline, chain record.TopicPartition) (archive.Since, error) {
	q := archive.Since{TP: chain, From: w.First.Start, Reach: math.MaxInt64, Below: math.MinInt64, PassUnreadable: r.OnUnreadable == job.UnreadableSkip}
	topic := inKafka(chain).Topic
	for _, s := range pipe.Sources {
		if s.Topic != topic {
			continue
		}
		switch {
		case s.EventTime == session.EventTimeRecord:
			q.Reach, q.Below = w.Last.End+s.DelayMs, w.Last.End
			return q, nil
		case s.MaxFutureMs < 0: // any record may be of any time
			q.From = math.MinInt64
		default:
			q.From -= s.MaxFutureMs
		}
		if lag := r.Windows.MaxLagMs; lag >= 0 {
			q.Reach = w.Last.End + s.DelayMs + lag
		}
		return q, nil
	}
	return q, failf("target %s does not say how pipeline %s tells the time of %s (sources in its answer to GET /pipelines/%s)", r.Target, pipe.Name, topic, pipe.Name)
}

// checkSome refuses windows that no record can be in.
func checkSome(w *job.WindowsPlan, parts []archive.PartitionPlan) error {
	for i := range parts {
		for _, s := range parts[i].Segments {
			if s.Count > 0 {
				return nil
			}
		}
	}
	return failf("there is nothing to replay: the archive ends before windows that begin at %s: of %d partitions none has a record that can be in them", job.TimeText(w.First.Start), len(parts))
}

// checkClosed is the postcondition of a job of windows that holds: each partition has brought everything for them.
func checkClosed(w *job.WindowsPlan, progress []session.Progress) error {
	for _, p := range progress {
		switch {
		case p.Watermark == nil:
			return failf("windows until %s are not complete: %s has brought no event time that would close them; leave the partition out, ask for endMode \"drain\" "+
				"to have open windows as they are, or wait until more is archived", job.TimeText(w.Last.End), p.TopicPartition)
		case *p.Watermark < w.Last.End:
			return failf("windows until %s are not complete: what was replayed of %s closes those until %s; ask for windows until then, for endMode \"drain\" "+
				"to have open windows as they are, or wait until more is archived (and with maxLag: leave it out)", job.TimeText(w.Last.End), p.TopicPartition, job.TimeText(*p.Watermark))
		}
	}
	return nil
}
