package run

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/pace"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

// part is what the tracker knows of one partition. Its loads run one at a time and in order, its sends too; a load may run ahead of the
// send by one segment. Whatever is sending, queued and loading are segments that follow each other.
type part struct {
	rng  job.Range
	segs []archive.PlannedSegment

	bytes, records []int64 // of segs[:i], for i ≤ len(segs)

	expected int64 // the target's next wanted offset
	verified int   // segments [0, verified) are in proof
	proof    job.Proof
	gaps     []job.Unreadable // objects passed over

	i     int       // in the tracker's parts
	spans timesteps // what is known of record times

	load    int       // index of the next segment to load
	gen     int       // rises when load is moved: what an older load brings is not sent
	loading bool      // somebody is loading segs[load]
	queue   []*loaded // loaded, waiting to be sent
	sending *span     // on its way to the target

	reached   int64     // running maximum of what the target has taken (place): who is furthest behind in time goes first
	mark      mark      // what is known from sending, where the plan tells less
	furthest  int64     // the largest expected so far
	backs     int       // how often the target has gone back since any partition got further than ever
	fails     int       // failed or refused sends in a row
	notBefore time.Time // no send before
	waitsFor  *part     // …unless this one moves on
}

func (p *part) done() bool { return p.expected >= p.rng.Until && p.verified == len(p.segs) }

// at returns the index of the first segment that reaches past offset.
func (p *part) at(offset int64) int {
	if offset >= p.rng.Until {
		return len(p.segs)
	}
	return sort.Search(len(p.segs), func(i int) bool { return p.segs[i].Next > offset })
}

// want returns the index of the segment to deal with next: the one that the target wants, or an older one that has not been read for the
// proof yet.
func (p *part) want() int { return min(p.at(p.expected), p.verified) }

// border is the first offset that the proof does not cover.
func (p *part) border(verified int) int64 {
	switch {
	case verified == len(p.segs):
		return p.rng.Until
	case verified == 0:
		return p.rng.From
	}
	return min(p.segs[verified-1].Next, p.rng.Until)
}

// tracker decides what is loaded and sent next, and holds how far everything is. It is the only shared state of a run's workers.
type tracker struct {
	mu    sync.Mutex
	wake  *sync.Cond
	parts []*part
	byTP  map[record.TopicPartition]*part

	trackerOptions

	needed   map[*part]bool // the target has said that it needs these first
	moved    time.Time      // when anything last went forward
	beyond   time.Time      // when any partition last got further than ever
	idle     idleness
	rate     meter
	alarm    *time.Timer // wakes the waiting at alarmAt; nil: not set
	alarmAt  time.Time
	err      error // ends everything
	stopping bool
}

// trackerOptions are what a job asks for and what the replayer may use for it.
type trackerOptions struct {
	ahead   int           // bound of segments loaded or loading and not yet being sent
	hold    int64         // bytes of such segments that may be held past that bound where partitions wait for their time
	bounds  pace.Bounds   // of what is sent at once
	pacer   *pace.Pacer   // nil: as fast as possible
	order   *pace.Order   // nil: partitions do not wait for each other
	backoff Backoff       // between tries of a send
	timeout time.Duration // how long nothing may go forward
	waited  func(cause, time.Duration)
}

