package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/e2e/proof"
)

// A restarted replayer takes its job up at once, and a killed one's lease is short.
const quickReplayer = "replayer.id: one\njob.lease: 3s\njob.scan.interval: 200ms\n"

// killAt kills the replayer and the processor, in random order, that often each, whenever the named replay has sent a random number of its records, and starts
// them again.
func killAt(t *testing.T, name string, each int) func(context.Context, *proof.Proof) error {
	seed := uint64(time.Now().UnixNano())
	t.Logf("kill points are drawn with seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	shares := make([]float64, 2*each) // of the records
	for i := range shares {
		shares[i] = 0.02 + 0.9*r.Float64()
	}
	slices.Sort(shares)
	order := r.Perm(2 * each)
	return func(ctx context.Context, p *proof.Proof) error {
		killed := 0
		var at []int64
		for i, share := range shares {
			s := p.Replayer
			if order[i]%2 == 0 {
				s = p.Processor
			}
			sent, err := waitSent(ctx, p, name, share)
			if errors.Is(err, proof.ErrOverEarly) {
				break
			}
			if err != nil {
				return err
			}
			select { // within what is sent just then: the random moment itself, not a wait for something
			case <-time.After(time.Duration(r.Int64N(int64(60 * time.Millisecond)))):
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := s.Kill(); err != nil {
				return err
			}
			if err := s.Start(ctx); err != nil {
				return err
			}
			killed++
			at = append(at, sent)
		}
		t.Logf("killed %d times, when so many records had been sent: %v", killed, at)
		if killed < 2*each*3/4 {
			return fmt.Errorf("%d of %d kills met the replay: the test shows too little", killed, 2*each)
		}
		return nil
	}
}

// waitSent waits until a replay has sent that share of its records. proof.ErrOverEarly where it has ended.
func waitSent(ctx context.Context, p *proof.Proof, name string, share float64) (int64, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		job, err := p.JobNamed(ctx, name)
		switch {
		case err != nil: // the replayer may be restarting
		case job.State == "COMPLETED":
			return 0, proof.ErrOverEarly
		case job.State == "FAILED" || job.State == "CANCELLED":
			return 0, fmt.Errorf("replay %s is %s: %s", name, job.State, job.Error)
		case job.State == "RUNNING" && job.Totals.RecordsPlanned > 0 && float64(job.Totals.RecordsSent) >= share*float64(job.Totals.RecordsPlanned):
			return job.Totals.RecordsSent, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait until %.0f%% of replay %s are sent: %w: %v", 100*share, name, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// TestReplayKilledAtRandomPoints: replayer and processor are killed at random points of a replay, on real Kafka twenty times each. The output is that of the live
// run, which nobody disturbed, byte for byte in each partition. A rate spreads the kills over the whole of it, and has segments cut, and so does the order of
// event time.
func TestReplayKilledAtRandomPoints(t *testing.T) {
	each := 2
	if os.Getenv("TAPEDECK_TEST_KAFKA") != "" {
		each = 20
	}
	o := options(t, 12_000, 0)
	o.ReplayerConfig = quickReplayer
	o.ReplayFields = map[string]any{"recordsPerSecond": 1500, "order": "event-time", "maxSkew": 20_000}
	o.WhileReplaying = killAt(t, "again", each)
	begun := time.Now()
	prove(t, o)
	t.Logf("took %s", time.Since(begun).Round(time.Second))
}
