package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// txSlice bounds one call of librdkafka's transaction functions, so that the end of a context is seen soon. A call that timed
// out is continued by the next.
const txSlice = 500 * time.Millisecond

// InitTransactions fences older producers of the same id. Retries inside until ctx ends.
func (p *Producer) InitTransactions(ctx context.Context) error {
	return p.retryTx(ctx, "start transactions of "+p.txID, p.p.InitTransactions)
}

// Begin starts a transaction.
func (p *Producer) Begin() error {
	return wrap(p.p.BeginTransaction(), "begin transaction of %s", p.txID)
}

// SendOffsets adds positions of a consumer group to the transaction. With gm from GroupMetadata an older generation is ErrFenced;
// gm nil commits for the group id given without membership (safe only where the transactional id fences).
func (p *Producer) SendOffsets(ctx context.Context, group string, gm *GroupMetadata, offs map[TP]CommitOffset) error {
	if len(offs) == 0 {
		return nil
	}
	var m *kafka.ConsumerGroupMetadata
	if gm != nil {
		m = gm.m
	} else {
		var err error
		// Named "test" by the client, it is what the protocol calls a commit without membership.
		if m, err = kafka.NewTestConsumerGroupMetadata(group); err != nil {
			return wrap(err, "add positions of group %s to transaction of %s", group, p.txID)
		}
	}
	ps := commitParts(offs)
	return p.retryTx(ctx, fmt.Sprintf("add positions of group %s to transaction of %s", group, p.txID), func(ctx context.Context) error {
		return p.p.SendOffsetsToTransaction(ctx, ps, m)
	})
}

// CommitTx commits, retrying what can be retried until ctx ends. ErrAbortable: call AbortTx. ErrFenced: stop. When ctx ends
// first, the transaction may be committed or not: call CommitTx again.
func (p *Producer) CommitTx(ctx context.Context) error {
	action := "commit transaction of " + p.txID
	// A record that was refused makes the transaction worthless; librdkafka says so too, but without the reason.
	if _, err := p.state(); err != nil {
		return p.asAbortable(action, err)
	}
	err := p.retryTx(ctx, action, p.p.CommitTransaction)
	if _, derr := p.state(); err != nil && derr != nil {
		return errors.Join(err, derr)
	}
	return err
}

// asAbortable keeps a fencing error as it is: there is nothing to abort then.
func (p *Producer) asAbortable(action string, err error) error {
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrFatal) || errors.Is(err, ErrAbortable) {
		return fmt.Errorf("%s: %w", action, err)
	}
	return fmt.Errorf("%s: %w: %w", action, ErrAbortable, err)
}

// AbortTx aborts the transaction and forgets its delivery errors.
func (p *Producer) AbortTx(ctx context.Context) error {
	if err := p.retryTx(ctx, "abort transaction of "+p.txID, p.p.AbortTransaction); err != nil {
		return err
	}
	// Aborting purged what was queued; those reports are not the next transaction's. AbortTransaction returns after the last
	// report has left librdkafka, so what is missing here is on its way to countReports.
	for {
		inFlight, changed, _ := p.await(all)
		if inFlight == 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("abort transaction of %s: %w", p.txID, ctx.Err())
		}
	}
	p.mu.Lock()
	p.err = nil
	if p.spans != nil {
		p.spans.clear()
	}
	p.mu.Unlock()
	return nil
}

// retryTx calls f in slices until it succeeds, fails for good, or ctx ends.
func (p *Producer) retryTx(ctx context.Context, action string, f func(context.Context) error) error {
	for {
		slice, cancel := context.WithTimeout(ctx, txSlice)
		err := f(slice)
		cancel()
		var ke kafka.Error
		if err == nil {
			return nil
		}
		if !errors.As(err, &ke) || ke.IsFatal() || ke.TxnRequiresAbort() || !ke.IsRetriable() {
			return wrap(err, "%s", action)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w: %w", action, flushError(ctx.Err()), err)
		}
	}
}
