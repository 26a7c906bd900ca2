package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// answers makes the creates of segments meet the given errors in turn; a nil goes through.
func answers(st *mem.Store, errs ...error) *[]string {
	var calls []string
	st.SetBefore(func(_ context.Context, op, key string) error {
		calls = append(calls, op)
		if op != store.OpCreate || !strings.HasPrefix(key, "topics/") || len(errs) == 0 {
			return nil
		}
		err := errs[0]
		errs = errs[1:]
		return err
	})
	return &calls
}

var (
	err409 = fmt.Errorf("409: %w", store.ErrUnknown)
	err503 = fmt.Errorf("503: %w", store.ErrUnknown)
	err403 = fmt.Errorf("403: %w", store.ErrNotAllowed)
	err400 = fmt.Errorf("400: %w", store.ErrInvalid)
)

const (
	opPut  = store.OpCreate
	opLook = store.OpGetRange
)

func TestCreate(t *testing.T) {
	other := func(change func(id *segment.LogIdentity)) *cut {
		id := identity(trips)
		change(&id)
		return &cut{next: 7, id: &id}
	}
	for name, c := range map[string]struct {
		there   *cut    // a segment that holds the name already
		same    bool    // it is our own, from a try that was not answered
		foreign []byte  // an object that is no segment holds the name
		errs    []error // answers before the store's own
		adopted bool
		err     error
		calls   []string
		retries int
	}{
		"created":                     {calls: []string{opPut}},
		"exists, ours":                {same: true, calls: []string{opPut, opLook}},
		"exists, another cut":         {there: &cut{next: 7}, adopted: true, calls: []string{opPut, opLook}},
		"exists, longer cut":          {there: &cut{next: 70}, adopted: true, calls: []string{opPut, opLook}},
		"exists, other cluster":       {there: other(func(id *segment.LogIdentity) { id.ClusterID = "x" }), err: ErrOtherLog, calls: []string{opPut, opLook}},
		"exists, other topic id":      {there: other(func(id *segment.LogIdentity) { id.TopicID = "x" }), err: ErrOtherLog, calls: []string{opPut, opLook}},
		"exists, other isolation":     {there: other(func(id *segment.LogIdentity) { id.Isolation = segment.ReadUncommitted }), err: ErrOtherLog, calls: []string{opPut, opLook}},
		"exists, no segment":          {foreign: []byte("PK\x03\x04"), err: ErrForeign, calls: []string{opPut, opLook}},
		"exists, empty object":        {foreign: []byte{}, err: ErrForeign, calls: []string{opPut, opLook}},
		"unknown, absent":             {errs: []error{err503}, calls: []string{opPut, opLook, opPut}, retries: 1},
		"409 twice, absent":           {errs: []error{err409, err409}, calls: []string{opPut, opLook, opPut, opLook, opPut}, retries: 2},
		"unknown, ours":               {same: true, errs: []error{err503}, calls: []string{opPut, opLook}},
		"unknown, another cut":        {there: &cut{next: 7}, errs: []error{err409}, adopted: true, calls: []string{opPut, opLook}},
		"unknown, other log":          {there: other(func(id *segment.LogIdentity) { id.TopicID = "x" }), errs: []error{err409}, err: ErrOtherLog, calls: []string{opPut, opLook}},
		"unknown, no segment":         {foreign: []byte("x"), errs: []error{err409}, err: ErrForeign, calls: []string{opPut, opLook}},
		"not allowed":                 {errs: []error{err403, err403}, calls: []string{opPut, opPut, opPut}, retries: 2},
		"not allowed, then exists":    {there: &cut{next: 7}, errs: []error{err403}, adopted: true, calls: []string{opPut, opPut, opLook}, retries: 1},
		"invalid":                     {errs: []error{err400}, err: store.ErrInvalid, calls: []string{opPut}},
		"an error of no known kind":   {errs: []error{errors.New("?")}, calls: []string{opPut, opLook, opPut}, retries: 1},
		"unknown, then not allowed":   {errs: []error{err503, err403}, calls: []string{opPut, opLook, opPut, opPut}, retries: 2},
		"unknown, absent, then taken": {errs: []error{mem.ErrHold}, calls: []string{opPut, opLook, opPut}, retries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			a, st := open(t)
			h, data := encode(t, trips, nil, cut{next: 40})
			key := a.key(trips, 0)
			switch {
			case c.there != nil:
				_, other := encode(t, trips, nil, *c.there)
				st.Put(key, other)
			case c.same:
				st.Put(key, data)
			case c.foreign != nil:
				st.Put(key, c.foreign)
			}
			before, _ := st.Get(context.Background(), key)
			calls := answers(st, c.errs...)
			retries := 0
			out, err := a.Create(context.Background(), h, data, RetryPolicy{OnRetry: func(k string, attempt int, err error) {
				if retries++; k != key || attempt != retries || err == nil {
					t.Errorf("retry %d told as key %s, attempt %d, error %v", retries, k, attempt, err)
				}
			}})
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if !slices.Equal(*calls, c.calls) {
				t.Errorf("calls %v, want %v", *calls, c.calls)
			}
			if retries != c.retries {
				t.Errorf("%d retries told, want %d", retries, c.retries)
			}
			if err == nil {
				want := int64(40)
				if c.adopted {
					want = c.there.next
				}
				if out.Adopted != c.adopted || out.Tail.Header.Next != want {
					t.Errorf("adopted %t, next %d; want %t, %d", out.Adopted, out.Tail.Header.Next, c.adopted, want)
				}
			}
			after, _ := st.Get(context.Background(), key)
			if before != nil && !bytes.Equal(before, after) {
				t.Error("the object that was there has changed")
			}
			if out != nil && out.Tail.Size != int64(len(after)) {
				t.Errorf("tail of %d bytes, the object has %d", out.Tail.Size, len(after))
			}
		})
	}
}

