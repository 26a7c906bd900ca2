package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// Faults that users of other Kafka-to-S3 systems reported, as far as the chain alone decides them. (Cases 17 and 18 are in
// probe_test.go and tail_test.go, 15 in plan_test.go, 8 in create_test.go, 23 in tail_test.go and verify_test.go.)

// CASE 1: A buffers offsets 0–39 and is stopped. B archives 0–99 and commits. A continues: its PUT is refused, the object and
// its 100 records are unchanged, A learns where to go on, and verify is clean.
func TestCase1AStoppedArchiverIsFenced(t *testing.T) {
	ctx := context.Background()
	st := mem.New()
	a, b := Open(st, "topics"), Open(st, "topics")
	if tail, err := a.Tail(ctx, trips.Topic, trips.Partition, -1); tail != nil || err != nil {
		t.Fatalf("%+v, %v", tail, err)
	}
	buffered, data := encode(t, trips, nil, cut{next: 40}) // and A is stopped here
	create(t, b, trips, nil, cut{next: 100})
	before, err := st.Get(ctx, b.key(trips, 0))
	if err != nil {
		t.Fatal(err)
	}

	out, err := a.Create(ctx, buffered, data, RetryPolicy{})
	if err != nil {
		t.Fatal(err)
	}
	if !out.Adopted || out.Tail.Header.Next != 100 || out.Tail.Header.Start != 0 || out.Tail.Size != int64(len(before)) {
		t.Errorf("outcome %+v", out)
	}
	after, err := st.Get(ctx, b.key(trips, 0))
	if err != nil || !bytes.Equal(after, before) {
		t.Errorf("the object has changed, %v", err)
	}
	if recs := records(t, st, trips); len(recs) != 100 {
		t.Errorf("%d records", len(recs))
	}
	// A goes on behind it, from what it was told alone.
	grow(t, a, trips, &out.Tail, 1, 20)
	if r := mustBeClean(t, a); r.Records != 120 || r.Segments != 2 {
		t.Errorf("%+v", r)
	}
}

// CASE 2: A completes a segment 0–30 and is killed before the commit. B restarts from 0 with other rotation settings, finds
// the segment (or, where it was faster than the object, adopts it) and goes on at 31: union 0..n, each once.
func TestCase2AKillBeforeTheCommit(t *testing.T) {
	ctx := context.Background()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late %t", late), func(t *testing.T) {
			a, st := open(t)
			if late { // A's create reaches the store after B has looked for a tail
				answers(st, mem.ErrHold)
				ctx, cancel := context.WithCancel(ctx)
				h, data := encode(t, trips, nil, cut{next: 31})
				creation, err := a.newCreation(h.TP(), h, data)
				if err != nil {
					t.Fatal(err)
				}
				if then, _ := creation.step(ctx); then != look {
					t.Fatalf("action %d", then)
				}
				cancel() // killed
			} else {
				create(t, a, trips, nil, cut{next: 31})
			}

			b := Open(st, "topics")
			tail, err := b.Tail(ctx, trips.Topic, trips.Partition, -1)
			if err != nil || (tail == nil) != late {
				t.Fatalf("%+v, %v", tail, err)
			}
			if late {
				st.Release()
				h, data := encode(t, trips, nil, cut{next: 10}) // flush.size 10
				out, err := b.Create(ctx, h, data, RetryPolicy{})
				if err != nil || !out.Adopted {
					t.Fatalf("%+v, %v", out, err)
				}
				tail = &out.Tail
			}
			if tail.Header.Next != 31 {
				t.Fatalf("goes on at %d", tail.Header.Next)
			}
			grow(t, b, trips, tail, 7, 10)
			recs := records(t, st, trips)
			if len(recs) != 101 {
				t.Fatalf("%d records", len(recs))
			}
			for i, r := range recs {
				if want := at(trips, int64(i), int64(i)*1000); !record.Equal(&r, &want) {
					t.Fatalf("record %d: %+v", i, r)
				}
			}
			mustBeClean(t, b)
		})
	}
}

