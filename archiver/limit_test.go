package archiver

import (
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	const ms = time.Millisecond
	b := newBucket(100)
	for _, s := range []struct {
		at   time.Duration
		take float64
		hold bool
	}{
		{0, 100, false},           // one second's worth is there
		{0, 50, true},             // in debt
		{500 * ms, 0, true},       // repaid, and nothing there yet
		{740 * ms, 0, true},       // not enough to begin again
		{760 * ms, 0, false},      // a quarter
		{10_000 * ms, 100, false}, // no more than a second's worth has gathered
		{10_000 * ms, 1, true},
		{9_000 * ms, 0, true}, // time that goes back adds nothing
	} {
		if b.take(s.at, s.take); b.hold(s.at) != s.hold {
			t.Errorf("at %s after %v: hold %t, %v tokens", s.at, s.take, !s.hold, b.tokens)
		}
	}
	var off bucket
	if off.take(0, 1e12); off.hold(0) {
		t.Error("no limit holds")
	}
}

// In the long run as many pass as the rate allows, however large the polls are.
func TestBucketKeepsTheRate(t *testing.T) {
	for _, poll := range []float64{1, 30, 400} {
		b, passed := newBucket(100), 0.0
		const end = 60 * time.Second
		for now := time.Duration(0); now < end; now += 10 * time.Millisecond {
			if !b.hold(now) {
				b.take(now, poll)
				passed += poll
			}
		}
		if most := 100*61 + poll; passed > most || passed < min(100*50, 100*poll*60*0.9) {
			t.Errorf("polls of %v: %v passed, want about %v", poll, passed, most)
		}
	}
}

// A limited archiver holds back, keeps polling, and archives everything.
func TestLimits(t *testing.T) {
	t.Parallel()
	// Far below what the slowest machine fetches.
	for name, set := range map[string]func(*Settings){
		"process, records": func(s *Settings) { s.Limit.Records = 40 },
		"partition, bytes": func(s *Settings) { s.PartitionLimit.Bytes = 300 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.topic("trips", 1)
			e.fill("trips", 0, 0, 200)
			s := e.settings("trips")
			s.Partition.RotateAge = 100 * time.Millisecond
			set(&s)
			r := e.start(s)
			e.awaitArchived("trips", 0, 200)
			if r.Status().RateHolds == 0 {
				t.Error("it was never held back")
			}
			e.fill("trips", 0, 200, 10)
			e.awaitArchived("trips", 0, 210)
			r.end()
			e.checkEqual("trips", 0, e.log("trips", 0))
		})
	}
}
