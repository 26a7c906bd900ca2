package archive

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

func TestIndexNameRoundTrip(t *testing.T) {
	names := []IndexName{
		{"trips", 0, 255, 0, 2560, 0, 2559000},
		{"trips~2", 11, 511, 2560, math.MaxInt64, -1, -1},
		{"x.avro", math.MaxInt32, 255, 0, 1, math.MinInt64, math.MaxInt64},
		{"a_b-c", 1, 255, 0, 256, 0, -1}, // no record
		{"t", 0, math.MaxInt64, 5, 6, 7, 7},
	}
	for _, n := range names {
		key := n.Format()
		got, err := ParseIndexName(key)
		if err != nil || got != n {
			t.Errorf("%s: %+v, %v", key, got, err)
		}
		if file := key[strings.LastIndex(key, "/")+1:]; len(file) != 5*indexDigits+4 {
			t.Errorf("%s: %d characters", file, len(file))
		}
		if err := store.CheckKey(key); err != nil {
			t.Error(err)
		}
	}
	if want := "_tapedeck/index/trips/0/00000000000000000255+00000000000000000000+00000000000000002560+-0000000000000000005+00000000000002559000"; (IndexName{"trips", 0, 255, 0, 2560, -5, 2559000}).Format() != want {
		t.Errorf("%s", IndexName{"trips", 0, 255, 0, 2560, -5, 2559000}.Format())
	}
}

// Names sort by ordinal, whatever else they hold.
func TestIndexNamesSortByOrdinal(t *testing.T) {
	var keys []string
	for i := range int64(12) {
		ordinal := int64(1)<<(4*i+8) - 1
		keys = append(keys, IndexName{"t", 0, ordinal, ordinal, ordinal + 1, -ordinal, 9 - i}.Format())
	}
	if !slices.IsSorted(keys) {
		t.Error(keys)
	}
}

func TestParseIndexNameRefuses(t *testing.T) {
	good := IndexName{"trips", 0, 255, 0, 2560, -5, 2559000}.Format()
	for _, key := range []string{
		"", "x", strings.TrimPrefix(good, "_tapedeck/"), good + "/x", good + "+1", good + " ",
		strings.Replace(good, "/0/", "/00/", 1), strings.Replace(good, "/0/", "/-1/", 1), strings.Replace(good, "/0/", "/2147483648/", 1),
		strings.Replace(good, "trips", "tr~1", 1), strings.Replace(good, "trips", "..", 1),
		strings.Replace(good, "255", "254", 1), strings.Replace(good, "0255", "255", 1), strings.Replace(good, "+-0", "+-00", 1),
		strings.Replace(good, "+-0000000000000000005", "+-0000000000000000000", 1), strings.Replace(good, "2560", "0000", 1),
		IndexName{"t", 0, 255, 0, 2560, 9, 8}.Format(), IndexName{"t", 0, -1, 0, 2560, 8, 8}.Format(),
	} {
		if n, err := ParseIndexName(key); err == nil {
			t.Errorf("%q was accepted as %+v", key, n)
		}
	}
}

func FuzzParseIndexName(f *testing.F) {
	f.Add(IndexName{"trips", 0, 255, 0, 2560, -5, 2559000}.Format())
	f.Add(IndexName{"t~2", 7, 511, 2560, 5000, 0, -1}.Format())
	f.Add("_tapedeck/index/t/0/1+2+3+4+5")
	f.Fuzz(func(t *testing.T, key string) {
		n, err := ParseIndexName(key)
		if err == nil && n.Format() != key {
			t.Errorf("%q parses as %+v, which formats as %q", key, n, n.Format())
		}
	})
}

func FuzzIndexNameFormat(f *testing.F) {
	f.Add(int32(0), int64(0), int64(0), int64(10), int64(-1), int64(5))
	f.Fuzz(func(t *testing.T, p int32, block, start, length, minTS, maxTS int64) {
		n := IndexName{"t", p & math.MaxInt32, (block&0xffff_ffff_ffff)*256 + 255, start & math.MaxInt32, 0, min(minTS, maxTS), max(minTS, maxTS)}
		n.Next = n.Start + 1 + length&math.MaxInt32
		if got, err := ParseIndexName(n.Format()); err != nil || got != n {
			t.Errorf("%s: %+v, %v", n.Format(), got, err)
		}
	})
}