// A try that arrives between our look and our second put is our own: the second is refused, and confirmed by a look.
func TestCreateLandsLate(t *testing.T) {
	a, st := open(t)
	calls := answers(st, mem.ErrHold)
	a.wait.sleep = func(context.Context, time.Duration) error { st.Release(); return nil }
	h, data := encode(t, trips, nil, cut{next: 40})
	out, err := a.Create(context.Background(), h, data, RetryPolicy{})
	if err != nil || out.Adopted {
		t.Fatalf("%+v, %v", out, err)
	}
	if want := []string{opPut, opLook, opPut, opLook}; !slices.Equal(*calls, want) {
		t.Errorf("calls %v, want %v", *calls, want)
	}
	mustBeClean(t, a)
}

// A create that lands after its writer gave up does not fork the chain: the next writer's segment loses to it, or it loses.
func TestCreateLandsAfterItsWriterIsGone(t *testing.T) {
	a, st := open(t)
	answers(st, mem.ErrHold)
	ctx, cancel := context.WithCancel(context.Background())
	a.wait.sleep = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
	h, data := encode(t, trips, nil, cut{next: 40})
	if _, err := a.Create(ctx, h, data, RetryPolicy{}); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "outcome unknown") {
		t.Fatalf("error %v", err)
	}
	b := Open(st, "topics")
	tail, err := b.Tail(context.Background(), trips.Topic, trips.Partition, -1)
	if tail != nil || err != nil {
		t.Fatalf("tail %v, %v", tail, err)
	}
	if st.Release() != 1 {
		t.Fatal("the late create did not land")
	}
	h, data = encode(t, trips, nil, cut{next: 100})
	out, err := b.Create(context.Background(), h, data, RetryPolicy{})
	if err != nil || !out.Adopted || out.Tail.Header.Next != 40 {
		t.Fatalf("%+v, %v", out, err)
	}
	grow(t, b, trips, &out.Tail, 1, 60)
	if r := mustBeClean(t, b); r.Records != 100 {
		t.Fatalf("%d records", r.Records)
	}
}

// After "exists" nothing is put again, also where the object cannot be read: a few looks, then the partition stops.
func TestCreateExistsAndIsGone(t *testing.T) {
	a, st := open(t)
	var calls []string
	st.SetBefore(func(_ context.Context, op, _ string) error {
		calls = append(calls, op)
		if op == opPut {
			return store.ErrExists
		}
		return nil
	})
	h, data := encode(t, trips, nil, cut{next: 40})
	_, err := a.Create(context.Background(), h, data, RetryPolicy{})
	if !errors.Is(err, ErrBroken) {
		t.Fatalf("error %v", err)
	}
	if want := append([]string{opPut}, slices.Repeat([]string{opLook}, maxLooks)...); !slices.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
}

