package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/shared/store"
)

// '/' is 0x2f: '+', '-' and '.' sort ahead of it, digits, '=', letters, '_' and '~' behind. A directory read by names
// comes in another order.
func testListOrder(t *testing.T, open Open) {
	s := open(t, "list-order")
	keys := []string{
		"a+b", "a-b/x", "a-b/y", "a.b", "a.b.c/x", "a/x", "a/x.y", "a/x/z", "a0", "a=b", "a_b/x", "aa/x", "a~2/x", "B/x", "Z", "_x/y", "b",
	}
	slices.Sort(keys)
	// "a/x" and "a/x/z" cannot lie in one directory.
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == "a/x" })
	createAll(t, s, "", keys)
	wantList(t, s, "", "", 0, keys, false)

	// Any page size, any start, any prefix: the same as cutting the sorted list.
	starts := append(slices.Clone(keys), "a", "a-", "a-b", "a-b/", "a.", "a/", "a/x", "a/x/", "a/zzz", "A", "~", "a.b.c")
	for _, prefix := range []string{"", "a", "a/", "a-b/", "a.b", "a.b.c/", "a/x", "c", "a/x/z", "a/x/z/"} {
		for _, after := range append(starts, "") {
			for _, max := range []int{2, 0} {
				want, more := cut(keys, prefix, after, max)
				wantList(t, s, prefix, after, max, want, more)
			}
		}
	}
}

func testListBounds(t *testing.T, open Open) {
	s := open(t, "list-bounds")
	keys := []string{"p/1", "p/2", "p/3", "q/1"}
	createAll(t, s, "", keys)
	for _, c := range []struct {
		prefix, after string
		max           int
		want          []string
		more          bool
	}{
		{"", "", -1, keys, false},
		{"", "", 4, keys, false}, // a full page is the last one
		{"", "", 3, keys[:3], true},
		{"p/", "", 3, keys[:3], false}, // what follows has another prefix
		{"p/", "p/3", 1, nil, false},
		{"p/", "a", 1, keys[:1], true}, // after a key ahead of the prefix
		{"p/", "q", 1, nil, false},
		{"", "p/25", 1, keys[2:3], true}, // after a key that is not there
		{"p", "", 1, keys[:1], true},
		{"p/1", "", 0, keys[:1], false}, // a key is its own prefix
		{"", "q/1", 0, nil, false},
	} {
		wantList(t, s, c.prefix, c.after, c.max, c.want, c.more)
	}
}

const manyDirs, perDir = 1250, 2

// More objects than a call lists: pages join without a gap or a repetition.
func testListMany(t *testing.T, open Open) {
	s := open(t, "list-many")
	// Names of which one begins another, and goes on with a character ahead of '/': "t0", "t0-dlq" and "t0.v2".
	var names, keys []string
	for d := range manyDirs {
		names = append(names, fmt.Sprintf("t%04d%s", d/3, []string{"", "-dlq", ".v2"}[d%3]))
		for k := range perDir {
			keys = append(keys, fmt.Sprintf("deep/%s/object+%020d.avro", names[d], k))
		}
	}
	createAll(t, s, "", keys)
	slices.Sort(keys)
	slices.Sort(names)

	for _, max := range []int{0, 1000, 5000, 999, 500} {
		size := store.PageSize(max)
		after, got := "", []string(nil)
		for page := 0; ; page++ {
			objs, more, err := s.List(t.Context(), "deep/", after, max)
			must(t, err)
			if want := min(size, len(keys)-len(got)); len(objs) != want {
				t.Fatalf("page %d of max %d has %d objects, want %d", page, max, len(objs), want)
			}
			for _, o := range objs {
				got = append(got, o.Key)
			}
			if want := len(got) < len(keys); more != want {
				t.Fatalf("page %d of max %d: more = %v after %d of %d objects", page, max, more, len(got), len(keys))
			}
			if !more {
				break
			}
			after = got[len(got)-1]
		}
		if !slices.Equal(got, keys) {
			t.Fatalf("pages of max %d do not join to the whole list", max)
		}
	}

	dirs, err := s.ListDirs(t.Context(), "deep/")
	must(t, err)
	if !slices.Equal(dirs, names) {
		t.Fatalf("%d directories, want %d; or in another order", len(dirs), len(names))
	}
}

// A directory behind one of more than a page that sorts ahead of it, though its name is the beginning of the other's.
// MinIO lists nothing after "deep/t/…" here, and says that nothing follows: see s3.List.
func testListBehindSibling(t *testing.T, open Open) {
	s := open(t, "list-behind-sibling")
	var keys []string
	for i := range 1100 {
		keys = append(keys, fmt.Sprintf("deep/t-2/p/%05d", i))
	}
	for i := range 5 {
		keys = append(keys, fmt.Sprintf("deep/t/p/%05d", i), fmt.Sprintf("deep/u/p/%05d", i))
	}
	createAll(t, s, "", keys)
	slices.Sort(keys)
	for _, prefix := range []string{"", "deep/", "deep/t", "deep/t/", "deep/t/p/"} {
		for _, after := range []string{"", "deep/t-2/p/00998", "deep/t-2/p/01099", "deep/t/p/00001", "deep/t/p/00004", "deep/u/p/00003"} {
			for _, max := range []int{1, 3, 0} {
				want, more := cut(keys, prefix, after, max)
				wantList(t, s, prefix, after, max, want, more)
			}
		}
	}
}

