package archiver

import (
	"time"

	"tapedeck.dev/tapedeck/shared/record"
)

// bucket is a token bucket that may go into debt: what a poll has brought is taken whole, and then nothing more is fetched until the debt is
// repaid and a quarter of a second's worth is there. It holds one second's worth at most.
type bucket struct {
	rate   float64 // tokens per second; 0: no limit
	tokens float64
	at     time.Duration // monotonic, of tokens
	held   bool
}

func newBucket(rate int64) bucket { return bucket{rate: float64(rate), tokens: float64(rate)} }

func (b *bucket) take(now time.Duration, n float64) {
	if b.rate > 0 {
		b.fill(now)
		b.tokens -= n
	}
}

func (b *bucket) fill(now time.Duration) {
	b.tokens = min(b.rate, b.tokens+b.rate*max(0, now-b.at).Seconds())
	b.at = max(b.at, now)
}

// hold reports whether fetching is to wait.
func (b *bucket) hold(now time.Duration) bool {
	if b.rate <= 0 {
		return false
	}
	b.fill(now)
	switch {
	case b.tokens < 0:
		b.held = true
	case b.tokens >= b.rate/4:
		b.held = false
	}
	return b.held
}

// Limit bounds what is fetched, on average over a second or two; 0: no limit.
type Limit struct{ Records, Bytes int64 } // per second

// limiter applies a Limit.
type limiter struct{ records, bytes bucket }

func newLimiter(l Limit) limiter { return limiter{newBucket(l.Records), newBucket(l.Bytes)} }

func (l *limiter) take(now time.Duration, records, bytes int) {
	l.records.take(now, float64(records))
	l.bytes.take(now, float64(bytes))
}

func (l *limiter) hold(now time.Duration) bool {
	r, b := l.records.hold(now), l.bytes.hold(now)
	return r || b
}

// fetched counts records of a partition against its limit and the process's.
func (l *loop) fetched(a *assigned, recs []record.Record) {
	if l.set.Limit == (Limit{}) && l.set.PartitionLimit == (Limit{}) {
		return
	}
	n := 0
	for i := range recs {
		n += len(recs[i].Key) + len(recs[i].Value)
		for _, h := range recs[i].Headers {
			n += len(h.Key) + len(h.Value)
		}
	}
	l.limit.take(l.now(), len(recs), n)
	a.limit.take(l.now(), len(recs), n)
}
