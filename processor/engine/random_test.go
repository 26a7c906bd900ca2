package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/shared/record"
)

// world is one random case: a pipeline, its logs, the floors that a live run decided, and how far that run read.
type world struct {
	p         *pipeline.Pipeline
	text      string
	keyed     bool
	delay     int64
	size      int64
	maxFut    int64
	logs      [][]record.Record // by partition
	frontier  []int64           // position that the live run reached
	floors    []Floor
	initial   int                          // partitions that are there from the start
	preparers map[*Engine]map[TP]*Preparer // made as they are needed
}

func tpOf(p int) TP { return TP{Topic: "in", Partition: int32(p)} }

// newWorld draws logs: event times that run forward with steps back, offset gaps, poison, future and filtered records.
func newWorld(t testing.TB, r *rand.Rand, keyed bool) *world {
	w := &world{keyed: keyed, delay: int64(r.Intn(13)), size: []int64{5, 10}[r.Intn(2)], maxFut: 40}
	mode, output := "merged", "{topic: out, partitions: 3}"
	if keyed {
		mode, output = "partition", "{topic: out}"
	}
	w.text = fmt.Sprintf(`
name: random
keyed: %s
sources:
  - topic: in
    format: json
    eventTime: {field: t, unit: ms}
    delay: %dms
    maxFuture: %dms
    where: drop != true
groupBy: [k]
window: {tumbling: {size: %dms}}
aggregates: {n: count(), total: sum(v), lo: min(v), hi: max(f), exact: sum(f)}
output: %s
`, mode, w.delay, w.maxFut, w.size, output)
	w.p = mustParse(t, w.text)
	n := 1 + r.Intn(4)
	w.initial = n
	if n > 1 && !keyed {
		w.initial = 1 + r.Intn(n)
	}
	for p := range n {
		now, offset := int64(r.Intn(30)), int64(r.Intn(3))
		var log []record.Record
		for range r.Intn(40) {
			now += int64(r.Intn(7))
			at := max(0, now-int64(r.Intn([]int{2, 25}[r.Intn(2)])))
			rec := record.Record{Topic: "in", Partition: int32(p), Offset: offset, Timestamp: now,
				Key: fmt.Appendf(nil, "key-%d", offset), Headers: []record.Header{{Key: "h", Value: []byte("1")}}}
			drop := ""
			switch r.Intn(20) {
			case 0:
				rec.Value = []byte{byte(r.Intn(256)), '{'}
			case 1:
				at = now + w.maxFut + 1 + int64(r.Intn(100))
			case 2:
				drop = `,"drop":true`
			}
			if rec.Value == nil {
				rec.Value = fmt.Appendf(nil, `{"t":%d,"k":%q,"v":%d,"f":%v%s}`, at, []string{"x", "y", "ü", ""}[r.Intn(4)], r.Intn(19)-9,
					(r.Float64()-.5)*[]float64{1, 1e-300, 1e18, 1e300}[r.Intn(4)], drop)
			}
			log = append(log, rec)
			offset += 1 + int64(r.Intn(8)/7)*int64(r.Intn(4))
		}
		w.logs = append(w.logs, log)
	}
	return w
}

