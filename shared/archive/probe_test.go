package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

func TestProbe(t *testing.T) {
	st := mem.New()
	if err := Probe(context.Background(), st); err != nil {
		t.Fatal(err)
	}
	first := st.Keys()
	if len(first) > 12 {
		t.Errorf("%d objects: %v", len(first), first)
	}
	for _, k := range first {
		if !strings.HasPrefix(k, "_tapedeck/probe/") {
			t.Errorf("writes %s", k)
		}
	}
	st.ResetCounts()
	if err := Probe(context.Background(), st); err != nil {
		t.Fatalf("second run: %v", err)
	}
	if second := st.Keys(); strings.Join(second, " ") != strings.Join(first, " ") {
		t.Errorf("the second run leaves %v", second)
	}
	if n := st.Counts(); n[store.OpCreate] != 1 || calls(n) > 6 {
		t.Errorf("the second run calls %v", n)
	}
}

// A second run still finds a store that has begun to ignore the condition.
func TestProbeRefusesAStoreThatOverwrites(t *testing.T) {
	st := mem.New()
	if err := Probe(context.Background(), overwrites{st}); err == nil || !strings.Contains(err.Error(), "If-None-Match") {
		t.Fatalf("first run: %v", err)
	}
	if err := Probe(context.Background(), st); err != nil {
		t.Fatalf("the same store, repaired: %v", err)
	}
	if err := Probe(context.Background(), overwrites{st}); err == nil || !strings.Contains(err.Error(), "If-None-Match") {
		t.Fatalf("second run: %v", err)
	}
}

// overwrites ignores the condition of a create.
type overwrites struct{ *mem.Store }

func (s overwrites) Create(_ context.Context, key string, data []byte, _ ...store.Attributes) error {
	s.Put(key, data)
	return nil
}

// CASE 17 at this level: a store that refuses the default checksum, or keeps its framing inside the object.
func TestCase17ChecksumsAreRefusedWithTheSetting(t *testing.T) {
	frame := func(data []byte) []byte {
		return fmt.Appendf(nil, "%x\r\n%s\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", len(data), data)
	}
	for name, change := range map[string]func(st *mem.Store) store.Store{
		"refuses the header": func(st *mem.Store) store.Store {
			st.SetBefore(func(_ context.Context, op, _ string) error {
				if op == store.OpCreate {
					return fmt.Errorf("501 NotImplemented: %w", store.ErrInvalid)
				}
				return nil
			})
			return st
		},
		"keeps the framing": func(st *mem.Store) store.Store { return mangles{st, frame} },
		"cuts the object":   func(st *mem.Store) store.Store { return mangles{st, func(b []byte) []byte { return b[:10] }} },
		"changes a byte": func(st *mem.Store) store.Store {
			return mangles{st, func(b []byte) []byte { return bytes.Replace(b, []byte{200}, []byte{201}, 1) }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := mem.New()
			for range 3 {
				err := Probe(context.Background(), change(st))
				if err == nil || !strings.Contains(err.Error(), "checksum=when-required") || !strings.Contains(err.Error(), "checksum=none") {
					t.Fatalf("error %v", err)
				}
				if name == "keeps the framing" && !strings.Contains(err.Error(), "framing") {
					t.Errorf("error %v", err)
				}
			}
			// With the setting changed the same store passes, although the objects of the wrong one are still there.
			st.SetBefore(nil)
			if err := Probe(context.Background(), st); err != nil {
				t.Errorf("after the setting was changed: %v", err)
			}
		})
	}
}

// mangles changes what is written.
type mangles struct {
	*mem.Store
	change func([]byte) []byte
}

func (s mangles) Create(ctx context.Context, key string, data []byte, with ...store.Attributes) error {
	return s.Store.Create(ctx, key, s.change(data), with...)
}

