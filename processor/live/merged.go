package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/kafka"
)

// errDeposed: the group has given the pipeline to another process.
var errDeposed = errors.New("the group has given the pipeline to another process")

// elector is the membership by which one process at a time runs a merged pipeline: a consumer of the decisions topic, which
// has one partition, and of which it reads nothing.
type elector struct {
	c       *kafka.Consumer
	elected bool
	board   *board
	log     *zap.Logger
}

// poll looks for a change of the membership.
func (e *elector) poll(ctx context.Context, max time.Duration) error {
	events, err := e.c.Poll(ctx, max)
	if err != nil {
		return err
	}
	for _, ev := range events {
		switch ev := ev.(type) {
		case kafka.Assigned:
			e.elected = e.elected || len(ev.Partitions) > 0
		case kafka.Revoked:
			e.elected = e.elected && len(ev.Partitions) == 0
		case kafka.GroupError:
			e.board.groupError(e.log, ev.Err)
		}
	}
	return nil
}

// runMerged stands by and runs the pipeline whenever the group elects this process. It stays in the group over errors of a
// run: leaving would hand the same trouble to the next.
func (r *Runner) runMerged(ctx context.Context) (err error) {
	log := r.cfg.Log.With(zap.String("pipeline", r.cfg.Pipeline.Name))
	c, err := r.consumer(r.cfg.group())
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := c.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("leave group %s: %w", r.cfg.group(), closeErr)
		}
	}()
	if err := c.Subscribe([]string{r.cfg.Pipeline.DecisionsTopic()}); err != nil {
		return fmt.Errorf("join group %s: %w", r.cfg.group(), err)
	}
	e := &elector{c: c, board: &r.board, log: log}
	r.board.setState(Standby, nil)
	var again, looked time.Time
	wait := backoffMin
	for {
		if err := e.poll(ctx, r.pollWait()); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		now := time.Now()
		r.board.alive(now)
		if !e.elected {
			if now.Sub(looked) >= standbyLook {
				looked = now
				if err := r.lookInStandby(ctx); err != nil {
					return err
				}
			}
			continue
		}
		if now.Before(again) {
			continue
		}
		commits := r.Status().Commits
		err := r.reign(ctx, e)
		var refused *RefusedError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &refused):
			return err
		case errors.Is(err, errDeposed):
			log.Info("standing by", zap.Error(err))
			r.board.setState(Standby, nil)
			wait = backoffMin
		default:
			if r.Status().Commits > commits {
				wait = backoffMin
			}
			log.Warn("pipeline starts again from what is committed", zap.Error(err), zap.Duration("after", wait))
			r.retrying(err)
			again = time.Now().Add(wait)
			wait = min(2*wait, backoffMax)
		}
	}
}

// standbyLook is how often a process that stands by looks whether there is anything to stand by for.
const standbyLook = 10 * time.Second

// lookInStandby tells an outage from standing by, and ends a standby without a topic: a group over a topic that is gone elects nobody,
// for ever. The error begins the pipeline anew, which makes the topic.
func (r *Runner) lookInStandby(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, standbyLook/2)
	defer cancel()
	name := r.cfg.Pipeline.DecisionsTopic()
	topics, err := r.cfg.Admin.Topics(bounded, name)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		r.board.setState(Retrying, fmt.Errorf("standing by, but Kafka does not answer: %w", err))
		return nil
	}
	if _, ok := topics[name]; !ok {
		return fmt.Errorf("topic %s is gone", name)
	}
	r.board.setState(Standby, nil)
	return nil
}

// reign runs the pipeline from committed state until it is deposed or something goes wrong.
func (r *Runner) reign(ctx context.Context, e *elector) (err error) {
	r.board.setState(CatchingUp, nil)
	fetch, err := r.consumer("")
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := fetch.Close(); closeErr != nil && err == nil {
			err = closeErr
		}
	}()
	t, err := newTask(ctx, &r.cfg, &r.board, fetch, e.c)
	if err != nil {
		return err
	}
	defer t.close()
	if _, err := t.begin(ctx, nil); err != nil {
		return err
	}
	for {
		if err := e.poll(ctx, 0); err != nil {
			return err
		}
		if !e.elected {
			return errDeposed
		}
		events, err := fetch.Poll(ctx, r.pollWait())
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, ev := range events {
			if err := t.handle(ctx, ev); err != nil {
				return err
			}
		}
		if err := t.tick(ctx); err != nil {
			return err
		}
	}
}
