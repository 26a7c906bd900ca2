package jobstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

func newStore() (*Store, *mem.Store) {
	st := mem.New()
	s := New(st)
	s.backoff = 100 * time.Microsecond
	return s, st
}

func newJob(name string) job.Job {
	r := job.Request{Name: name, From: job.Bound{Kind: job.Earliest}, Until: job.Bound{Kind: job.End}}
	return job.New(r, "a", 15000, time.Unix(1, 0).UTC())
}

func create(t *testing.T, s *Store) *Entry {
	t.Helper()
	e, err := s.Create(t.Context(), newJob("j"))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestKeys(t *testing.T) {
	if got, want := Key("a-1", 42), "_tapedeck/jobs/a-1/00000000000000000042"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, n := range []int64{0, 7, 1<<63 - 1} {
		name, m, err := ParseKey(Key("x", n))
		if err != nil || name != "x" || m != n {
			t.Errorf("%d: %s %d %v", n, name, m, err)
		}
	}
	for _, bad := range []string{"", "x", Dir, Dir + "x/1", Dir + "x/0000000000000000000a", Dir + "X/00000000000000000001", Dir + "x/-0000000000000000001",
		Dir + "x/99999999999999999999", Dir + "x/00000000000000000001/y"} {
		if _, _, err := ParseKey(bad); err == nil {
			t.Errorf("%q is taken for an entry", bad)
		}
	}
}

func TestLoadFindsTheNewest(t *testing.T) {
	s, st := newStore()
	if _, err := s.Load(t.Context(), "j", nil); !errors.Is(err, ErrNotFound) {
		t.Fatalf("no job: %v", err)
	}
	e := create(t, s)
	for range 1205 { // more than a page
		var err error
		if e, err = s.Append(t.Context(), e, job.Renew, time.Unix(2, 0), e.Job); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Load(t.Context(), "j", nil)
	if err != nil || got.N != 1205 || got.Writer != e.Writer {
		t.Fatalf("%v %v", got, err)
	}
	st.ResetCounts()
	again, err := s.Load(t.Context(), "j", got)
	if err != nil || again != got {
		t.Fatalf("%v %v", again, err)
	}
	if c := st.Counts(); c[store.OpList] != 1 || c[store.OpGet] != 0 {
		t.Errorf("an unchanged job costs %v", c)
	}
	names, err := s.Names(t.Context())
	if err != nil || len(names) != 1 || names[0] != "j" {
		t.Errorf("names %v, %v", names, err)
	}
}

func TestOfTwoAppendsOneIsRefused(t *testing.T) {
	s, _ := newStore()
	e := create(t, s)
	if _, err := s.Append(t.Context(), e, job.Renew, time.Unix(2, 0), e.Job); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), e, job.Renew, time.Unix(2, 0), e.Job); !errors.Is(err, ErrMoved) {
		t.Errorf("the second append to the same entry: %v", err)
	}
	if _, err := s.Create(t.Context(), newJob("j")); !errors.Is(err, ErrMoved) {
		t.Errorf("a second job of the name: %v", err)
	}
}

