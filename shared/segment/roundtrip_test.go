package segment_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/segment"
)

var codecNames = []string{segment.CodecNull, segment.CodecDeflate, segment.CodecSnappy, segment.CodecZstd}

func TestRoundTripRandom(t *testing.T) {
	for _, codec := range codecNames {
		for seed := range uint64(20) {
			recs := randomRecords(seed, 0, int(seed*seed*10))
			next := int64(100)
			if len(recs) > 0 {
				next = recs[len(recs)-1].Offset + 1 + int64(seed%3)
			}
			data, h := write(t, identity(), 0, next, codec, segment.First(), recs)
			got, back := mustReadAll(t, data)
			wantRecords(t, back, recs)
			if d := cmp.Diff(h, got); d != "" {
				t.Fatalf("header (-Close +ParseHeader):\n%s", d)
			}
		}
	}
}