func FuzzParseIndex(f *testing.F) {
	a, _ := open(f)
	tail := grow(f, a, trips, nil, segment.IndexEvery, 1)
	name, data := indexOf(tail)
	f.Add(data)
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := parseIndex(name, data)
		if err == nil && (len(rows) != segment.IndexEvery || rows[0].Start != name.Start) {
			t.Errorf("%d rows from %d", len(rows), rows[0].Start)
		}
		if err != nil && !errors.Is(err, ErrBroken) {
			t.Error(err)
		}
	})
}

// indexKeys are the index objects in the store.
func indexKeys(keys []string) []string {
	return slices.DeleteFunc(keys, func(k string) bool { return !strings.HasPrefix(k, indexDir) })
}

func TestIndexObjectAfterEvery256thSegment(t *testing.T) {
	a, st := open(t)
	tail := grow(t, a, trips, nil, segment.IndexEvery-1, 10)
	if keys := indexKeys(st.Keys()); len(keys) != 0 {
		t.Fatalf("index objects %v before segment 256", keys)
	}
	tail = grow(t, a, trips, tail, 1, 10)
	want := IndexName{"trips", 0, 255, 0, 2560, 0, 2559000}
	if keys := indexKeys(st.Keys()); !slices.Equal(keys, []string{want.Format()}) {
		t.Fatalf("index objects %v", keys)
	}
	data, err := st.Get(context.Background(), want.Format())
	if err != nil {
		t.Fatal(err)
	}
	rows, err := parseIndex(want, data)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rows {
		o := int64(i) * 10
		size := int64(0)
		if d, err := st.Get(context.Background(), a.key(trips, o)); err == nil {
			size = int64(len(d))
		}
		if r != (segment.Row{Start: o, Count: 10, Bytes: size, MinTimestamp: 1000 * o, MaxTimestamp: 1000*o + 9000}) {
			t.Fatalf("row %d: %+v", i, r)
		}
	}
	tail = grow(t, a, trips, tail, segment.IndexEvery, 10)
	if keys := indexKeys(st.Keys()); len(keys) != 2 || tail.Header.Ordinal != 511 {
		t.Fatalf("index objects %v", keys)
	}
	// One put per segment and one per index object.
	if n := st.Counts()[store.OpCreate]; n != 2*segment.IndexEvery+2 {
		t.Errorf("%d creates", n)
	}
	mustBeClean(t, a)
}

// A writer that dies between the segment and its index object leaves it to the next one, however that one comes to know the
// segment.
func TestIndexObjectOfADeadWriter(t *testing.T) {
	prepare := func(t *testing.T) (*Archive, *Tail, *segment.Header, []byte) {
		a, st := open(t)
		before := grow(t, a, trips, nil, segment.IndexEvery-1, 10)
		h, data := encode(t, trips, before, cut{next: 2560})
		st.Put(a.key(trips, h.Start), data) // and no index object
		return a, before, h, data
	}
	check := func(t *testing.T, a *Archive) {
		t.Helper()
		st := storeOf(a)
		if keys := indexKeys(st.Keys()); len(keys) != 1 {
			t.Fatalf("index objects %v", keys)
		}
		mustBeClean(t, a)
	}
	t.Run("by Tail", func(t *testing.T) {
		a, _, _, _ := prepare(t)
		tail, err := a.Tail(context.Background(), trips.Topic, trips.Partition, -1)
		if err != nil {
			t.Fatal(err)
		}
		if keys := indexKeys(storeOf(a).Keys()); len(keys) != 0 {
			t.Fatal("Tail writes: a reader may not be allowed to")
		}
		grow(t, a, trips, tail, 1, 10)
		check(t, a)
	})
	t.Run("by adopting it", func(t *testing.T) {
		a, before, _, _ := prepare(t)
		h, data := encode(t, trips, before, cut{next: 2570})
		out, err := a.Create(context.Background(), h, data, RetryPolicy{})
		if err != nil || !out.Adopted {
			t.Fatalf("%+v, %v", out, err)
		}
		check(t, a)
	})
	t.Run("by finding it its own", func(t *testing.T) {
		a, _, h, data := prepare(t)
		out, err := a.Create(context.Background(), h, data, RetryPolicy{})
		if err != nil || out.Adopted {
			t.Fatalf("%+v, %v", out, err)
		}
		check(t, a)
	})
	t.Run("reported meanwhile", func(t *testing.T) {
		a, _, _, _ := prepare(t)
		if k := kinds(mustVerify(t, a)); !slices.Equal(k, []string{KindIndex}) {
			t.Fatalf("findings %v", k)
		}
	})
}

