package archiver

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

const (
	commitBound = 10 * time.Second
	commitRetry = time.Second
)

// committer stores positions in the group, beside the poll loop. Only positions of confirmed segments come here. A position that is not
// stored costs nothing: it is a hint and a measure, the archive is the truth.
type committer struct {
	cons *kafka.Consumer
	log  *zap.Logger
	m    *metrics

	wake chan struct{}

	mu      sync.Mutex
	pending map[kafka.TP]kafka.CommitOffset
	flying  map[kafka.TP]kafka.CommitOffset // taken by the flush under way, and not forgotten since
}

func newCommitter(cons *kafka.Consumer, log *zap.Logger, m *metrics) *committer {
	return &committer{cons: cons, log: log, m: m, wake: make(chan struct{}, 1), pending: map[kafka.TP]kafka.CommitOffset{}}
}

func (c *committer) add(tp kafka.TP, offset int64, metadata string) {
	c.mu.Lock()
	c.pending[tp] = kafka.CommitOffset{Offset: offset, LeaderEpoch: record.NoEpoch, Metadata: metadata}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// forget drops the positions of partitions that are another's now: a flush under way does not put them back.
func (c *committer) forget(tps []kafka.TP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tp := range tps {
		delete(c.pending, tp)
		delete(c.flying, tp)
	}
}

func (c *committer) take() map[kafka.TP]kafka.CommitOffset {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending
	c.pending, c.flying = map[kafka.TP]kafka.CommitOffset{}, maps.Clone(p)
	return p
}

// again puts back what could not be stored, unless a newer position has come or the partition has gone. It returns how many it put back.
func (c *committer) again(offs map[kafka.TP]kafka.CommitOffset) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tp, o := range offs {
		_, newer := c.pending[tp]
		if _, ours := c.flying[tp]; ours && !newer {
			c.pending[tp] = o
			n++
		}
	}
	return n
}

func (c *committer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		for !c.flush(ctx) {
			if pause(ctx, commitRetry) != nil {
				return
			}
		}
	}
}

// flush stores what is pending; false where something is left that is worth another try.
func (c *committer) flush(ctx context.Context) bool {
	offs := c.take()
	if len(offs) == 0 {
		return true
	}
	err := c.commit(ctx, offs)
	if errors.Is(err, kafka.ErrFenced) && len(offs) > 1 {
		// One partition that has gone refuses the whole call: the others go alone.
		err = nil
		for tp, o := range offs {
			if e := c.commit(ctx, map[kafka.TP]kafka.CommitOffset{tp: o}); e == nil || errors.Is(e, kafka.ErrFenced) {
				delete(offs, tp)
			} else {
				err = e
			}
		}
	}
	switch {
	case err == nil:
		return true
	case errors.Is(err, kafka.ErrFenced):
		c.log.Info("position not stored: the partition was taken back; its next owner stores it", zap.Error(err))
		return true
	}
	if c.again(offs) == 0 {
		return true
	}
	if ctx.Err() == nil && !errors.Is(err, kafka.ErrRebalancing) {
		c.log.Warn("store positions in the group; trying again", zap.Error(err))
	}
	return false
}

func (c *committer) commit(ctx context.Context, offs map[kafka.TP]kafka.CommitOffset) error {
	ctx, cancel := context.WithTimeout(ctx, commitBound)
	defer cancel()
	err := c.cons.Commit(ctx, offs)
	switch {
	case err == nil:
		c.m.commits.WithLabelValues("ok").Inc()
	case errors.Is(err, kafka.ErrFenced):
		c.m.commits.WithLabelValues("fenced").Inc()
	default:
		c.m.commits.WithLabelValues("error").Inc()
	}
	return err
}
