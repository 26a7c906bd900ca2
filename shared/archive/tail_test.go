package archive

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// longChain is a chain of 3,000 segments of 7 records, with its 11 index objects: built once. Tests that change it copy it.
func longChain(t *testing.T) *mem.Store {
	longOnce.Do(func() {
		a, st := open(t)
		grow(t, a, trips, nil, longSegments, longSize)
		longStore = st
	})
	if longStore == nil {
		t.Fatal("the long chain was not built")
	}
	return longStore
}

var (
	longOnce  sync.Once
	longStore *mem.Store
)

const (
	longSegments = 3000
	longBlocks   = longSegments / segment.IndexEvery
	longSize     = 7
	longNext     = longSegments * longSize
)

// copyOf copies a store, all objects or those that keep says.
func copyOf(t *testing.T, from *mem.Store, keep func(key string) bool) (*Archive, *mem.Store) {
	t.Helper()
	a, st := open(t)
	for _, key := range from.Keys() {
		if keep != nil && !keep(key) {
			continue
		}
		data, err := from.Get(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		st.Put(key, data)
	}
	return a, st
}

func noIndex(key string) bool { return !strings.HasPrefix(key, indexDir) }

// mustFind finds the tail and returns the store calls that it took.
func mustFind(t *testing.T, a *Archive, st *mem.Store, hint, next int64) map[string]int {
	t.Helper()
	st.ResetCounts()
	tail, err := a.Tail(context.Background(), trips.Topic, trips.Partition, hint)
	if err != nil {
		t.Fatal(err)
	}
	if tail == nil || tail.Header.Next != next {
		t.Fatalf("tail %+v, want next %d", tail, next)
	}
	data, err := st.Get(context.Background(), a.key(trips, tail.Header.Start))
	if err != nil || int64(len(data)) != tail.Size {
		t.Fatalf("size %d, object of %d bytes, %v", tail.Size, len(data), err)
	}
	n := st.Counts()
	n[store.OpGet]--
	return n
}

func calls(n map[string]int) int {
	sum := 0
	for _, c := range n {
		sum += c
	}
	return sum
}

func TestTailOfEmptyChain(t *testing.T) {
	a, st := open(t)
	for _, hint := range []int64{-1, 0, 5000} {
		st.ResetCounts()
		tail, err := a.Tail(context.Background(), "trips", 0, hint)
		if tail != nil || err != nil {
			t.Errorf("hint %d: %+v, %v", hint, tail, err)
		}
		if n := calls(st.Counts()); n > 3 {
			t.Errorf("hint %d: %d calls", hint, n)
		}
	}
}

// Partition 1 is no part of partition 10, nor a topic of one that its name begins.
func TestTailKeepsToItsPartition(t *testing.T) {
	a, st := open(t)
	grow(t, a, trips, nil, 2, 10)
	long := trips
	long.Partition = 10
	grow(t, a, long, nil, 300, 10)
	other := trips
	other.Topic = "trips-2"
	grow(t, a, other, nil, 300, 10)
	mustFind(t, a, st, -1, 20)
	if tail, err := a.Tail(context.Background(), "trips", 1, -1); tail != nil || err != nil {
		t.Errorf("%+v, %v", tail, err)
	}
}

func TestTailCost(t *testing.T) {
	wholeStore := longChain(t)
	whole := Open(wholeStore, "topics")
	bare, bareStore := copyOf(t, longChain(t), noIndex)
	for name, c := range map[string]struct {
		a     *Archive
		st    *mem.Store
		hint  int64
		calls int
	}{
		"hint, the newest":                     {whole, wholeStore, longNext - longSize, 2},
		"hint, 500 behind":                     {whole, wholeStore, longNext - 500*longSize, 2},
		"hint, far behind, with index":         {whole, wholeStore, 0, 4},
		"no hint, index":                       {whole, wholeStore, -1, 3},
		"hint that is no segment":              {whole, wholeStore, 3, 4},
		"hint near the end that is no segment": {whole, wholeStore, longNext - longSize - 1, 4},
		"hint beyond the end":                  {whole, wholeStore, longNext, 4},
		"hint, no index":                       {bare, bareStore, longNext - longSize, 2},
		// 3,000 segments: strides of 7,000 offsets, doubled; then halves.
		"no hint, no index":             {bare, bareStore, -1, 12},
		"hint, far behind, no index":    {bare, bareStore, 0, 12},
		"hint that is none, no index":   {bare, bareStore, longNext + 5, 13},
		"hint in the middle, no index":  {bare, bareStore, longNext / 2, 12},
		"hint of the largest offset":    {bare, bareStore, math.MaxInt64, 13},
		"hint of the largest, an index": {whole, wholeStore, math.MaxInt64, 4},
	} {
		t.Run(name, func(t *testing.T) {
			n := mustFind(t, c.a, c.st, c.hint, longNext)
			if got := calls(n); got > c.calls || got < c.calls && c.calls < 5 || n[store.OpGetRange] != 1 || n[store.OpCreate] != 0 {
				t.Errorf("calls %v, want %d, or at most that from 5 on", n, c.calls)
			}
		})
	}
}

// Galloping ends at the right segment wherever the chain ends, for starts that are anything but evenly spread.
func TestTailGallopsOverUnevenStarts(t *testing.T) {
	a, st := open(t)
	var tail *Tail
	next := int64(0)
	step := func(n int64) {
		next += n
		h, data := encode(t, trips, tail, cut{next: next, without: func(int64) bool { return true }})
		if h.Ordinal < 1200 { // build the beginning fast
			st.Put(a.key(trips, h.Start), data)
		} else if _, err := a.Create(context.Background(), h, data, RetryPolicy{}); err != nil {
			t.Fatal(err)
		}
		tail = &Tail{Header: h, Size: int64(len(data))}
	}
	for range 1200 {
		step(1)
	}
	for i := range 60 {
		st.Delete(indexKeysOr(st))
		step(1 + int64(i*i*i)%977*3)
		n := mustFind(t, a, st, -1, next)
		if calls(n) > 40 {
			t.Fatalf("%d segments to %d: calls %v", 1201+i, next, n)
		}
	}
}

func indexKeysOr(st *mem.Store) string {
	if keys := indexKeys(st.Keys()); len(keys) > 0 {
		return keys[0]
	}
	return ""
}

// The bound for the largest offsets: calls grow with the logarithm of the range, and nothing overflows.
func TestTailGallopsToTheLastOffset(t *testing.T) {
	a, st := open(t)
	next := int64(0)
	tail := (*Tail)(nil)
	for range 1005 {
		next++
		h, data := encode(t, trips, tail, cut{next: next})
		st.Put(a.key(trips, h.Start), data)
		tail = &Tail{Header: h, Size: int64(len(data))}
	}
	skip := []segment.Skip{{From: next, To: math.MaxInt64 - 2, Class: segment.Lost}}
	for _, end := range []int64{math.MaxInt64 - 2, math.MaxInt64 - 1, math.MaxInt64} {
		w, err := segment.NewWriter(identity(trips), next, "null")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range skip {
			if err := w.Skip(s.From, s.To, s.Class); err != nil {
				t.Fatal(err)
			}
		}
		data, h, err := w.Close(end, segment.After(tail.Header, tail.Size), nil)
		if err != nil {
			t.Fatal(err)
		}
		st.Put(a.key(trips, h.Start), data)
		tail, next, skip = &Tail{Header: h, Size: int64(len(data))}, end, nil
		if n := mustFind(t, a, st, -1, next); calls(n) > 130 {
			t.Errorf("calls %v", n)
		}
	}
}

// CASE 23 at this level: index objects without their segments are an expired tail or a wrong folder, never an empty chain.
func TestTailWhoseSegmentsExpired(t *testing.T) {
	a, st := open(t)
	grow(t, a, trips, nil, 300, 1)
	for _, key := range st.Keys() {
		if noIndex(key) {
			st.Delete(key)
		}
	}
	for _, hint := range []int64{-1, 299} {
		if tail, err := a.Tail(context.Background(), "trips", 0, hint); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "expired") {
			t.Errorf("hint %d: %+v, %v", hint, tail, err)
		}
	}
	// Without index objects the chain is empty to this package; that the group is ahead of it, its caller knows.
	for _, key := range st.Keys() {
		st.Delete(key)
	}
	if tail, err := a.Tail(context.Background(), "trips", 0, 299); tail != nil || err != nil {
		t.Errorf("%+v, %v", tail, err)
	}
}