func testListDirs(t *testing.T, open Open) {
	s := open(t, "list-dirs")
	createAll(t, s, "", []string{"top", "a/object", "a/1/x", "a/1/y", "a/1-b/x", "a/10/x", "a/2/deep/er/x", "b/x", "a-b/x", "a.b/x"})
	for prefix, want := range map[string][]string{
		"":         {"a", "a-b", "a.b", "b"}, // byte order of the names, not of the names with their slash
		"a/":       {"1", "1-b", "10", "2"},
		"a/2/":     {"deep"},
		"a/1/":     nil,
		"b/":       nil,
		"missing/": nil,
		"top/":     nil,
		"a/1/x/":   nil,
	} {
		got, err := s.ListDirs(t.Context(), prefix)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("directories below %q = %v, %v, want %v", prefix, got, err, want)
		}
	}
	if _, err := s.ListDirs(t.Context(), "a"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("directories below a prefix without a slash: %v, want ErrInvalid", err)
	}
}

// Characters with a meaning in URLs, in XML, or in neither.
func testKeyCharacters(t *testing.T, open Open) {
	s := open(t, "key characters=%+&é")
	keys := []string{
		"a b", "a%20b", "a%2Fb", "a&b", "a<b>", "a'b\"", "a+b", "a#b", "a?b=c", "a:b", "a;b", "a@b", "a,b", "a=b", "a~b", "a!b", "a$b",
		"a(b)", "a*b", "a[b]", "a{b}", "a|b", "a^b", "a`b", "ä", "日本", "🎞", "dir with space/ö+.avro", " lead", "trail ",
	}
	createAll(t, s, "", keys)
	for _, key := range keys {
		wantObject(t, s, key, []byte(key))
	}
	slices.Sort(keys)
	wantList(t, s, "", "", 0, keys, false)
	for i, key := range keys[:len(keys)-1] {
		wantList(t, s, "", key, 1, keys[i+1:i+2], i+2 < len(keys))
	}
}

// Keys as the archive makes them, topics with every character that Kafka allows.
func testArchiveKeys(t *testing.T, open Open) {
	s := open(t, "archive-keys")
	var keys []string
	for _, topic := range []string{"trips", "trips.avro", "trips-2", "trips_2", "trips~2", "Trips.EU-west_1"} {
		for _, p := range []int{0, 1, 10} {
			for _, start := range []int64{0, 99, 1_000_000_007, 1<<63 - 1} {
				keys = append(keys, fmt.Sprintf("topics/%s/partition=%d/%s+%d+%020d.avro", topic, p, topic, p, start))
			}
			keys = append(keys,
				fmt.Sprintf("_tapedeck/index/%s/%d/%020d+%020d+%020d+%020d+%020d", topic, p, 255, 0, 99, 1, 2),
				fmt.Sprintf("_tapedeck/gaps/%s/%d/%020d", topic, p, 7))
		}
	}
	createAll(t, s, "", keys)
	slices.Sort(keys)
	wantList(t, s, "", "", 0, keys, false)

	dirs, err := s.ListDirs(t.Context(), "topics/")
	must(t, err)
	if want := []string{"Trips.EU-west_1", "trips", "trips-2", "trips.avro", "trips_2", "trips~2"}; !slices.Equal(dirs, want) {
		t.Errorf("topics = %q, want %q", dirs, want)
	}
	// The tail of one partition: neither another partition's segments nor another topic's.
	const dir = "topics/trips/partition=1/"
	wantList(t, s, dir, dir+"trips+1+00000000000000000099.avro", 1, []string{dir + "trips+1+00000000001000000007.avro"}, true)
	wantList(t, s, dir, dir+"trips+1+09223372036854775807.avro", 1, nil, false)
}

// createAll creates the keys, each with itself as content, some at a time.
func createAll(t *testing.T, s store.Store, dir string, keys []string) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for _, key := range keys {
		g.Go(func() error { return s.Create(ctx, dir+key, []byte(key)) })
	}
	must(t, g.Wait())
}

// cut is what List must answer over sorted keys.
func cut(keys []string, prefix, after string, max int) (page []string, more bool) {
	for _, k := range keys {
		if !strings.HasPrefix(k, prefix) || after != "" && k <= after {
			continue
		}
		if len(page) == store.PageSize(max) {
			return page, true
		}
		page = append(page, k)
	}
	return page, false
}

// wantList expects these keys.
func wantList(t *testing.T, s store.Store, prefix, after string, max int, want []string, wantMore bool) {
	t.Helper()
	objs, more, err := s.List(t.Context(), prefix, after, max)
	if err != nil {
		t.Fatalf("list %q after %q: %v", prefix, after, err)
	}
	var got []string
	for _, o := range objs {
		got = append(got, o.Key)
	}
	if !slices.Equal(got, want) || more != wantMore {
		t.Fatalf("list %q after %q, at most %d = %q, more %v; want %q, more %v", prefix, after, max, got, more, want, wantMore)
	}
}
