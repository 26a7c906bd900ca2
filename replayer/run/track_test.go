package run

import (
	"testing"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

// trackerOf has one partition of n segments of 10 offsets.
func trackerOf(n int) *tracker {
	pp := archive.PartitionPlan{TopicPartition: record.TopicPartition{Topic: "t"}, Until: int64(10 * n), FromTimestamp: -1, UntilTimestamp: -1}
	for i := range int64(n) {
		pp.Segments = append(pp.Segments, archive.PlannedSegment{Start: 10 * i, Next: 10*i + 10, Count: 10, Bytes: 100})
	}
	return newTracker(&Plan{Partitions: []archive.PartitionPlan{pp}}, nil, trackerOptions{ahead: 4, timeout: time.Hour})
}

func segmentAt(index int) *loaded {
	start, next := int64(10*index), int64(10*index+10)
	return &loaded{index: index, start: start, next: next, spans: []span{{start: start, next: next, records: 10, bytes: 100, maxTs: -1}},
		proof: job.Proof{Count: 10, First: int64(10 * index), Last: int64(10*index + 9), Checksum: job.Hex(1)}}
}

func (t *tracker) mustLoad(tt *testing.T, want int) (p *part, gen int) {
	tt.Helper()
	p, index, gen, ok := t.nextLoad()
	if !ok || index != want {
		tt.Fatalf("loads segment %d, want %d", index, want)
	}
	return p, gen
}

func (t *tracker) mustSend(tt *testing.T, want int) (*part, *loaded) {
	tt.Helper()
	p, l, _, ok := t.nextSend()
	if !ok || l.index != want {
		tt.Fatalf("sends segment %d, want %d", l.index, want)
	}
	return p, l
}

// A refused segment goes out again before the one that was loaded meanwhile, and neither is loaded again.
func TestRefusedSegmentGoesBackToTheFront(t *testing.T) {
	tr := trackerOf(3)
	p, gen := tr.mustLoad(t, 0)
	if err := tr.finishedLoad(p, gen, segmentAt(0)); err != nil {
		t.Fatal(err)
	}
	_, l := tr.mustSend(t, 0)
	p, gen = tr.mustLoad(t, 1) // while 0 is on its way
	if err := tr.finishedLoad(p, gen, segmentAt(1)); err != nil {
		t.Fatal(err)
	}
	tr.held(p, l, nil)
	_, l = tr.mustSend(t, 0)
	tr.accepted(p, l, 10)
	tr.mustSend(t, 1)
	tr.mustLoad(t, 2)
}

// What was being loaded when the target went back is not sent, but counts for the proof, once.
func TestLoadThatWasOvertakenIsNotSent(t *testing.T) {
	tr := trackerOf(3)
	for i := range 2 {
		p, gen := tr.mustLoad(t, i)
		if err := tr.finishedLoad(p, gen, segmentAt(i)); err != nil {
			t.Fatal(err)
		}
		_, l := tr.mustSend(t, i)
		tr.accepted(p, l, l.next)
	}
	p, stale := tr.mustLoad(t, 2)
	if back, err := tr.setAll([]session.Progress{{TopicPartition: record.TopicPartition{Topic: "t"}, Expected: 5}}); err != nil || !back {
		t.Fatal(back, err)
	}
	if err := tr.finishedLoad(p, stale, segmentAt(2)); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		p, gen := tr.mustLoad(t, i)
		if err := tr.finishedLoad(p, gen, segmentAt(i)); err != nil {
			t.Fatal(err)
		}
		_, l := tr.mustSend(t, i)
		tr.accepted(p, l, l.next)
	}
	if !tr.allDone() {
		t.Error("not done")
	}
	if got := tr.snapshot()[0]; got.Proof.Count != 30 || got.Proof.Checksum != job.Hex(3) || got.Segments != 3 || got.Bytes != 300 || got.Verified != 30 {
		t.Errorf("%+v", got)
	}
}
