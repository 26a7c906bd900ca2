package archive

import (
	"context"
	"errors"
	"fmt"
	"math"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// Tail is the newest segment of a chain.
type Tail struct {
	Topic  string // as in the object's name; empty: the header's. It differs from the header's for a later incarnation of a topic
	Header *segment.Header
	Size   int64 // bytes of the object
}

// TP names the chain.
func (t *Tail) TP() record.TopicPartition {
	tp := t.Header.TP()
	if t.Topic != "" {
		tp.Topic = t.Topic
	}
	return tp
}

// Tail finds the newest segment of a partition: from hint (the start of some segment known to exist, −1 for none), else the
// newest index object, else by galloping. nil, nil where the chain is empty. Never lists the whole chain where an index or
// hint exists.
//
// Errors: ErrForeign where the object found is no segment; ErrBroken where an index object names segments that are gone.
//
// The newest segment by name is the tail, and nothing lies off the chain: a segment's start is 0 or the next of a segment
// that its writer saw in the store, each start is taken at most once, and next > start. By induction every object is reached
// from 0, and the one with the largest start is the last. That holds for a create which lands an hour late too: its start
// is either still the end of the chain, which it then extends, or taken, and it is refused.
func (a *Archive) Tail(ctx context.Context, topic string, partition int32, hint int64) (*Tail, error) {
	tp := record.TopicPartition{Topic: topic, Partition: partition}
	t, err := a.tail(ctx, tp, hint, nil)
	if err != nil {
		return nil, fmt.Errorf("find the tail of %s: %w", tp, err)
	}
	if t != nil {
		a.noteDue(t)
	}
	return t, nil
}

// tail is Tail; names are the partition's index names where the caller has listed them, else nil.
func (a *Archive) tail(ctx context.Context, tp record.TopicPartition, hint int64, names []IndexName) (*Tail, error) {
	start, err := a.tailStart(ctx, tp, hint, names)
	if err != nil || start < 0 {
		return nil, err
	}
	t, err := a.readHeader(ctx, tp, start)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s was listed and is gone", ErrBroken, a.key(tp, start))
	}
	return t, asForeign(err)
}

// tailStart returns the start of the newest segment, −1 where there is none.
func (a *Archive) tailStart(ctx context.Context, tp record.TopicPartition, hint int64, names []IndexName) (int64, error) {
	base := int64(-1) // a segment that is there and is not the newest
	span := int64(1)  // offsets that a page of segments covered, for the first stride of the gallop
	// page looks at up to 1,000 segments from an offset on. done: the newest is among them.
	page := func(from int64) (first, newest int64, done bool, err error) {
		segs, more, err := a.segmentsFrom(ctx, tp, from, 0)
		if err != nil || len(segs) == 0 {
			return -1, -1, false, err
		}
		first, newest = segs[0].start, segs[len(segs)-1].start
		if more {
			base, span = newest, max(span, newest-first)
		}
		return first, newest, !more, nil
	}

	if hint >= 0 {
		// A hint is only trusted where the segment that it names is there: after an expiry, or with the address of
		// another archive, it says nothing.
		segs, more, err := a.segmentsFrom(ctx, tp, hint, 0)
		if err != nil {
			return -1, err
		}
		if len(segs) > 0 && segs[0].start == hint {
			newest := segs[len(segs)-1].start
			if !more {
				return newest, nil
			}
			base, span = newest, newest-hint
		}
	}
	if names == nil {
		var err error
		if names, err = a.indexNames(ctx, tp); err != nil {
			return -1, err
		}
	}
	if k := len(names); k > 0 && names[k-1].Start > base {
		n := names[k-1]
		first, newest, done, err := page(n.Start)
		switch {
		case err != nil:
			return -1, err
		case first < 0:
			return -1, fmt.Errorf("%w: index object %s names segments that are gone: the tail expired (a lifecycle rule?), or this is the wrong prefix or topics.dir", ErrBroken, n.Format())
		case done:
			return newest, nil
		}
	}
	if base < 0 {
		first, newest, done, err := page(0)
		if err != nil || first < 0 || done {
			return newest, err
		}
	}
	return a.gallop(ctx, tp, base, span)
}

// gallop finds the newest segment beyond base, which is there and is not the newest, without an index: strides that
// double, each one LIST of one key, until nothing lies beyond; then halves of what is left, each one LIST of a page, which
// ends as soon as a page holds the end. For n segments about log2(n) calls of each.
func (a *Archive) gallop(ctx context.Context, tp record.TopicPartition, base, stride int64) (int64, error) {
	end := int64(math.MaxInt64) // nothing starts at or beyond it
	for {
		at := base + stride
		if at < base || at == math.MaxInt64 { // past the last offset there can be
			break
		}
		segs, _, err := a.segmentsFrom(ctx, tp, at, 1)
		if err != nil {
			return -1, err
		}
		if len(segs) == 0 {
			end = at
			break
		}
		base = segs[0].start
		if stride <= math.MaxInt64/2 {
			stride *= 2
		}
	}
	for end-base > 1 {
		mid := base + (end-base)/2
		segs, more, err := a.segmentsFrom(ctx, tp, mid, 0)
		if err != nil {
			return -1, err
		}
		switch {
		case len(segs) == 0:
			end = mid
		case !more:
			return segs[len(segs)-1].start, nil
		default:
			base = segs[len(segs)-1].start
		}
	}
	return base, nil
}