// A look that is not answered is repeated, whatever the answer: what is there decides.
func TestCreateLookFails(t *testing.T) {
	for _, lookErr := range []error{errors.New("503"), err403} {
		a, st := open(t)
		_, other := encode(t, trips, nil, cut{next: 7})
		st.Put(a.key(trips, 0), other)
		var calls []string
		fail := 3
		st.SetBefore(func(_ context.Context, op, _ string) error {
			calls = append(calls, op)
			if op == opLook && fail > 0 {
				fail--
				return lookErr
			}
			return nil
		})
		h, data := encode(t, trips, nil, cut{next: 40})
		out, err := a.Create(context.Background(), h, data, RetryPolicy{})
		if err != nil || !out.Adopted {
			t.Fatalf("%+v, %v", out, err)
		}
		if want := []string{opPut, opLook, opLook, opLook, opLook}; !slices.Equal(calls, want) {
			t.Errorf("calls %v, want %v", calls, want)
		}
	}
}

// A header longer than the first page, from many schemas, is compared and adopted in full.
func TestCreateLongHeader(t *testing.T) {
	long := func(text string, next int64) (*segment.Header, []byte) {
		w, err := segment.NewWriter(identity(trips), 0, "null")
		if err != nil {
			t.Fatal(err)
		}
		r := at(trips, 0, 0)
		if _, err := w.Append(&r); err != nil {
			t.Fatal(err)
		}
		data, h, err := w.Close(next, segment.First(), []segment.Schema{{ID: 1, Type: "AVRO", Text: strings.Repeat(text, 3*segment.HeadBytes)}})
		if err != nil {
			t.Fatal(err)
		}
		return h, data
	}
	for name, c := range map[string]struct {
		text    string
		next    int64
		adopted bool
	}{"ours": {"a", 5, false}, "other schema": {"b", 5, true}, "other next": {"a", 6, true}} {
		t.Run(name, func(t *testing.T) {
			a, st := open(t)
			_, there := long(c.text, c.next)
			st.Put(a.key(trips, 0), there)
			h, data := long("a", 5)
			out, err := a.Create(context.Background(), h, data, RetryPolicy{})
			if err != nil || out.Adopted != c.adopted || out.Tail.Header.Next != c.next {
				t.Fatalf("%+v, %v", out, err)
			}
		})
	}
}

// An object of another size is not ours, also where its header and first page are.
func TestCreateOtherSize(t *testing.T) {
	a, st := open(t)
	h, data := encode(t, trips, nil, cut{next: 5000})
	if len(data) < segment.HeadBytes {
		t.Fatalf("%d bytes are one page", len(data))
	}
	st.Put(a.key(trips, 0), append(bytes.Clone(data), 'x'))
	out, err := a.Create(context.Background(), h, data, RetryPolicy{})
	if err != nil || !out.Adopted || out.Tail.Size != int64(len(data))+1 {
		t.Fatalf("%+v, %v", out, err)
	}
}

// A segment of our log under our name that claims another place in the chain is no winner.
func TestCreateOtherPlace(t *testing.T) {
	a, st := open(t)
	tail := grow(t, a, trips, nil, 2, 10)
	fork := *tail.Header
	fork.Ordinal = segment.IndexEvery - 1
	_, data := encode(t, trips, &Tail{Header: &fork, Size: tail.Size}, cut{next: 25})
	st.Put(a.key(trips, 20), data)
	h, data := encode(t, trips, tail, cut{next: 30})
	if _, err := a.Create(context.Background(), h, data, RetryPolicy{}); !errors.Is(err, ErrBroken) {
		t.Fatalf("error %v", err)
	}
}