// The oldest segments may be gone: the tail is found by what is left.
func TestTailAfterExpiry(t *testing.T) {
	a, st := copyOf(t, longChain(t), nil)
	for i := range int64(longSegments - 100) {
		st.Delete(a.key(trips, i*longSize))
	}
	for _, hint := range []int64{-1, 0, (longSegments - 101) * longSize, (longSegments - 50) * longSize} {
		mustFind(t, a, st, hint, longNext)
	}
}

func TestTailRefusesForeignObjects(t *testing.T) {
	for name, put := range map[string]func(a *Archive, st *mem.Store){
		"a name of another shape": func(a *Archive, st *mem.Store) {
			st.Put("topics/trips/partition=0/trips+0+0000000020.avro", []byte("Obj\x01"))
		},
		"no segment under the newest name": func(a *Archive, st *mem.Store) { st.Put(a.key(trips, 20), []byte("Obj\x01")) },
		"another segment's bytes": func(a *Archive, st *mem.Store) {
			data, _ := st.Get(context.Background(), a.key(trips, 0))
			st.Put(a.key(trips, 20), data)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, st := open(t)
			grow(t, a, trips, nil, 2, 10)
			put(a, st)
			if tail, err := a.Tail(context.Background(), "trips", 0, -1); !errors.Is(err, ErrForeign) {
				t.Errorf("%+v, %v", tail, err)
			}
		})
	}
	// The empty object that consoles create for a folder is no fault.
	a, st := open(t)
	grow(t, a, trips, nil, 2, 10)
	st.Put("topics/trips/partition=0/", nil)
	mustFind(t, a, st, -1, 20)
}

