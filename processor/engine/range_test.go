package engine

import (
	"fmt"
	"math"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

// lastMs is the last timestamp that our Kafka client can send.
const lastMs = 9_223_372_036_854

// What the client cannot send must not come out, whatever goes in: a single such output would stop the pipeline for ever.
func TestOutputsAreInTheProducibleRange(t *testing.T) {
	const size = 10 // of plainPipeline's windows
	lastStart := int64(lastMs) / size * size
	if lastStart+size-1 > lastMs {
		lastStart -= size // that window is not whole
	}
	for _, c := range []struct {
		at, timestamp int64
		kind          Kind
	}{
		{5, 5, Result},
		{1_700_000_000_000_000, 5, Poison}, // microseconds where milliseconds were meant
		{lastStart + size - 1, lastMs, Result},
		{lastStart + size, lastMs, Poison}, // in the range, but the window's last millisecond is not
		{lastMs + 1, lastMs, Poison},
		{-lastMs, 5, Result},
		{-lastMs - 1, 5, Poison},
		{math.MaxInt64, 5, Poison},
		{math.MinInt64, 5, Poison},
		{lastMs, 5, Poison}, // not future: it has no event time
		{3 * 3_600_000, 5, Future},
	} {
		e := newEngine(t, merged())
		e.AddPartition(tpOf(0), fresh())
		r := rec(0, 0, c.at, "a", 1)
		r.Timestamp = c.timestamp
		feed(t, e, r)
		out := e.Drain()
		if len(out) != 1 || out[0].Kind != c.kind {
			t.Errorf("event time %d: %v, want one of kind %v", c.at, out, c.kind)
			continue
		}
		if ts := out[0].Record.Timestamp; ts < 1 || ts > lastMs {
			t.Errorf("event time %d: the output's timestamp is %d", c.at, ts)
		}
	}
}

// Record timestamps are the producer's, and may be anything.
func TestSideOutputsAreInTheProducibleRange(t *testing.T) {
	for _, c := range []struct{ timestamp, want int64 }{
		{math.MinInt64, 1}, {-1, 1}, {0, 1}, {lastMs, lastMs}, {lastMs + 1, lastMs}, {math.MaxInt64, lastMs},
	} {
		e := newEngine(t, merged())
		e.AddPartition(tpOf(0), fresh())
		bad := record.Record{Topic: "in", Timestamp: c.timestamp, Value: []byte("{")}
		late := rec(0, 2, 1, "a", 1)
		late.Timestamp, late.Headers = c.timestamp, []record.Header{{Key: "a\x00b\x00", Value: []byte{0}}}
		feed(t, e, bad, rec(0, 1, 1000, "a", 1), late)
		out := e.Take()
		if len(out) != 2 || out[0].Kind != Poison || out[1].Kind != Late {
			t.Fatalf("%v", out)
		}
		for _, o := range out {
			if o.Record.Timestamp != c.want {
				t.Errorf("timestamp %d: the side output has %d, want %d", c.timestamp, o.Record.Timestamp, c.want)
			}
			if got := header(o, HeaderTimestamp); got != fmt.Sprint(c.timestamp) {
				t.Errorf("timestamp %d: the header says %s", c.timestamp, got)
			}
		}
		if h := out[1].Record.Headers[0]; h.Key != `a\0b\0` || len(h.Value) != 1 {
			t.Errorf("header %q=%q", h.Key, h.Value)
		}
		if late.Headers[0].Key != "a\x00b\x00" {
			t.Error("the source record was changed")
		}
	}
}
