package kafka

import (
	"strings"
	"sync"
	"time"
)

const (
	// RepeatEvery is how often one text is let through.
	RepeatEvery = 30 * time.Second
	// repeatTexts bounds the memory of texts; beyond it all are forgotten, and each is let through once more.
	repeatTexts = 64
)

// Repeats thins out log lines that are the same but for their numbers: while brokers are away each client has several a second to say. The zero
// Repeats is ready. Safe for concurrent use.
type Repeats struct {
	mu   sync.Mutex
	seen map[string]*repeat
}

type repeat struct {
	last time.Time
	held int64
}

// Line reports whether text should be written now, and how many like it were held back since one was: the first is written, then one every
// RepeatEvery.
func (r *Repeats) Line(text string, now time.Time) (held int64, write bool) {
	key := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, text)
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.seen[key]; p != nil {
		if now.Sub(p.last) < RepeatEvery {
			p.held++
			return 0, false
		}
		held, p.held, p.last = p.held, 0, now
		return held, true
	}
	if r.seen == nil || len(r.seen) >= repeatTexts {
		r.seen = map[string]*repeat{}
	}
	r.seen[key] = &repeat{last: now}
	return 0, true
}