// CASE 18: listings that would hide the newest segment.
func TestCase18ListingsAreProbed(t *testing.T) {
	reverse := func(objs []store.Object) []store.Object {
		out := make([]store.Object, len(objs))
		for i, o := range objs {
			out[len(objs)-1-i] = o
		}
		return out
	}
	for name, c := range map[string]struct {
		wrap func(st *mem.Store) store.Store
		says string
	}{
		"unsorted": {func(st *mem.Store) store.Store { return badLists{st, reverse} }, "out of byte order"},
		"sorted as numbers, shorter first": {func(st *mem.Store) store.Store {
			return badLists{st, func(objs []store.Object) []store.Object { // 3 after 20: by creation
				if len(objs) < 4 {
					return objs
				}
				out := append([]store.Object{}, objs...)
				out[2], out[3] = out[3], out[2]
				return out
			}}
		}, "out of byte order"},
		"one is missing": {func(st *mem.Store) store.Store {
			return badLists{st, func(objs []store.Object) []store.Object { return objs[:len(objs)-1] }}
		}, "does not show"},
		"plus becomes a space": {func(st *mem.Store) store.Store {
			return badLists{st, func(objs []store.Object) []store.Object {
				out := append([]store.Object{}, objs...)
				for i := range out {
					out[i].Key = strings.ReplaceAll(out[i].Key, "+", " ")
				}
				return out
			}}
		}, "does not show"},
		"ignores start-after": {func(st *mem.Store) store.Store { return noStartAfter{st} }, "start-after"},
		"ignores max-keys":    {func(st *mem.Store) store.Store { return noMaxKeys{st} }, "start-after and max-keys"},
		"no folders":          {func(st *mem.Store) store.Store { return noDirs{st} }, "folders"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				if err := Probe(context.Background(), c.wrap(mem.New())); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

type noStartAfter struct{ *mem.Store }

func (s noStartAfter) List(ctx context.Context, prefix, _ string, max int) ([]store.Object, bool, error) {
	return s.Store.List(ctx, prefix, "", max)
}

type noMaxKeys struct{ *mem.Store }

func (s noMaxKeys) List(ctx context.Context, prefix, startAfter string, _ int) ([]store.Object, bool, error) {
	return s.Store.List(ctx, prefix, startAfter, 0)
}

type noDirs struct{ *mem.Store }

func (s noDirs) ListDirs(context.Context, string) ([]string, error) { return nil, nil }

func TestProbeErrors(t *testing.T) {
	for name, c := range map[string]struct {
		op   string
		err  error
		says string
	}{
		"no credentials":     {store.OpCreate, err403, "s3:PutObject"},
		"cannot read":        {store.OpGet, err403, "read back"},
		"cannot read a part": {store.OpGetRange, errors.New("416"), "range"},
		"cannot list":        {store.OpList, err403, "list"},
		"no bucket":          {store.OpCreate, fmt.Errorf("no such bucket: %w", store.ErrNotFound), "no such bucket"},
	} {
		t.Run(name, func(t *testing.T) {
			st := mem.New()
			st.SetBefore(func(_ context.Context, op, _ string) error {
				if op == c.op {
					return c.err
				}
				return nil
			})
			if err := Probe(context.Background(), st); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "mem://") {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("other range", func(t *testing.T) {
		if err := Probe(context.Background(), wholeRanges{mem.New()}); err == nil || !strings.Contains(err.Error(), "ranged GET") {
			t.Errorf("error %v", err)
		}
	})
}

// wholeRanges ignores Range.
type wholeRanges struct{ *mem.Store }

func (s wholeRanges) GetRange(ctx context.Context, key string, _, _ int64) ([]byte, int64, error) {
	data, err := s.Get(ctx, key)
	return data, int64(len(data)), err
}

// A 409 between probes that run at once, or a 503, is retried; a store that answers nothing else ends the probe.
func TestProbeRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := mem.New()
		n := 0
		st.SetBefore(func(_ context.Context, op, _ string) error {
			if n++; op == store.OpCreate && n%3 != 0 {
				return err409
			}
			return nil
		})
		if err := Probe(context.Background(), st); err != nil {
			t.Error(err)
		}
		st.SetBefore(func(context.Context, string, string) error { return err503 })
		if err := Probe(context.Background(), st); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("error %v", err)
		}
		if created := st.Counts()[store.OpCreate]; created > 60 {
			t.Errorf("%d creates", created)
		}
	})
}

func TestProbesAtOnce(t *testing.T) {
	st := mem.New()
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = Probe(context.Background(), st) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// A bucket that is not there is no matter of checksums or conditions.
func TestProbeOfAMissingBucket(t *testing.T) {
	st := failingCreate{mem.New(), fmt.Errorf("bucket b does not exist: %w", errors.Join(store.ErrInvalid, store.ErrNoBucket))}
	err := Probe(context.Background(), st)
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "bucket b does not exist") || !strings.Contains(err.Error(), "store address") {
		t.Fatal(err)
	}
	for _, not := range []string{"checksum", "If-None-Match", "condition"} {
		if strings.Contains(err.Error(), not) {
			t.Errorf("speaks of %s: %v", not, err)
		}
	}
}

type failingCreate struct {
	*mem.Store
	err error
}

func (s failingCreate) Create(context.Context, string, []byte, ...store.Attributes) error {
	return s.err
}
