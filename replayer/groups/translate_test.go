package groups

import (
	"math/rand/v2"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/replayer/offsetmap"
)

type run struct{ old, at, n int64 }

func newMap(runs []run, from, end int64) *Map {
	var all []offsetmap.Run
	for _, r := range runs {
		all = append(all, offsetmap.Run{Old: r.old, New: r.at, Len: r.n})
	}
	return NewMap(offsetmap.New(all), from, end)
}

func TestTranslate(t *testing.T) {
	one := newMap([]run{{100, 0, 10}, {120, 10, 5}, {125, 20, 5}}, 90, 25)
	// [0,100) first, then [100,200): a marker took offset 100.
	two := newMap([]run{{0, 0, 100}, {100, 101, 100}}, 0, 201)
	// The second job restored again what the first one had, and more.
	again := newMap([]run{{0, 0, 60}, {0, 61, 100}}, 0, 161)
	backwards := newMap([]run{{100, 0, 100}, {0, 101, 100}}, 0, 201)
	none := newMap(nil, 0, 7)
	for _, c := range []struct {
		name string
		m    *Map
		old  int64
		want int64
		note Note
	}{
		{"first record", one, 100, 0, Exact},
		{"inside a run", one, 105, 5, Exact},
		{"last record of a run", one, 109, 9, Exact},
		{"first offset of a gap", one, 110, 10, Exact},
		{"inside a gap", one, 119, 10, Exact},
		{"runs next to each other, a marker between them at the target", one, 125, 20, Exact},
		{"last record", one, 129, 24, Exact},
		{"at the end", one, 130, 25, AtEnd},
		{"beyond the end", one, 1000, 25, AtEnd},
		{"an offset without a record in the restored range", one, 95, 0, Exact},
		{"before the restored range", one, 50, 0, Before},
		{"in the first of two restores", two, 40, 40, Exact},
		{"last record of the first of two restores", two, 99, 99, Exact},
		{"first record of the second restore", two, 100, 101, Exact},
		{"in the second restore", two, 150, 151, Exact},
		{"behind both", two, 200, 201, AtEnd},
		{"restored twice", again, 50, 111, Exact},
		{"restored twice, behind the first", again, 60, 121, Exact},
		{"later records restored first", backwards, 50, 0, OutOfLine},
		{"in what was restored first", backwards, 150, 50, Exact},
		{"nothing restored", none, 3, 7, AtEnd},
	} {
		if got, note := c.m.At(c.old); got != c.want || note != c.note {
			t.Errorf("%s: %d is at %d (%q), want %d (%q)", c.name, c.old, got, note, c.want, c.note)
		}
	}
}

// log is a target topic record by record: at[i] is the old offset of the record with the new offset i, −1 for a marker.
type log []int64

func (l log) runs() []run {
	var out []run
	for at, old := range l {
		if old < 0 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].old+out[n-1].n == old && out[n-1].at+out[n-1].n == int64(at) {
			out[n-1].n++
			continue
		}
		out = append(out, run{old, int64(at), 1})
	}
	return out
}

// TestTranslateIsTheNextRecord: over random logs with gaps and markers, restored by one to three jobs one after the other, a group at any position
// reads exactly the records at or behind it, in order.
func TestTranslateIsTheNextRecord(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 26))
	for range 500 {
		var l log
		old := int64(r.IntN(20))
		from := old
		for range 1 + r.IntN(3) {
			for range r.IntN(15) {
				l = append(l, old)
				old += 1 + int64(r.IntN(4))*int64(r.IntN(2))
				if r.IntN(5) == 0 {
					l = append(l, -1)
				}
			}
			l = append(l, -1)
		}
		runs := l.runs()
		end := int64(0)
		for _, x := range runs {
			end = max(end, x.at+x.n)
		}
		r.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
		m := newMap(runs, from, end)
		for p := int64(0); p < old+3; p++ {
			got, _ := m.At(p)
			var want, reads []int64
			for _, o := range l {
				if o >= p {
					want = append(want, o)
				}
			}
			for _, o := range l[got:] {
				if o >= 0 {
					reads = append(reads, o)
				}
			}
			if !slices.Equal(want, reads) {
				t.Fatalf("log %v: a group at %d is put at %d and reads %v, not %v", l, p, got, reads, want)
			}
			if len(want) > 0 && l[got] < 0 {
				t.Fatalf("log %v: %d is put at %d, which is no record", l, p, got)
			}
		}
	}
}

// TestTranslateLosesNothing: whatever was restored in whatever order and how often, a group reads every record at or behind its position, and what it is
// put at cannot be later.
func TestTranslateLosesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 27))
	for range 500 {
		var l log
		for range 1 + r.IntN(4) {
			old := int64(r.IntN(30))
			for range r.IntN(12) {
				l = append(l, old)
				old += 1 + int64(r.IntN(3))*int64(r.IntN(2))
			}
			l = append(l, -1)
		}
		end := int64(0)
		newestAt := map[int64]int64{}
		for at, o := range l {
			if o >= 0 {
				end = int64(at) + 1
				newestAt[o] = int64(at)
			}
		}
		m := newMap(l.runs(), 0, end)
		for p := int64(0); p < 50; p++ {
			want := end
			for o, at := range newestAt {
				if o >= p {
					want = min(want, at)
				}
			}
			if got, note := m.At(p); got != want {
				t.Fatalf("log %v: %d is put at %d (%q), want %d", l, p, got, note, want)
			}
		}
	}
}