// An index object that cannot be written does not hold back the segment, and is written before the chain grows.
func TestIndexObjectIsDueUntilWritten(t *testing.T) {
	a, st := open(t)
	tail := grow(t, a, trips, nil, segment.IndexEvery-1, 10)
	fail := 3
	st.SetBefore(func(_ context.Context, op, key string) error {
		if op == store.OpCreate && strings.HasPrefix(key, indexDir) && fail > 0 {
			fail--
			return err503
		}
		return nil
	})
	tail = grow(t, a, trips, tail, 1, 10)
	if keys := indexKeys(st.Keys()); len(keys) != 0 || fail != 2 {
		t.Fatalf("index objects %v after %d tries", keys, 3-fail)
	}
	var order []string
	st.SetAfter(func(_ context.Context, op, key string, err error) error {
		if op == store.OpCreate && err == nil {
			order = append(order, strings.SplitN(key, "/", 2)[0])
		}
		return err
	})
	tail = grow(t, a, trips, tail, 1, 10)
	if !slices.Equal(order, []string{"_tapedeck", "topics"}) {
		t.Errorf("written: %v", order)
	}
	// Once only.
	order = nil
	grow(t, a, trips, tail, 1, 10)
	if !slices.Equal(order, []string{"topics"}) {
		t.Errorf("written: %v", order)
	}
	mustBeClean(t, a)
}

// A refusal that will not change is the next create's error, before it puts its segment.
func TestIndexObjectRefused(t *testing.T) {
	a, st := open(t)
	tail := grow(t, a, trips, nil, segment.IndexEvery-1, 1)
	st.SetBefore(func(_ context.Context, op, key string) error {
		if op == store.OpCreate && strings.HasPrefix(key, indexDir) {
			return err400
		}
		return nil
	})
	tail = grow(t, a, trips, tail, 1, 1)
	h, data := encode(t, trips, tail, cut{next: 300})
	if _, err := a.Create(context.Background(), h, data, RetryPolicy{}); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "index object") {
		t.Fatalf("error %v", err)
	}
}

func TestParseIndexRefuses(t *testing.T) {
	a, _ := open(t)
	tail := grow(t, a, trips, nil, segment.IndexEvery, 1)
	name, data := indexOf(tail)
	other := name
	other.Partition = 1
	shifted := name
	shifted.Ordinal += 256
	for what, c := range map[string]struct {
		n    IndexName
		data string
	}{
		"not JSON":        {name, "x"},
		"truncated":       {name, string(data[:len(data)/2])},
		"newer":           {name, strings.Replace(string(data), `"version":1`, `"version":2`, 1)},
		"other partition": {other, string(data)},
		"other ordinal":   {shifted, string(data)},
		"row missing":     {name, strings.Replace(string(data), `{"start":1,"count":1,`, `{"start":2,"count":1,`, 1)},
		"more records":    {name, strings.Replace(string(data), `{"start":1,"count":1,`, `{"start":1,"count":2,`, 1)},
	} {
		if _, err := parseIndex(c.n, []byte(c.data)); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), c.n.Format()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := parseIndex(name, data); err != nil {
		t.Error(err)
	}
}

// A block without a record has timestamps that no request overlaps.
func TestIndexOfEmptyBlock(t *testing.T) {
	rows := make([]segment.Row, segment.IndexEvery-1)
	for i := range rows {
		rows[i] = segment.Row{Start: int64(i), Bytes: 1}
	}
	h := &segment.Header{Topic: "trips", Ordinal: 255, Start: 255, Next: 256, Rows: rows}
	name, data := indexOf(&Tail{Header: h, Size: 1})
	if !name.empty() || name.MinTimestamp != 0 || name.MaxTimestamp != -1 {
		t.Errorf("%+v", name)
	}
	if got, err := ParseIndexName(name.Format()); err != nil || got != name {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := parseIndex(name, data); err != nil {
		t.Error(err)
	}
	// Timestamps below 0 keep their place.
	h.Rows[7].Count, h.Rows[7].MinTimestamp, h.Rows[7].MaxTimestamp = 1, -9, -3
	if name, _ = indexOf(&Tail{Header: h, Size: 1}); name.MinTimestamp != -9 || name.MaxTimestamp != -3 {
		t.Errorf("%+v", name)
	}
}
