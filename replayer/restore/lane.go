package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/offsetmap"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// abortBound is how long a lane that gives up waits for its abort. Without it, readers of the target wait for the transaction's timeout, or for the
// next session, which ends it.
const abortBound = 2 * time.Second

// lane writes the partitions of one lane, one transaction after the other.
type lane struct {
	x *execution
	p *kafka.Producer
	n int

	open    bool
	begun   time.Time
	records int
	bytes   int
	sent    map[kafka.TP][]piece // by target partition, in the order in which records were sent
	pending map[*part]*pending   // positions as they will be after the commit
}

// pending is what the open transaction adds to a partition.
type pending struct {
	next               int64
	changed, rewritten int64
	reached            int64 // largest timestamp, also of what is committed
	count, first, last int64
	sum                uint64
}

// piece is Len records of consecutive offsets of one source partition, sent one after the other.
type piece struct {
	part     *part
	old, len int64
}

func (x *execution) lane(ctx context.Context, p *kafka.Producer, n int) (err error) {
	l := &lane{x: x, p: p, n: n}
	l.reset()
	defer func() {
		if l.open && err != nil && !errors.Is(err, errKilled) && !errors.Is(err, kafka.ErrFenced) {
			l.abort(ctx)
		}
	}()
	if x.job.Request.Speed > 0 {
		err = l.byTime(ctx)
	} else {
		err = l.asLoaded(ctx)
	}
	if err != nil {
		return err
	}
	return l.finish(ctx)
}

// asLoaded sends segment after segment, as they are loaded ahead.
func (l *lane) asLoaded(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	loaded := make(chan *work, ahead)
	loading := make(chan error, 1)
	go func() {
		defer close(loaded)
		loading <- l.x.load(ctx, l.n, loaded)
	}()
	defer func() {
		cancel()
		for range loaded { // the loader has ended when it is closed
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if l.open { // the store may be slow: an open transaction does not wait for it
			timer.Reset(time.Until(l.ends()))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-due:
			if err := l.commit(ctx); err != nil {
				return err
			}
		case w, more := <-loaded:
			if !more {
				return <-loading
			}
			if err := l.segment(ctx, w); err != nil {
				return err
			}
		}
	}
}

// ends is when the open transaction is old enough to be committed.
func (l *lane) ends() time.Time { return l.begun.Add(l.x.d.tune.age) }

func (l *lane) reset() {
	l.open, l.records, l.bytes = false, 0, 0
	l.sent, l.pending = map[kafka.TP][]piece{}, map[*part]*pending{}
}

func (l *lane) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortBound)
	defer cancel()
	_ = l.p.AbortTx(ctx) // best effort: the next session ends the transaction
}

// at is the position of a partition in the open transaction.
func (l *lane) at(p *part) *pending {
	t := l.pending[p]
	if t == nil {
		l.x.mu.Lock()
		t = &pending{next: p.state.Next, reached: p.state.Reached}
		l.x.mu.Unlock()
		l.pending[p] = t
	}
	return t
}

// after are the totals of a partition after the commit.
func (t *pending) after(s totals) (totals, error) {
	s.Next = t.next
	if t.count == 0 {
		return s, nil
	}
	s.Reached = t.reached
	s.Commits++
	s.Changed += t.changed
	s.Rewritten += t.rewritten
	err := s.Proof.Join(job.Proof{Count: t.count, First: t.first, Last: t.last, Checksum: job.Hex(t.sum)})
	return s, err
}

func (l *lane) begin(ctx context.Context) error {
	if l.open {
		return nil
	}
	if err := l.x.d.step(ctx, "before "+stepProduce, l.n); err != nil {
		return err
	}
	if err := l.p.Begin(); err != nil {
		return err
	}
	l.open, l.begun = true, time.Now()
	return nil
}

func (l *lane) full() bool {
	return l.records >= l.x.d.tune.records || l.bytes >= l.x.d.tune.bytes || !time.Now().Before(l.ends())
}

func (l *lane) send(ctx context.Context, p *part, t *pending, rec *record.Record, rd *segment.Reader) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	old := rec.Offset
	if f := l.x.d.tune.sending; f != nil {
		f(p.rng.TopicPartition, old, rec.Timestamp)
	}
	if l.x.job.Request.ProvenanceHeaders {
		rec.Headers = append(slices.Clone(rec.Headers), provenance(p.rng.TopicPartition, old)...)
	}
	out := *rec
	out.Topic, out.Partition = p.to.Topic, p.to.Partition
	if ts := producible(rec.Timestamp); ts != rec.Timestamp {
		out.Timestamp = ts
		t.changed++
	}
	if err := l.p.Send(ctx, &out); err != nil {
		return fmt.Errorf("record at offset %d of %s: %w", old, p.rng.TopicPartition, err)
	}
	if t.count == 0 {
		t.first = old
	}
	t.count, t.last, t.next = t.count+1, old, old+1
	t.reached = max(t.reached, rec.Timestamp)
	t.sum += rd.DatumChecksum()
	l.records++
	l.bytes += len(rd.Datum())
	pieces := l.sent[p.to]
	if n := len(pieces); n > 0 && pieces[n-1].part == p && pieces[n-1].old+pieces[n-1].len == old {
		pieces[n-1].len++
	} else {
		l.sent[p.to] = append(pieces, piece{p, old, 1})
	}
	return nil
}

