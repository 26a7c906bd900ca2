package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// Topic is one that records are produced to all the while.
type Topic struct {
	Name       string
	Partitions int32
	// Transactional: records come in transactions of a few each, and about every fourth is aborted.
	Transactional bool
}

// load produces to a topic until ctx ends. Trouble of the broker is waited out: what matters is what the log holds in the end.
type load struct {
	client  kafka.Client
	topic   Topic
	rate    float64 // records per second
	rnd     *rand.Rand
	sent    atomic.Int64
	aborted atomic.Int64 // transactions
}

const loadTick = 50 * time.Millisecond

func (l *load) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := l.session(ctx); err != nil && ctx.Err() == nil {
			// The producer is of no use any more (fenced, or the broker was away for too long): another one goes on.
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	l.closeTransaction(context.WithoutCancel(ctx))
}

// closeTransaction ends a transaction that the last producer may have left open: readers would stand before it until it times out.
func (l *load) closeTransaction(ctx context.Context) {
	if !l.topic.Transactional {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if p, err := kafka.NewProducer(l.client, l.txID(), 0); err == nil {
		_ = p.InitTransactions(ctx) // without it the broker's own time-out does the same, later
		p.Close()
	}
}

func (l *load) txID() string {
	if !l.topic.Transactional {
		return ""
	}
	return "soak-" + l.topic.Name
}

// session is the life of one producer.
func (l *load) session(ctx context.Context) (err error) {
	txID := l.txID()
	p, err := kafka.NewProducer(l.client, txID, 0)
	if err != nil {
		return err
	}
	defer p.Close()
	if txID != "" {
		if err := p.InitTransactions(ctx); err != nil {
			return err
		}
	}
	tick := time.NewTicker(loadTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			// What was sent is finished, so that the log has an end.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			return p.Flush(last)
		case <-tick.C:
		}
		if err := l.burst(ctx, p); err != nil {
			return err
		}
	}
}

// burst sends what falls into one tick, in one transaction where the topic is transactional.
func (l *load) burst(ctx context.Context, p *kafka.Producer) (err error) {
	// A burst is finished also when ctx ends in its middle.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if l.topic.Transactional {
		if err := p.Begin(); err != nil {
			return err
		}
		defer func() {
			abort := err != nil || l.rnd.IntN(4) == 0
			if !abort {
				err = p.CommitTx(ctx)
				return
			}
			l.aborted.Add(1)
			err = errors.Join(err, p.AbortTx(ctx))
		}()
	}
	n := max(1, int(l.rate*loadTick.Seconds()))
	for range n {
		i := l.sent.Add(1)
		r := record.Record{Topic: l.topic.Name, Partition: l.rnd.Int32N(l.topic.Partitions), Timestamp: time.Now().UnixMilli(),
			Key: fmt.Appendf(nil, "k%d", i%977), Value: fmt.Appendf(nil, `{"n":%d,"text":"%0*d"}`, i, 1+l.rnd.IntN(120), i)}
		switch l.rnd.IntN(50) {
		case 0:
			r.Value = nil
		case 1:
			r.Key, r.Value = nil, []byte{}
		case 2:
			r.Headers = []record.Header{{Key: "a", Value: []byte("1")}, {Key: "a"}, {Key: "b", Value: []byte{}}}
		}
		if err := p.Send(ctx, &r); err != nil {
			return err
		}
	}
	return nil
}
