// Package storetest is the suite that every implementation of store.Store passes.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/shared/store"
)

// Open gives the store scoped to a prefix ("a", "a/b") below a place that is empty when Run begins and is the same for all
// calls of one Run. It closes the store with the test.
type Open func(t *testing.T, prefix string) store.Store

type testCase struct {
	name string
	test func(*testing.T, Open)
}

// creates are about what a create does.
var creates = []testCase{
	{"CreateOnce", testCreateOnce},
	{"CreateRace", testCreateRace},
	{"Attributes", testAttributes},
	{"EmptyObject", testEmptyObject},
	{"LargeObject", testLargeObject},
	{"AnyByte", testAnyByte},
	{"NoAlias", testNoAlias},
	{"Cancelled", testCancelled},
}

// others are about keys, reads and listings.
var others = []testCase{
	{"BadKey", testBadKey},
	{"GetRange", testGetRange},
	{"NotFound", testNotFound},
	{"ListOrder", testListOrder},
	{"ListBounds", testListBounds},
	{"ListMany", testListMany},
	{"ListBehindSibling", testListBehindSibling},
	{"ListDirs", testListDirs},
	{"KeyCharacters", testKeyCharacters},
	{"ArchiveKeys", testArchiveKeys},
	{"PrefixesApart", testPrefixesApart},
	{"Sweep", testSweep},
	{"Address", testAddress},
}

// Run holds an implementation to the contract of store.Store.
func Run(t *testing.T, open Open) {
	RunCreates(t, open)
	run(t, open, others)
}

// RunCreates is the part of Run about creates, for another way in which an implementation does them.
func RunCreates(t *testing.T, open Open) { run(t, open, creates) }

func run(t *testing.T, open Open, cases []testCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.test(t, open) })
	}
}

func testCreateOnce(t *testing.T, open Open) {
	s := open(t, "create-once")
	ctx := t.Context()
	if err := s.Create(ctx, "dir/key", []byte("first")); err != nil {
		t.Fatalf("first create: %v", err)
	}
	for _, again := range []string{"first", "second", ""} {
		if err := s.Create(ctx, "dir/key", []byte(again)); !errors.Is(err, store.ErrExists) {
			t.Errorf("create of a taken key with %q: %v, want ErrExists", again, err)
		}
	}
	wantObject(t, s, "dir/key", []byte("first"))
}

// Of 20 creates of one key at the same time exactly one wins, and the object is the winner's. A store may answer "unknown"
// (S3's 409): that one looks again, as the chain does.
func testCreateRace(t *testing.T, open Open) {
	s := open(t, "create-race")
	const racers, rounds = 20, 5
	for round := range rounds {
		key := fmt.Sprintf("race/%d", round)
		content := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 100_000+i) }
		start := make(chan struct{})
		var mu sync.Mutex
		var winners []int
		unknown := 0
		var g errgroup.Group
		for i := range racers {
			g.Go(func() error {
				<-start
				for try := 0; ; try++ {
					err := s.Create(t.Context(), key, content(i))
					mu.Lock()
					switch {
					case err == nil:
						winners = append(winners, i)
					case errors.Is(err, store.ErrUnknown):
						unknown++
					}
					mu.Unlock()
					switch {
					case err == nil, errors.Is(err, store.ErrExists):
						return nil
					case errors.Is(err, store.ErrUnknown) && try < 10:
					default:
						return fmt.Errorf("racer %d: %w, want nil or ErrExists", i, err)
					}
				}
			})
		}
		close(start)
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if len(winners) > 1 || len(winners) == 0 && unknown == 0 {
			t.Fatalf("%d of %d creates of one key succeeded, want 1", len(winners), racers)
		}
		got, err := s.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 || !bytes.Equal(got, content(int(got[0]-'a'))) {
			t.Fatalf("the object is nobody's: %d bytes", len(got))
		}
		if len(winners) == 1 && int(got[0]-'a') != winners[0] {
			t.Fatalf("racer %d won, and the object is that of racer %d", winners[0], got[0]-'a')
		}
	}
}

// Attributes change nothing of what a reader sees, and those that no object can have are refused before anything is written.
func testAttributes(t *testing.T, open Open) {
	s := open(t, "attributes")
	plain := store.Attributes{}
	full := store.Attributes{StorageClass: "STANDARD", Tags: map[string]string{"team": "data", "cost center": "a/b+c=d@e:f", "empty": ""}}
	must(t, s.Create(t.Context(), "plain", []byte("x"), plain))
	must(t, s.Create(t.Context(), "full", []byte("y"), full))
	must(t, s.Create(t.Context(), "joined", []byte("z"), full, store.Attributes{Tags: map[string]string{"topic": "trips"}}))
	for key, want := range map[string]string{"plain": "x", "full": "y", "joined": "z"} {
		wantObject(t, s, key, []byte(want))
	}
	if err := s.Create(t.Context(), "plain", []byte("x"), full); !errors.Is(err, store.ErrExists) {
		t.Errorf("create of a taken key with other attributes: %v, want ErrExists", err)
	}
	for _, bad := range []store.Attributes{{StorageClass: "GLACIER"}, {StorageClass: "a b"}, {Tags: map[string]string{"a": "\n"}}} {
		if err := s.Create(t.Context(), "bad", nil, bad); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("create with %v: %v, want ErrInvalid", bad, err)
		}
	}
	wantList(t, s, "", "", 0, []string{"full", "joined", "plain"}, false)
}

