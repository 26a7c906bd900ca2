package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// feedPrepared feeds recs by a Preparer. The random tests do so with every other batch.
func (w *world) feedPrepared(t testing.TB, e *Engine, tp TP, recs []record.Record) {
	t.Helper()
	if w.preparers == nil {
		w.preparers = map[*Engine]map[TP]*Preparer{}
	}
	if w.preparers[e] == nil {
		w.preparers[e] = map[TP]*Preparer{}
	}
	q := w.preparers[e][tp]
	if q == nil {
		var err error
		if q, err = e.NewPreparer(tp); err != nil {
			t.Fatal(err)
		}
		w.preparers[e][tp] = q
	}
	var b Batch
	b.Reset(recs)
	if err := q.Prepare(e.schemas, &b); err != nil {
		t.Fatalf("prepare %v: %v", tp, err)
	}
	var taken []int
	if err := e.FeedPrepared(tp, &b, func(i int) { taken = append(taken, i) }); err != nil || !b.Done() {
		t.Fatalf("feed %v: %v, done %v", tp, err, b.Done())
	}
	if len(taken) != len(recs) || !slices.IsSorted(taken) {
		t.Fatalf("feed %v: told of %v of %d", tp, taken, len(recs))
	}
}

// untilKnown does not know the schema of records from an offset on.
type untilKnown struct {
	Schemas
	from int64
}

func (u *untilKnown) Writer(tp TP, offset int64, id int) (segment.Schema, bool, error) {
	if offset >= u.from {
		return segment.Schema{}, false, errors.New("not yet")
	}
	return u.Schemas.Writer(tp, offset, id)
}

// A schema that is not known yet stops before its record; what is before it is fed, and it goes on there.
func TestPrepareStopsBeforeAnUnknownSchema(t *testing.T) {
	p := mustParse(t, fmt.Sprintf(tripPipeline, ""))
	log := trips(t, 80)[0]
	tp := log[0].TP()
	e, err := New(p, oneSchema(tripSchema), nil)
	if err != nil {
		t.Fatal(err)
	}
	e.AddPartition(tp, fresh())
	q, err := e.NewPreparer(tp)
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	b.Reset(log)
	known := &untilKnown{oneSchema(tripSchema), log[7].Offset}
	for range 2 {
		if err := q.Prepare(known, &b); !errors.Is(err, ErrNotReady) {
			t.Fatalf("prepare: %v", err)
		}
		if err := e.FeedPrepared(tp, &b, func(int) {}); err != nil || b.Done() || e.Position(tp) != log[6].Offset+1 {
			t.Fatalf("feed: %v, done %v, at %d", err, b.Done(), e.Position(tp))
		}
	}
	known.from = 1 << 60
	if err := q.Prepare(known, &b); err != nil {
		t.Fatal(err)
	}
	if err := e.FeedPrepared(tp, &b, func(int) {}); err != nil || !b.Done() || e.Stats().Records != int64(len(log)) {
		t.Fatalf("feed: %v, done %v, %d records", err, b.Done(), e.Stats().Records)
	}
	if _, err := e.NewPreparer(TP{Topic: "another"}); err == nil {
		t.Error("a topic that is no source has a Preparer")
	}
}
