package live

import (
	"math"
	"testing"

	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/shared/kafka"
)

func TestCommitRoundTrip(t *testing.T) {
	for _, c := range []engine.Commit{
		{},
		{Position: 10, Low: 3, MaxAtLow: engine.NoTime, Emitted: engine.NoTime},
		{Position: math.MaxInt64, Low: math.MaxInt64, MaxAtLow: math.MinInt64, Emitted: math.MaxInt64},
		{Position: math.MaxInt64, Low: math.MaxInt64, MaxAtLow: math.MinInt64, Emitted: math.MinInt64,
			Partial: engine.Partial{End: math.MaxInt64, N: math.MaxInt64, Check: math.MaxUint64}},
	} {
		o := FormatCommit(c)
		if len(o.Metadata) > 220 {
			t.Errorf("%d bytes of metadata: %s", len(o.Metadata), o.Metadata)
		}
		if got, err := ParseCommit(o); err != nil || got != c {
			t.Errorf("%v → %v → %v, %v", c, o, got, err)
		}
	}
	if got := FormatCommit(engine.Commit{Position: 9, Low: 4, MaxAtLow: 12000, Emitted: 10000}); got.Offset != 9 || got.Metadata != `{"v":1,"low":4,"m":12000,"w":10000}` {
		t.Errorf("%+v", got)
	}
}

func TestParseCommitRefuses(t *testing.T) {
	for _, m := range []string{``, `{}`, `x`, `{"v":2,"low":1,"m":1,"w":1}`, `{"v":1,"low":1,"m":1}`, `{"v":1,"low":11,"m":1,"w":1}`, `{"v":1,"low":-1,"m":1,"w":1}`,
		`{"v":1,"low":1,"m":1,"w":1,"closing":{"end":2,"n":0,"check":1}}`, `{"v":1,"low":1,"m":1,"w":2,"closing":{"end":2,"n":1,"check":1}}`,
		`{"v":1,"low":1,"m":1,"w":1,"closing":{"end":2,"n":1,"check":1,"x":1}}`, `{"v":1,"low":1,"m":1,"w":1,"x":1}`, `{"v":1,"low":1,"m":1,"w":1} 1`} {
		if c, err := ParseCommit(kafka.CommitOffset{Offset: 10, Metadata: m}); err == nil {
			t.Errorf("%q parsed as %v", m, c)
		}
	}
}

func FuzzParseCommit(f *testing.F) {
	f.Add(int64(10), `{"v":1,"low":3,"m":5,"w":7}`)
	f.Add(int64(10), `{"v":1,"low":3,"m":5,"w":7,"closing":{"end":8,"n":2,"check":18446744073709551615}}`)
	f.Fuzz(func(t *testing.T, off int64, m string) {
		c, err := ParseCommit(kafka.CommitOffset{Offset: off, Metadata: m})
		if err != nil {
			return
		}
		if again, err := ParseCommit(FormatCommit(c)); err != nil || again != c {
			t.Fatalf("%v → %v, %v", c, again, err)
		}
	})
}
