package archive

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/store"
)

// A segment carries the attributes that its writer gives, also where the first put has no effect; the index object of its block
// does not: it is small, and read by every plan.
func TestCreateWithAttributes(t *testing.T) {
	a, st := open(t)
	tail := grow(t, a, trips, nil, 255, 1)
	want := store.Attributes{StorageClass: "STANDARD_IA", Tags: map[string]string{"team": "data"}}
	h, data := encode(t, trips, tail, cut{next: tail.Header.Next + 1})
	first := true
	st.SetBefore(func(_ context.Context, op, key string) error {
		if op == store.OpCreate && strings.HasPrefix(key, "topics/") && first {
			first = false
			return err503
		}
		return nil
	})
	if _, err := a.Create(t.Context(), h, data, RetryPolicy{}, want); err != nil {
		t.Fatal(err)
	}
	indexed := 0
	for _, key := range st.Keys() {
		wanted := store.Attributes{}
		if key == a.key(trips, h.Start) {
			wanted = want
		}
		if diff := cmp.Diff(wanted, st.Attributes(key)); diff != "" {
			t.Errorf("%s:\n%s", key, diff)
		}
		if strings.HasPrefix(key, indexDir) {
			indexed++
		}
	}
	if indexed != 1 {
		t.Errorf("%d index objects", indexed)
	}
	h, data = encode(t, trips, &Tail{Header: h, Size: int64(len(data))}, cut{next: h.Next + 1})
	if _, err := a.Create(t.Context(), h, data, RetryPolicy{}, store.Attributes{StorageClass: "GLACIER"}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("create in GLACIER: %v", err)
	}
}