// lastMs is the largest timestamp, in ms, that the client can send.
const lastMs = math.MaxInt64 / 1_000_000

// producible is the timestamp nearest to ts that the client can send: it takes 0 for "now", and its range ends in 2262.
func producible(ts int64) int64 {
	if ts == 0 {
		return 1
	}
	return max(-lastMs, min(lastMs, ts))
}

// Headers of provenance: where a record was.
const (
	headerTopic     = "tapedeck.topic"
	headerPartition = "tapedeck.partition"
	headerOffset    = "tapedeck.offset"
)

func provenance(tp kafka.TP, offset int64) []record.Header {
	return []record.Header{{Key: headerTopic, Value: []byte(tp.Topic)}, {Key: headerPartition, Value: []byte(strconv.Itoa(int(tp.Partition)))},
		{Key: headerOffset, Value: []byte(strconv.FormatInt(offset, 10))}}
}

// finish commits what is left: also that a partition's end holds no records.
func (l *lane) finish(ctx context.Context) error {
	for _, p := range l.x.parts {
		if p.lane != l.n {
			continue
		}
		t := l.at(p)
		t.next = p.rng.Until
		l.x.mu.Lock()
		same := p.state.Next == t.next
		l.x.mu.Unlock()
		if same {
			delete(l.pending, p)
		}
	}
	if len(l.pending) == 0 && !l.open {
		return nil
	}
	if err := l.begin(ctx); err != nil {
		return err
	}
	return l.commit(ctx)
}

// commit ends the transaction with its progress.
func (l *lane) commit(ctx context.Context) error {
	x := l.x
	bounded, cancel := context.WithTimeout(ctx, x.d.runner.Settings.RetryTimeout)
	defer cancel()
	if err := l.p.Flush(bounded); err != nil {
		return err
	}
	runs, err := zip(l.sent, l.p.TakeOffsets())
	if err != nil {
		return err
	}
	if err := x.d.step(ctx, "after "+stepProduce, l.n); err != nil {
		return err
	}
	after := map[*part]state{}
	for p, t := range l.pending {
		x.mu.Lock()
		before := p.state
		x.mu.Unlock()
		sum, err := t.after(before.totals)
		if err != nil {
			return &run.Failure{Err: err}
		}
		if sum == before.totals {
			continue // looked at only
		}
		marks, next := before.advance(x.base(p), runs[p], sum)
		for _, m := range marks {
			value, err := json.Marshal(m)
			if err != nil {
				return err
			}
			if err := l.p.Send(bounded, progressRecord(x.k, markKey{m.JobID, m.Source, m.Chunk}.Format(), value)); err != nil {
				return err
			}
		}
		after[p] = next
	}
	if err := x.d.step(ctx, "after "+stepProgress, l.n); err != nil {
		return err
	}
	if err := l.p.CommitTx(bounded); err != nil {
		return err
	}
	l.p.TakeOffsets() // of the progress
	if err := x.d.step(ctx, "after "+stepCommit, l.n); err != nil {
		return err
	}
	x.mu.Lock()
	for p, s := range after {
		if s.Next > p.state.Next {
			x.moved = time.Now()
		}
		p.state = s
	}
	x.mu.Unlock()
	x.d.runner.Metrics.Bytes.Add(float64(l.bytes))
	l.reset()
	return nil
}

// zip joins what was sent with the offsets that it got. Both are in the order of sending.
func zip(sent map[kafka.TP][]piece, got map[kafka.TP][]kafka.Span) (map[*part][]offsetmap.Run, error) {
	out := map[*part][]offsetmap.Run{}
	for tp, pieces := range sent {
		spans := slices.Clone(got[tp])
		for _, c := range pieces {
			for c.len > 0 {
				if len(spans) == 0 {
					return nil, fmt.Errorf("fewer records of %s were acknowledged than sent", tp)
				}
				s := &spans[0]
				if s.First == kafka.UnknownOffset {
					// The broker had them already, from a try whose answer was lost, and does not say where. The next transaction will know.
					return nil, fmt.Errorf("the broker did not say which offsets records of %s have", tp)
				}
				n := min(c.len, s.Count)
				out[c.part] = offsetmap.Append(out[c.part], offsetmap.Run{Old: c.old, New: s.First, Len: n})
				c.old, c.len = c.old+n, c.len-n
				s.First, s.Count = s.First+n, s.Count-n
				if s.Count == 0 {
					spans = spans[1:]
				}
			}
		}
		if len(spans) > 0 {
			return nil, fmt.Errorf("more records of %s were acknowledged than sent", tp)
		}
	}
	return out, nil
}
