package kafka

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"tapedeck.dev/tapedeck/shared/record"
)

// queueFullBound is how long a queue may be full with nothing on its way before the record is held to be too large for it.
const queueFullBound = 2 * time.Second

// Producer produces to exact partitions, keeping order per partition (idempotent). Timestamps are as given. Its methods are
// called from one goroutine.
type Producer struct {
	p       *kafka.Producer
	txID    string
	logs    <-chan struct{}
	tokens  *refresher
	reports chan struct{} // closed when the last delivery report has been counted
	closed  bool

	mu     sync.Mutex
	sent   int64         // accepted by librdkafka
	acked  int64         // of sent: reported back, delivered or not
	err    error         // first delivery error
	wake   chan struct{} // closed and replaced when acked has reached wanted, or err is set
	wanted int64         // acked that somebody waits for; −1: nobody waits
	spans  *spans        // nil: offsets are not kept
}

// NewProducer makes a producer; txID "" means without transactions. txTimeout bounds the broker's patience with an open
// transaction; 0: one minute.
func NewProducer(cfg Client, txID string, txTimeout time.Duration) (*Producer, error) {
	m, err := cfg.config()
	if err != nil {
		return nil, fmt.Errorf("configure kafka producer: %w", err)
	}
	for k, v := range map[string]any{
		"enable.idempotence":           true,
		"acks":                         "all",
		"linger.ms":                    5,
		"queue.buffering.max.messages": 100_000,
		"queue.buffering.max.kbytes":   64 << 10,
		// The broker's max.message.bytes decides, not the client's default of 1 MB.
		"message.max.bytes":         100 << 20,
		"go.delivery.reports":       true,
		"go.delivery.report.fields": "none",
		"go.events.channel.size":    1000,
		"go.produce.channel.size":   1,
	} {
		m[k] = v
	}
	if txID != "" {
		if txTimeout <= 0 {
			txTimeout = time.Minute
		}
		m["transactional.id"] = txID
		m["transaction.timeout.ms"] = int(txTimeout.Milliseconds())
	}
	tokens, err := cfg.override(m, refusedProducer)
	if err != nil {
		return nil, fmt.Errorf("configure kafka producer: %w", err)
	}
	kp, err := kafka.NewProducer(&m)
	if err != nil {
		return nil, wrap(err, "configure kafka producer")
	}
	p := &Producer{p: kp, txID: txID, reports: make(chan struct{}), wake: make(chan struct{}), wanted: -1}
	p.logs = forwardLogs(kp.Logs(), cfg.logger())
	p.tokens = startRefresher(kp, tokens, cfg.logger(), nil)
	go p.countReports()
	return p, nil
}

// countReports counts delivery reports and keeps the first error; it ends when Close closes the channel.
func (p *Producer) countReports() {
	defer close(p.reports)
	for ev := range p.p.Events() {
		switch e := ev.(type) {
		case *kafka.Message:
			p.count(e.TopicPartition)
		case kafka.Error:
			if e.IsFatal() {
				p.mu.Lock()
				if p.err == nil {
					p.err = wrap(e, "kafka producer")
				}
				p.waken()
				p.mu.Unlock()
			}
		}
	}
}

// count counts the report of one record.
func (p *Producer) count(tp kafka.TopicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked++
	if tp.Error != nil && p.err == nil {
		p.err = wrap(tp.Error, "produce to %s", tpOf(tp))
	} else if tp.Error == nil && p.spans != nil {
		p.spans.add(tp)
	}
	p.waken()
}

// waken wakes who waits, where what it waits for has come; mu is held. There are as many reports as records: most of them wake nobody.
//
// No wake-up is lost, though a report may come between await and the receive from the channel that it returned:
//
//	the producer's goroutine              countReports
//	await: locks, sees 1 on its way,
//	wanted = acked + 1, takes wake,
//	unlocks
//	                                      locks, acked++ reaches wanted, closes the
//	                                      very channel that await took, puts a new one
//	                                      in its place, wanted = −1, unlocks
//	receives: closed already, goes on,
//	and awaits again: 0 on their way
//
// A report counted before await's lock is not on its way any more when await looks; nor is an error that came before unseen: await returns it.
// One that comes after wakes. wanted never exceeds acked plus what is on its way, so the reports that are due reach it.
func (p *Producer) waken() {
	if p.wanted >= 0 && (p.acked >= p.wanted || p.err != nil) {
		close(p.wake)
		p.wake, p.wanted = make(chan struct{}), -1
	}
}

// state returns how many records are on their way, and the sticky error.
func (p *Producer) state() (inFlight int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent - p.acked, p.err
}