func (w *world) engine(t testing.TB, floors []Floor) *Engine {
	t.Helper()
	e, err := New(w.p, nil, floors)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func fresh() Commit { return Commit{MaxAtLow: NoTime, Emitted: NoTime} }

// feed hands e up to n records of partition p from its position on, none at or beyond until.
func (w *world) feed(t testing.TB, e *Engine, p, n int, until int64) {
	t.Helper()
	tp := tpOf(p)
	pos := e.Position(tp)
	from, _ := slices.BinarySearchFunc(w.logs[p], pos, func(r record.Record, o int64) int { return int(r.Offset - o) })
	to := from
	for to < len(w.logs[p]) && to < from+n && w.logs[p][to].Offset < until {
		to++
	}
	// Some records from before the position as well: they must be ignored.
	recs := w.logs[p][max(0, from-1):to]
	if (to+p)%2 == 0 { // prepared ahead or not is the same
		w.feedPrepared(t, e, tp, recs)
	} else if took, err := e.Feed(tp, recs); err != nil || took != len(recs) {
		t.Fatalf("feed %v: %d, %v", tp, took, err)
	}
	if to == len(w.logs[p]) || w.logs[p][to].Offset >= until {
		e.Advance(tp, until)
	}
}

func (w *world) end(p int) int64 {
	if n := len(w.logs[p]); n > 0 {
		return w.logs[p][n-1].Offset + 1
	}
	return 0
}

// live runs as a live processor would: partitions appear late, a clock passes by idle ones, and each such decision is written down as a floor. It
// may stop in the middle.
func (w *world) live(t testing.TB, r *rand.Rand) (out []Output) {
	e := w.engine(t, nil)
	there := w.initial
	for p := range there {
		e.AddPartition(tpOf(p), fresh())
	}
	decide := func(f Floor) {
		w.floors = append(w.floors, f)
		e.AddFloor(f)
	}
	stop := r.Intn(2) == 0
	for {
		var todo []int
		for p := range there {
			if e.Position(tpOf(p)) < w.end(p) {
				todo = append(todo, p)
			}
		}
		switch {
		case there < len(w.logs) && (len(todo) == 0 || r.Intn(10) == 0):
			out = append(out, e.Take()...)
			now, _ := e.Watermark(TP{})
			decide(Floor{tpOf(there), 0, now})
			e.AddPartition(tpOf(there), fresh())
			there++
			continue
		case r.Intn(12) == 0:
			p := r.Intn(there)
			others := int64(1 << 60)
			for q := range there {
				if q != p {
					others = min(others, e.parts[tpOf(q)].watermark())
				}
			}
			if w.keyed || there == 1 {
				others = e.parts[tpOf(p)].watermark() + int64(r.Intn(40))
			}
			if others > e.parts[tpOf(p)].watermark() && others > 0 {
				decide(Floor{tpOf(p), e.Position(tpOf(p)), others})
			}
			continue
		}
		if len(todo) == 0 || stop && r.Intn(50) == 0 {
			break
		}
		p := todo[r.Intn(len(todo))]
		w.feed(t, e, p, 1+r.Intn(6), w.end(p))
		if r.Intn(3) > 0 {
			out = append(out, e.Take()...)
		}
	}
	for p := range w.logs {
		w.frontier = append(w.frontier, e.Position(tpOf(p))) // 0 for one that never appeared
	}
	w.initial = there
	return append(out, e.Take()...)
}

// replay runs over the same logs to the same frontier, knowing all floors, in an order and in batches of its own.
func (w *world) replay(t testing.TB, r *rand.Rand, mode int) []Output {
	e := w.engine(t, w.floors)
	for p := range w.initial {
		e.AddPartition(tpOf(p), fresh())
	}
	var out []Output
	for {
		var todo []int
		for p := range w.initial {
			if e.Position(tpOf(p)) < w.frontier[p] {
				todo = append(todo, p)
			}
		}
		if len(todo) == 0 {
			return append(out, e.Take()...)
		}
		p, n := todo[r.Intn(len(todo))], 1+r.Intn(9)
		switch mode {
		case 0:
			p, n = todo[0], 1<<30
		case 1:
			p, n = todo[len(todo)-1], 1<<30
		}
		w.feed(t, e, p, n, w.frontier[p])
		if r.Intn(2) == 0 {
			out = append(out, e.Take()...)
		}
	}
}

// byTopicPartition renders the sequences that must be equal byte for byte.
func byTopicPartition(out []Output) map[string]string {
	m := map[string]string{}
	for _, o := range out {
		r := &o.Record
		var b strings.Builder
		fmt.Fprintf(&b, "%d %q %q", r.Timestamp, r.Key, r.Value)
		for _, h := range r.Headers {
			fmt.Fprintf(&b, " %s=%q", h.Key, h.Value)
		}
		k := fmt.Sprintf("%s-%d", r.Topic, r.Partition)
		m[k] += b.String() + "\n"
	}
	return m
}

// differ tells where two runs' outputs differ, "" where they do not.
func differ(a, b []Output) string {
	x, y := byTopicPartition(a), byTopicPartition(b)
	for _, m := range []map[string]string{x, y} {
		for k := range m {
			if x[k] != y[k] {
				return fmt.Sprintf("%s:\n%s--- other:\n%s", k, x[k], y[k])
			}
		}
	}
	return ""
}

// seeds is how many random cases a property is tried on.
func seeds() int {
	if testing.Short() {
		return 400
	}
	return 3000
}

// Live and every replay, whatever the interleaving and the batches, give the same bytes; and those are what the rules say when they are
// applied to the logs without any order (oracle_test.go).
func TestLiveAndReplayAreEqual(t *testing.T) {
	var total tally
	for seed := range seeds() {
		r := rand.New(rand.NewSource(int64(seed)))
		w := newWorld(t, r, seed%4 == 3)
		live := w.live(t, r)
		if d := w.oracle().differs(live, w); d != "" {
			t.Fatalf("seed %d: live differs from the oracle: %s\n%s", seed, d, w.text)
		}
		for mode := range 5 {
			if d := differ(live, w.replay(t, r, mode)); d != "" {
				t.Fatalf("seed %d: replay %d differs from live: %s\n%s", seed, mode, d, w.text)
			}
		}
		total.add(live, w)
	}
	total.check(t)
}

// tally makes sure that the random cases hold what they are meant to try.
type tally struct {
	kinds                     [4]int
	floors, lateParts, worlds int
}

func (c *tally) add(out []Output, w *world) {
	c.worlds++
	for _, o := range out {
		c.kinds[o.Kind]++
	}
	c.floors += len(w.floors)
	for _, f := range w.floors {
		if f.Offset == 0 && f.W > 0 {
			c.lateParts++
		}
	}
}

func (c *tally) check(t *testing.T) {
	t.Helper()
	for k, n := range c.kinds {
		if n < c.worlds {
			t.Errorf("only %d %s in %d cases: the cases are too tame", n, Kind(k), c.worlds)
		}
	}
	if c.floors < c.worlds || c.lateParts < c.worlds/20 {
		t.Errorf("only %d floors, %d of them of late partitions, in %d cases", c.floors, c.lateParts, c.worlds)
	}
}

// Without the logged floors a replay differs: they are needed, and the test above would notice.
func TestReplayNeedsFloors(t *testing.T) {
	wrong := 0
	for seed := range seeds() {
		r := rand.New(rand.NewSource(int64(seed)))
		w := newWorld(t, r, false)
		live := w.live(t, r)
		w.floors = nil
		if differ(live, w.replay(t, r, 2)) != "" {
			wrong++
		}
	}
	t.Logf("without floors %d of %d replays differ", wrong, seeds())
	if wrong*20 < seeds() {
		t.Errorf("only %d of %d replays differ without floors", wrong, seeds())
	}
}

// Results are in the order of (end, start, key) in every output partition.
func TestResultsAreSorted(t *testing.T) {
	for seed := range seeds() {
		r := rand.New(rand.NewSource(int64(seed)))
		w := newWorld(t, r, seed%2 == 0)
		last := map[int32]Output{}
		for _, o := range w.live(t, r) {
			if o.Kind != Result {
				continue
			}
			if l, ok := last[o.Record.Partition]; ok {
				a, b := windowEndOf(t, l), windowEndOf(t, o)
				if a > b || a == b && bytes.Compare(l.Record.Key, o.Record.Key) >= 0 {
					t.Fatalf("seed %d: %s is before %s", seed, l.Record.Value, o.Record.Value)
				}
			}
			last[o.Record.Partition] = o
		}
	}
}

func windowEndOf(t *testing.T, o Output) int64 {
	var v struct {
		End int64 `json:"window_end"`
	}
	if err := json.Unmarshal(o.Record.Value, &v); err != nil {
		t.Fatal(err)
	}
	return v.End
}
