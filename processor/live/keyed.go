package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/kafka"
)

// originWait is how long a process that does not own partition 0 waits before it looks for the origin again.
const originWait = 300 * time.Millisecond

// keyedRun is this process's part of a keyed pipeline. The consumer and what the group gave it outlive the task, which is
// thrown away after an error and made anew.
type keyedRun struct {
	r     *Runner
	c     *kafka.Consumer
	owned map[kafka.TP]bool
	begun map[kafka.TP]bool // part of the task
	t     *task
	again time.Time
	wait  time.Duration
	log   *zap.Logger
}

// runKeyed reads the partitions that the group gives to this process.
func (r *Runner) runKeyed(ctx context.Context) (err error) {
	c, err := r.consumer(r.cfg.group())
	if err != nil {
		return err
	}
	k := &keyedRun{r: r, c: c, owned: map[kafka.TP]bool{}, begun: map[kafka.TP]bool{}, wait: backoffMin, log: r.cfg.Log.With(zap.String("pipeline", r.cfg.Pipeline.Name))}
	defer func() {
		k.drop()
		if closeErr := c.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("leave group %s: %w", r.cfg.group(), closeErr)
		}
	}()
	if err := c.Subscribe(r.cfg.inputs()); err != nil {
		return fmt.Errorf("join group %s: %w", r.cfg.group(), err)
	}
	r.board.setState(Standby, nil)
	for {
		events, err := c.Poll(ctx, r.pollWait())
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.board.alive(time.Now())
		commits := r.Status().Commits
		if err := k.round(ctx, events); err != nil {
			var refused *RefusedError
			if errors.As(err, &refused) || ctx.Err() != nil {
				return err
			}
			if err := k.recover(err, commits); err != nil {
				return err
			}
		}
	}
}

// round takes the events of one poll and does what is due. Membership is noted for all events, also behind one that ends the task.
func (k *keyedRun) round(ctx context.Context, events []kafka.Event) error {
	var first error
	for _, ev := range events {
		switch ev := ev.(type) {
		case kafka.Assigned:
			for _, tp := range ev.Partitions {
				k.owned[tp] = true
			}
		case kafka.Revoked:
			for _, tp := range ev.Partitions {
				delete(k.owned, tp)
				delete(k.begun, tp)
				if k.t != nil {
					k.t.remove(tp)
				}
			}
			if len(k.owned) == 0 {
				k.drop()
				k.r.board.setState(Standby, nil)
			}
		default:
			if k.t != nil && first == nil {
				first = k.t.handle(ctx, ev)
			}
		}
	}
	if first != nil {
		return first
	}
	if err := k.begin(ctx); err != nil {
		return err
	}
	if k.t == nil || k.t.eng == nil {
		return nil
	}
	return k.t.tick(ctx)
}

// begin starts the partitions that are ours and not read yet.
func (k *keyedRun) begin(ctx context.Context) error {
	var fresh []kafka.TP
	for _, tp := range sortedTPs(k.owned) {
		if !k.begun[tp] {
			fresh = append(fresh, tp)
		}
	}
	if len(fresh) == 0 || time.Now().Before(k.again) {
		return nil
	}
	if k.t == nil {
		k.r.board.setState(CatchingUp, nil)
		t, err := newTask(ctx, &k.r.cfg, &k.r.board, k.c, k.c)
		if err != nil {
			return err
		}
		k.t = t
	}
	wait, err := k.t.begin(ctx, fresh)
	if err != nil {
		return err
	}
	if wait {
		k.again = time.Now().Add(originWait)
		return nil
	}
	for _, tp := range fresh {
		k.begun[tp] = true
	}
	return nil
}

// recover throws the task away; the next round begins anew with all partitions that are ours.
func (k *keyedRun) recover(err error, commits int64) error {
	if k.r.Status().Commits > commits {
		k.wait = backoffMin
	}
	k.log.Warn("pipeline starts again from what is committed", zap.Error(err), zap.Duration("after", k.wait))
	k.r.retrying(err)
	k.again = time.Now().Add(k.wait)
	k.wait = min(2*k.wait, backoffMax)
	for _, tp := range sortedTPs(k.begun) {
		if err := k.c.Stop(tp); err != nil {
			return fmt.Errorf("stop reading %s: %w", tp, err)
		}
	}
	k.drop()
	return nil
}

func (k *keyedRun) drop() {
	if k.t != nil {
		k.t.close()
		k.t = nil
	}
	k.begun = map[kafka.TP]bool{}
}