// newTracker starts from what an earlier run of the job has stored; a proof that does not fit the plan is forgotten.
func newTracker(plan *Plan, stored []job.Progress, o trackerOptions) *tracker {
	t := &tracker{byTP: map[record.TopicPartition]*part{}, needed: map[*part]bool{}, trackerOptions: o, moved: time.Now(), beyond: time.Now()}
	t.wake = sync.NewCond(&t.mu)
	for i := range plan.Partitions {
		pp := &plan.Partitions[i]
		p := &part{rng: job.PinRange(pp), segs: pp.Segments, bytes: make([]int64, len(pp.Segments)+1), records: make([]int64, len(pp.Segments)+1),
			i: i, spans: newTimesteps(pp), mark: mark{expected: -1}, expected: pp.From, proof: job.EmptyProof()}
		for i, s := range pp.Segments {
			p.bytes[i+1] = p.bytes[i] + s.Bytes
			p.records[i+1] = p.records[i] + s.Count
		}
		t.parts = append(t.parts, p)
		t.byTP[pp.TopicPartition] = p
	}
	for _, s := range stored {
		p := t.byTP[s.TopicPartition]
		if p == nil {
			continue
		}
		v := p.at(s.Verified)
		if p.border(v) != s.Verified || s.Proof.Join(job.EmptyProof()) != nil {
			continue
		}
		p.gaps = s.Unreadable
		p.verified, p.proof, p.expected = v, s.Proof, min(max(s.Expected, p.rng.From), p.rng.Until)
	}
	for _, p := range t.parts {
		p.furthest = p.expected
		p.load = p.want()
		t.place(p)
	}
	return t
}

// stop ends all waiting, with err as the reason if it is the first.
func (t *tracker) stop(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	t.stopping = true
	t.silence()
	t.idles(time.Now(), "")
	t.wake.Broadcast()
}

func (t *tracker) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// wait blocks until pick returns true or the tracker stops (false). pick runs under the lock.
func (t *tracker) wait(pick func() bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.stopping {
			return false
		}
		if pick() {
			return true
		}
		t.wake.Wait()
	}
}

// finishedLoad takes in what nextLoad asked for.
func (t *tracker) finishedLoad(p *part, gen int, l *loaded) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.wake.Broadcast()
	p.loading = false
	p.keepGap(l.gap)
	if l.index == p.verified { // each segment counts once, however often it is sent
		if err := p.proof.Join(l.proof); err != nil {
			return failf("proof of %s: %w", p.rng.TopicPartition, err)
		}
		p.verified++
		t.moved = time.Now()
	}
	if gen != p.gen {
		p.load = p.want()
		return nil
	}
	p.load = l.index + 1
	if l.next > p.expected && p.expected < p.rng.Until {
		p.queue = append(p.queue, l)
		t.place(p) // now it is known better
	}
	return nil
}

// accepted notes the target's answer to a send: it wants expected next. It reports by how much the target went forward (negative: back).
func (t *tracker) accepted(p *part, l *loaded, expected int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.wake.Broadcast()
	s := p.sending
	p.sending = nil
	if expected < l.next && expected < p.rng.Until {
		p.queue = append([]*loaded{l}, p.queue...) // there is more of it to send
	}
	if expected == min(s.next, p.rng.Until) {
		p.mark = p.after(l, s)
	}
	step := t.moveTo(p, expected)
	if step > 0 {
		p.fails, p.notBefore = 0, time.Time{}
		if p.expected >= min(s.next, p.rng.Until) {
			t.rate.add(time.Now(), s.records, s.bytes)
		}
	} else {
		// No step forward: not at once again, or a target that stands still would be asked without pause.
		t.delay(p)
	}
	return step
}

// moveTo sets the target's position and drops what does not follow from it. The lock is held.
func (t *tracker) moveTo(p *part, expected int64) int64 {
	expected = min(max(expected, p.rng.From), p.rng.Until)
	step := expected - p.expected
	p.expected = expected
	if step < 0 {
		p.backs++
	}
	if expected > p.furthest {
		p.furthest, t.beyond = expected, time.Now()
		for _, o := range t.parts {
			o.backs = 0
		}
	}
	if step > 0 {
		t.moved = time.Now()
		delete(t.needed, p)
		for _, o := range t.parts {
			if o.waitsFor == p {
				o.waitsFor, o.notBefore = nil, time.Time{}
			}
		}
	}
	next := p.load
	if len(p.queue) > 0 {
		next = p.queue[0].index
	}
	if want := p.want(); next != want {
		t.drop(p)
	}
	t.place(p)
	return step
}

// drop forgets what has been loaded of p; it is loaded again. The lock is held.
func (t *tracker) drop(p *part) {
	p.queue = nil
	p.gen++
	p.load = p.want()
}

