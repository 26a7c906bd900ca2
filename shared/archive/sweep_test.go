package archive

import (
	"context"
	"errors"
	"testing"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// leftovers is a store with unfinished creates.
type leftovers struct {
	*mem.Store
	keys []string
	err  error
}

func (s *leftovers) Sweep(_ context.Context, ours func(string) bool) (int, error) {
	n := 0
	for _, k := range s.keys {
		if ours(k) {
			n++
		}
	}
	return n, s.err
}

func TestSweepTakesWhatAnArchiveWrites(t *testing.T) {
	for key, ours := range map[string]bool{
		"topics/trips/partition=0/trips+0+00000000000000000000.avro": true,
		"_tapedeck/probe/multipart":                                  true,
		"topics/trips/partition=0/trips+0+0.avro":                    false,
		"topics/trips/year=2026/trips+0+00000000000000000000.avro":   false,
		"other/trips/partition=0/trips+0+00000000000000000000.avro":  false,
		"backup.tar": false,
	} {
		n, err := Open(&leftovers{Store: mem.New(), keys: []string{key}}, "topics").Sweep(t.Context())
		if err != nil || (n == 1) != ours {
			t.Errorf("%s: swept %d, %v", key, n, err)
		}
	}
	_, err := Open(&leftovers{Store: mem.New(), err: store.ErrNotAllowed}, "topics").Sweep(t.Context())
	if !errors.Is(err, store.ErrNotAllowed) {
		t.Errorf("%v", err)
	}
}