func testBadKey(t *testing.T, open Open) {
	s := open(t, "bad-key")
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\x00b", "a\nb", "a\xffb", strings.Repeat("a", 1025),
	} {
		if err := s.Create(t.Context(), key, []byte("x")); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("create of key %.20q: %v, want ErrInvalid", key, err)
		}
		if _, err := s.Get(t.Context(), key); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("get of key %.20q: %v, want ErrInvalid", key, err)
		}
		if _, _, err := s.GetRange(t.Context(), key, 0, 1); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("range of key %.20q: %v, want ErrInvalid", key, err)
		}
	}
	objs, more, err := s.List(t.Context(), "", "", 0)
	if err != nil || len(objs) != 0 || more {
		t.Errorf("list after refused creates: %v, %v, %v", objs, more, err)
	}
}

func testGetRange(t *testing.T, open Open) {
	s := open(t, "get-range")
	data := []byte("0123456789")
	must(t, s.Create(t.Context(), "k", data))
	for _, c := range []struct {
		off, n int64
		want   string
	}{
		{0, 1, "0"}, {0, 10, "0123456789"}, {3, 4, "3456"}, {9, 1, "9"},
		{0, 11, "0123456789"}, {9, 2, "9"}, {5, 1 << 40, "56789"}, {1, 1<<63 - 1, "123456789"},
		{10, 1, ""}, {11, 1, ""}, {1 << 40, 1 << 40, ""}, {1<<63 - 1, 1<<63 - 1, ""},
	} {
		got, size, err := s.GetRange(t.Context(), "k", c.off, c.n)
		if err != nil {
			t.Errorf("range of %d at %d: %v", c.n, c.off, err)
			continue
		}
		if string(got) != c.want || got == nil || size != 10 {
			t.Errorf("range of %d at %d = %q of %d, want %q of 10", c.n, c.off, got, size, c.want)
		}
	}
	for _, c := range [][2]int64{{-1, 1}, {0, 0}, {0, -1}} {
		if _, _, err := s.GetRange(t.Context(), "k", c[0], c[1]); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("range of %d at %d: %v, want ErrInvalid", c[1], c[0], err)
		}
	}
}

func testEmptyObject(t *testing.T, open Open) {
	s := open(t, "empty-object")
	for key, data := range map[string][]byte{"nil": nil, "empty": {}} {
		must(t, s.Create(t.Context(), key, data))
		wantObject(t, s, key, []byte{})
		for _, off := range []int64{0, 1, 100} {
			got, size, err := s.GetRange(t.Context(), key, off, 10)
			if err != nil || got == nil || len(got) != 0 || size != 0 {
				t.Errorf("range at %d of an empty object = %v of %d, %v", off, got, size, err)
			}
		}
		if err := s.Create(t.Context(), key, []byte("x")); !errors.Is(err, store.ErrExists) {
			t.Errorf("create over an empty object: %v, want ErrExists", err)
		}
	}
	wantList(t, s, "", "", 0, []string{"empty", "nil"}, false)
}

func testLargeObject(t *testing.T, open Open) {
	s := open(t, "large-object")
	data := randomBytes(5<<20 + 17)
	must(t, s.Create(t.Context(), "large", data))
	wantObject(t, s, "large", data)
	const off, n = 1<<20 - 3, 2<<20 + 5
	got, size, err := s.GetRange(t.Context(), "large", off, n)
	if err != nil || size != int64(len(data)) || !bytes.Equal(got, data[off:off+n]) {
		t.Fatalf("range of %d at %d: %d bytes of %d, %v", n, off, len(got), size, err)
	}
	objs, _, err := s.List(t.Context(), "", "", 0)
	if want := []store.Object{{Key: "large", Size: int64(len(data))}}; err != nil || !slices.Equal(objs, want) {
		t.Fatalf("list = %v, %v, want %v", objs, err, want)
	}
}