// held notes that a send did not succeed and will be repeated; by whom the target says it is held up, if it does. It returns that partition where we
// take it for delivered: the target must have gone back behind a restart, and no answer to a send of it is to come that would say so.
func (t *tracker) held(p *part, l *loaded, needs *record.TopicPartition) (doubt *part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.wake.Broadcast()
	p.sending = nil
	p.queue = append([]*loaded{l}, p.queue...) // what has been loaded meanwhile follows it
	t.delay(p)
	if needs != nil {
		if q := t.byTP[*needs]; q != nil && q != p {
			if q.done() {
				return q
			}
			t.needed[q] = true
			p.waitsFor = q
		}
	}
	return nil
}

func (t *tracker) delay(p *part) {
	p.fails++
	p.notBefore = time.Now().Add(t.backoff.wait(p.fails))
}

// setAll takes over the positions of a session's status, while nothing is being sent. It reports whether any went back.
func (t *tracker) setAll(progress []session.Progress) (back bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.wake.Broadcast()
	seen := 0
	for _, s := range progress {
		if p := t.byTP[s.TopicPartition]; p != nil {
			seen++
			back = t.moveTo(p, s.Expected) < 0 || back
		}
	}
	if seen != len(t.parts) {
		return back, fmt.Errorf("the target reports %d of the %d partitions of its session", seen, len(t.parts))
	}
	t.begin()
	return back, nil
}

// set takes over the position of one partition and reports by how much it went forward (negative: back).
func (t *tracker) set(p *part, expected int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.wake.Broadcast()
	return t.moveTo(p, expected)
}

// maxBacks is how often a target may go back without getting further, once nothing has got further for the timeout. A restart of its own is one.
const maxBacks = 10

// stuck returns an error once nothing has gone forward for the timeout, or the target has gone back again and again for so long, and never got further: what
// follows brings it down each time, and would for ever. (Once gone back, it may take longer than the timeout to come to where it was.)
func (t *tracker) stuck() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := time.Since(t.moved); d > t.timeout {
		return fmt.Errorf("nothing has gone forward for %s (target.retry.timeout)", d.Round(time.Millisecond))
	}
	d := time.Since(t.beyond)
	if d <= t.timeout {
		return nil
	}
	for _, p := range t.parts {
		if p.backs >= maxBacks {
			return fmt.Errorf("the target has gone back %d times in %s (target.retry.timeout), and nothing has got further: %s not past offset %d; its log may say why",
				p.backs, d.Round(time.Millisecond), p.rng.TopicPartition, p.furthest)
		}
	}
	return nil
}

// allDone waits until every partition is delivered and proved, or the tracker stops (false).
func (t *tracker) allDone() bool {
	return t.wait(func() bool {
		for _, p := range t.parts {
			if !p.done() || p.sending != nil {
				return false
			}
		}
		return true
	})
}

// snapshot is the progress for people and for the stored job.
func (t *tracker) snapshot() []job.Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idles(time.Now(), t.idle.why)
	out := make([]job.Progress, len(t.parts))
	for i, p := range t.parts {
		s := job.Progress{TopicPartition: p.rng.TopicPartition, Expected: p.expected, Verified: p.border(p.verified), Proof: p.proof,
			Segments: p.at(p.expected), Unreadable: slices.Clone(p.gaps)}
		s.Records, s.Bytes = p.records[s.Segments], p.bytes[s.Segments]
		if p.mark.expected == p.expected {
			s.Records, s.Bytes = s.Records+p.mark.records, s.Bytes+p.mark.bytes
		}
		out[i] = s
	}
	return out
}

// proofs returns what was planned, by partition.
func (t *tracker) proofs() map[record.TopicPartition]job.Proof {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[record.TopicPartition]job.Proof, len(t.parts))
	for _, p := range t.parts {
		out[p.rng.TopicPartition] = p.proof
	}
	return out
}

// until has the tracker stop when ctx ends; the returned function ends the watch.
func (t *tracker) until(ctx context.Context) func() bool {
	return context.AfterFunc(ctx, func() { t.stop(context.Cause(ctx)) })
}
