package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

func TestVerifyClean(t *testing.T) {
	a, st := open(t)
	var segments, recs int64
	for i, topic := range []string{"trips", "a", "b~2"} {
		for p := range int32(3) {
			n := 250 + 5*i
			grow(t, a, record.TopicPartition{Topic: topic, Partition: p}, nil, n, 3)
			segments += int64(n)
			recs += int64(3 * n)
		}
	}
	r := mustBeClean(t, a)
	if r.Partitions != 9 || r.Segments != segments || r.Records != recs || r.Bytes != bytesOf(t, a) || r.Findings == nil {
		t.Errorf("%+v", r)
	}
	if r := mustVerify(t, a, "a"); r.Partitions != 3 || r.Segments != 3*255 {
		t.Errorf("%+v", r)
	}
	if n := st.Counts()[store.OpCreate]; int64(n) != segments+3 {
		t.Errorf("verify wrote: %d creates", n)
	}
}

// Whatever is wrong with an archive is found, named and classified. Each damage is done to a clean archive of 260 segments of 4 records
// (one index object) with a transaction marker in each.
func TestVerifyFindings(t *testing.T) {
	ctx := context.Background()
	const segments, size = 260, 5
	clean, cleanStore := open(t)
	var tail *Tail
	tails := map[int64]*Tail{} // by start
	for i := range int64(segments) {
		tail = create(t, clean, trips, tail, cut{next: (i + 1) * size, without: func(o int64) bool { return o%size == 4 }})
		tails[i*size] = tail
	}
	mustBeClean(t, clean)
	key := func(i int64) string { return clean.key(trips, i*size) }
	// put replaces segment i by what change makes of a segment that follows the one before it.
	put := func(st *mem.Store, i int64, c cut, change func(chain *segment.Chain)) {
		chain := segment.First()
		if i > 0 {
			before := tails[(i-1)*size]
			chain = segment.After(before.Header, before.Size)
		}
		if change != nil {
			change(&chain)
		}
		_, data := encodeChain(t, trips, i*size, chain, c)
		st.Put(key(i), data)
	}
	plain := func(i int64) cut {
		return cut{next: (i + 1) * size, without: func(o int64) bool { return o%size == 4 }}
	}
	damage := func(st *mem.Store, i int64, change func(data []byte) []byte) {
		data, err := st.Get(ctx, key(i))
		if err != nil {
			t.Fatal(err)
		}
		st.Put(key(i), change(bytes.Clone(data)))
	}
	other := identity(trips)
	other.TopicID = "re-created"
	all := func(int64) bool { return true }

	for name, c := range map[string]struct {
		do     func(st *mem.Store)
		kinds  []string
		object string // of the first finding
		says   string
	}{
		"byte flipped in the body": {func(st *mem.Store) {
			damage(st, 100, func(d []byte) []byte { d[len(d)-30] ^= 1; return d })
		}, []string{KindCorrupt}, key(100), ""},
		"truncated":               {func(st *mem.Store) { damage(st, 100, func(d []byte) []byte { return d[:len(d)-20] }) }, []string{KindCorrupt}, key(100), ""},
		"truncated in its header": {func(st *mem.Store) { damage(st, 100, func(d []byte) []byte { return d[:40] }) }, []string{KindCorrupt}, key(100), ""},
		"emptied":                 {func(st *mem.Store) { st.Put(key(100), nil) }, []string{KindCorrupt}, key(100), ""},
		"no Avro":                 {func(st *mem.Store) { st.Put(key(100), []byte("PK\x03\x04")) }, []string{KindCorrupt}, key(100), ""},
		"bytes appended":          {func(st *mem.Store) { damage(st, 100, func(d []byte) []byte { return append(d, 'x') }) }, []string{KindCorrupt}, key(100), ""},
		"another segment's bytes": {func(st *mem.Store) {
			data, _ := st.Get(ctx, key(99))
			st.Put(key(100), data)
		}, []string{KindCorrupt}, key(100), "offset 495"},
		"a segment removed": {func(st *mem.Store) { st.Delete(key(100)) }, []string{KindGap}, key(101), "[500, 505)"},
		"the first removed": {func(st *mem.Store) { st.Delete(key(0)) }, []string{KindGap}, key(1), "[0, 5)"},
		"two runs removed":  {func(st *mem.Store) { st.Delete(key(3)); st.Delete(key(4)); st.Delete(key(50)) }, []string{KindGap, KindGap}, key(5), "[15, 25)"},
		"a shorter segment": {func(st *mem.Store) { put(st, 100, cut{next: 503}, nil) }, []string{KindGap}, key(101), "[503, 505)"},
		"a segment inside another": {func(st *mem.Store) {
			_, data := encodeChain(t, trips, 502, segment.After(tails[495].Header, tails[495].Size), cut{next: 505})
			st.Put(clean.key(trips, 502), data)
		}, []string{KindOverlap}, clean.key(trips, 502), "[502, 505)"},
		"a longer segment": {func(st *mem.Store) { put(st, 100, cut{next: 507}, nil) }, []string{KindOverlap, KindGap}, key(101), ""},
		"off the end": {func(st *mem.Store) {
			_, data := encodeChain(t, trips, 1400, segment.After(tail.Header, tail.Size), cut{next: 1405})
			st.Put(clean.key(trips, 1400), data)
		}, []string{KindGap}, clean.key(trips, 1400), "[1300, 1400)"},
		"a wrong place in the chain": {func(st *mem.Store) {
			put(st, 256, plain(256), func(c *segment.Chain) { c.Ordinal += 256 })
		}, []string{KindOffChain, KindOffChain}, key(256), "number 512"},
		"a wrong running maximum": {func(st *mem.Store) {
			put(st, 259, plain(259), func(c *segment.Chain) { c.RunningMaxTimestamp += 1_000_000 })
		}, []string{KindOffChain}, key(259), "running maximum"},
		"rows with another size": {func(st *mem.Store) {
			put(st, 259, plain(259), func(c *segment.Chain) { c.Rows = slices.Clone(c.Rows); c.Rows[1].Bytes++ })
		}, []string{KindOffChain}, key(259), "rows"},
		// What a header tells wrongly is not held against the ones after it.
		"a wrong running maximum before the newest": {func(st *mem.Store) {
			put(st, 258, plain(258), func(c *segment.Chain) { c.RunningMaxTimestamp += 100_000 })
		}, []string{KindOffChain}, key(258), "running maximum"},
		"wrong rows before the newest": {func(st *mem.Store) {
			put(st, 258, plain(258), func(c *segment.Chain) { c.Rows = slices.Clone(c.Rows); c.Rows[1].Bytes++ })
		}, []string{KindOffChain}, key(258), "rows"},
		"rows with another timestamp": {func(st *mem.Store) {
			put(st, 259, plain(259), func(c *segment.Chain) { c.Rows = slices.Clone(c.Rows); c.Rows[0].MaxTimestamp++ })
		}, []string{KindOffChain}, key(259), "rows"},
		"another last record before an empty segment": {func(st *mem.Store) {
			put(st, 259, cut{next: 1300, without: all}, func(c *segment.Chain) { c.LastHash = bytes.Repeat([]byte{7}, 32) })
		}, []string{KindOffChain}, key(259), "last one before it"},
		"another epoch before an empty segment": {func(st *mem.Store) {
			put(st, 259, cut{next: 1300, without: all}, func(c *segment.Chain) { c.LastEpoch++ })
		}, []string{KindOffChain}, key(259), "epoch"},
		"another log": {func(st *mem.Store) {
			p := plain(259)
			p.id = &other
			put(st, 259, p, nil)
		}, []string{KindIdentity}, key(259), "re-created"},
		"an index object removed": {func(st *mem.Store) { st.Delete(indexKeys(st.Keys())[0]) }, []string{KindIndex}, indexKeys(cleanStore.Keys())[0], "missing"},
		"an index object changed": {func(st *mem.Store) {
			k := indexKeys(st.Keys())[0]
			data, _ := st.Get(ctx, k)
			st.Put(k, bytes.Replace(data, []byte(`"count":4`), []byte(`"count":3`), 1))
		}, []string{KindIndex}, indexKeys(cleanStore.Keys())[0], "differs"},
		"an index object under another name": {func(st *mem.Store) {
			n, _ := ParseIndexName(indexKeys(st.Keys())[0])
			data, _ := st.Get(ctx, n.Format())
			st.Delete(n.Format())
			n.MaxTimestamp++
			st.Put(n.Format(), data)
		}, []string{KindIndex, KindIndex}, "", ""},
		"an index object of segments that are gone": {func(st *mem.Store) {
			n := IndexName{"trips", 0, 511, 1280, 2560, 0, 9}
			st.Put(n.Format(), nil)
			for i := int64(256); i < segments; i++ {
				st.Delete(key(i))
			}
		}, []string{KindIndex}, IndexName{"trips", 0, 511, 1280, 2560, 0, 9}.Format(), "removed"},
		"a stray index object": {func(st *mem.Store) { st.Put(indexPrefix(trips)+"x", nil) }, []string{KindIndex}, indexPrefix(trips) + "x", ""},
		"a foreign object": {func(st *mem.Store) { st.Put("topics/trips/partition=0/trips+0+0000000100.avro", nil) },
			[]string{KindForeign}, "topics/trips/partition=0/trips+0+0000000100.avro", ""},
		"a lost range": {func(st *mem.Store) {
			put(st, 259, cut{next: 1300, skips: []segment.Skip{{From: 1296, To: 1300, Class: segment.Lost}}}, nil)
		}, []string{KindLost}, "", "[1296, 1300)"},
		"a range not archived is none": {func(st *mem.Store) {
			put(st, 259, cut{next: 1300, skips: []segment.Skip{{From: 1296, To: 1300, Class: segment.NotArchived}}}, nil)
		}, nil, "", ""},
		"a console's folder object is none": {func(st *mem.Store) { st.Put("topics/trips/partition=0/", nil) }, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, st := copyOf(t, cleanStore, nil)
			c.do(st)
			r := mustVerify(t, a)
			if !slices.Equal(kinds(r), c.kinds) {
				t.Fatalf("findings %+v, want %v", r.Findings, c.kinds)
			}
			for i, f := range r.Findings {
				if f.TopicPartition != trips || f.Text == "" {
					t.Errorf("finding %d: %+v", i, f)
				}
			}
			if len(c.kinds) > 0 && (c.object != "" && r.Findings[0].Object != c.object || !strings.Contains(r.Findings[0].Text, c.says)) {
				t.Errorf("finding %+v, want object %s and text %q", r.Findings[0], c.object, c.says)
			}
		})
	}
}