// CASE 12: 8 replicas start at once on an empty bucket, and write 100 segments: all run, with about 100 PUTs and a handful of
// other calls per partition.
func TestCase12EightReplicasStartAtOnce(t *testing.T) {
	ctx := context.Background()
	st := mem.New()
	const replicas, segments = 8, 100
	errs := make([]error, replicas)
	var wg sync.WaitGroup
	for i := range replicas {
		wg.Go(func() {
			errs[i] = func() error {
				if err := Probe(ctx, st); err != nil {
					return err
				}
				a := Open(st, "topics")
				if err := a.CheckForeign(ctx); err != nil {
					return err
				}
				tp := record.TopicPartition{Topic: "trips", Partition: int32(i)}
				tail, err := a.Tail(ctx, tp.Topic, tp.Partition, -1)
				for k := i; err == nil && k < segments; k += replicas {
					next := int64(10)
					if tail != nil {
						next += tail.Header.Next
					}
					h, data := encode(t, tp, tail, cut{next: next})
					var out *Outcome
					if out, err = a.Create(ctx, h, data, RetryPolicy{}); err == nil {
						tail = &out.Tail
					}
				}
				return err
			}()
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	n := st.Counts()
	segmentPuts, probePuts := segments, n[store.OpCreate]-segments
	// The probe: at most a dozen creates for each replica, and half a dozen reads; then 2 listings for the tail; the check
	// for foreign objects of partitions that are already there, 2 calls for each that a replica sees.
	if probePuts > 12*replicas {
		t.Errorf("%d creates beside %d segments", probePuts, segmentPuts)
	}
	if other := calls(n) - n[store.OpCreate]; other > replicas*(6+2+2+2*replicas) {
		t.Errorf("%d other calls: %v", other, n)
	}
	if r := mustBeClean(t, Open(st, "topics")); r.Partitions != replicas || r.Segments != segments || r.Records != segments*10 {
		t.Errorf("%+v", r)
	}
}

// CASE 12, the hard way: 8 replicas believe that they own the same partition. One chain, and every one of them ends.
func TestCase12EightReplicasOfOnePartition(t *testing.T) {
	ctx := context.Background()
	st := mem.New()
	const replicas, end = 8, 1000
	errs := make([]error, replicas)
	adopted := make([]int, replicas)
	var wg sync.WaitGroup
	for i := range replicas {
		wg.Go(func() {
			a := Open(st, "topics")
			tail, err := a.Tail(ctx, trips.Topic, trips.Partition, -1)
			for err == nil && (tail == nil || tail.Header.Next < end) {
				next := int64(5 + i) // each cuts in its own way
				if tail != nil {
					next += tail.Header.Next
				}
				h, data := encode(t, trips, tail, cut{next: min(next, end)})
				var out *Outcome
				if out, err = a.Create(ctx, h, data, RetryPolicy{}); err == nil {
					tail = &out.Tail
					if out.Adopted {
						adopted[i]++
					}
				}
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	r := mustBeClean(t, Open(st, "topics"))
	if r.Records != end {
		t.Errorf("%+v", r)
	}
	// Nobody wrote beside the chain: there is one object for each start.
	starts := map[string]bool{}
	for _, k := range st.Keys() {
		if strings.HasPrefix(k, "topics/") {
			starts[k] = true
		}
	}
	if int64(len(starts)) != r.Segments {
		t.Errorf("%d objects, %d segments", len(starts), r.Segments)
	}
	t.Logf("%d segments, adopted by each replica: %v", r.Segments, adopted)
}

// CASE 16 at this level: credentials expire in the middle. Nothing counts as written, nothing that is read meanwhile is
// believed, and it goes on when they are back.
func TestCase16CredentialsExpire(t *testing.T) {
	a, st := open(t)
	tail := grow(t, a, trips, nil, 1, 10)
	calls := answers(st, err403, err403, err403)
	h, data := encode(t, trips, tail, cut{next: 20})
	var told []error
	out, err := a.Create(context.Background(), h, data, RetryPolicy{OnRetry: func(_ string, _ int, err error) { told = append(told, err) }})
	if err != nil || out.Adopted || out.Tail.Header.Next != 20 {
		t.Fatalf("%+v, %v", out, err)
	}
	if len(told) != 3 || !errors.Is(told[0], store.ErrNotAllowed) {
		t.Errorf("told %v", told)
	}
	if slices.Contains(*calls, opLook) {
		t.Errorf("calls %v", *calls)
	}
	mustBeClean(t, a)
}

// CASE 13 at this level: archived to 100, stopped; the topic is truncated to 500; started again: 100–499 are recorded as
// lost, and verify objects until that is accepted.
func TestCase13TruncatedWhileStopped(t *testing.T) {
	ctx := context.Background()
	a, _ := open(t)
	tail := grow(t, a, trips, nil, 10, 10)
	create(t, a, trips, tail, cut{next: 510, skips: []segment.Skip{{From: 100, To: 500, Class: segment.Lost}}})
	r := mustVerify(t, a)
	if len(r.Findings) != 1 || r.Findings[0].Kind != KindLost || !strings.Contains(r.Findings[0].Text, "[100, 500)") {
		t.Fatalf("%v", r.Findings)
	}
	if err := a.AcceptGap(ctx, trips, 100, 500); err != nil {
		t.Fatal(err)
	}
	mustBeClean(t, a)
	// Accepted is not undone: a replay is still told.
	if p := mustPlan(t, a, earliest, end); !slices.Equal(p.Gaps, []segment.Skip{{From: 100, To: 500, Class: segment.Lost}}) {
		t.Errorf("gaps %v", p.Gaps)
	}
}
