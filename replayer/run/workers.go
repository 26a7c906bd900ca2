package run

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/replayer/target"
)

// loader reads segments ahead of the senders until the tracker stops.
func (x *Run) loader(ctx context.Context) error {
	for {
		p, index, gen, ok := x.track.nextLoad()
		if !ok {
			return x.track.failure()
		}
		l, err := retry(ctx, x.r, "load", func(ctx context.Context) (*loaded, error) {
			return x.loadOrPass(ctx, p, index)
		})
		if err == nil {
			x.r.Metrics.Records.Add(float64(l.proof.Count))
			err = x.track.finishedLoad(p, gen, l)
		}
		if err != nil {
			x.track.stop(err)
			return err
		}
	}
}

// sender hands loaded segments over until the tracker stops.
func (x *Run) sender(ctx context.Context) error {
	for {
		p, l, s, ok := x.track.nextSend()
		if !ok {
			return x.track.failure()
		}
		if err := x.send(ctx, p, l, s); err != nil {
			x.track.stop(err)
			return err
		}
	}
}

// send hands one segment, or the part s of it, over once and notes what came of it. An error ends the run.
func (x *Run) send(ctx context.Context, p *part, l *loaded, s *span) error {
	name := x.job.Request.Name
	body, err := l.part(p.segs[l.index].Key, s)
	if err != nil {
		return &Failure{err}
	}
	ack, err := x.dest.Put(ctx, name, x.job.Epoch, p.rng.TopicPartition, s.start, body)
	if err == nil {
		step := x.track.accepted(p, l, ack.Expected)
		if step > 0 {
			x.r.Metrics.Segments.Inc()
			x.r.Metrics.Bytes.Add(float64(s.bytes))
			x.r.Metrics.Sent.Add(float64(s.records))
			return nil
		}
		if step < 0 {
			x.wentBack(p, ack.Expected)
		}
		if err := x.track.stuck(); err != nil {
			return failf("the target accepts %s of %s and wants offset %d: %w", p.segs[l.index].Key, p.rng.TopicPartition, ack.Expected, err)
		}
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var answer *target.Error
	errors.As(err, &answer)
	switch target.ClassOf(err) {
	case target.Refused:
		return failf("the target refuses %s: %w", p.segs[l.index].Key, err)
	case target.Busy:
		x.r.Metrics.Busy.Inc()
		if q := x.track.held(p, l, answer.Needs); q != nil {
			return x.reconcile(ctx, q, target.Busy, err)
		}
	case target.Missing, target.Conflict:
		x.track.held(p, l, nil)
		return x.reconcile(ctx, p, target.ClassOf(err), err)
	default:
		x.r.Metrics.Retries.WithLabelValues("send").Inc()
		x.log.Warn("send again", zap.Stringer("partition", p.rng.TopicPartition), zap.Int64("start", s.start), zap.Error(err))
		x.track.held(p, l, nil)
	}
	if stuck := x.track.stuck(); stuck != nil {
		return failf("send %s: %w: %w", p.segs[l.index].Key, stuck, err)
	}
	return nil
}

// reconcile asks where the session is after an answer that says that it is not where we thought: the offset is not the next one, somebody else has
// taken over, or the target has restarted and forgotten the session. The status says which of them.
func (x *Run) reconcile(ctx context.Context, p *part, class target.Class, why error) error {
	name := x.job.Request.Name
	st, err := x.dest.Status(ctx, name)
	if target.ClassOf(err) == target.Missing || err == nil && class == target.Missing {
		st, err = x.open(ctx)
	}
	if err != nil {
		var final *Failure
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.As(err, &final) || errors.Is(err, ErrFenced) {
			return err
		}
		// The segment goes out again after its wait, and brings us back here.
		x.log.Warn("ask for the session's status again later", zap.NamedError("answer", why), zap.Error(err))
		if stuck := x.track.stuck(); stuck != nil {
			return failf("%w: %w: %w", stuck, why, err)
		}
		return nil
	}
	if err := x.check(st); err != nil {
		return err
	}
	for _, s := range st.Progress {
		if s.TopicPartition == p.rng.TopicPartition {
			if x.track.set(p, s.Expected) < 0 {
				x.wentBack(p, s.Expected)
			}
			if stuck := x.track.stuck(); stuck != nil {
				return failf("%w: %w", stuck, why)
			}
			return nil
		}
	}
	return &Failure{fmt.Errorf("the target's session does not report %s", p.rng.TopicPartition)}
}

func (x *Run) wentBack(p *part, expected int64) {
	x.r.Metrics.Rewinds.Inc()
	x.log.Info("the target wants older offsets again", zap.Stringer("partition", p.rng.TopicPartition), zap.Int64("expected", expected))
}