// encodeChain makes a segment from start whose header carries any facts about the segments before it.
func encodeChain(t *testing.T, tp record.TopicPartition, start int64, chain segment.Chain, c cut) (*segment.Header, []byte) {
	t.Helper()
	h := &segment.Header{Topic: tp.Topic, Partition: tp.Partition, Next: start, Ordinal: chain.Ordinal - 1}
	if len(chain.Rows) > 0 {
		last := len(chain.Rows) - 1
		r := chain.Rows[last]
		h.Rows, h.Start, h.Count, h.MinTimestamp, h.MaxTimestamp = chain.Rows[:last], r.Start, r.Count, r.MinTimestamp, r.MaxTimestamp
		h.RunningMaxTimestamp, h.LastOffset, h.LastEpoch, h.LastHash = chain.RunningMaxTimestamp, chain.LastOffset, chain.LastEpoch, chain.LastHash
		return encode(t, tp, &Tail{Header: h, Size: r.Bytes}, c)
	}
	h.RunningMaxTimestamp, h.LastOffset, h.LastEpoch, h.LastHash = chain.RunningMaxTimestamp, chain.LastOffset, chain.LastEpoch, chain.LastHash
	if start == 0 {
		return encode(t, tp, nil, c)
	}
	return encode(t, tp, &Tail{Header: h, Size: 1}, c)
}