// await is state, with a channel that is closed when so many of the records on their way have been reported, all of them at most and one at least,
// or when there is an error. Only one goroutine waits at a time, since the methods are called from one.
func (p *Producer) await(reports func(inFlight int64) int64) (inFlight int64, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	inFlight = p.sent - p.acked
	p.wanted = p.acked + min(max(reports(inFlight), 1), inFlight)
	return inFlight, p.wake, p.err
}

// all waits for the last report.
func all(inFlight int64) int64 { return inFlight }

// some is how much room a full queue must have before it is tried again: at every report there would be room for one record. Few records fill the
// queue when they are large: it must not run dry then.
func some(inFlight int64) int64 { return min(1000, inFlight/8) }

// Send queues r to its Topic and Partition with its Key, Value, Headers and Timestamp (Offset and TimestampType are ignored).
// It blocks while the queue is full. A delivery error is returned by the next Send, Flush or CommitTx, and stays until AbortTx.
//
// ErrCannotProduce, and nothing is queued, where librdkafka would silently send something else: it takes a timestamp of 0 for
// "now" (−1, "none", is sent as it is), one beyond the year 2262 overflows, and a header key ends at a zero byte.
func (p *Producer) Send(ctx context.Context, r *record.Record) error {
	if err := producible(r); err != nil {
		return fmt.Errorf("produce to %s: %w", r.TP(), err)
	}
	m := &kafka.Message{
		TopicPartition: kafka.TopicPartition{Topic: &r.Topic, Partition: r.Partition},
		Key:            r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp),
	}
	if len(r.Headers) > 0 {
		m.Headers = make([]kafka.Header, len(r.Headers))
		for i, h := range r.Headers {
			m.Headers[i] = kafka.Header{Key: h.Key, Value: h.Value}
		}
	}
	for alone := time.Duration(0); ; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("produce to %s: %w", r.TP(), err)
		}
		// Counted before it is queued: its report may come before Produce returns.
		if err := p.add(1); err != nil {
			return err
		}
		err := p.p.Produce(m, nil)
		if err == nil {
			return nil
		}
		_ = p.add(-1) // the error of Produce says more
		if errorCode(err) != kafka.ErrQueueFull || alone > queueFullBound {
			return wrap(err, "produce to %s", r.TP())
		}
		inFlight, changed, sticky := p.await(some)
		switch {
		case sticky != nil:
			return sticky
		case inFlight == 0:
			// The last report has been counted but librdkafka has not yet freed its records; or this one alone is too much.
			time.Sleep(time.Millisecond)
			alone += time.Millisecond
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// add counts records as sent, unless there is a sticky error.
func (p *Producer) add(n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 && p.err != nil {
		return p.err
	}
	p.sent += n
	return nil
}

// producible refuses what would be changed on the way.
func producible(r *record.Record) error {
	const lastMs = math.MaxInt64 / 1_000_000
	switch {
	case r.Topic == "" || r.Partition < 0:
		return fmt.Errorf("%w: no topic or partition", ErrCannotProduce)
	case r.Timestamp == 0:
		return fmt.Errorf("%w: its timestamp is 0, for which this client would send the current time", ErrCannotProduce)
	case r.Timestamp < -lastMs || r.Timestamp > lastMs:
		return fmt.Errorf("%w: its timestamp %d ms is out of this client's range", ErrCannotProduce, r.Timestamp)
	}
	for _, h := range r.Headers {
		if strings.IndexByte(h.Key, 0) >= 0 {
			return fmt.Errorf("%w: the header key %q holds a zero byte", ErrCannotProduce, h.Key)
		}
	}
	return nil
}

// Flush waits until all that was sent is acknowledged.
func (p *Producer) Flush(ctx context.Context) error {
	for {
		inFlight, changed, err := p.await(all)
		if err != nil {
			return err
		}
		if inFlight == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d records to be acknowledged: %w", inFlight, flushError(ctx.Err()))
		}
	}
}

// flushError: a deadline that passes while records wait means that no broker took them.
func flushError(err error) error {
	if kinds := kindsOf(err); len(kinds) > 0 {
		return fmt.Errorf("%w: %w", kinds[0], err)
	}
	return err
}

// Close ends the producer without waiting for unsent records (an open transaction is left to be fenced or timed out).
func (p *Producer) Close() {
	if p.closed {
		return
	}
	p.closed = true
	p.tokens.close()
	// Without this, closing would try to deliver for as long as message.timeout.ms.
	_ = p.p.Purge(kafka.PurgeQueue | kafka.PurgeInFlight | kafka.PurgeNonBlocking)
	p.p.Close()
	<-p.reports
	<-p.logs
}
