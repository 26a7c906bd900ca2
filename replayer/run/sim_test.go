package run

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/pace"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

// sim is a run without archive, HTTP and real time: the tracker with its loaders and senders, and a target that answers as a test wants. Every record has
// offset = its index, and a partition's records are cut into segments and spans at random.
type sim struct {
	t    *testing.T
	rng  *rand.Rand // under mu
	plan *Plan
	tr   *tracker
	ts   map[record.TopicPartition][]int64 // by offset
	cuts map[record.TopicPartition][][]span

	mu     sync.Mutex
	at     map[record.TopicPartition]int64 // the target's expected offsets
	refuse func(tp record.TopicPartition) *record.TopicPartition
	forget int                                                // one send in so many has the target go back; 0: none
	onSend func(tp record.TopicPartition, s *span, must bool) // under mu and the tracker's lock
	sends  int
	busy   int
	held   int64 // most bytes of segments loaded and waiting at a time
}

// maxSegment is the size of the largest segments, in bytes.
const maxSegment = 2000

// newSim makes partitions of up to n records, each a little later than the one before, in segments of up to 20 records and spans of up to 6.
func newSim(t *testing.T, seed uint64, partitions, n int) *sim {
	s := &sim{t: t, rng: rand.New(rand.NewPCG(seed, 77)), plan: &Plan{}, ts: map[record.TopicPartition][]int64{}, cuts: map[record.TopicPartition][][]span{},
		at: map[record.TopicPartition]int64{}}
	for p := range partitions {
		tp := record.TopicPartition{Topic: "t", Partition: int32(p)}
		pp := archive.PartitionPlan{TopicPartition: tp, FromTimestamp: -1, UntilTimestamp: -1}
		count := s.rng.IntN(n + 1)
		clock := s.rng.Int64N(3000)
		for range count {
			s.ts[tp] = append(s.ts[tp], clock)
			clock += s.rng.Int64N(200) - 40
			if s.rng.IntN(25) == 0 {
				clock += s.rng.Int64N(4000) // quiet for a while
			}
		}
		const largest = maxSegment / 100
		for at := 0; at < count || s.rng.IntN(4) == 0; {
			size := min(count-at, 1+s.rng.IntN(largest))
			seg := archive.PlannedSegment{Start: int64(at), Next: int64(at + size), Count: int64(size), Bytes: int64(100 * size)}
			if size == 0 { // nothing but markers
				at++
				count++
				s.ts[tp] = append(s.ts[tp], -1)
				seg.Next++
			} else {
				seg.MinTimestamp, seg.MaxTimestamp = slices.Min(s.ts[tp][at:at+size]), slices.Max(s.ts[tp][at:at+size])
				at += size
			}
			pp.Segments = append(pp.Segments, seg)
			s.cuts[tp] = append(s.cuts[tp], s.cut(tp, seg))
		}
		if k := len(pp.Segments); k > 0 {
			pp.Until = pp.Segments[k-1].Next
		}
		s.plan.Partitions = append(s.plan.Partitions, pp)
	}
	return s
}

func (s *sim) cut(tp record.TopicPartition, seg archive.PlannedSegment) []span {
	var out []span
	reached := int64(-1)
	for at := seg.Start; at < seg.Next; {
		next := min(seg.Next, at+1+s.rng.Int64N(6))
		sp := span{start: at, next: next, bytes: 100 * (next - at)}
		for o := at; o < next && seg.Count > 0; o++ {
			reached = max(reached, s.ts[tp][o])
			sp.records++
		}
		sp.maxTs = reached
		out = append(out, sp)
		at = next
	}
	return out
}

// border is the start of some span of a partition.
func (s *sim) border(tp record.TopicPartition) int64 {
	cuts := s.cuts[tp]
	if len(cuts) == 0 {
		return 0
	}
	spans := cuts[s.rng.IntN(len(cuts))]
	return spans[s.rng.IntN(len(spans))].start
}

// pause lets others go, for a random time on the bubble's clock.
func (s *sim) pause() {
	s.mu.Lock()
	d := time.Duration(s.rng.Int64N(int64(20 * time.Millisecond)))
	s.mu.Unlock()
	time.Sleep(d)
}

