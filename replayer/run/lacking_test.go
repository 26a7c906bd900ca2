package run_test

import (
	"fmt"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// What segments were archived without while the registry was down goes to the receiver all the same: each segment with the meaning that its range
// had. Nobody guesses between two meanings, and values that begin like the wire format by accident cost no store calls.
func TestSchemasThatSegmentsLackAreSent(t *testing.T) {
	ctx := testCtx(t)
	a := replaytest.New()
	tp := record.TopicPartition{Topic: topic}
	for start := int64(0); start < 50; start += 10 {
		var recs []record.Record
		for o := start; o < start+10; o++ {
			r := replaytest.Record(tp, o, o)
			switch o % 10 {
			case 0, 5:
				r.Value = []byte{0, 0, 0, 0, 7, 2}
			case 1:
				r.Value = []byte{0, 0, 0, 0, 8, 2}
			default:
				r.Value = []byte{0, 1, byte(start), byte(o), 1, 2}
			}
			recs = append(recs, r)
		}
		a.Segment(t, tp, start+10, recs)
	}
	a.Decide(t, "p.decisions", replaytest.Origin(topic, 1))
	schema := func(id int, text string) segment.Schema { return segment.Schema{ID: id, Type: "AVRO", Text: text} }
	for _, s := range []segment.Schema{schema(7, "old"), schema(7, "new"), schema(8, "eight")} {
		if err := a.KeepSchema(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []struct {
		from, until int64
		s           segment.Schema
	}{{10, 30, schema(7, "old")}, {30, 40, schema(7, "new")}} {
		if err := a.KeepSchemas(ctx, tp, k.from, k.until, []segment.Schema{k.s}); err != nil {
			t.Fatal(err)
		}
	}
	rc := replaytest.NewReceiver(t, pipe())
	got := map[int64]string{}
	rc.Seen = func(h *segment.Header) {
		var texts []string
		for _, s := range h.Schemas {
			texts = append(texts, fmt.Sprintf("%d %s", s.ID, s.Text))
		}
		got[h.Start] = strings.Join(texts, ", ")
	}
	before := a.Mem.Counts()
	if _, _, err := replay(t, ctx, newRunner(a), newJob(request(t, "")), client(t, rc)); err != nil {
		t.Fatal(err)
	}
	same(t, a, rc, all)
	want := map[int64]string{0: "8 eight", 10: "7 old, 8 eight", 20: "7 old, 8 eight", 30: "7 new, 8 eight", 40: "8 eight"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("schemas sent: %v\nwant %v", got, want)
	}
	// 35 values look like ids that nobody has given.
	after := a.Mem.Counts()
	if n := after["list"] - before["list"]; n > 20 {
		t.Errorf("%d listings", n)
	}
}
