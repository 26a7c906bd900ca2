package pace

import (
	"context"
	"sync"
	"time"
)

// Pacer is the schedule of one run of a job, shared by whatever sends its records. Safe for concurrent use. A nil Pacer limits nothing.
type Pacer struct {
	mu     sync.Mutex
	sched  *Schedule
	waited map[Cause]time.Duration
}

// New makes a Pacer, or nil where nothing is limited.
func New(l Limits) *Pacer {
	if l.None() {
		return nil
	}
	return &Pacer{sched: NewSchedule(l), waited: map[Cause]time.Duration{}}
}

// Begin starts the record clock at ts ms: the smallest timestamp of what comes next over all partitions.
func (p *Pacer) Begin(ts int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sched.Begin(time.Now(), ts)
}

// Try takes u where it may go now, and otherwise tells when to ask again and what it waits for. must is that of Schedule.Ready.
func (p *Pacer) Try(now time.Time, u Unit, must bool) (at time.Time, cause Cause, ok bool) {
	if p == nil {
		return now, NoWait, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, cause := p.sched.Ready(u, must); at.After(now) {
		return at, cause, false
	}
	p.sched.Take(now, u)
	return now, NoWait, true
}

// Ready tells when u may go, without taking it.
func (p *Pacer) Ready(u Unit, must bool) (time.Time, Cause) {
	if p == nil {
		return time.Time{}, NoWait
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sched.Ready(u, must)
}

// Wait blocks until u may go, and takes it. The error is the cause of ctx's end; then u is not taken.
func (p *Pacer) Wait(ctx context.Context, u Unit) error {
	if p == nil {
		return context.Cause(ctx)
	}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now := time.Now()
		at, cause, ok := p.Try(now, u, false)
		if ok {
			return nil
		}
		t := time.NewTimer(at.Sub(now))
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		p.note(cause, time.Since(now))
	}
}

func (p *Pacer) note(c Cause, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waited[c] += d
}

// Waited returns for how long callers of Wait have waited for a cause, summed over them.
func (p *Pacer) Waited(c Cause) time.Duration {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waited[c]
}
