package engine

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

// liveByClock runs w live along a clock: records arrive at times of their own, a partition is idle when nothing has arrived in it for `after` and
// all that has arrived is read, and idle partitions are passed by now and then. It returns how many floors were decided.
func (w *world) liveByClock(t testing.TB, r *rand.Rand, after int) (out []Output, floors int) {
	t.Helper()
	w.initial = len(w.logs)
	e := w.engine(t, nil)
	arrivals := make([][]int, len(w.logs)) // of each record, ascending
	last := make([]int, len(w.logs))       // when one was last taken
	for p, log := range w.logs {
		e.AddPartition(tpOf(p), fresh())
		at := 0
		for range log {
			at += r.Intn(4)
			if r.Intn(12) == 0 {
				at += 10 + r.Intn(60) // the producer is away
			}
			arrivals[p] = append(arrivals[p], at)
		}
	}
	arrived := func(p, now int) int { // log end at that moment, as an index
		n, _ := slices.BinarySearch(arrivals[p], now+1)
		return n
	}
	read := make([]int, len(w.logs))
	stop := 20 + r.Intn(400)
	for now := 0; now < stop; now++ {
		for p := range w.logs {
			n := arrived(p, now)
			if n > read[p] && r.Intn(3) > 0 {
				n = read[p] + 1 + r.Intn(n-read[p])
				w.feed(t, e, p, n-read[p], w.logs[p][n-1].Offset+1)
				read[p], last[p] = n, now
			}
		}
		if r.Intn(3) > 0 {
			continue
		}
		by := e.PassBy(func(tp TP) bool {
			p := int(tp.Partition)
			return now-last[p] >= after && read[p] == arrived(p, now)
		})
		for _, f := range by {
			e.AddFloor(f)
			w.floors = append(w.floors, f)
		}
		took := e.Take()
		if len(by) > 0 && !slices.ContainsFunc(took, func(o Output) bool { return o.Kind == Result }) {
			t.Fatalf("floors %v close nothing", by)
		}
		out, floors = append(out, took...), floors+len(by)
	}
	for p := range w.logs {
		w.frontier = append(w.frontier, e.Position(tpOf(p)))
	}
	return append(out, e.Take()...), floors
}

// What a clock decided is in the output through its floors alone: with them, every replay gives the same bytes, and so do the rules
// applied to the logs without any order; without them it does not.
func TestIdleFloorsAreAllOfTheClock(t *testing.T) {
	floors, idle, wrong := 0, 0, 0
	for seed := range seeds() / 3 {
		r := rand.New(rand.NewSource(int64(seed)))
		w := newWorld(t, r, false)
		live, n := w.liveByClock(t, r, 5+r.Intn(20))
		if n > 0 {
			floors, idle = floors+n, idle+1
		}
		if d := w.oracle().differs(live, w); d != "" {
			t.Fatalf("seed %d: live differs from the oracle: %s\n%s", seed, d, w.text)
		}
		for mode := range 5 {
			if d := differ(live, w.replay(t, r, mode)); d != "" {
				t.Fatalf("seed %d: replay %d differs from live: %s\n%s", seed, mode, d, w.text)
			}
		}
		if n == 0 {
			continue
		}
		w.floors = nil
		if differ(live, w.replay(t, r, 2)) != "" {
			wrong++
		}
	}
	t.Logf("%d floors in %d of %d runs; without them %d replays differ", floors, idle, seeds()/3, wrong)
	if idle*2 < seeds()/3 || wrong*2 < idle {
		t.Errorf("too few idle partitions, or they do not matter")
	}
}

// The table of PassBy.
func TestPassBy(t *testing.T) {
	p := mustParse(t, "name: x\nsources: [{topic: in, format: json, eventTime: {field: t, unit: ms}, delay: 0s}]\n"+
		"window: {tumbling: {size: 10ms}}\naggregates: {n: count()}\noutput: {topic: out, partitions: 1}\n")
	for _, c := range []struct {
		name string
		at   []int64 // event time of each partition's record, −1: none
		idle []int32
		want []Floor
	}{
		{"none idle", []int64{35, 5}, nil, nil},
		{"one idle that holds", []int64{35, 5}, []int32{1}, []Floor{{tpOf(1), 1, 10}}},
		{"one idle that does not hold", []int64{35, 5}, []int32{0}, nil},
		{"one that never had a record", []int64{35, 15, -1}, []int32{2}, nil}, // W = 15 closes nothing
		{"two behind", []int64{35, 5, -1}, []int32{1, 2}, []Floor{{tpOf(1), 1, 10}, {tpOf(2), 0, 10}}},
		{"the others hold too", []int64{35, 5, 7}, []int32{1}, nil},
		{"all idle go to the furthest", []int64{35, 15, 5}, []int32{0, 1, 2}, []Floor{{tpOf(1), 1, 20}, {tpOf(2), 1, 20}}},
		{"to a window's end, not further", []int64{39, 5}, []int32{1}, []Floor{{tpOf(1), 1, 10}}},
	} {
		e, err := New(p, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.at {
			e.AddPartition(tpOf(i), fresh())
		}
		for i, at := range c.at {
			if at >= 0 {
				if _, err := e.Feed(tpOf(i), []record.Record{{Topic: "in", Partition: int32(i), Timestamp: 1, Value: fmt.Appendf(nil, `{"t":%d}`, at)}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := e.PassBy(func(tp TP) bool { return slices.Contains(c.idle, tp.Partition) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// One offset's floors are one: the highest counts, whatever the order.
func TestFloorsOfOneOffset(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewSource(1)), false)
	for _, order := range [][]int64{{10, 20, 30}, {30, 20, 10}, {20, 30, 10}} {
		e := w.engine(t, nil)
		for _, f := range order {
			e.AddFloor(Floor{tpOf(0), 3, f})
		}
		e.AddPartition(tpOf(0), fresh())
		if got, _ := e.Watermark(TP{}); got != NoTime {
			t.Errorf("%v: %d before the offset", order, got)
		}
		e.Advance(tpOf(0), 3)
		if got, _ := e.Watermark(TP{}); got != 30 {
			t.Errorf("%v: %d", order, got)
		}
		if n := len(e.floors[tpOf(0)]); n != 1 {
			t.Errorf("%d floors kept", n)
		}
	}
}
