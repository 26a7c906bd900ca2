package store_test

import (
	"errors"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/store"
)

func TestCheckKey(t *testing.T) {
	for _, key := range []string{"a", "a/b", "...", "a..b", ".hidden/x", "a b", "ä", strings.Repeat("k", store.MaxKeyBytes)} {
		if err := store.CheckKey(key); err != nil {
			t.Errorf("%.20q: %v", key, err)
		}
	}
	for _, key := range []string{"", "/a", "a/", "a//b", ".", "a/..", "a\tb", "\x7f", "\xff", strings.Repeat("k", store.MaxKeyBytes+1)} {
		if err := store.CheckKey(key); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%.20q: %v, want ErrInvalid", key, err)
		}
	}
}

func TestPageSize(t *testing.T) {
	for max, want := range map[int]int{-1: 1000, 0: 1000, 1: 1, 999: 999, 1000: 1000, 1001: 1000} {
		if got := store.PageSize(max); got != want {
			t.Errorf("page size of %d = %d, want %d", max, got, want)
		}
	}
}