// CASE 18 at this level: a listing out of order is an error, never an older tail. (The probe refuses such a store before.)
func TestCase18UnsortedListingIsNoTail(t *testing.T) {
	for name, shuffle := range map[string]func(objs []store.Object) []store.Object{
		"reversed": func(objs []store.Object) []store.Object {
			for i, j := 0, len(objs)-1; i < j; i, j = i+1, j-1 {
				objs[i], objs[j] = objs[j], objs[i]
			}
			return objs
		},
		"one twice":         func(objs []store.Object) []store.Object { return append(objs, objs[len(objs)-1]) },
		"of another folder": func(objs []store.Object) []store.Object { return append(objs, store.Object{Key: "zz"}) },
	} {
		t.Run(name, func(t *testing.T) {
			_, st := open(t)
			grow(t, Open(st, "topics"), trips, nil, 5, 10)
			a := Open(badLists{st, shuffle}, "topics")
			if tail, err := a.Tail(context.Background(), "trips", 0, -1); err == nil {
				t.Errorf("tail at %d", tail.Header.Start)
			}
		})
	}
}

// badLists answers listings in its own way.
type badLists struct {
	store.Store
	change func([]store.Object) []store.Object
}

func (s badLists) List(ctx context.Context, prefix, startAfter string, max int) ([]store.Object, bool, error) {
	objs, more, err := s.Store.List(ctx, prefix, startAfter, max)
	if len(objs) > 0 {
		objs = s.change(objs)
	}
	return objs, more, err
}

func TestTailErrorsOfTheStore(t *testing.T) {
	a, st := open(t)
	grow(t, a, trips, nil, 2, 10)
	for _, op := range []string{store.OpList, store.OpGetRange} {
		st.SetBefore(func(_ context.Context, o, _ string) error {
			if o == op {
				return err403
			}
			return nil
		})
		for _, hint := range []int64{-1, 10} {
			if _, err := a.Tail(context.Background(), "trips", 0, hint); !errors.Is(err, store.ErrNotAllowed) {
				t.Errorf("%s, hint %d: %v", op, hint, err)
			}
		}
	}
}

func TestCheckLog(t *testing.T) {
	h, _ := encode(t, trips, nil, cut{next: 1})
	if err := CheckLog(h, identity(trips)); err != nil {
		t.Error(err)
	}
	id := identity(trips)
	id.TopicID = "re-created"
	if err := CheckLog(h, id); !errors.Is(err, ErrOtherLog) || !strings.Contains(err.Error(), "topic id") || !strings.Contains(err.Error(), "re-created") {
		t.Error(err)
	}
}
