package mem_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

func TestBeforeRefuses(t *testing.T) {
	s := mem.New()
	ctx := t.Context()
	s.SetBefore(func(_ context.Context, op, key string) error {
		if op == store.OpCreate && key == "a" {
			return store.ErrNotAllowed
		}
		return nil
	})
	if err := s.Create(ctx, "a", []byte("x")); !errors.Is(err, store.ErrNotAllowed) {
		t.Fatalf("create with a refusing hook: %v", err)
	}
	if got := s.Keys(); len(got) != 0 {
		t.Fatalf("a refused create wrote %v", got)
	}
	if err := s.Create(ctx, "b", nil); err != nil {
		t.Fatalf("create of another key: %v", err)
	}
	if got := s.Counts()[store.OpCreate]; got != 2 {
		t.Fatalf("counted %d creates, want 2", got)
	}
}

func TestAfterLosesAnswer(t *testing.T) {
	s := mem.New()
	ctx := t.Context()
	s.SetAfter(func(_ context.Context, op, _ string, err error) error {
		if op == store.OpCreate && err == nil {
			return store.ErrUnknown
		}
		return err
	})
	if err := s.Create(ctx, "a", []byte("x")); !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("create with a lost answer: %v", err)
	}
	if got, err := s.Get(ctx, "a"); err != nil || string(got) != "x" {
		t.Fatalf("get after the lost answer: %q, %v", got, err)
	}
}

func TestHeldCreates(t *testing.T) {
	s := mem.New()
	ctx := t.Context()
	hold := true
	s.SetBefore(func(_ context.Context, op, _ string) error {
		if op == store.OpCreate && hold {
			return mem.ErrHold
		}
		return nil
	})
	for _, key := range []string{"late", "taken"} {
		if err := s.Create(ctx, key, []byte("held")); !errors.Is(err, store.ErrUnknown) {
			t.Fatalf("create held back: %v", err)
		}
	}
	if _, err := s.Get(ctx, "late"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("get before the release: %v", err)
	}
	hold = false
	if err := s.Create(ctx, "taken", []byte("first")); err != nil {
		t.Fatal(err)
	}
	if held := s.Held(); held != 2 {
		t.Fatalf("%d creates held, want 2", held)
	}
	if wrote := s.Release(); wrote != 1 {
		t.Fatalf("the release wrote %d objects, want 1", wrote)
	}
	if got, _ := s.Get(ctx, "late"); string(got) != "held" {
		t.Fatalf("late = %q", got)
	}
	if got, _ := s.Get(ctx, "taken"); string(got) != "first" {
		t.Fatalf("a late create replaced the object: %q", got)
	}
}

func TestNamedIsShared(t *testing.T) {
	t.Cleanup(func() { mem.Forget("shared") })
	a, b := mem.Named("shared"), mem.Named("shared").Sub("p/")
	if err := b.Create(t.Context(), "k", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if got := a.Keys(); !slices.Equal(got, []string{"p/k"}) {
		t.Fatalf("keys seen by the other view: %v", got)
	}
	if got := b.String(); got != "mem://shared/p" {
		t.Fatalf("address %q", got)
	}
	if !a.Delete("p/k") || len(b.Keys()) != 0 {
		t.Fatal("the deleted object is still there")
	}
	a.Put("p/k2", []byte("y"))
	if got, err := b.Get(t.Context(), "k2"); err != nil || string(got) != "y" {
		t.Fatalf("get of what was put: %q, %v", got, err)
	}
}