// The position of a damage is told, so that it can be looked at.
func TestVerifyNamesTheByte(t *testing.T) {
	a, st := open(t)
	grow(t, a, trips, nil, 3, 100)
	key := a.key(trips, 100)
	data, _ := st.Get(context.Background(), key)
	st.Put(key, data[:len(data)-5])
	r := mustVerify(t, a)
	if len(r.Findings) != 1 || r.Findings[0].Offset <= 0 || r.Findings[0].Offset > int64(len(data)) || r.Findings[0].Object != key {
		t.Fatalf("%+v", r.Findings)
	}
	// The segments around it count as they are, and the chain goes on behind it.
	if r.Segments != 3 || r.Records < 200 {
		t.Errorf("%+v", r)
	}
}

// An archive that grows while it is verified is clean.
func TestVerifyWhileItGrows(t *testing.T) {
	a, st := open(t)
	tail := grow(t, a, trips, nil, 250, 1)
	grown := false
	st.SetAfter(func(_ context.Context, op, key string, err error) error {
		if op == store.OpGet && strings.HasSuffix(key, "249.avro") && !grown {
			grown = true
			grow(t, a, trips, tail, 20, 1)
		}
		return err
	})
	r := mustBeClean(t, a)
	if !grown || r.Segments != 250 {
		t.Errorf("grown %t: %+v", grown, r)
	}
}

