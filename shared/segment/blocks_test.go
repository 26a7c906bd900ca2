package segment_test

import (
	"bytes"
	"sync"
	"testing"

	"tapedeck.dev/tapedeck/shared/segment"
)

// Whatever order parallel compressors finish in, the bytes are the same: many writers at once, so that blocks are compressed beside their
// writers and, where all compressors are busy, by them.
func TestParallelCompressionKeepsTheBytes(t *testing.T) {
	recs := benchRecords(6000)
	for _, codec := range codecNames {
		t.Run(codec, func(t *testing.T) {
			want, _ := write(t, identity(), 0, int64(len(recs)), codec, segment.First(), recs)
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					w, err := segment.NewWriter(identity(), 0, codec)
					if err != nil {
						t.Error(err)
						return
					}
					for i := range recs {
						if _, err := w.Append(&recs[i]); err != nil {
							t.Error(err)
							return
						}
						if i%500 == 0 && w.MemBytes() <= 0 {
							t.Error("a writer with records holds no memory")
						}
					}
					got, _, err := w.Close(int64(len(recs)), segment.First(), nil)
					if err != nil {
						t.Error(err)
						return
					}
					if !bytes.Equal(got, want) {
						t.Error("the same records gave other bytes")
					}
				})
			}
			wg.Wait()
		})
	}
}
