package engine

import (
	"math/rand"
	"strings"
	"testing"
)

// pieces stores what the engine hands out as a live run does: piece by piece, the positions with the last one alone. It stops where kill says
// so, and reports whether it did.
func (p *process) pieces(t testing.TB, b Bound, drain bool, kill func() bool, forget bool) (killed, parted bool) {
	t.Helper()
	take := p.e.TakeSome
	if drain {
		take = p.e.DrainSome
	}
	for {
		out, more, err := take(b)
		if err != nil {
			t.Fatal(err)
		}
		if more && len(out) == 0 {
			t.Fatal("a piece without outputs: the closing would never end")
		}
		p.stored = append(p.stored, out...)
		now := p.e.Commits()
		if !more {
			p.commits = now
			return false, parted
		}
		parted = true
		next := map[TP]Commit{}
		for tp, c := range now {
			old, ok := p.commits[tp]
			if !ok {
				old = fresh()
			}
			old.Emitted, old.Partial = c.Emitted, c.Partial
			if forget {
				old.Partial = Partial{}
			}
			next[tp] = old
		}
		p.commits = next
		if kill() {
			return true, true
		}
	}
}

// killedInClosings runs w with tiny transactions and kills between them, and drains at the end where drain says so.
func (w *world) killedInClosings(t testing.TB, r *rand.Rand, drain, forget bool) (stored []Output, kills int) {
	t.Helper()
	bound := func() Bound {
		if r.Intn(2) == 0 {
			return Bound{Records: 1 + r.Intn(4)}
		}
		return Bound{Bytes: int64(1 + r.Intn(2000))}
	}
	p := w.start(t, nil)
	for budget := 30; ; {
		var todo []int
		for i := range w.initial {
			if p.e.Position(tpOf(i)) < w.frontier[i] {
				todo = append(todo, i)
			}
		}
		if len(todo) > 0 {
			i := todo[r.Intn(len(todo))]
			w.feed(t, p.e, i, 1+r.Intn(9), w.frontier[i])
		}
		// A live run stores nothing before every partition is back at its position.
		back := true
		for tp, c := range p.commits {
			back = back && p.e.Position(tp) >= c.Position
		}
		if !back || len(todo) > 1 && r.Intn(4) > 0 {
			continue
		}
		killed, _ := p.pieces(t, bound(), drain && len(todo) == 0, func() bool { return budget > 0 && r.Intn(3) == 0 }, forget)
		if killed {
			budget, kills = budget-1, kills+1
			n := w.start(t, p.commits)
			n.stored = p.stored
			p = n
			continue
		}
		if len(todo) == 0 {
			return p.stored, kills
		}
	}
}

// A closing goes out in pieces, and the process is killed between any two of them, again and again: the outputs are those of one that was never
// disturbed, in the same order. Without what is stored about the last piece they are not.
func TestRestartWithinAClosing(t *testing.T) {
	kills, wrong := 0, 0
	for seed := range seeds() / 3 {
		r := rand.New(rand.NewSource(int64(seed)))
		w := newWorld(t, r, seed%4 == 3)
		want := w.live(t, r)
		drain := seed%2 == 0
		if drain {
			e := w.engine(t, w.floors)
			for i := range w.initial {
				e.AddPartition(tpOf(i), fresh())
				w.feed(t, e, i, 1<<30, w.frontier[i])
			}
			want = e.Drain()
		}
		got, n := w.killedInClosings(t, r, drain, false)
		if kills += n; n > 0 {
			forgot, _ := w.killedInClosings(t, r, drain, true)
			if differ(want, forgot) != "" {
				wrong++
			}
		}
		if d := differ(want, got); d != "" {
			t.Fatalf("seed %d, %d kills: %s\n%s", seed, n, d, w.text)
		}
	}
	t.Logf("%d kills; without the marker %d of %d runs differ", kills, wrong, seeds()/3)
	if kills < seeds()/3 || wrong < seeds()/9 {
		t.Error("too few kills, or the marker does not matter")
	}
}

// Records that are not what they were before the restart are noticed, rather than results left out or written twice.
func TestRestartWithinAClosingChecksTheInput(t *testing.T) {
	found := 0
	for seed := range seeds() / 3 {
		r := rand.New(rand.NewSource(int64(seed)))
		w := newWorld(t, r, false)
		w.live(t, r)
		p := w.start(t, nil)
		for i := range w.initial {
			w.feed(t, p.e, i, 1<<30, w.frontier[i])
		}
		if killed, _ := p.pieces(t, Bound{Records: 1 + r.Intn(5)}, false, func() bool { return r.Intn(2) == 0 }, false); !killed {
			continue
		}
		at := p.commits[tpOf(0)].Partial
		if at.N == 0 {
			continue
		}
		found++
		at.Check++
		for tp, c := range p.commits {
			c.Partial = at
			p.commits[tp] = c
		}
		n := w.start(t, p.commits)
		for i := range w.initial {
			w.feed(t, n.e, i, 1<<30, w.frontier[i])
		}
		if out, _, err := n.e.TakeSome(Bound{}); err == nil || !strings.Contains(err.Error(), "compacted or changed") || len(out) > 0 {
			t.Fatalf("seed %d: %d outputs, %v", seed, len(out), err)
		}
	}
	if found < seeds()/30 {
		t.Errorf("only %d cases", found)
	}
}

// A piece keeps to its bound, and what is counted as state goes with the results.
func TestPiecesKeepToTheirBound(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewSource(5)), false)
	w.live(t, rand.New(rand.NewSource(5)))
	e := w.engine(t, w.floors)
	for i := range w.initial {
		e.AddPartition(tpOf(i), fresh())
		w.feed(t, e, i, 1<<30, w.frontier[i])
	}
	for {
		out, more, err := e.DrainSome(Bound{Records: 2})
		if err != nil {
			t.Fatal(err)
		}
		results := 0
		for _, o := range out {
			if o.Kind == Result {
				results++
			}
		}
		if results > 2 || more && results < 2 {
			t.Errorf("%d results in a piece of 2", results)
		}
		if !more {
			break
		}
	}
	if st := e.Stats(); st.StateBytes != 0 || st.SideBytes != 0 || st.OpenWindows != 0 {
		t.Errorf("after all is out: %+v", st)
	}
}

// A partition that is new when a process starts again after a kill within a closing must begin behind what is out, not at the watermark of what has been read
// again: in the windows between, it would change results that are written, or be dropped without being late.
func TestHandedOutCountsWhatWasWrittenBeforeARestart(t *testing.T) {
	for _, c := range []struct {
		at   Commit
		want int64
	}{
		{Commit{Emitted: NoTime}, NoTime},
		{Commit{Emitted: 10}, 10},
		{Commit{Emitted: 10, Partial: Partial{End: 20, N: 1, Check: 7}}, 20},
	} {
		e := newEngine(t, merged())
		e.AddPartition(TP{Topic: "in"}, c.at)
		if got := e.HandedOut(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.at, got, c.want)
		}
	}
}
