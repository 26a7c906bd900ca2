package manager_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
)

// count is how many records the receiver has taken of a job.
func (g *rig) count(name string) int {
	n := 0
	for tp := range g.a.Records {
		n += len(g.rc.Taken(name, tp))
	}
	return n
}

// What pause, resume and cancel mean, in records: paused, at most what was on its way arrives, and then nothing, however long; resumed, everything else, once;
// cancelled, nothing more.
func TestPauseResumeAndCancelByEventCounts(t *testing.T) {
	g := newRig(t)
	a := replaytest.Start(t, g.a, g.rc, long)
	if _, _, err := a.Create(t.Context(), req(t, `,"recordsPerSecond":200`)); err != nil {
		t.Fatal(err)
	}
	replaytest.Until(t, "50 records are there", func() bool { return g.count("j") >= 50 })
	if _, err := a.Do(t.Context(), "j", job.Pause); err != nil {
		t.Fatal(err)
	}
	atPause := g.count("j")
	replaytest.Until(t, "the worker has stopped", func() bool { return len(a.Working()) == 0 })
	paused := g.count("j")
	if inFlight := 2 * 4; paused > atPause+inFlight { // two senders, segments of at most four records
		t.Errorf("%d records at the pause, and %d afterwards", atPause, paused)
	}
	if paused == 270 {
		t.Fatal("everything was there before the pause: the test shows nothing")
	}
	// While another job is done from beginning to end, and looks are taken at this one, nothing of it moves.
	other := *req(t, "")
	other.Name = "other"
	if _, _, err := a.Create(t.Context(), &other); err != nil {
		t.Fatal(err)
	}
	replaytest.Until(t, "the other job has ended", func() bool {
		v, err := a.Get(context.Background(), "other")
		return err == nil && v.State == job.Completed
	})
	v := waitState(t, a, job.Paused)
	if n := g.count("j"); n != paused || v.Totals.RecordsSent > int64(n) {
		t.Errorf("%d records at the end of the pause, %d at its beginning; the job says %d", n, paused, v.Totals.RecordsSent)
	}
	if _, err := a.Do(t.Context(), "j", job.Resume); err != nil {
		t.Fatal(err)
	}
	if v := waitState(t, a, job.Completed); v.Totals.RecordsSent != 270 {
		t.Errorf("completed with %+v", v.Totals)
	}
	g.delivered(t)

	cancelled := *req(t, `,"recordsPerSecond":200`)
	cancelled.Name = "cancelled"
	if _, _, err := a.Create(t.Context(), &cancelled); err != nil {
		t.Fatal(err)
	}
	replaytest.Until(t, "30 records are there", func() bool { return g.count("cancelled") >= 30 })
	if _, err := a.Do(t.Context(), "cancelled", job.Cancel); err != nil {
		t.Fatal(err)
	}
	atCancel := g.count("cancelled")
	replaytest.Until(t, "it is cancelled", func() bool {
		v, err := a.Get(context.Background(), "cancelled")
		return err == nil && v.State == job.Cancelled
	})
	if n := g.count("cancelled"); n > atCancel+2*4 || n == 270 {
		t.Errorf("%d records at the cancel, %d at the end", atCancel, n)
	}
}

// One, two and three replayers on one archive, the one at work killed again and again (cut off from the store, so that it cannot even let go), at each
// kind of pace and order: the target gets the same records, each once and in order.
func TestReplayersKilledAtEveryPace(t *testing.T) {
	t.Parallel()
	for i, fields := range []string{`,"recordsPerSecond":300`, `,"order":"event-time","maxSkew":2000,"recordsPerSecond":400`, `,"speed":60`} {
		replayers := i + 1
		t.Run(fmt.Sprintf("%d replayers", replayers), func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			next := 0
			add := func() *replaytest.Node {
				next++
				return replaytest.Start(t, g.a, g.rc, as(quick, fmt.Sprint("r", next)))
			}
			var nodes []*replaytest.Node
			for range replayers {
				nodes = append(nodes, add())
			}
			if _, _, err := nodes[0].Create(t.Context(), req(t, fields)); err != nil {
				t.Fatal(err)
			}
			kills := 0
			for _, at := range []int{40, 110, 180} {
				replaytest.Until(t, fmt.Sprint(at, " records are there"), func() bool { return g.count("j") >= at })
				for k, n := range nodes {
					if len(n.Working()) > 0 {
						n.Jobs.Cut(true)
						n.Stop()
						nodes[k] = add()
						kills++
						break
					}
				}
			}
			if v := waitState(t, nodes[0], job.Completed); v.Epoch < 2 || kills < 2 {
				t.Errorf("completed under epoch %d after %d kills: the test shows too little", v.Epoch, kills)
			}
			g.delivered(t)
			takeovers := 0
			for _, e := range g.events(t) {
				if e == job.Takeover {
					takeovers++
				}
			}
			if takeovers < 1 || slices.Contains(g.events(t), job.Release) {
				t.Errorf("events %v", g.events(t))
			}
		})
	}
}
