package segment_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// benchRecords are n records of about 165 bytes, some of it noise.
func benchRecords(n int) []record.Record {
	recs := make([]record.Record, n)
	seed := uint64(1)
	for i := range recs {
		seed = seed*6364136223846793005 + 1442695040888963407
		recs[i] = rec(int64(i))
		recs[i].Value = fmt.Appendf(nil, `{"id":%d,"user":"user-%d","price":%d.%02d,"note":"%016x","pickup":"2016-03-01T00:%02d:%02dZ","flag":"N"}`,
			i, seed>>50%1000, seed>>40%100, seed>>33%100, seed, i/60%60, i%60)
	}
	return recs
}

func BenchmarkAppend(b *testing.B) {
	recs := benchRecords(100_000)
	for _, codec := range codecNames {
		b.Run(codec, func(b *testing.B) {
			var size, n int
			for b.Loop() {
				w, err := segment.NewWriter(identity(), 0, codec)
				if err != nil {
					b.Fatal(err)
				}
				for i := range recs {
					if _, err := w.Append(&recs[i]); err != nil {
						b.Fatal(err)
					}
				}
				data, _, err := w.Close(int64(len(recs)), segment.First(), nil)
				if err != nil {
					b.Fatal(err)
				}
				size, n = len(data), n+len(recs)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(size)/float64(len(recs)), "bytes/record")
		})
	}
}

func BenchmarkNext(b *testing.B) {
	recs := benchRecords(100_000)
	for _, codec := range codecNames {
		b.Run(codec, func(b *testing.B) {
			data, _ := write(b, identity(), 0, int64(len(recs)), codec, segment.First(), recs)
			b.ReportAllocs()
			b.ResetTimer()
			n := 0
			for b.Loop() {
				r, err := segment.NewReader("object", data)
				if err != nil {
					b.Fatal(err)
				}
				var x record.Record
				for {
					if err := r.Next(&x); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
					n++
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
