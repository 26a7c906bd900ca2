package engine

import (
	"math/rand"
	"testing"
)

// process is a processor that stores outputs, positions and commits together, as one transaction does, and that can be killed.
type process struct {
	w       *world
	e       *Engine
	stored  []Output
	pending []Output // taken, not stored
	commits map[TP]Commit
}

func (w *world) start(t testing.TB, commits map[TP]Commit) *process {
	p := &process{w: w, commits: commits, e: w.engine(t, w.floors)}
	for i := range w.initial {
		at, ok := commits[tpOf(i)]
		if !ok {
			at = fresh()
		}
		p.e.AddPartition(tpOf(i), at)
	}
	return p
}

// commit stores what Take gives with the positions.
func (p *process) commit() {
	p.pending = append(p.pending, p.e.Take()...)
	p.stored = append(p.stored, p.pending...)
	p.pending = nil
	p.commits = p.e.Commits()
}

// A processor that is killed at any moment, any number of times, also before it has caught up, and that starts again from what it stored last,
// writes the same sequence as one that never stops.
func TestRestartLeavesNoSeam(t *testing.T) {
	kills, caughtUp, lowered := 0, 0, 0
	for seed := range seeds() {
		r := rand.New(rand.NewSource(int64(seed)))
		w := newWorld(t, r, seed%4 == 3)
		live := w.live(t, r)
		p := w.start(t, nil)
		for {
			var todo []int
			for i := range w.initial {
				if p.e.Position(tpOf(i)) < w.frontier[i] {
					todo = append(todo, i)
				}
			}
			if len(todo) == 0 {
				break
			}
			i := todo[r.Intn(len(todo))]
			w.feed(t, p.e, i, 1+r.Intn(6), w.frontier[i])
			switch r.Intn(8) {
			case 0, 1, 2:
				p.commit()
			case 3:
				p.pending = append(p.pending, p.e.Take()...) // taken, but the process dies before it is stored, or stores it later
			case 4:
				kills++
				for tp, c := range p.commits {
					if c.Low < c.Position {
						lowered++
					}
					if p.e.Position(tp) < c.Position {
						caughtUp++
					}
				}
				n := w.start(t, p.commits)
				n.stored = p.stored
				p = n
			}
		}
		p.commit()
		if d := differ(live, p.stored); d != "" {
			t.Fatalf("seed %d: with kills the output differs: %s\n%s", seed, d, w.text)
		}
	}
	t.Logf("%d kills, %d partitions read again from below, %d killed before they were back", kills, lowered, caughtUp)
	if kills < seeds() || lowered < seeds()/4 || caughtUp < seeds()/20 {
		t.Error("too few kills, or too tame ones")
	}
}

// Partitions of a keyed pipeline move between processes one by one; each owner goes on from the commit of the one before.
func TestRebalanceLeavesNoSeam(t *testing.T) {
	moved := 0
	for seed := range seeds() {
		r := rand.New(rand.NewSource(int64(seed)))
		w := newWorld(t, r, true)
		live := w.live(t, r)
		engines := []*Engine{w.engine(t, w.floors), w.engine(t, w.floors)}
		owner := make([]int, w.initial)
		commits := make([]Commit, w.initial)
		var stored []Output
		for i := range w.initial {
			commits[i] = fresh()
			engines[0].AddPartition(tpOf(i), commits[i])
		}
		commit := func() {
			for n, e := range engines {
				stored = append(stored, e.Take()...)
				for tp, c := range e.Commits() {
					if owner[tp.Partition] != n {
						t.Fatalf("seed %d: engine %d commits %v, which it does not own", seed, n, tp)
					}
					commits[tp.Partition] = c
				}
			}
		}
		for {
			var todo []int
			for i := range w.initial {
				if engines[owner[i]].Position(tpOf(i)) < w.frontier[i] {
					todo = append(todo, i)
				}
			}
			if len(todo) == 0 {
				break
			}
			i := todo[r.Intn(len(todo))]
			w.feed(t, engines[owner[i]], i, 1+r.Intn(6), w.frontier[i])
			switch r.Intn(6) {
			case 0, 1:
				commit()
			case 2:
				moved++
				i := r.Intn(w.initial)
				from := engines[owner[i]]
				from.RemovePartition(tpOf(i)) // side outputs that were not taken go with it
				owner[i] = 1 - owner[i]
				engines[owner[i]].AddPartition(tpOf(i), commits[i])
			}
		}
		commit()
		if d := differ(live, stored); d != "" {
			t.Fatalf("seed %d: after %d moves the output differs: %s\n%s", seed, moved, d, w.text)
		}
		for n, e := range engines {
			if e.misuse != nil {
				t.Fatalf("seed %d: engine %d: %v", seed, n, e.misuse)
			}
		}
	}
	if moved < seeds()*2 {
		t.Errorf("only %d moves", moved)
	}
}

// Nothing is lost and nothing counted twice: per window, what an engine without delay limit would hold is what was emitted plus what is late.
func TestConservation(t *testing.T) {
	late := 0
	for seed := range seeds() {
		r := rand.New(rand.NewSource(int64(seed)))
		w := newWorld(t, r, seed%4 == 3)
		e := w.engine(t, nil)
		var out []Output
		for i := range w.logs {
			e.AddPartition(tpOf(i), fresh())
		}
		for _, i := range r.Perm(len(w.logs)) {
			w.feed(t, e, i, 1<<30, w.end(i))
			out = append(out, e.Take()...)
		}
		out = append(out, e.Drain()...)
		got := map[windowKey]counts{}
		for _, o := range out {
			switch o.Kind {
			case Result:
				k, c := resultOf(t, o)
				got[k] = got[k].plus(c)
			case Late:
				late++
				k, c := recordOf(t, o)
				got[k] = got[k].plus(c)
			}
		}
		// The same logs with a delay that nothing exceeds.
		unlimited := *w
		unlimited.delay = 1 << 40
		unlimited.p = mustParse(t, withDelay(w.text, w.delay, unlimited.delay))
		all := unlimited.engine(t, nil)
		for i := range w.logs {
			all.AddPartition(tpOf(i), fresh())
			w.feed(t, all, i, 1<<30, w.end(i))
		}
		want := map[windowKey]counts{}
		for _, o := range all.Drain() {
			if o.Kind == Late {
				t.Fatalf("seed %d: late without a limit", seed)
			}
			if o.Kind == Result {
				k, c := resultOf(t, o)
				want[k] = want[k].plus(c)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d windows emitted or late, %d in all", seed, len(got), len(want))
		}
		for k, c := range want {
			if got[k] != c {
				t.Fatalf("seed %d: window %v: emitted + late = %v, all = %v", seed, k, got[k], c)
			}
		}
	}
	if late < seeds() {
		t.Errorf("only %d late records", late)
	}
}
