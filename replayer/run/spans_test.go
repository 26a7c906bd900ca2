package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/pace"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// randomSegment has records with offsets left out, some as lost and some as not archived.
func randomSegment(t *testing.T, rng *rand.Rand) (data []byte, h *segment.Header, recs []record.Record) {
	t.Helper()
	start := []int64{0, 40}[rng.IntN(2)]
	w, err := segment.NewWriter(segment.LogIdentity{ClusterID: "c", TopicID: "id", Topic: "t", Partition: 3, Isolation: segment.ReadCommitted}, start, "")
	if err != nil {
		t.Fatal(err)
	}
	at, clock := start, int64(1000)
	for range 1 + rng.IntN(60) {
		switch rng.IntN(8) {
		case 0:
			at += 2 // no data
		case 1:
			if err := w.Skip(at, at+3, []segment.Class{segment.Lost, segment.NotArchived}[rng.IntN(2)]); err != nil {
				t.Fatal(err)
			}
			at += 3
		}
		clock += rng.Int64N(120) - 40
		r := record.Record{Topic: "t", Partition: 3, Offset: at, Timestamp: clock, LeaderEpoch: record.NoEpoch, Value: fmt.Appendf(nil, "%0*d", 1+rng.IntN(200), at)}
		if _, err := w.Append(&r); err != nil {
			t.Fatal(err)
		}
		recs = append(recs, r)
		at++
	}
	chain := segment.First()
	if start > 0 {
		chain.Ordinal = segment.IndexEvery
	}
	data, h, err = w.Close(at+rng.Int64N(3), chain, []segment.Schema{{ID: 7, Type: "AVRO", Text: `"string"`}})
	if err != nil {
		t.Fatal(err)
	}
	return data, h, recs
}

// However a segment is cut, its parts are sound segments that follow each other and hold its records, the classes of what it lacks and its schemas; none passes the
// bounds unless it is one record; and they can be made in any order.
func TestParts(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 3))
		data, h, recs := randomSegment(t, rng)
		ps := archive.PlannedSegment{Key: "k", Start: h.Start, Next: h.Next, Count: h.Count, Bytes: int64(len(data))}
		rg := job.Range{TopicPartition: h.TP(), TopicID: h.TopicID, ClusterID: h.ClusterID, Isolation: h.Isolation, From: h.Start, Until: h.Next,
			FromTimestamp: -1, UntilTimestamp: -1}
		if rng.IntN(3) == 0 {
			rg.From, rg.Until = h.Start+rng.Int64N(5), h.Next-rng.Int64N(5)
		}
		b := []pace.Bounds{{}, {Records: 1 + rng.Int64N(5)}, {Bytes: 1 + rng.Int64N(500)}, {Millis: 1 + rng.Int64N(200)}, {Records: 3, Bytes: 200, Millis: 90}}[seed%5]
		l := &loaded{start: ps.Start, next: ps.Next, size: ps.Bytes, body: data, proof: job.EmptyProof(), maxTs: -1}
		if err := l.read("k", &rg, nil, ps, b); err != nil {
			t.Fatal(err)
		}
		if b.None() != (len(l.spans) == 1) && len(recs) > 20 {
			t.Fatalf("seed %d: %d parts for %+v", seed, len(l.spans), b)
		}
		var got []record.Record
		var skipped []segment.Skip
		var parts [][]byte
		at, count, size, reached := h.Start, int64(0), int64(0), int64(-1)
		for i := range l.spans {
			s := &l.spans[i]
			if s.start != at || s.next <= s.start || l.at(s.start) != s || l.at(s.next-1) != s {
				t.Fatalf("seed %d: part %d is [%d, %d) after %d", seed, i, s.start, s.next, at)
			}
			if b.Records > 0 && s.records > b.Records || b.Bytes > 0 && s.records > 1 && s.bytes > b.Bytes {
				t.Errorf("seed %d: part %+v passes %+v", seed, *s, b)
			}
			if before, _ := l.sent(s.start); before != count {
				t.Errorf("seed %d: %d records are said to be before %d, want %d", seed, before, s.start, count)
			}
			at, count, size = s.next, count+s.records, size+s.bytes
			part, err := l.part("k", s)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, part)
			rd, err := segment.NewReader("part", part)
			if err != nil {
				t.Fatal(err)
			}
			ph := rd.Header()
			if ph.Start != s.start || ph.Next != s.next || ph.Identity() != h.Identity() || len(ph.Schemas) != 1 {
				t.Fatalf("seed %d: part %d has header %+v", seed, i, ph)
			}
			first := int64(-1)
			for {
				var r record.Record
				if err := rd.Next(&r); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				got = append(got, r)
				if !rg.Holds(&r) {
					continue
				}
				if reached = max(reached, r.Timestamp); first < 0 {
					first = reached
				}
			}
			if s.maxTs != reached || b.Millis > 0 && s.records > 0 && reached-first > b.Millis {
				t.Errorf("seed %d: part %+v goes from %d to %d, bounds %+v", seed, *s, first, reached, b)
			}
			for _, k := range ph.Skipped {
				if n := len(skipped); n > 0 && skipped[n-1].To == k.From && skipped[n-1].Class == k.Class {
					skipped[n-1].To = k.To
				} else {
					skipped = append(skipped, k)
				}
			}
		}
		if at != h.Next || count != l.proof.Count || size > l.size {
			t.Errorf("seed %d: parts end at %d with %d records and %d bytes, the segment at %d with %d and %d", seed, at, count, size, h.Next, l.proof.Count, l.size)
		}
		if !slices.EqualFunc(got, recs, func(x, y record.Record) bool { return record.Equal(&x, &y) }) {
			t.Fatalf("seed %d: %d records in the parts, %d in the segment", seed, len(got), len(recs))
		}
		if !slices.Equal(skipped, h.Skipped) {
			t.Errorf("seed %d: skipped %v, in the parts %v", seed, h.Skipped, skipped)
		}
		// Again, in any order: as after refusals and rewinds.
		for range 6 {
			i := rng.IntN(len(l.spans))
			if part, err := l.part("k", &l.spans[i]); err != nil || !bytes.Equal(part, parts[i]) {
				t.Fatalf("seed %d: part %d made again is another: %v", seed, i, err)
			}
		}
	}
}