// Bytes survive whatever they are: also what looks like the framing of a chunked upload, or like an answer.
func testAnyByte(t *testing.T, open Open) {
	s := open(t, "any-byte")
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for key, data := range map[string][]byte{
		"all":   all,
		"chunk": []byte("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"),
		"xml":   []byte("<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code></Error>"),
		"gzip":  {0x1f, 0x8b, 8, 0, 0, 0, 0, 0},
		"utf16": {0xff, 0xfe, 'a', 0},
	} {
		must(t, s.Create(t.Context(), key, data))
		wantObject(t, s, key, data)
	}
}

func testNotFound(t *testing.T, open Open) {
	s := open(t, "not-found")
	must(t, s.Create(t.Context(), "there/object", []byte("x")))
	for _, key := range []string{"missing", "there", "there/missing", "there/object2", "missing/object"} {
		if _, err := s.Get(t.Context(), key); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("get %s: %v, want ErrNotFound", key, err)
		}
		if _, _, err := s.GetRange(t.Context(), key, 0, 1); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("range of %s: %v, want ErrNotFound", key, err)
		}
	}
	wantList(t, s, "missing/", "", 0, nil, false)
	dirs, err := s.ListDirs(t.Context(), "missing/")
	if err != nil || len(dirs) != 0 {
		t.Errorf("directories below nothing: %v, %v", dirs, err)
	}
}

func testPrefixesApart(t *testing.T, open Open) {
	a, ab := open(t, "apart/a"), open(t, "apart/ab")
	must(t, a.Create(t.Context(), "k", []byte("of a")))
	must(t, ab.Create(t.Context(), "k", []byte("of ab")))
	must(t, ab.Create(t.Context(), "dir/only-ab", nil))
	wantObject(t, a, "k", []byte("of a"))
	wantObject(t, ab, "k", []byte("of ab"))
	wantList(t, a, "", "", 0, []string{"k"}, false)
	wantList(t, ab, "", "", 0, []string{"dir/only-ab", "k"}, false)
	for s, want := range map[store.Store][]string{a: nil, ab: {"dir"}} {
		if dirs, err := s.ListDirs(t.Context(), ""); err != nil || !slices.Equal(dirs, want) {
			t.Errorf("directories of %s: %v, %v, want %v", s, dirs, err, want)
		}
	}
	for _, key := range []string{"b/k", "../ab/k", "b"} {
		if got, err := a.Get(t.Context(), key); err == nil {
			t.Errorf("%s shows %s: %q", a, key, got)
		}
	}
}

// What the caller does to its slices later changes no object.
func testNoAlias(t *testing.T, open Open) {
	s := open(t, "no-alias")
	data := []byte("data")
	must(t, s.Create(t.Context(), "k", data))
	data[0] = 'X'
	got, err := s.Get(t.Context(), "k")
	must(t, err)
	got[1] = 'X'
	part, _, err := s.GetRange(t.Context(), "k", 0, 4)
	must(t, err)
	part[2] = 'X'
	wantObject(t, s, "k", []byte("data"))
}

func testCancelled(t *testing.T, open Open) {
	s := open(t, "cancelled")
	must(t, s.Create(t.Context(), "there", []byte("x")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for op, call := range map[string]func() error{
		store.OpCreate:   func() error { return s.Create(ctx, "new", []byte("x")) },
		store.OpGet:      func() error { _, err := s.Get(ctx, "there"); return err },
		store.OpGetRange: func() error { _, _, err := s.GetRange(ctx, "there", 0, 1); return err },
		store.OpList:     func() error { _, _, err := s.List(ctx, "", "", 0); return err },
		store.OpListDirs: func() error { _, err := s.ListDirs(ctx, ""); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v", op, err)
		}
	}
	// It was cancelled before it began, so nothing can be on its way.
	wantList(t, s, "", "", 0, []string{"there"}, false)
}

// A sweep leaves objects alone.
func testSweep(t *testing.T, open Open) {
	s := open(t, "sweep")
	must(t, s.Create(t.Context(), "dir/k", []byte("x")))
	if n, err := s.Sweep(t.Context(), func(string) bool { return true }); err != nil || n != 0 {
		t.Errorf("swept %d, %v", n, err)
	}
	wantObject(t, s, "dir/k", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Sweep(ctx, func(string) bool { return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("sweep with a cancelled context: %v", err)
	}
}

func testAddress(t *testing.T, open Open) {
	s := open(t, "address")
	if !strings.Contains(s.String(), "://") {
		t.Errorf("the address %q is not a URL", s)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantObject(t *testing.T, s store.Store, key string, want []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), key)
	switch {
	case err != nil:
		t.Fatalf("get %s: %v", key, err)
	case got == nil || !bytes.Equal(got, want):
		t.Fatalf("get %s: %d bytes (%.40q), want %d (%.40q)", key, len(got), got, len(want), want)
	}
}

// randomBytes are the same at every run.
func randomBytes(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // it never fails
	return data
}
