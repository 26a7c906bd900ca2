package mem

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tapedeck.dev/tapedeck/shared/store"
)

// Before runs ahead of an operation (one of store.Op…; key is the key, or the prefix of a listing, below the prefix of the
// store that was called). A non-nil error is the answer and nothing is done, except for ErrHold. It may block, and should
// then watch ctx.
type Before func(ctx context.Context, op, key string) error

// After runs when an operation is done, with its error; what it returns is the answer. A create whose answer is lost:
// return store.ErrUnknown for err == nil.
type After func(ctx context.Context, op, key string, err error) error

// ErrHold, returned by a Before hook for a create, makes it one that takes effect late: it is answered by
// store.ErrUnknown, and done (if nothing is there by then) when Release is called.
var ErrHold = fmt.Errorf("held back: %w", store.ErrUnknown)

// SetBefore sets the hook that runs ahead of each operation, nil for none. It may be called at any time.
func (s *Store) SetBefore(hook Before) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.before = hook
}

// SetAfter sets the hook that runs after each operation, nil for none. It may be called at any time.
func (s *Store) SetAfter(hook After) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.after = hook
}

// Held is the number of creates held back.
func (s *Store) Held() int {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return len(s.b.held)
}

// Release applies the creates held back, oldest first, each only if its key is free, and returns how many wrote.
func (s *Store) Release() int {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	wrote := 0
	for _, h := range s.b.held {
		if s.b.create(h.key, h.data, h.attrs) == nil {
			wrote++
		}
	}
	s.b.held = nil
	return wrote
}

// Drop forgets the creates held back: they never reached the store.
func (s *Store) Drop() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.held = nil
}

// Put writes an object whether or not one is there, and calls no hook: what a foreign hand does to a bucket.
func (s *Store) Put(key string, data []byte) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.put(s.prefix+key, data)
}

// Delete removes an object and says whether it was there; it calls no hook: a lifecycle rule, or a foreign hand.
func (s *Store) Delete(key string) bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	full := s.prefix + key
	i, ok := slices.BinarySearch(s.b.keys, full)
	if ok {
		s.b.keys = slices.Delete(s.b.keys, i, i+1)
		delete(s.b.data, full)
		delete(s.b.attrs, full)
	}
	return ok
}

// Attributes gives what an object was created with; the zero value where that was nothing.
func (s *Store) Attributes(key string) store.Attributes {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.b.attrs[s.prefix+key]
}

// Keys gives every key below the store's prefix, in byte order. It is not counted and calls no hook.
func (s *Store) Keys() []string {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	var keys []string
	for _, k := range s.b.keys {
		if len(k) > len(s.prefix) && k[:len(s.prefix)] == s.prefix {
			keys = append(keys, k[len(s.prefix):])
		}
	}
	return keys
}

// Counts gives the number of calls of each operation since the last ResetCounts, refused ones included.
func (s *Store) Counts() map[string]int {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return maps.Clone(s.b.counts)
}

// ResetCounts sets every count to 0.
func (s *Store) ResetCounts() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	clear(s.b.counts)
}

// call counts, runs the hooks and do (under the lock) for one operation, and names operation and key in an error. hold
// keeps what a create would do.
func call[T any](ctx context.Context, s *Store, op, key string, do func(b *bucket, full string) (T, error), hold func(b *bucket, full string)) (T, error) {
	var zero T
	wrap := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s %s in %s: %w", op, key, s, err)
	}

	s.b.mu.Lock()
	s.b.counts[op]++
	before, after := s.b.before, s.b.after
	s.b.mu.Unlock()

	if err := ctx.Err(); err != nil {
		return zero, wrap(err)
	}
	if before != nil {
		if err := before(ctx, op, key); err != nil {
			if hold != nil && errors.Is(err, ErrHold) {
				s.b.mu.Lock()
				hold(s.b, s.prefix+key)
				s.b.mu.Unlock()
			}
			return zero, wrap(err)
		}
	}
	s.b.mu.Lock()
	out, err := do(s.b, s.prefix+key)
	s.b.mu.Unlock()
	if after != nil {
		err = after(ctx, op, key, err)
	}
	if err != nil {
		return zero, wrap(err)
	}
	return out, nil
}

// Move puts an object that is there into another storage class, and calls no hook: a lifecycle rule. A hook of the test answers for what that does to reads.
func (s *Store) Move(key, class string) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	attrs := s.b.attrs[s.prefix+key]
	attrs.StorageClass = class
	s.b.attrs[s.prefix+key] = attrs
}
