package soak

import (
	"fmt"
	"testing"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// The comparison sees every kind of damage: a soak that could not fail would prove nothing.
func TestComparison(t *testing.T) {
	tp := record.TopicPartition{Topic: "t"}
	log := make([]record.Record, 10)
	for i := range log {
		log[i] = record.Record{Topic: "t", Offset: int64(i), Timestamp: 1, Value: fmt.Append(nil, i), LeaderEpoch: record.NoEpoch}
	}
	changed := append([]record.Record{}, log...)
	changed[4].Value = []byte("other")
	type seg struct {
		start, next int64
		recs        []record.Record
	}
	for name, tt := range map[string]struct {
		segments []seg
		want     Comparison
	}{
		"whole":     {[]seg{{0, 6, log[:6]}, {6, 10, log[6:]}}, Comparison{Records: 10, Segments: 2}},
		"tail lost": {[]seg{{0, 6, log[:6]}}, Comparison{Records: 10, Segments: 1, Lost: 4}},
		"hole":      {[]seg{{0, 6, log[:5]}, {6, 10, log[6:]}}, Comparison{Records: 10, Segments: 2, Lost: 1}},
		"overlap":   {[]seg{{0, 6, log[1:6]}, {5, 10, log[5:]}}, Comparison{Records: 10, Segments: 2, Lost: 1, Duplicated: 1, Overlapping: 1}},
		"different": {[]seg{{0, 10, changed}}, Comparison{Records: 10, Segments: 1, Different: 1}},
		"invented":  {[]seg{{0, 10, log}, {10, 11, []record.Record{{Topic: "t", Offset: 10, LeaderEpoch: record.NoEpoch}}}}, Comparison{Records: 10, Segments: 2, Invented: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			st := mem.New()
			chain := segment.First()
			for _, s := range tt.segments {
				w, err := segment.NewWriter(segment.LogIdentity{ClusterID: "c", TopicID: "i", Topic: "t", Isolation: "read_committed"}, s.start, "")
				if err != nil {
					t.Fatal(err)
				}
				for i := range s.recs {
					if _, err := w.Append(&s.recs[i]); err != nil {
						t.Fatal(err)
					}
				}
				chain.LastOffset = min(chain.LastOffset, s.start-1) // for the overlap, which no writer that knows its chain makes
				data, h, err := w.Close(s.next, chain, nil)
				if err != nil {
					t.Fatal(err)
				}
				chain = segment.After(h, int64(len(data)))
				if err := st.Create(t.Context(), segment.Name{TopicsDir: "topics", Topic: "t", Start: s.start}.Format(), data); err != nil {
					t.Fatal(err)
				}
			}
			var c Comparison
			if err := c.partition(t.Context(), archive.Open(st, "topics"), tp, log); err != nil {
				t.Fatal(err)
			}
			first := c.First
			c.First = ""
			if c != tt.want {
				t.Errorf("got %+v, want %+v", c, tt.want)
			}
			if damaged := name != "whole"; (c.Err() != nil) != damaged || (first != "") != damaged {
				t.Errorf("error %v, first %q", c.Err(), first)
			}
		})
	}
}
