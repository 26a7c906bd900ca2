package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/shared/record"
)

// The worked example of docs/semantics.md.
const workedPipeline = `
name: worked
sources:
  - topic: trips
    format: json
    eventTime: {field: t, unit: s}
    delay: 10s
window: {tumbling: {size: 10s}}
aggregates: {total: sum(price)}
output: {topic: out, partitions: 1}
`

// workedLogs are the logs of the two partitions: event time in s, price.
var workedLogs = [2][][2]int64{
	{{3, 5}, {12, 7}, {31, 2}, {34, 1}},
	{{4, 11}, {15, 13}, {8, 17}, {33, 19}, {6, 23}},
}

// parsed keeps the pipelines of the tests: many cases use the same few.
var parsed sync.Map

func mustParse(t testing.TB, text string) *pipeline.Pipeline {
	t.Helper()
	if p, ok := parsed.Load(text); ok {
		return p.(*pipeline.Pipeline)
	}
	p, err := pipeline.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	parsed.Store(text, p)
	return p
}

func workedRecord(p int, i int) record.Record {
	r := workedLogs[p][i]
	return record.Record{Topic: "trips", Partition: int32(p), Offset: int64(i), Timestamp: 1_000_000,
		Value: fmt.Appendf(nil, `{"t":%d,"price":%d}`, r[0], r[1])}
}

// interleavings calls f with every order in which a records of partition 0 and b of partition 1 can be read.
func interleavings(a, b int, f func(order []int)) {
	var walk func(order []int, left [2]int)
	walk = func(order []int, left [2]int) {
		if left == [2]int{} {
			f(order)
			return
		}
		for p := range left {
			if left[p] > 0 {
				left[p]--
				walk(append(slices.Clip(order), p), left)
				left[p]++
			}
		}
	}
	walk(nil, [2]int{a, b})
}

// checkWorked runs the example in one order, taking outputs after every record where eager is set, and tells what is wrong.
func checkWorked(t testing.TB, p *pipeline.Pipeline, rule lateRule, order []int, eager bool) error {
	t.Helper()
	e, err := New(p, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if rule != nil {
		e.late = rule
	}
	for i := range workedLogs {
		e.AddPartition(TP{Topic: "trips", Partition: int32(i)}, Commit{MaxAtLow: NoTime, Emitted: NoTime})
	}
	var out []Output
	var next [2]int
	for _, i := range order {
		if _, err := e.Feed(TP{Topic: "trips", Partition: int32(i)}, []record.Record{workedRecord(i, next[i])}); err != nil {
			return err
		}
		next[i]++
		if eager {
			out = append(out, e.Take()...)
		}
	}
	out = append(out, e.Take()...)
	open := e.Stats().OpenWindows
	out = append(out, e.Drain()...)
	var got []string
	for _, o := range out {
		if o.Kind == Result {
			var v struct {
				Start int64 `json:"window_start"`
				End   int64 `json:"window_end"`
				Total int64
			}
			if err := json.Unmarshal(o.Record.Value, &v); err != nil {
				return err
			}
			got = append(got, fmt.Sprintf("[%d,%d)=%d%s", v.Start/1000, v.End/1000, v.Total, header(o, HeaderDrained)))
		} else {
			got = append(got, fmt.Sprintf("%s P%s@%s", o.Kind, header(o, HeaderPartition), header(o, HeaderOffset)))
		}
	}
	slices.Sort(got)
	want := "[0,10)=33 [10,20)=20 [30,40)=22true late P1@4"
	if s := strings.Join(got, " "); s != want || open != 1 {
		return fmt.Errorf("order %v: %s with %d open, want %s", order, s, open, want)
	}
	return nil
}

func header(o Output, key string) string {
	for _, h := range o.Record.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

func TestWorkedExample(t *testing.T) {
	p := mustParse(t, workedPipeline)
	n := 0
	interleavings(len(workedLogs[0]), len(workedLogs[1]), func(order []int) {
		n++
		for _, eager := range []bool{false, true} {
			if err := checkWorked(t, p, nil, order, eager); err != nil {
				t.Error(err)
			}
		}
	})
	if n != 126 { // 9 over 4
		t.Errorf("%d interleavings, want 126", n)
	}
}

// lateByGlobalMaximum is Spark's rule: one watermark, from the maximum event time over all partitions.
func lateByGlobalMaximum(e *Engine, _ *partition, end int64) bool {
	w := int64(NoTime)
	for _, p := range e.parts {
		w = max(w, p.watermark())
	}
	return end <= w
}

// lateByMergedMinimum is Flink's rule: one watermark, the minimum over all partitions.
func lateByMergedMinimum(e *Engine, _ *partition, end int64) bool {
	w, _ := e.merged.watermark()
	return end <= w
}

// The two usual rules must fail the check of the worked example: else the example would prove nothing.
func TestWorkedExampleCatchesWrongRules(t *testing.T) {
	p := mustParse(t, workedPipeline)
	for name, rule := range map[string]lateRule{"global maximum": lateByGlobalMaximum, "merged minimum": lateByMergedMinimum} {
		var wrong, total int
		var example error
		interleavings(len(workedLogs[0]), len(workedLogs[1]), func(order []int) {
			total++
			if err := checkWorked(t, p, rule, order, true); err != nil {
				wrong++
				example = err
			}
		})
		t.Logf("%s: wrong in %d of %d interleavings, for example %v", name, wrong, total, example)
		if wrong == 0 {
			t.Errorf("%s passes the worked example", name)
		}
	}
}
