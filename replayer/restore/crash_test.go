package restore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/run"
)

// crashPoints are all places at which a replayer can be stopped, as far as the target can tell them apart.
var crashPoints = []string{
	"before " + stepInit, "after " + stepInit,
	"before " + stepRead, "after " + stepRead,
	"before " + stepClaim, "after " + stepClaim,
	"before " + stepProduce, "after " + stepProduce,
	"after " + stepProgress,
	"after " + stepCommit,
	"before " + stepVerify,
}

// runs are subtests that spend their time waiting: many at a time, whatever the number of processors.
type runs []struct {
	name string
	f    func(*testing.T)
}

func (r *runs) add(name string, f func(*testing.T)) {
	*r = append(*r, struct {
		name string
		f    func(*testing.T)
	}{name, f})
}

func (r *runs) run(t *testing.T) {
	var g errgroup.Group
	g.SetLimit(12)
	for _, c := range *r {
		g.Go(func() error {
			t.Run(c.name, c.f)
			return nil
		})
	}
	_ = g.Wait()
}

// small makes many transactions of few records; at is called at every step.
func small(at func(ctx context.Context, step string, lane int) error) tuning {
	return tuning{records: 37, bytes: 1 << 20, age: time.Minute, at: at}
}

// next is the job as another replayer takes it over: from what the store has, which may be old.
func next(j *job.Job) *job.Job {
	n := *j
	n.Epoch++
	return &n
}

// Killed at every step, at its first, second and fourth occurrence, and then taken over by another replayer: no record is lost or doubled.
func TestKilledAtEveryStep(t *testing.T) {
	var all runs
	for _, point := range crashPoints {
		for _, occurrence := range []int64{1, 2, 4} {
			all.add(value("%s %d", point, occurrence), func(t *testing.T) {
				g := newRig(t)
				g.fill("trips", 2, 150, uint64(occurrence))
				g.conf.Lanes = 2
				to := g.topic(2)
				j := g.job(value(`"topics":["trips"],"topicMapping":{"trips":%q}`, to))
				var hits atomic.Int64
				d := g.target(small(func(_ context.Context, step string, _ int) error {
					if step == point && hits.Add(1) >= occurrence {
						return errKilled
					}
					return nil
				}))
				p := g.prepare(d, j)
				_, err := d.Start(j, p).Execute(g.ctx())
				if reached := hits.Load() >= occurrence; reached != errors.Is(err, errKilled) || err != nil && !reached {
					t.Fatalf("ended with %v after %d of %q", err, hits.Load(), point)
				}
				j = next(j)
				_, err = g.run(g.target(small(nil)), j)
				g.must(err)
				g.check(j, "trips", to, 2)
			})
		}
	}
	all.run(t)
}

// The caller gives up while a commit is on its way: whether it arrived is known to the target alone.
func TestCommitUnknown(t *testing.T) {
	var all runs
	for _, delay := range []time.Duration{0, 300 * time.Microsecond, time.Millisecond, 3 * time.Millisecond} {
		all.add(delay.String(), func(t *testing.T) {
			g := newRig(t)
			g.fill("trips", 2, 150, 1)
			to := g.topic(2)
			j := g.job(value(`"topics":["trips"],"topicMapping":{"trips":%q}`, to))
			for round := range 4 {
				ctx, cancel := context.WithCancel(g.ctx())
				var hits atomic.Int64
				d := g.target(small(func(_ context.Context, step string, _ int) error {
					if step == "after "+stepProgress && hits.Add(1) == int64(1+round) {
						time.AfterFunc(delay, cancel)
					}
					return nil
				}))
				p := g.prepare(d, j)
				if _, err := d.Start(j, p).Execute(ctx); err != nil && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				cancel()
				j = next(j)
			}
			_, err := g.run(g.target(small(nil)), j)
			g.must(err)
			g.check(j, "trips", to, 2)
		})
	}
	all.run(t)
}

// A replayer falls asleep at a step. Another takes the job over and finishes it. The sleeper wakes up, whatever it was about to do, changes nothing, and
// learns that the job is another's: by its producers, or, where it fences the other's first, by the claim.
func TestSleeperIsFenced(t *testing.T) {
	var all runs
	for _, point := range crashPoints {
		all.add(point, func(t *testing.T) {
			g := newRig(t)
			g.fill("trips", 2, 150, 3)
			to := g.topic(2)
			j := g.job(value(`"topics":["trips"],"topicMapping":{"trips":%q}`, to))
			asleep, wake := make(chan struct{}), make(chan struct{})
			var once atomic.Bool
			a := g.target(small(func(_ context.Context, step string, _ int) error {
				if step == point && once.CompareAndSwap(false, true) {
					close(asleep)
					<-wake
				}
				return nil
			}))
			p := g.prepare(a, j)
			ended := make(chan error, 1)
			go func() {
				_, err := a.Start(j, p).Execute(g.ctx())
				ended <- err
			}()
			<-asleep
			b := next(j)
			_, err := g.run(g.target(small(nil)), b)
			g.must(err)
			g.check(b, "trips", to, 2)
			close(wake)
			if err := <-ended; !errors.Is(err, run.ErrFenced) && !(point == "before "+stepVerify && err == nil) {
				t.Errorf("the sleeper ended with %v", err)
			}
			g.check(b, "trips", to, 2)
		})
	}
	all.run(t)
}

// The sleeper wakes up before its first step and fences the newer replayer, which is in the middle. The newer one goes on all the same; the older stops.
func TestLateWakerDoesNotStopTheNewer(t *testing.T) {
	g := newRig(t)
	g.fill("trips", 2, 150, 4)
	to := g.topic(2)
	j := g.job(value(`"topics":["trips"],"topicMapping":{"trips":%q}`, to))
	d := g.target(small(nil))
	p := g.prepare(d, j)
	var late error
	var commits atomic.Int64
	b := next(j)
	newer := g.target(small(func(_ context.Context, step string, _ int) error {
		if step == "after "+stepCommit && commits.Add(1) == 2 {
			_, late = d.Start(j, p).Execute(g.ctx()) // not ours: that ends when another of our lanes is fenced
		}
		return nil
	}))
	_, err := newer.Start(b, p).Execute(g.ctx())
	g.must(err)
	if !errors.Is(late, run.ErrFenced) {
		t.Errorf("the older replayer ended with %v", late)
	}
	g.check(b, "trips", to, 2)
}
