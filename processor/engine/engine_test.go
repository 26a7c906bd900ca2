package engine

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

const plainPipeline = `
name: plain
keyed: %s
sources:
  - topic: in
    format: json
    eventTime: {field: t, unit: ms}
    delay: 10ms
    maxFuture: 1h
groupBy: [k]
window: {tumbling: {size: 10ms}}
aggregates: {total: sum(v)}
output: {topic: out%s}
`

func merged() string { return fmt.Sprintf(plainPipeline, "merged", ", partitions: 4") }
func keyed() string  { return fmt.Sprintf(plainPipeline, "partition", "") }

func newEngine(t testing.TB, text string, floors ...Floor) *Engine {
	t.Helper()
	e, err := New(mustParse(t, text), nil, floors)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func rec(p int32, offset, at int64, k string, v int64) record.Record {
	return record.Record{Topic: "in", Partition: p, Offset: offset, Timestamp: at, Value: fmt.Appendf(nil, `{"t":%d,"k":%q,"v":%d}`, at, k, v)}
}

func feed(t testing.TB, e *Engine, recs ...record.Record) {
	t.Helper()
	for i := range recs {
		if _, err := e.Feed(recs[i].TP(), recs[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
}

// The bytes of each kind of output are fixed: this is what consumers see, and what a later version must still write. (Ids and partition were computed by a
// second program from their definition.)
func TestOutputBytes(t *testing.T) {
	e := newEngine(t, merged())
	e.AddPartition(tpOf(0), fresh())
	late := rec(0, 2, 3, "a", 9)
	late.Key, late.Headers = []byte("orig"), []record.Header{{Key: "x", Value: nil}, {Key: "x", Value: []byte{}}}
	future := rec(0, 3, 3_600_100, "a", 1)
	future.Timestamp = 99
	poison := record.Record{Topic: "in", Offset: 4, Timestamp: -1, Value: []byte("{")}
	feed(t, e, rec(0, 0, 5, "a", 1), rec(0, 1, 25, "b", 2), late, future, poison, rec(0, 5, 40, "a", 3))
	got := byTopicPartition(e.Drain())
	want := map[string]string{
		"out-3": `9 "{\"k\":\"a\"}" "{\"window_start\":0,\"window_end\":10,\"k\":\"a\",\"total\":1}" tapedeck-id="18fa79f2ecbb623eed9a556dd2da792a"
29 "{\"k\":\"b\"}" "{\"window_start\":20,\"window_end\":30,\"k\":\"b\",\"total\":2}" tapedeck-id="de084a4210a5c7202a3ef6233458a8f9"
49 "{\"k\":\"a\"}" "{\"window_start\":40,\"window_end\":50,\"k\":\"a\",\"total\":3}" tapedeck-id="a149fc0d9557bbe2baa2c4616212a7a5" tapedeck-drained="true"
`,
		"out.late-0": `3 "orig" "{\"t\":3,\"k\":\"a\",\"v\":9}" x="" x="" tapedeck-source-topic="in" tapedeck-source-partition="0" tapedeck-source-offset="2" tapedeck-source-timestamp="3" tapedeck-reason="late" tapedeck-event-time="3" tapedeck-window-start="0" tapedeck-window-end="10" tapedeck-watermark="15"
`,
		"out.future-0": `99 "" "{\"t\":3600100,\"k\":\"a\",\"v\":1}" tapedeck-source-topic="in" tapedeck-source-partition="0" tapedeck-source-offset="3" tapedeck-source-timestamp="99" tapedeck-reason="future" tapedeck-event-time="3600100"
`,
		"out.poison-0": `1 "" "{" tapedeck-source-topic="in" tapedeck-source-partition="0" tapedeck-source-offset="4" tapedeck-source-timestamp="-1" tapedeck-reason="value is not a JSON object"
`,
	}
	if len(got) != len(want) {
		t.Errorf("%d output partitions, want %d", len(got), len(want))
	}
	for k := range want {
		if got[k] != want[k] {
			t.Errorf("%s:\n got %s\nwant %s", k, got[k], want[k])
		}
	}
}

// Null and empty keys, values and headers of a record that is set aside stay different.
func TestAsideKeepsNullAndEmpty(t *testing.T) {
	e := newEngine(t, merged())
	e.AddPartition(tpOf(0), fresh())
	feed(t, e, record.Record{Topic: "in", Offset: 0, Key: nil, Value: nil, Headers: []record.Header{{Key: "a"}, {Key: "b", Value: []byte{}}}},
		record.Record{Topic: "in", Offset: 1, Key: []byte{}, Value: []byte{}})
	out := e.Take()
	a, b := out[0].Record, out[1].Record
	if a.Key != nil || a.Value != nil || a.Headers[0].Value != nil || a.Headers[1].Value == nil {
		t.Errorf("null became empty: %+v", a)
	}
	if b.Key == nil || b.Value == nil {
		t.Errorf("empty became null: %+v", b)
	}
}

// An integer sum that does not fit gives an error record in its place of the sequence; other groups and aggregates are not touched.
func TestOverflowIsAnErrorRecord(t *testing.T) {
	text := strings.Replace(merged(), "total: sum(v)", "total: sum(v), n: count(), double: sum(v)", 1)
	e := newEngine(t, text)
	e.AddPartition(tpOf(0), fresh())
	feed(t, e, rec(0, 0, 1, "a", math.MaxInt64), rec(0, 1, 2, "a", 1), rec(0, 2, 3, "b", 5), rec(0, 3, 4, "c", math.MaxInt64), rec(0, 4, 5, "c", 1), rec(0, 5, 6, "c", -1))
	expect(t, e.Drain(),
		`{"window_start":0,"window_end":10,"k":"a","total":null,"n":2,"double":null,"error":"total: integer overflow; double: integer overflow"}`,
		`{"window_start":0,"window_end":10,"k":"b","total":5,"n":1,"double":5}`,
		`{"window_start":0,"window_end":10,"k":"c","total":9223372036854775807,"n":3,"double":9223372036854775807}`)
}

// Records of a group without key make one group; so do those whose key is null.
func TestNoGroupKeys(t *testing.T) {
	e := newEngine(t, strings.Replace(merged(), "groupBy: [k]", "", 1))
	e.AddPartition(tpOf(0), fresh())
	feed(t, e, rec(0, 0, 1, "a", 1), rec(0, 1, 2, "b", 2))
	out := e.Drain()
	expect(t, out, `{"window_start":0,"window_end":10,"total":3}`)
	if string(out[0].Record.Key) != "{}" {
		t.Errorf("key %s", out[0].Record.Key)
	}
}

func TestKeyedPartitionsCloseAlone(t *testing.T) {
	e := newEngine(t, keyed())
	e.AddPartition(tpOf(0), fresh())
	e.AddPartition(tpOf(3), fresh())
	feed(t, e, rec(0, 0, 1, "a", 1), rec(3, 0, 2, "a", 2), rec(3, 1, 20, "a", 4))
	out := e.Take()
	expect(t, out, `{"window_start":0,"window_end":10,"k":"a","total":2}`)
	if out[0].Record.Partition != 3 {
		t.Errorf("output partition %d, want the source's, 3", out[0].Record.Partition)
	}
	if w, _ := e.Watermark(tpOf(3)); w != 10 {
		t.Errorf("watermark of partition 3: %d", w)
	}
	feed(t, e, rec(0, 1, 20, "a", 8))
	more := e.Take()
	expect(t, more, `{"window_start":0,"window_end":10,"k":"a","total":1}`)
	if header(out[0], HeaderID) == header(more[0], HeaderID) {
		t.Error("two results of two partitions have one id")
	}
}

func TestWatermarkNamesWhoHoldsItBack(t *testing.T) {
	e := newEngine(t, merged())
	if w, _ := e.Watermark(TP{}); w != NoTime {
		t.Errorf("without partitions W = %d", w)
	}
	for p := range 3 {
		e.AddPartition(tpOf(p), fresh())
	}
	feed(t, e, rec(0, 0, 50, "a", 1), rec(2, 0, 70, "a", 1))
	if w, by := e.Watermark(tpOf(0)); w != NoTime || by != tpOf(1) {
		t.Errorf("W = %d held by %v", w, by)
	}
	e.AddFloor(Floor{tpOf(1), 0, 100})
	if w, by := e.Watermark(tpOf(0)); w != 40 || by != tpOf(0) {
		t.Errorf("W = %d held by %v", w, by)
	}
}

// A floor holds from its offset on: not for the record before, also across offsets without record, and on Advance.
func TestFloors(t *testing.T) {
	for _, viaNew := range []bool{true, false} {
		floor := Floor{tpOf(0), 3, 100}
		var e *Engine
		if viaNew {
			e = newEngine(t, merged(), floor)
		} else {
			e = newEngine(t, merged())
			e.AddFloor(floor)
		}
		e.AddPartition(tpOf(0), fresh())
		feed(t, e, rec(0, 0, 5, "a", 1), rec(0, 1, 5, "a", 1))
		if w, _ := e.Watermark(TP{}); w != -5 {
			t.Errorf("before the floor W = %d", w)
		}
		feed(t, e, rec(0, 7, 5, "a", 1)) // the first record at or beyond offset 3 is late already
		if out := e.Take(); len(out) != 2 || out[1].Kind != Late || header(out[1], HeaderWatermark) != "100" {
			t.Errorf("outputs %v", texts(out))
		}
		e.AddFloor(Floor{tpOf(0), 9, 200})
		e.Advance(tpOf(0), 8)
		if w, _ := e.Watermark(TP{}); w != 100 {
			t.Errorf("at offset 8 W = %d", w)
		}
		e.Advance(tpOf(0), 9)
		if w, _ := e.Watermark(TP{}); w != 200 {
			t.Errorf("at offset 9 W = %d", w)
		}
		e.AddFloor(floor)                  // known, though far below the position
		e.AddFloor(Floor{tpOf(0), 9, 150}) // lower: changes nothing
		e.Advance(tpOf(0), 3)              // backwards: changes nothing
		if w, _ := e.Watermark(TP{}); w != 200 || e.Position(tpOf(0)) != 9 {
			t.Errorf("W = %d at %d", w, e.Position(tpOf(0)))
		}
	}
}

// What would break the results is refused, and says what was done wrong.
func TestMisuse(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(e *Engine)
		feed TP
		want string
	}{
		"late partition without floor": {func(e *Engine) { e.Take(); e.AddPartition(tpOf(1), fresh()) }, tpOf(1), "windows are closed through 40"},
		"unknown partition":            {func(e *Engine) {}, tpOf(9), "was not added"},
		"unknown topic":                {func(e *Engine) { e.AddPartition(TP{Topic: "other"}, fresh()) }, tpOf(0), "no source"},
		"twice":                        {func(e *Engine) { e.AddPartition(tpOf(0), fresh()) }, tpOf(0), "added before"},
		"floor in the past":            {func(e *Engine) { e.AddFloor(Floor{tpOf(0), 0, 5}) }, tpOf(0), "has been read to 1"},
		"merged partition removed":     {func(e *Engine) { e.RemovePartition(tpOf(0)) }, tpOf(0), "needs a new engine"},
		"after drain":                  {func(e *Engine) { e.Drain() }, tpOf(0), "after Drain"},
	} {
		e := newEngine(t, merged())
		e.AddPartition(tpOf(0), fresh())
		feed(t, e, rec(0, 0, 50, "a", 1))
		c.do(e)
		n, err := e.Feed(c.feed, []record.Record{rec(c.feed.Partition, 1, 60, "a", 1)})
		if n != 0 || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: took %d, %v", name, n, err)
		}
	}
	e := newEngine(t, merged())
	e.AddPartition(tpOf(0), fresh())
	feed(t, e, rec(0, 0, 50, "a", 1))
	e.Take()
	e.AddFloor(Floor{tpOf(1), 0, 40})
	e.AddPartition(tpOf(1), fresh())
	feed(t, e, rec(1, 0, 60, "a", 1))
}

func TestStats(t *testing.T) {
	e := newEngine(t, merged())
	e.AddPartition(tpOf(0), fresh())
	feed(t, e, rec(0, 0, 5, "a", 1), rec(0, 1, 5, "b", 1), rec(0, 2, 15, "b", 1), record.Record{Topic: "in", Offset: 3})
	if s := e.Stats(); s.Records != 4 || s.Poison != 0 || s.OpenWindows != 2 || s.StateBytes < 500 {
		t.Errorf("before Take %+v", s)
	}
	e.Take()
	e.Drain()
	if s := e.Stats(); s != (Stats{Records: 4, Results: 3, Poison: 1}) {
		t.Errorf("at the end %+v", s)
	}
	k := newEngine(t, keyed())
	k.AddPartition(tpOf(0), fresh())
	feed(t, k, rec(0, 0, 5, "a", 1), rec(0, 1, 500, "b", 1))
	k.RemovePartition(tpOf(0))
	if s := k.Stats(); s.OpenWindows != 0 || s.StateBytes != 0 {
		t.Errorf("after removal %+v", s)
	}
}

// A commit says from where the open windows can be rebuilt.
func TestCommits(t *testing.T) {
	e := newEngine(t, merged())
	e.AddPartition(tpOf(0), Commit{Position: 10, Low: 10, MaxAtLow: NoTime, Emitted: NoTime})
	feed(t, e, rec(0, 10, 5, "a", 1), rec(0, 11, 12, "a", 1), rec(0, 12, 9, "a", 1), rec(0, 15, 22, "a", 1))
	e.Take()
	want := Commit{Position: 16, Low: 11, MaxAtLow: 5, Emitted: 12} // [0,10) is closed; [10,20) began at 11
	if got := e.Commits()[tpOf(0)]; got != want {
		t.Errorf("commit %+v, want %+v", got, want)
	}
	e.Advance(tpOf(0), 20)
	e.AddFloor(Floor{tpOf(0), 20, 100})
	e.Take()
	want = Commit{Position: 20, Low: 20, MaxAtLow: 22, Emitted: 100}
	if got := e.Commits()[tpOf(0)]; got != want {
		t.Errorf("commit without open windows %+v, want %+v", got, want)
	}
}

// Feeding does not change or keep the caller's records, but for what is set aside.
func TestFeedDoesNotKeepRecords(t *testing.T) {
	e := newEngine(t, merged())
	e.AddPartition(tpOf(0), fresh())
	r := rec(0, 0, 5, "abc", 1)
	before := bytes.Clone(r.Value)
	feed(t, e, r)
	if !bytes.Equal(before, r.Value) {
		t.Error("the value was changed")
	}
	for i := range r.Value {
		r.Value[i] = 'z'
	}
	expect(t, e.Drain(), `{"window_start":0,"window_end":10,"k":"abc","total":1}`)
}

// Future is strictly beyond maxFuture, is measured from the record's own timestamp, and moves no watermark; a record without timestamp cannot be future.
func TestFuture(t *testing.T) {
	const hour = 3_600_000
	e := newEngine(t, merged())
	e.AddPartition(tpOf(0), fresh())
	beyond, at, none := rec(0, 0, 50+hour+1, "a", 1), rec(0, 1, 50+hour, "a", 1), rec(0, 2, 100*hour, "a", 1)
	beyond.Timestamp, at.Timestamp, none.Timestamp = 50, 50, -1
	feed(t, e, beyond)
	if w, _ := e.Watermark(TP{}); w != NoTime {
		t.Errorf("a future record moved the watermark to %d", w)
	}
	feed(t, e, at, none)
	if w, _ := e.Watermark(TP{}); w != 100*hour-10 {
		t.Errorf("watermark %d", w)
	}
	if out := e.Take(); len(out) != 2 || out[0].Kind != Result || out[1].Kind != Future {
		t.Errorf("outputs %v", texts(out))
	}
}