// An empty place is not an archive without faults.
func TestVerifyOfNothing(t *testing.T) {
	a, st := open(t)
	if r, err := a.Verify(context.Background()); !errors.Is(err, ErrNotArchived) {
		t.Errorf("%+v, %v", r, err)
	}
	grow(t, a, trips, nil, 2, 1)
	if r, err := a.Verify(context.Background(), "trips", "none"); !errors.Is(err, ErrNotArchived) || !strings.Contains(err.Error(), "none") {
		t.Errorf("%+v, %v", r, err)
	}
	for _, op := range []string{store.OpList, store.OpListDirs, store.OpGet} {
		st.SetBefore(func(_ context.Context, o, _ string) error {
			if o == op {
				return err403
			}
			return nil
		})
		if r, err := a.Verify(context.Background()); !errors.Is(err, store.ErrNotAllowed) {
			t.Errorf("%s: %+v, %v", op, r, err)
		}
	}
}

// CASE 23 at this level: an index without segments is a partition all of whose segments were removed.
func TestVerifyFindsAnExpiredPartition(t *testing.T) {
	a, st := open(t)
	grow(t, a, trips, nil, 260, 1)
	for _, k := range st.Keys() {
		if noIndex(k) {
			st.Delete(k)
		}
	}
	for _, topics := range [][]string{nil, {"trips"}} {
		if k := kinds(mustVerify(t, a, topics...)); !slices.Equal(k, []string{KindIndex}) {
			t.Errorf("%v: %v", topics, k)
		}
	}
}

func TestVerifyBoundsItsFindings(t *testing.T) {
	a, st := open(t)
	grow(t, a, trips, nil, 1, 1)
	for i := range maxFindings + 50 {
		st.Put(fmt.Sprintf("topics/trips/partition=0/%d", i), nil)
	}
	if r := mustVerify(t, a); len(r.Findings) != maxFindings+1 || !strings.Contains(r.Findings[maxFindings].Text, "more than") {
		t.Errorf("%d findings", len(r.Findings))
	}
}
