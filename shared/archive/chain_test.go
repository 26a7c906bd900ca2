package archive

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tapedeck.dev/tapedeck/shared/store"
)

// Every pair that can occur has its row, once: an answer that settles nothing meets every look, the others none.
func TestTableIsComplete(t *testing.T) {
	rows := map[[2]int]int{}
	for _, r := range table {
		rows[[2]int{int(r.answer), int(r.seen)}]++
	}
	want := 0
	for a := created; a <= cancelled; a++ {
		for s := notLooked; s <= lookFailed; s++ {
			n := rows[[2]int{int(a), int(s)}]
			switch {
			case s == notLooked || a == exists || a == unknown:
				want++
				if n != 1 {
					t.Errorf("answer %d, look %d: %d rows", a, s, n)
				}
			case n != 0:
				t.Errorf("answer %d is looked at (%d), and must not be", a, s)
			}
		}
	}
	if want != len(table) {
		t.Errorf("%d rows, want %d", len(table), want)
	}
	// Nothing leads out of "exists" to a second put: the name is taken for ever.
	for _, r := range table {
		if r.answer == exists && r.then == putAgain {
			t.Errorf("exists, look %d: puts again", r.seen)
		}
	}
	if decide(notAllowed, ours) != stop {
		t.Error("a pair without a row does not stop")
	}
}

func TestClassify(t *testing.T) {
	live := context.Background()
	dead, cancel := context.WithCancel(live)
	cancel()
	wrap := func(err error) error { return fmt.Errorf("create x: %w", err) }
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want answer
	}{
		{live, nil, created},
		{dead, nil, created}, // written is written
		{live, wrap(store.ErrExists), exists},
		{dead, wrap(store.ErrExists), exists},
		{live, wrap(store.ErrUnknown), unknown},
		{live, wrap(store.ErrNotAllowed), notAllowed},
		{live, wrap(store.ErrInvalid), invalid},
		{live, wrap(store.ErrNotFound), unknown}, // no such bucket, or completing an upload: says nothing about the object
		{live, errors.New("anything"), unknown},
		{live, context.DeadlineExceeded, unknown}, // of the request, not of the caller
		{dead, wrap(store.ErrUnknown), cancelled},
		{dead, context.Canceled, cancelled},
	} {
		if got := classify(c.ctx, c.err); got != c.want {
			t.Errorf("%v: answer %d, want %d", c.err, got, c.want)
		}
	}
}