// run executes with that many loaders and senders. It fails the test where it has not ended within a day on the bubble's clock.
func (s *sim) run(workers int, o trackerOptions) {
	s.t.Helper()
	o.backoff = Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}
	o.timeout = time.Hour
	s.tr = newTracker(s.plan, nil, o)
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	defer cancel()
	defer s.tr.until(ctx)()
	var status []session.Progress
	for i := range s.plan.Partitions {
		tp := s.plan.Partitions[i].TopicPartition
		status = append(status, session.Progress{TopicPartition: tp, Expected: s.at[tp]})
	}
	if _, err := s.tr.setAll(status); err != nil {
		s.t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(s.load)
		wg.Go(s.send)
	}
	if !s.tr.allDone() {
		var where string
		for i, p := range s.tr.parts {
			where += fmt.Sprintf("\n%d: at %d of %d, reached %d, %d loaded, load %d, needed %v, fails %d", i, p.expected, p.rng.Until, p.reached, len(p.queue), p.load, s.tr.needed[p], p.fails)
		}
		s.t.Errorf("not delivered: %v%s", s.tr.failure(), where)
	}
	s.tr.stop(nil)
	wg.Wait()
	for _, p := range s.tr.snapshot() {
		var want int64
		for _, seg := range s.plan.Partitions[p.Partition].Segments {
			want += seg.Count
		}
		if p.Proof.Count != want || p.Records != want {
			s.t.Errorf("%s: %d records proved, %d sent, of %d", p.TopicPartition, p.Proof.Count, p.Records, want)
		}
	}
}

func (s *sim) load() {
	for {
		p, index, gen, ok := s.tr.nextLoad()
		if !ok {
			return
		}
		s.countHeld()
		s.pause()
		seg := p.segs[index]
		l := &loaded{index: index, start: seg.Start, next: seg.Next, size: seg.Bytes, proof: job.EmptyProof(), spans: s.cuts[p.rng.TopicPartition][index]}
		if seg.Count > 0 {
			l.proof = job.Proof{Count: seg.Count, First: seg.Start, Last: seg.Next - 1, Checksum: job.Hex(1)}
		}
		if err := s.tr.finishedLoad(p, gen, l); err != nil {
			s.t.Error(err)
		}
	}
}

func (s *sim) countHeld() {
	s.tr.mu.Lock()
	defer s.tr.mu.Unlock()
	n := int64(0)
	for _, p := range s.tr.parts {
		for _, l := range p.queue {
			n += l.size
		}
		if p.loading {
			n += p.segs[p.load].Bytes
		}
	}
	s.held = max(s.held, n)
}

func (s *sim) send() {
	for {
		p, l, sp, ok := s.tr.nextSend()
		if !ok {
			return
		}
		tp := p.rng.TopicPartition
		s.mu.Lock()
		s.sends++
		if s.onSend != nil {
			s.tr.mu.Lock()
			s.onSend(tp, sp, s.tr.needed[p])
			s.tr.mu.Unlock()
		}
		s.mu.Unlock()
		s.pause()
		s.mu.Lock()
		var needs *record.TopicPartition
		if s.refuse != nil {
			needs = s.refuse(tp)
		}
		at := s.at[tp]
		if needs == nil && sp.start <= at {
			s.at[tp] = max(at, sp.next)
			at = s.at[tp]
		}
		if s.forget > 0 && needs == nil && s.rng.IntN(s.forget) == 0 {
			at = min(at, s.border(tp))
			s.at[tp] = at
		}
		s.mu.Unlock()
		if needs != nil {
			s.mu.Lock()
			s.busy++
			s.mu.Unlock()
			s.tr.held(p, l, needs)
			continue
		}
		s.tr.accepted(p, l, at)
	}
}

// reached is the running maximum of what the target has of a partition, or the smallest of what it will get.
func (s *sim) reached(tp record.TopicPartition) (ts int64, open bool) {
	ts = -1
	for o, t := range s.ts[tp] {
		switch {
		case int64(o) < s.at[tp]:
			ts = max(ts, t)
		case t >= 0:
			open = true
		}
	}
	if ts < 0 {
		for _, seg := range s.plan.Partitions[tp.Partition].Segments {
			if seg.Count > 0 {
				return seg.MinTimestamp, open
			}
		}
	}
	return ts, open
}

