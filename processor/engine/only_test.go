package engine

import (
	"math/rand"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

// A start in the middle gives, for the windows beyond what was before it, what a run from the beginning gives: results and late records, in their order, whatever the logs and
// wherever each partition begins. A start that is one window too late does not: the rule is needed.
func TestOnlyFromTheMiddle(t *testing.T) {
	windows, cold, spoiled := 0, 0, 0
	for seed := range min(seeds(), 250) {
		for _, keyed := range []bool{false, true} {
			r := rand.New(rand.NewSource(int64(seed)))
			w := newWorld(t, r, keyed)
			w.live(t, r) // for its floors
			from := int64(r.Intn(150)) / w.size * w.size
			until := from + w.size*int64(1+r.Intn(10))
			// run begins each partition at the offset that begin says.
			run := func(from, until int64, begin func(log []record.Record) int) []Output {
				e := w.engine(t, w.floors)
				if until > 0 {
					e.Only(from, until)
				}
				for p := range w.initial {
					at := fresh()
					if i := begin(w.logs[p]); i < len(w.logs[p]) {
						at.Position, at.Low = w.logs[p][i].Offset, w.logs[p][i].Offset
					} else {
						at.Position, at.Low = w.end(p), w.end(p)
					}
					e.AddPartition(tpOf(p), at)
				}
				for p := range w.initial {
					w.feed(t, e, p, len(w.logs[p]), w.frontier[p])
				}
				return slices.DeleteFunc(e.Take(), func(o Output) bool { return o.Kind != Result && o.Kind != Late })
			}
			latest := func(below int64) func(log []record.Record) int {
				return func(log []record.Record) int {
					i := slices.IndexFunc(log, func(rec record.Record) bool { return rec.Timestamp+w.maxFut >= below })
					if i < 0 {
						i = len(log)
					}
					return i
				}
			}
			// One that does not begin before the frontier brings nothing.
			full := run(from, until, func([]record.Record) int { return 0 })
			if d := differ(full, run(from, until, func(log []record.Record) int { return min(latest(from)(log), len(log)) })); d != "" {
				t.Fatalf("seed %d, keyed %v, windows [%d, %d): %s", seed, keyed, from, until, d)
			}
			// And those are the ones of a run of all windows.
			isResult := func(o Output) bool { return o.Kind == Result }
			all := slices.DeleteFunc(run(0, 0, func([]record.Record) int { return 0 }), func(o Output) bool {
				return !isResult(o) || windowEndOf(t, o)-w.size < from || windowEndOf(t, o) > until
			})
			if d := differ(all, slices.DeleteFunc(slices.Clone(full), func(o Output) bool { return !isResult(o) })); d != "" {
				t.Fatalf("seed %d, keyed %v, windows [%d, %d) of all: %s", seed, keyed, from, until, d)
			}
			windows += len(full)
			for p := range w.initial {
				if latest(from)(w.logs[p]) > 0 {
					cold++
				}
			}
			if differ(full, run(from, until, latest(from+2*w.size+w.maxFut))) != "" {
				spoiled++
			}
		}
	}
	t.Logf("%d results and late records, %d partitions begun in the middle, %d of the wrong starts differ", windows, cold, spoiled)
	if windows < 100 || cold < 100 || spoiled < 10 {
		t.Error("the cases are too tame to show anything")
	}
}
