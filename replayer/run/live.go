package run

import (
	"time"

	"tapedeck.dev/tapedeck/shared/record"
)

// Live is what only the replayer at work knows of a job, at one moment.
type Live struct {
	RecordsPerSecond float64 // accepted by the target, mean of the last ten seconds
	BytesPerSecond   float64 // of these, as the archive's objects count them
	// Waiting is why nothing is on its way to the target although something has been loaded: rate, speed, skew or target; "" where something is.
	Waiting string
	// States of the partitions: done, sending, loading, queued (its turn comes), or what it waits for: rate, speed, skew, target.
	States map[record.TopicPartition]string
}

// Watched is an Execution that tells what only it knows.
type Watched interface {
	Live() Live
}

// States of a partition that waits for nothing in particular.
const (
	StateDone    = "done"
	StateSending = "sending"
	StateLoading = "loading"
	StateQueued  = "queued"
)

// Live tells how fast it goes and what it waits for.
func (x *Run) Live() Live { return x.track.live(time.Now()) }

func (t *tracker) live(now time.Time) Live {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := Live{Waiting: string(t.idle.why), States: make(map[record.TopicPartition]string, len(t.parts))}
	l.RecordsPerSecond, l.BytesPerSecond = t.rate.perSecond(now)
	for _, p := range t.parts {
		l.States[p.rng.TopicPartition] = t.stateOf(p, now)
	}
	return l
}

// stateOf is what p does or waits for. The lock is held.
func (t *tracker) stateOf(p *part, now time.Time) string {
	switch {
	case p.done():
		return StateDone
	case p.sending != nil:
		return StateSending
	case len(p.queue) == 0 && p.loading:
		return StateLoading
	case len(p.queue) == 0:
		return StateQueued
	}
	if _, by := t.ready(p, now); by != "" {
		return string(by)
	}
	return StateQueued
}