func TestCreateRefusesOtherBytes(t *testing.T) {
	a, st := open(t)
	h, _ := encode(t, trips, nil, cut{next: 40})
	_, other := encode(t, trips, grow(t, a, trips, nil, 1, 3), cut{next: 10})
	st.ResetCounts()
	for _, data := range [][]byte{nil, []byte("x"), other} {
		if _, err := a.Create(context.Background(), h, data, RetryPolicy{}); err == nil {
			t.Errorf("%.10q was accepted", data)
		}
	}
	if n := st.Counts(); len(n) != 0 {
		t.Errorf("calls %v", n)
	}
}

// One create in flight per partition; other partitions are not held up.
func TestCreateOneInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := mem.New()
		a := Open(st, "topics")
		gate := make(chan struct{})
		st.SetBefore(func(_ context.Context, _, key string) error {
			if strings.Contains(key, "partition=0") {
				<-gate
			}
			return nil
		})
		h, data := encode(t, trips, nil, cut{next: 40})
		done := make(chan error)
		go func() {
			_, err := a.Create(context.Background(), h, data, RetryPolicy{})
			done <- err
		}()
		synctest.Wait()
		if _, err := a.Create(context.Background(), h, data, RetryPolicy{}); !errors.Is(err, ErrBusy) {
			t.Errorf("error %v", err)
		}
		second := trips
		second.Partition = 1
		create(t, a, second, nil, cut{next: 5})
		close(gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
		// And after it the next one may go.
		create(t, a, trips, &Tail{Header: h, Size: int64(len(data))}, cut{next: 50})
	})
}

// CASE 8 at this level: ten minutes of 503 are waited out with growing, jittered waits, and the segment is there once.
func TestCreateWaitsOutTenMinutesOf503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := mem.New()
		a := Open(st, "topics")
		begin := time.Now()
		st.SetBefore(func(context.Context, string, string) error {
			if time.Since(begin) < 10*time.Minute {
				return err503
			}
			return nil
		})
		retries := 0
		h, data := encode(t, trips, nil, cut{next: 40})
		out, err := a.Create(context.Background(), h, data, RetryPolicy{Min: 100 * time.Millisecond, Max: 10 * time.Second,
			OnRetry: func(string, int, error) { retries++ }})
		if err != nil || out.Adopted {
			t.Fatalf("%+v, %v", out, err)
		}
		if d := time.Since(begin); d < 10*time.Minute || d > 10*time.Minute+30*time.Second { // a look and a put may each be waited for
			t.Errorf("took %s", d)
		}
		// Waits of 5 s on average after the first few: about 120.
		if retries < 60 || retries > 240 {
			t.Errorf("%d retries", retries)
		}
		st.SetBefore(nil)
		mustBeClean(t, a)
	})
}

func TestCreateEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := mem.New()
		a := Open(st, "topics")
		st.SetBefore(func(context.Context, string, string) error { return err403 })
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		h, data := encode(t, trips, nil, cut{next: 40})
		_, err := a.Create(ctx, h, data, RetryPolicy{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
	})
}

func TestBackoff(t *testing.T) {
	p := RetryPolicy{Min: 100 * time.Millisecond, Max: time.Second}
	for attempt, want := range []time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 4: 800 * time.Millisecond, 5: time.Second, 100: time.Second} {
		if want != 0 && p.bound(attempt) != want {
			t.Errorf("attempt %d: at most %s, want %s", attempt, p.bound(attempt), want)
		}
	}
	if lo, hi := (RetryPolicy{}).bound(1), (RetryPolicy{}).bound(1000); lo != defaultMinWait || hi != defaultMaxWait {
		t.Errorf("defaults %s, %s", lo, hi)
	}
	// Full jitter: the draw spans everything from 0 to the bound.
	var waited time.Duration
	w := waiter{sleep: func(_ context.Context, d time.Duration) error { waited = d; return nil }}
	for _, draw := range []func(int64) int64{func(int64) int64 { return 0 }, func(n int64) int64 { return n - 1 }} {
		w.draw = draw
		if err := w.backoff(context.Background(), p, 2, nil); err != nil {
			t.Fatal(err)
		}
		if want := time.Duration(draw(int64(200*time.Millisecond) + 1)); waited != want {
			t.Errorf("waited %s, want %s", waited, want)
		}
	}
}