// Every way in which an answer can be without meaning, and each once.
func TestUnknownAnswers(t *testing.T) {
	s, st := newStore()
	e := create(t, s)
	appendOne := func() (*Entry, error) { return s.Append(t.Context(), e, job.Renew, time.Unix(2, 0), e.Job) }
	onCreate := func(f func() error) mem.Before {
		var once sync.Once
		return func(_ context.Context, op, _ string) (err error) {
			if op == store.OpCreate {
				once.Do(func() { err = f() })
			}
			return err
		}
	}

	// Applied, and the answer lost.
	st.SetAfter(func(_ context.Context, op, _ string, err error) error {
		if op == store.OpCreate && err == nil {
			return store.ErrUnknown
		}
		return err
	})
	next, err := appendOne()
	if err != nil || next.N != 1 {
		t.Fatalf("answer lost: %v", err)
	}
	st.SetAfter(nil)

	// Never arrived: created again.
	e = next
	st.SetBefore(onCreate(func() error { return store.ErrUnknown }))
	if next, err = appendOne(); err != nil || next.N != 2 {
		t.Fatalf("never arrived: %v", err)
	}

	// Arrives late, after we have looked and found nothing: "exists" is ours.
	e = next
	st.SetBefore(func(_ context.Context, op, _ string) error {
		if op == store.OpCreate && st.Held() == 0 {
			return mem.ErrHold
		}
		if op == store.OpCreate {
			st.Release()
		}
		return nil
	})
	if next, err = appendOne(); err != nil || next.N != 3 {
		t.Fatalf("arrived late: %v", err)
	}

	// No answer, and another has got there.
	e = next
	st.SetBefore(nil)
	st.SetBefore(onCreate(func() error {
		st.SetBefore(nil)
		if _, err := s.Append(t.Context(), e, job.Takeover, time.Unix(3, 0), e.Job); err != nil {
			t.Error(err)
		}
		return store.ErrUnknown
	}))
	if _, err = appendOne(); !errors.Is(err, ErrMoved) {
		t.Fatalf("another got there: %v", err)
	}

	// Refused for good: not repeated.
	st.ResetCounts()
	st.SetBefore(func(_ context.Context, op, _ string) error {
		if op == store.OpCreate {
			return store.ErrNotAllowed
		}
		return nil
	})
	e, err = s.Load(t.Context(), "j", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = appendOne(); !errors.Is(err, store.ErrNotAllowed) || st.Counts()[store.OpCreate] != 1 {
		t.Fatalf("not allowed: %v, %v", err, st.Counts())
	}

	// No answer at all, until the caller has had enough.
	ctx, cancel := context.WithCancel(t.Context())
	st.SetBefore(func(_ context.Context, op, _ string) error {
		if st.Counts()[store.OpCreate] > 5 {
			cancel()
		}
		return store.ErrUnknown
	})
	if _, err = s.Append(ctx, e, job.Renew, time.Unix(2, 0), e.Job); !errors.Is(err, context.Canceled) {
		t.Fatalf("no answer: %v", err)
	}
}

func TestApplyDecidesAgain(t *testing.T) {
	s, st := newStore()
	e := create(t, s)
	// A user pauses between our look and our append.
	running := e.Job
	running.State = job.Running
	e, err := s.Append(t.Context(), e, job.Started, time.Unix(2, 0), running)
	if err != nil {
		t.Fatal(err)
	}
	st.SetBefore(func(_ context.Context, op, _ string) error {
		if op == store.OpCreate {
			st.SetBefore(nil)
			if _, _, err := s.Apply(t.Context(), "j", nil, job.Ask{Event: job.Pause, By: "u"}); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	got, act, err := s.Apply(t.Context(), "j", e, job.Ask{Event: job.Delivered, By: "a", Epoch: 1, Target: &job.Outcome{}})
	if err != nil || act.Kind != job.Append || got.Job.State != job.Completed || got.N != 3 {
		t.Fatalf("%v %v %v", got, act.Kind, err)
	}
}

// The time waited counts for the entry that was watched, not for one that came since.
func TestTakerBeginsToWaitAnewWhenTheJobMoves(t *testing.T) {
	s, st := newStore()
	e := create(t, s)
	ask := job.Ask{Event: job.Takeover, By: "b", LeaseMs: 15000, Elapsed: time.Hour}
	renewed, err := s.Append(t.Context(), e, job.Renew, time.Unix(2, 0), e.Job)
	if err != nil {
		t.Fatal(err)
	}
	if _, act, err := s.Apply(t.Context(), "j", e, ask); err != nil || act.Kind != job.Wait {
		t.Fatalf("renewed before the look: %v %v", act.Kind, err)
	}
	st.SetBefore(func(_ context.Context, op, _ string) error {
		if op == store.OpCreate {
			st.SetBefore(nil)
			if _, err := s.Append(t.Context(), renewed, job.Renew, time.Unix(3, 0), renewed.Job); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	got, act, err := s.Apply(t.Context(), "j", renewed, ask)
	if err != nil || act.Kind != job.Wait || got.N != 2 || got.Job.Owner != "a" {
		t.Fatalf("renewed before the append: %v %v %v", got, act.Kind, err)
	}
}

// Many takers over a store that loses, delays and refuses answers: each epoch has one owner, and the sequence has no hole.
func TestTakersOverAStoreThatLies(t *testing.T) {
	for seed := range uint64(30) {
		s, st := newStore()
		e := create(t, s)
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(seed, 2))
		dice := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return rng.IntN(n)
		}
		st.SetBefore(func(_ context.Context, op, _ string) error {
			if op != store.OpCreate {
				return nil
			}
			switch dice(6) {
			case 0:
				return store.ErrUnknown
			case 1:
				return mem.ErrHold
			case 2:
				st.Release()
			}
			return nil
		})
		st.SetAfter(func(_ context.Context, op, _ string, err error) error {
			if op == store.OpCreate && err == nil && dice(5) == 0 {
				return store.ErrUnknown
			}
			return err
		})
		owners := map[int64][]string{}
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				by, known := fmt.Sprint("r", i), e
				for range 8 {
					got, act, err := s.Apply(t.Context(), "j", known, job.Ask{Event: job.Takeover, By: by, LeaseMs: 15000, Elapsed: time.Hour})
					if err != nil {
						t.Error(err)
						return
					}
					if act.Kind == job.Append {
						mu.Lock()
						owners[got.Job.Epoch] = append(owners[got.Job.Epoch], by)
						mu.Unlock()
					}
					known = got
				}
			})
		}
		wg.Wait()
		st.SetBefore(nil)
		st.SetAfter(nil)
		st.Release()
		last, err := s.Load(t.Context(), "j", nil)
		if err != nil {
			t.Fatal(err)
		}
		if last.N == 0 || len(st.Keys()) != int(last.N)+1 {
			t.Errorf("seed %d: %d entries, the newest is %d", seed, len(st.Keys()), last.N)
		}
		for n := int64(1); n <= last.N; n++ {
			e, err := s.get(t.Context(), "j", n)
			if err != nil {
				t.Fatal(err)
			}
			if e.Job.Epoch != n+1 || len(owners[n+1]) != 1 || owners[n+1][0] != e.Job.Owner {
				t.Errorf("seed %d: entry %d has epoch %d of %s; believed to be owned by %v", seed, n, e.Job.Epoch, e.Job.Owner, owners[n+1])
			}
		}
	}
}

func TestUnreadableEntries(t *testing.T) {
	s, st := newStore()
	e := create(t, s)
	for what, data := range map[string]string{
		"newer":        `{"format":2,"n":1,"job":{"request":{"name":"j"}}}`,
		"not JSON":     `{`,
		"of elsewhere": `{"format":1,"n":1,"job":{"request":{"name":"k"}}}`,
	} {
		st.Put(Key("j", 1), []byte(data))
		if _, err := s.Load(t.Context(), "j", nil); err == nil || !strings.Contains(err.Error(), Key("j", 1)) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := s.Append(t.Context(), e, job.Renew, time.Unix(2, 0), e.Job); !errors.Is(err, ErrMoved) {
			t.Errorf("%s: append %v", what, err)
		}
	}
	st.Put(Dir+"j/readme.txt", nil)
	if _, err := s.Load(t.Context(), "j", nil); err == nil || !strings.Contains(err.Error(), "foreign") {
		t.Errorf("a foreign object: %v", err)
	}
}
