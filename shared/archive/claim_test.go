package archive

import (
	"context"
	"errors"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

func TestOnePrefixHoldsOneTopicsDir(t *testing.T) {
	ctx := context.Background()
	st := mem.New()
	first, second := Open(st, "topics"), Open(st, "other")
	// A prefix that does not say is any reader's.
	for _, a := range []*Archive{first, second} {
		if err := a.CheckDir(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := first.Claim(ctx); err != nil {
			t.Fatal(err)
		}
	}
	data, err := st.Get(ctx, "_tapedeck/archive")
	if err != nil || string(data) != `{"format":1,"topicsDir":"topics"}` {
		t.Fatalf("%s, %v", data, err)
	}
	if err := first.CheckDir(ctx); err != nil {
		t.Error(err)
	}
	for name, check := range map[string]func(context.Context) error{"claim": second.Claim, "check": second.CheckDir} {
		err := check(ctx)
		if !errors.Is(err, ErrOtherDir) || !strings.Contains(err.Error(), "another prefix") || !strings.Contains(err.Error(), `"topics"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Two that start at once: one create wins, and the other compares.
func TestClaimOfTwoAtOnce(t *testing.T) {
	ctx := context.Background()
	st := mem.New()
	for _, dir := range []string{"topics", "other"} {
		race := lateReader{Store: st, before: func() {
			if err := Open(st, dir).Claim(ctx); err != nil {
				t.Error(err)
			}
		}}
		if err := Open(&race, "topics").Claim(ctx); (err != nil) != (dir == "other") || err != nil && !errors.Is(err, ErrOtherDir) {
			t.Errorf("against %s: %v", dir, err)
		}
		st = mem.New()
	}
}

// lateReader lets another writer in between the look and the create.
type lateReader struct {
	*mem.Store
	before func()
}

func (s *lateReader) Create(ctx context.Context, key string, data []byte, with ...store.Attributes) error {
	if s.before != nil {
		s.before()
		s.before = nil
	}
	return s.Store.Create(ctx, key, data, with...)
}

func TestClaimThatCannotBeRead(t *testing.T) {
	for content, want := range map[string]string{"x": "not readable", "{}": "not readable", `{"format":2,"topicsDir":"topics"}`: "newer version"} {
		a, st := open(t)
		st.Put("_tapedeck/archive", []byte(content))
		if err := a.Claim(context.Background()); !errors.Is(err, ErrOtherDir) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", content, err)
		}
	}
}