// The rule of event-time order holds at every send, against maxima computed from what the target has, in random interleavings of loads, sends and
// refusals; nothing stands still, whatever partition the target insists on; and memory stays within its bounds.
func TestEventTimeOrderAtEverySend(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	overridden, heldBack := 0, 0
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			s := newSim(t, seed, 1+int(seed%17), 80)
			maxSkew := []int64{0, 100, 1000}[seed%3]
			if seed%4 >= 2 { // an earlier run came so far
				for _, pp := range s.plan.Partitions {
					s.at[pp.TopicPartition] = s.border(pp.TopicPartition)
				}
			}
			s.onSend = func(tp record.TopicPartition, sp *span, must bool) {
				reached, _ := s.reached(tp)
				least := reached
				for i := range s.plan.Partitions {
					if other, open := s.reached(s.plan.Partitions[i].TopicPartition); open {
						least = min(least, other)
					}
				}
				if reached > least+maxSkew {
					if !must && sp.records > 0 {
						t.Errorf("seed %d: %s sends [%d, %d) at %d, the furthest behind is at %d, skew %d", seed, tp, sp.start, sp.next, reached, least, maxSkew)
					}
					overridden++
				}
			}
			if seed%2 == 1 { // it insists on the partition with the fewest records so far, which is not the one that is furthest behind
				s.refuse = func(tp record.TopicPartition) *record.TopicPartition {
					var needs *record.TopicPartition
					for i := range s.plan.Partitions {
						pp := &s.plan.Partitions[i]
						if at := s.at[pp.TopicPartition]; at < pp.Until && at < s.at[tp]-8 && (needs == nil || at < s.at[*needs]) {
							needs = &pp.TopicPartition
						}
					}
					return needs
				}
			}
			o := trackerOptions{ahead: 2, hold: 500 * int64(seed%4), bounds: pace.Bounds{Millis: 1}, order: pace.NewOrder(len(s.plan.Partitions), maxSkew),
				waited: func(c cause, d time.Duration) {
					if c == bySkew {
						heldBack++
					}
				}}
			s.run(2, o)
			// Loaded ahead, held past that, come back from a send, and the one that all wait for.
			if bound := o.hold + (2+2+1)*maxSegment; s.held > bound {
				t.Errorf("seed %d: %d bytes of segments held, at most %d", seed, s.held, bound)
			}
		})
	}
	if overridden == 0 || heldBack == 0 {
		t.Errorf("the need won %d times, and order held back %d times: the test shows too little", overridden, heldBack)
	}
}

// 64 partitions, two at a time, a target that lets none be ahead of the one it chooses, and the smallest bounds of order and memory.
func TestNoDeadlockOfOrderAndNeed(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			s := newSim(t, seed, 64, 30)
			s.refuse = func(tp record.TopicPartition) *record.TopicPartition {
				open := slices.DeleteFunc(slices.Clone(s.plan.Partitions), func(p archive.PartitionPlan) bool { return s.at[p.TopicPartition] >= p.Until })
				if len(open) == 0 {
					return nil
				}
				first := slices.MinFunc(open, func(a, b archive.PartitionPlan) int {
					return cmp.Or(cmp.Compare(s.at[a.TopicPartition], s.at[b.TopicPartition]), cmp.Compare(b.Partition, a.Partition))
				})
				if first.TopicPartition == tp {
					return nil
				}
				return &first.TopicPartition
			}
			s.run(2, trackerOptions{ahead: 2, bounds: pace.Bounds{Millis: 1}, order: pace.NewOrder(64, 0)})
			if s.busy == 0 {
				t.Error("the target refused nothing: the test shows nothing")
			}
		})
	}
}

// A target that goes back now and then: everything is delivered, within the bounds of memory.
func TestEventTimeOrderWithATargetThatGoesBack(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			s := newSim(t, seed, 7, 60)
			s.forget = 12
			s.run(3, trackerOptions{ahead: 3, bounds: pace.Bounds{Millis: 1}, order: pace.NewOrder(7, 300)})
		})
	}
}

