package run

import (
	"strings"
	"testing"
	"testing/synctest"
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

// A target that comes down at the same place again and again goes forward each time, and never gets further: that ends, but not before it has had the timeout, and not
// while any partition gets further than ever.
func TestGoingBackForEverIsStuck(t *testing.T) {
	for _, further := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tr := trackerOf(40) // the timeout is an hour
			reach, at := int64(20), 0
			for back := 1; back <= 12; back++ {
				for at < int(reach)/10 {
					p, gen := tr.mustLoad(t, at)
					if err := tr.finishedLoad(p, gen, segmentAt(at)); err != nil {
						t.Fatal(err)
					}
					_, l := tr.mustSend(t, at)
					tr.accepted(p, l, l.next)
					at++
				}
				time.Sleep(6 * time.Minute)
				if step := tr.set(tr.parts[0], 0); step != -reach {
					t.Fatalf("went back by %d", step)
				}
				at = 0
				err := tr.stuck()
				switch stuck := back > 10 && !further; {
				case stuck && (err == nil || !strings.Contains(err.Error(), "gone back") || !strings.Contains(err.Error(), "offset 20")):
					t.Errorf("back %d times in %d minutes: %v", back, 6*back, err)
				case !stuck && err != nil:
					t.Errorf("further %v, back %d times in %d minutes: %v", further, back, 6*back, err)
				}
				if further {
					reach += 10
				}
			}
		})
	}
}
