package run

import (
	"context"
	"errors"
	"fmt"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// maxUnreadable bounds how many objects a job passes over. An archive of which more cannot be read has another trouble than damage, and each is stored with
// the job.
const maxUnreadable = 1000

// unreadable is what is wrong with one object of the archive: it is gone, damaged, another than the planned one, or must be restored from a cold
// storage class first. Repeating the call is of no use, and it concerns this object alone: what a request may pass over. (A store that does not
// answer or takes no credentials is something else: it is waited for.)
type unreadable struct {
	key string
	at  int64 // byte, −1 where none can be named
	err error
}

func (e *unreadable) Error() string { return e.err.Error() }
func (e *unreadable) Unwrap() error { return e.err }

func unreadablef(key, format string, args ...any) error {
	return &unreadable{key: key, at: -1, err: fmt.Errorf(format, args...)}
}

// notRead says what a failed GET of a planned object means.
func notRead(err error, tp record.TopicPartition, key string) error {
	switch {
	case errors.Is(err, store.ErrNoBucket):
	case errors.Is(err, store.ErrNotFound):
		return &Failure{unreadablef(key, "object %s is gone from the archive (planned for %s): %w", key, tp, err)}
	case errors.Is(err, store.ErrCold):
		return &Failure{unreadablef(key, "object %s (planned for %s): %w", key, tp, err)}
	}
	var foreign interface{ DamagedAt() int64 } // one object of another's archive
	if errors.As(err, &foreign) {
		return &Failure{&unreadable{key: key, at: foreign.DamagedAt(), err: fmt.Errorf("damaged object (planned for %s): %w", tp, err)}}
	}
	return wrapDefinite(fmt.Errorf("read %s: %w", key, err))
}

// damaged says what a reader's error means; the error itself names object and byte position.
func damaged(key string, err error) error {
	var c *segment.CorruptError
	if errors.As(err, &c) {
		return &unreadable{key: key, at: c.Offset, err: fmt.Errorf("damaged object: %w", err)}
	}
	return unreadablef(key, "damaged object %s: %w", key, err)
}

// loadOrPass loads a planned object, or, where the request allows it, makes a stand-in for one that cannot be read. What was passed over once in this job is passed
// over again, even if it can be read now: the proof goes by it.
func (x *Run) loadOrPass(ctx context.Context, p *part, index int) (*loaded, error) {
	ps := p.segs[index]
	if gap := x.track.passed(p, index); gap != nil {
		return passOver(&p.rng, index, ps, gap)
	}
	l, err := load(ctx, x.r.Source(), &p.rng, x.keep, index, ps, x.track.bounds)
	if err == nil {
		return l, x.lacking.complete(ctx, ps.Key, l)
	}
	var bad *unreadable
	if x.job.Request.OnUnreadable != job.UnreadableSkip || !errors.As(err, &bad) {
		return nil, err
	}
	if n := x.track.gaps(); n >= maxUnreadable {
		return nil, failf("%d objects could not be read and were passed over; the next one is one too many: %w", n, bad)
	}
	gap := &job.Unreadable{Key: ps.Key, From: max(ps.Start, p.rng.From), To: min(ps.Next, p.rng.Until), Byte: bad.at, Reason: bad.Error()}
	x.log.Warn("an object cannot be read and is passed over", job.GapFields(p.rng.TopicPartition, gap)...)
	return passOver(&p.rng, index, ps, gap)
}

// passOver makes what is sent in place of an object that cannot be read: a segment of the same offsets without records, so that the receiver's position moves
// on. Its offsets are "not archived", which is what they are to a receiver.
func passOver(rng *job.Range, index int, ps archive.PlannedSegment, gap *job.Unreadable) (*loaded, error) {
	id := segment.LogIdentity{ClusterID: rng.ClusterID, TopicID: rng.TopicID, Topic: rng.Topic, Partition: rng.Partition, Isolation: rng.Isolation}
	fail := func(err error) (*loaded, error) { return nil, failf("write a stand-in for %s: %w", ps.Key, err) }
	w, err := segment.NewWriter(id, ps.Start, "")
	if err != nil {
		return fail(err)
	}
	if err := w.Skip(ps.Start, ps.Next, segment.NotArchived); err != nil {
		return fail(err)
	}
	chain := segment.First()
	if ps.Start > 0 {
		// Which one it was in its chain is in the object. A receiver does not look; and the first of an index block names no segments before it.
		chain.Ordinal = segment.IndexEvery
	}
	body, _, err := w.Close(ps.Next, chain, nil)
	if err != nil {
		return fail(err)
	}
	return &loaded{index: index, start: ps.Start, next: ps.Next, size: ps.Bytes, body: body, proof: job.EmptyProof(), maxTs: -1, gap: gap,
		spans: []span{{start: ps.Start, next: ps.Next, bytes: ps.Bytes, maxTs: -1}}}, nil
}

// passed returns the gap of a segment that this job has passed over before, nil where it has not.
func (t *tracker) passed(p *part, index int) *job.Unreadable {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range p.gaps {
		if p.gaps[i].Key == p.segs[index].Key {
			gap := p.gaps[i]
			return &gap
		}
	}
	return nil
}

// gaps counts the objects passed over so far.
func (t *tracker) gaps() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, p := range t.parts {
		n += len(p.gaps)
	}
	return n
}

// keepGap notes what was passed over. The lock is held.
func (p *part) keepGap(gap *job.Unreadable) {
	if gap == nil {
		return
	}
	for i := range p.gaps {
		if p.gaps[i].Key == gap.Key {
			return
		}
	}
	p.gaps = append(p.gaps, *gap)
}