// At a factor, no part goes before its time, and the run takes as long as its records did, divided: counts by the bubble's clock.
func TestSpeedByEventCounts(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			speed := []float64{0.5, 1, 20}[seed%3]
			s := newSim(t, seed, 6, 80)
			first, last := int64(1<<60), int64(-1)
			for _, pp := range s.plan.Partitions {
				times := newTimesteps(&pp)
				if at := times.at(0); at != noTime {
					first = min(first, at)
				}
				for _, seg := range pp.Segments {
					last = max(last, seg.MaxTimestamp)
				}
			}
			begun := time.Now()
			reached := map[record.TopicPartition]int64{}
			s.onSend = func(tp record.TopicPartition, sp *span, _ bool) {
				reached[tp] = max(reached[tp], sp.maxTs)
				due := time.Duration(float64(reached[tp]-first) / speed * float64(time.Millisecond))
				if sp.records > 0 && time.Since(begun) < due-time.Millisecond {
					t.Errorf("seed %d: %s: records up to %d ms go after %s, due after %s", seed, tp, reached[tp], time.Since(begun), due)
				}
			}
			waited := map[cause]time.Duration{}
			l := pace.Limits{Speed: speed}
			s.run(4, trackerOptions{ahead: 4, hold: 1 << 20, bounds: l.Bounds(), pacer: pace.New(l),
				waited: func(c cause, d time.Duration) { waited[c] += d }})
			whole := time.Duration(float64(last-first) / speed * float64(time.Millisecond))
			took := time.Since(begun)
			if took < whole || took > whole+whole/10+5*time.Second {
				t.Errorf("seed %d: took %s, the records %s", seed, took, whole)
			}
			s.checkEstimate(&job.Request{Speed: job.Speed(speed)}, took, "speed")
			if waited[byRate]+waited[bySkew]+waited[byTarget] > 0 || waited[bySpeed] > whole || waited[bySpeed] == 0 {
				t.Errorf("seed %d: waited %v of %s", seed, waited, whole)
			}
		})
	}
}

// At a rate, whatever is sent in any whole number of seconds is at most the rate's and one part; and the rate is used.
func TestRateByEventCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 5, 9, 80)
		perSecond := map[int64]int64{}
		var total int64
		begun := time.Now()
		s.onSend = func(_ record.TopicPartition, sp *span, _ bool) {
			perSecond[int64(time.Since(begun)/time.Second)] += sp.records
			total += sp.records
		}
		waited := map[cause]time.Duration{}
		l := pace.Limits{RecordsPerSecond: 20}
		s.run(4, trackerOptions{ahead: 4, bounds: l.Bounds(), pacer: pace.New(l), waited: func(c cause, d time.Duration) { waited[c] += d }})
		took := time.Since(begun)
		for sec, n := range perSecond {
			if n > 20+6 {
				t.Errorf("%d records in second %d, at most 20 and one part of 6", n, sec)
			}
		}
		if want := time.Duration(total) * time.Second / 20; took > want+time.Second || took < want-time.Second {
			t.Errorf("%d records took %s, want %s", total, took, want)
		}
		s.checkEstimate(&job.Request{RecordsPerSecond: &l.RecordsPerSecond}, took, "recordsPerSecond")
		if waited[byRate] < took/2 || waited[bySpeed]+waited[bySkew]+waited[byTarget] > 0 {
			t.Errorf("waited %v of %s", waited, took)
		}
	})
}

// checkEstimate holds what a plan says of its time against the time that the run took on the bubble's clock.
func (s *sim) checkEstimate(r *job.Request, took time.Duration, by string) {
	s.t.Helper()
	s.plan.Sum(r)
	e := s.plan.Estimate
	if e == nil || e.By != by {
		s.t.Fatalf("estimate %+v, want one by %s", e, by)
	}
	if said := time.Duration(e.Seconds * float64(time.Second)); took < said-2*time.Second || took > said+said/10+5*time.Second {
		s.t.Errorf("took %s, the plan says %s", took, said)
	}
}
