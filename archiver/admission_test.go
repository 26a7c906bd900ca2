package archiver

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestAdmission(t *testing.T) {
	const k = 1 << 10
	const big = 4 * smallNeed
	for _, tt := range []struct {
		name  string
		room  int64
		turns []turn
		fetch []bool
		stuck bool
	}{
		{"room for all", 10 * big, []turn{{need: big}, {need: big}, {need: 0}}, []bool{true, true, true}, false},
		{"the first in the queue", big, []turn{{need: big, since: 2}, {need: big, since: 1}}, []bool{false, true}, false},
		{"who holds something comes first", big, []turn{{need: big, since: 1}, {need: big, open: k, since: 2}}, []bool{false, true}, false},
		{"who runs goes on, also without room", 0, []turn{{need: big, running: true}, {need: big}}, []bool{true, false}, false},
		{"who follows his log passes by", 0, []turn{{need: big, running: true}, {need: 0}}, []bool{true, true}, false},
		{"without any room a little waits too", smallNeed, []turn{{need: big, running: true, since: 0}, {need: big, since: 1}, {need: k, since: 2}}, []bool{true, false, false}, false},
		{"a little passes by who waits", big + smallNeed, []turn{{need: big, running: true}, {need: big, since: 1}, {need: k, since: 2}}, []bool{true, false, true}, false},
		{"half a segment does not", 2*big - k, []turn{{need: big, running: true}, {need: big, since: 1}, {need: big / 2, since: 2}}, []bool{true, false, false}, false},
		{"nobody gives room back", k, []turn{{need: big}, {need: 0, running: true}}, []bool{false, true}, true},
		{"nobody there", 0, nil, nil, false},
	} {
		ts := make([]*turn, len(tt.turns))
		for i := range ts {
			ts[i] = &tt.turns[i]
		}
		stuck := admit(ts, tt.room)
		var fetch []bool
		for _, x := range ts {
			fetch = append(fetch, x.fetch)
		}
		if !slices.Equal(fetch, tt.fetch) || stuck != tt.stuck {
			t.Errorf("%s: %v stuck %t, want %v %t", tt.name, fetch, stuck, tt.fetch, tt.stuck)
		}
	}
}

// A backlog of many partitions through little memory, as the loop does it: every segment gets its full size, each partition its turn, and the
// memory held is bounded. Sizes in units of one step.
func TestTurnsLetSegmentsBecomeFull(t *testing.T) {
	const parts, full, bound, segments = 200, 100 * smallNeed, 1000 * smallNeed, 3
	rnd := rand.New(rand.NewPCG(3, 4))
	ts := make([]*turn, parts)
	done := make([]int, parts)
	for i := range ts {
		ts[i] = &turn{since: int64(i)}
	}
	seq := int64(parts)
	for step := 0; slices.Min(done) < segments; step++ {
		if step > 100_000 {
			t.Fatalf("no end: %v", done)
		}
		var open int64
		var want []*turn
		for i, x := range ts {
			open += x.open
			if done[i] < segments {
				x.need = full - x.open
				want = append(want, x)
			}
		}
		if open > bound {
			t.Fatalf("%d held", open)
		}
		if admit(want, bound-open) {
			t.Fatalf("stuck at step %d with %d held", step, open)
		}
		for i, x := range ts {
			if x.running = x.fetch && done[i] < segments; !x.running {
				continue
			}
			if x.open += int64(rnd.IntN(5)) * smallNeed; x.open >= full {
				seq++
				*x = turn{since: seq}
				if done[i]++; done[i] > slices.Min(done)+2 {
					t.Fatalf("partition %d has %d segments, another %d", i, done[i], slices.Min(done))
				}
			}
			x.open = min(x.open, full-1)
		}
	}
}

func TestNeed(t *testing.T) {
	var r rates
	const mib = 1 << 20
	for _, tt := range []struct {
		name                                   string
		open, records, lag, flush, bytes, want int64
	}{
		{"nothing is known", 0, 0, -1, 0, 64 * mib, 64 * mib},
		{"flush.size is nearer", 0, 0, -1, 1000, 64 * mib, 1000 << 10},
		{"the log's end is nearer", 0, 0, 10, 1000, 64 * mib, 10 << 10},
		{"at the end", 5 * mib, 1000, 0, 0, 64 * mib, 0},
		{"its own records tell", 50_000, 500, 1000, 0, 64 * mib, 100_000},
		{"full", 70 * mib, 0, -1, 0, 64 * mib, 0},
		{"no rule", 0, 0, -1, 0, 0, 1 << 40},
	} {
		if got := r.need(tt.open, tt.records, tt.lag, tt.flush, tt.bytes); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	r.learn(10*mib, 10, 10*mib) // too few
	if r.perRecord != 0 {
		t.Error("learned from ten records")
	}
	r.learn(mib, 1<<14, 4*mib) // 64 bytes a record, a quarter of its size
	if got := r.need(0, 0, -1, 0, 64*mib); got != 16*mib {
		t.Errorf("after compression: %d", got)
	}
	if got := r.need(0, 0, 1000, 0, 64*mib); got != 64_000 {
		t.Errorf("by records: %d", got)
	}
}

// Whatever the bound: its parts are there, and together within it where it is at least the least that the setting takes.
func TestSharesOfTheBound(t *testing.T) {
	for _, bound := range []int64{1 << 20, 4 << 20, minMemory, 100 << 20, 256 << 20, 512 << 20, 1 << 30, 1 << 34} {
		b := share(bound)
		if b.queue <= 0 || b.poll <= 0 || b.buffers <= 0 || b.closing <= 0 || b.heap <= 0 {
			t.Errorf("%d: %+v", bound, b)
		}
		if in := b.heap + queueCost*b.queue; bound >= minMemory && (in > bound || b.buffers+b.closing+2*b.poll > b.heap) {
			t.Errorf("%d: %+v is more", bound, b)
		}
	}
	if b := share(512 << 20); b.buffers < 150<<20 {
		t.Errorf("%+v", b)
	}
}

// What lies behind a position may be a transaction that is open for hours: its turn must not keep the room that the others need.
func TestATurnThatStandsStillReservesNothing(t *testing.T) {
	const mib = 1 << 20
	still, other := &turn{running: true}, &turn{}
	look := func(now time.Duration) {
		still.look(now, 7, 4*mib)
		other.look(now, 1, mib)
	}
	still.look(0, 6, 4*mib)
	look(time.Second) // it has moved
	if admit([]*turn{still, other}, 4*mib); other.fetch {
		t.Fatal("there is no room yet")
	}
	look(time.Second + standsStill)
	if admit([]*turn{still, other}, 4*mib); other.fetch {
		t.Fatal("it has not stood still for so long yet")
	}
	look(time.Second + standsStill + 1)
	if admit([]*turn{still, other}, 4*mib); !other.fetch || !still.fetch {
		t.Fatalf("fetching: %t, and the one that stands still %t", other.fetch, still.fetch)
	}
	if still.look(time.Minute, 8, 3*mib); still.need != 3*mib {
		t.Errorf("it moves again, and needs %d", still.need)
	}
}
