package schema

import (
	"errors"
	"slices"
	"sync"
	"time"

	"tapedeck.dev/tapedeck/shared/segment"
)

const maxNegative = 10_000 // refs remembered as missing

// cache is what a Registry remembers.
type cache struct {
	now                        func() time.Time
	refresh, negativeTTL, rest time.Duration

	mu      sync.Mutex
	known   map[Ref]*entry
	missing map[Ref]time.Time // until when
	resting time.Time         // until when
}

type entry struct {
	schema    segment.Schema
	confirmed time.Time
	asking    bool // one asks; the others take what is there
}

func newCache(cfg Config) *cache {
	return &cache{now: cfg.Now, refresh: cfg.Refresh, negativeTTL: cfg.NegativeTTL, rest: cfg.Rest,
		known: map[Ref]*entry{}, missing: map[Ref]time.Time{}}
}

// look returns what is known, and whether the caller shall ask the registry; then it must call answered or gaveUp.
func (c *cache) look(ref Ref) (s segment.Schema, state State, ask bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	ask = !now.Before(c.resting)
	if e, ok := c.known[ref]; ok {
		ask = ask && !e.asking && c.refresh > 0 && now.Sub(e.confirmed) >= c.refresh
		e.asking = e.asking || ask
		return clone(e.schema), Known, ask
	}
	if until, ok := c.missing[ref]; ok {
		if now.Before(until) {
			return segment.Schema{}, Missing, false
		}
		delete(c.missing, ref)
	}
	return segment.Schema{}, Unknown, ask
}

func (c *cache) state(ref Ref) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.known[ref]; ok {
		return Known
	}
	if until, ok := c.missing[ref]; ok && c.now().Before(until) {
		return Missing
	}
	return Unknown
}

// answered takes the registry's answer and returns what holds now.
func (c *cache) answered(ref Ref, s segment.Schema, err error) (segment.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	e, known := c.known[ref]
	if known {
		e.asking = false
	}
	switch {
	case err == nil:
		delete(c.missing, ref)
		if known && e.schema.Fingerprint() == s.Fingerprint() {
			s = e.schema
		}
		c.known[ref] = &entry{schema: s, confirmed: now}
		return clone(s), nil
	case errors.Is(err, ErrNoSuchID) && known:
		e.confirmed = now
		return clone(e.schema), nil
	case errors.Is(err, ErrNoSuchID):
		c.forget(ref, now)
	default:
		c.resting = now.Add(c.rest)
	}
	return segment.Schema{}, err
}

func (c *cache) gaveUp(ref Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.known[ref]; ok {
		e.asking = false
	}
}

// registered forgets that ref was missing.
func (c *cache) registered(ref Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.missing, ref)
}

// forget remembers that ref is missing. mu is held.
func (c *cache) forget(ref Ref, now time.Time) {
	if len(c.missing) >= maxNegative {
		for other, until := range c.missing {
			if !now.Before(until) {
				delete(c.missing, other)
			}
		}
		if len(c.missing) >= maxNegative {
			clear(c.missing) // asking again is cheaper than growing; how often anybody asks is bounded by the askers
		}
	}
	c.missing[ref] = now.Add(c.negativeTTL)
}

// clone keeps callers from sharing the cache's slices.
func clone(s segment.Schema) segment.Schema {
	s.References = slices.Clone(s.References)
	for i := range s.References {
		s.References[i].References = slices.Clone(s.References[i].References)
	}
	return s
}
