package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// Outcome of a Create.
type Outcome struct {
	// Adopted is false where our object is the one in the store (created, or found with our very bytes).
	Adopted bool
	// Tail is the segment that now holds the name: ours or the winner's. The writer goes on at Tail.Header.Next.
	Tail Tail
}

// maxLooks bounds the looks at an object that exists by the store's answer and is not there to read.
const maxLooks = 8

// Create puts one closed segment under its name, through every answer of the table in chain.go, until it is confirmed or
// another writer's segment is adopted. After ordinal ≡ 255 (mod 256) it writes the index object.
// with are attributes of the segment's object (the index object has the store's own); no reader depends on them.
//
// h must follow the newest segment that the writer has seen confirmed: the Tail of the Outcome before, or of Tail; or it is
// the first of its chain, from offset 0. Errors: ErrBusy; ErrOtherLog, ErrForeign, ErrBroken; ErrInvalid of the store; or
// the context's (then the outcome is unknown and the segment may still appear). After any error the writer begins again
// with Tail before it creates anything else in this partition.
func (a *Archive) Create(ctx context.Context, h *segment.Header, data []byte, p RetryPolicy, with ...store.Attributes) (*Outcome, error) {
	return a.CreateAs(ctx, h.Topic, h, data, p, with...)
}

// CreateAs is Create in the chain of an incarnation of the header's topic (segment.Incarnation).
func (a *Archive) CreateAs(ctx context.Context, topic string, h *segment.Header, data []byte, p RetryPolicy, with ...store.Attributes) (*Outcome, error) {
	tp := record.TopicPartition{Topic: topic, Partition: h.Partition}
	if !a.begin(tp) {
		return nil, fmt.Errorf("create segment %s: %w", a.key(tp, h.Start), ErrBusy)
	}
	defer a.end(tp)
	if err := a.payIndex(ctx, tp, p); err != nil {
		return nil, err
	}
	c, err := a.newCreation(tp, h, data, with...)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; {
		then, err := c.step(ctx)
		switch then {
		case confirm, adopt:
			a.offerIndex(ctx, &c.tail, p)
			return &Outcome{Adopted: then == adopt, Tail: c.tail}, nil
		case stop:
			return nil, fmt.Errorf("create segment %s: %w", c.key, err)
		case look:
			// A store that asked to be left alone is not looked at before.
			if d := store.RetryAfter(err); d > 0 {
				p.tell(c.key, attempt, err)
				if err := a.wait.sleep(ctx, d); err != nil {
					return nil, fmt.Errorf("create segment %s: outcome unknown: %w", c.key, err)
				}
			}
		case putAgain, lookAgain:
			failure := err
			if then == putAgain && c.saw == absent && store.RetryAfter(err) > 0 {
				failure = nil // told, and waited for, before the look
			} else {
				p.tell(c.key, attempt, err)
			}
			if err := a.wait.backoff(ctx, p, attempt, failure); err != nil {
				return nil, fmt.Errorf("create segment %s: outcome unknown: %w", c.key, err)
			}
			attempt++
		}
	}
}

func (a *Archive) begin(tp record.TopicPartition) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.creating[tp] {
		return false
	}
	a.creating[tp] = true
	return true
}

func (a *Archive) end(tp record.TopicPartition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.creating, tp)
}

// creation is the create of one segment in progress. It takes no decision of its own: decide does.
type creation struct {
	a       *Archive
	key     string
	topic   string // as in key
	h       *segment.Header
	data    []byte
	with    []store.Attributes
	body    int64 // bytes before the first block
	looking bool  // the next step is a look
	answer  answer
	answerr error // of the last put
	saw     seen  // by the last look since, else notLooked
	looks   int   // that showed nothing after "exists"
	tail    Tail  // what holds the name, once known
}

func (a *Archive) newCreation(tp record.TopicPartition, h *segment.Header, data []byte, with ...store.Attributes) (*creation, error) {
	key := a.key(tp, h.Start)
	parsed, body, err := segment.ParseHeader(key, data)
	if err != nil {
		return nil, fmt.Errorf("create segment %s: these bytes are no segment: %w", key, err)
	}
	if _, err := a.checkName(key, parsed); err != nil {
		return nil, fmt.Errorf("create segment %s: these bytes are another segment: %w", key, err)
	}
	if h.Start > 0 == (h.Ordinal == 0) {
		return nil, fmt.Errorf("create segment %s: %w: ordinal %d at offset %d (a chain begins at offset 0 with ordinal 0)", key, ErrBroken, h.Ordinal, h.Start)
	}
	return &creation{a: a, key: key, topic: tp.Topic, h: h, data: data, with: with, body: body}, nil
}

// step makes one store call, a put or a look, and says what to do next. The error is the reason of stop, putAgain and
// lookAgain.
func (c *creation) step(ctx context.Context) (action, error) {
	if !c.looking {
		c.answerr = c.a.st.Create(ctx, c.key, c.data, c.with...)
		c.answer, c.saw = classify(ctx, c.answerr), notLooked
		then := decide(c.answer, c.saw)
		if then == confirm {
			c.tail = Tail{Topic: c.topic, Header: c.h, Size: int64(len(c.data))}
		}
		c.looking = then == look
		return then, c.answerr
	}
	saw, err := c.look(ctx)
	c.saw = saw
	if ctx.Err() != nil && saw == lookFailed {
		return stop, fmt.Errorf("outcome unknown: %w", context.Cause(ctx))
	}
	then := decide(c.answer, saw)
	if c.answer == exists && saw == absent {
		if c.looks++; c.looks >= maxLooks {
			return stop, fmt.Errorf("%w: the store says that the object exists, and that it does not: it was removed by hand or by a lifecycle rule", ErrBroken)
		}
		err = errors.New("the store says that the object exists, and that it does not")
	}
	if saw == absent && err == nil {
		err = c.answerr
	}
	c.looking = then == lookAgain
	return then, err
}

// look reads the header of the object under our name. It is ours where the size, the header and the rest of the first
// page are equal: the header holds range, count, timestamps and the hash of the last record. (Were it not ours in spite of
// that, its range and place are the same as ours, and going on behind it is right.)
func (c *creation) look(ctx context.Context) (seen, error) {
	head, size, err := c.a.st.GetRange(ctx, c.key, 0, max(segment.HeadBytes, c.body))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return absent, nil
	case err != nil:
		return lookFailed, fmt.Errorf("read header of %s: %w", c.key, err)
	}
	if size == int64(len(c.data)) && len(head) <= len(c.data) && bytes.Equal(head, c.data[:len(head)]) {
		c.tail = Tail{Topic: c.topic, Header: c.h, Size: size}
		return ours, nil
	}
	t, err := c.a.parseHeader(ctx, c.key, head, size)
	var corrupt *segment.CorruptError
	switch {
	case errors.As(err, &corrupt):
		return foreign, asForeign(err)
	case errors.Is(err, store.ErrNotFound):
		return absent, nil
	case err != nil:
		return lookFailed, err
	}
	if err := CheckLog(t.Header, c.h.Identity()); err != nil {
		return otherLog, err
	}
	if t.Header.Ordinal != c.h.Ordinal {
		return otherPlace, fmt.Errorf("%w: %s says that it is number %d of its chain, and follows number %d", ErrBroken, c.key, t.Header.Ordinal, c.h.Ordinal-1)
	}
	c.tail = *t
	return otherCut, nil
}
