package sessions

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// aSegment is one of 50 records at the even offsets of [0, 100).
func aSegment(t *testing.T, tp kafka.TP) []byte {
	t.Helper()
	w, err := segment.NewWriter(segment.LogIdentity{ClusterID: "c", TopicID: "id", Topic: tp.Topic, Partition: tp.Partition, Isolation: "read_committed"}, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	for o := int64(0); o < 100; o += 2 {
		r := record.Record{Topic: tp.Topic, Partition: tp.Partition, Offset: o, Timestamp: 1000 + o, LeaderEpoch: record.NoEpoch,
			Key: fmt.Append(nil, "k", o), Value: fmt.Append(nil, "v", o)}
		if _, err := w.Append(&r); err != nil {
			t.Fatal(err)
		}
	}
	data, _, err := w.Close(100, segment.First(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Whether there is room to keep the records or not, what is fed is the same: those of the range, with their checksums, each once.
func TestContentKeptOrReadAgain(t *testing.T) {
	tp := kafka.TP{Topic: "trips", Partition: 3}
	data := aSegment(t, tp)
	for _, kept := range []bool{true, false, true} { // the second kept one uses the first one's memory
		for from := int64(-5); from < 105; from += 5 {
			asked := int64(0)
			c, err := readContent(tp, 0, data, func(bytes int64) bool { asked = bytes; return kept })
			if err != nil || asked != weight(c.h) || asked < 50*recordBytes {
				t.Fatalf("%v: asked for room for %d bytes", err, asked)
			}
			var offsets []int64
			for {
				recs, sums, err := c.next(7, from, 51)
				if err != nil {
					t.Fatal(err)
				}
				if len(recs) == 0 {
					break
				}
				for i := range recs {
					offsets = append(offsets, recs[i].Offset)
					if want := segment.Checksum(segment.AppendDatum(nil, &recs[i])); sums[i] != want || string(recs[i].Value) != fmt.Sprint("v", recs[i].Offset) {
						t.Fatalf("offset %d: value %s, checksum %x, want %x", recs[i].Offset, recs[i].Value, sums[i], want)
					}
				}
			}
			c.release()
			var want []int64
			for o := int64(0); o < 51; o += 2 {
				if o >= from {
					want = append(want, o)
				}
			}
			if !slices.Equal(offsets, want) {
				t.Fatalf("kept %v, from %d: %v, want %v", kept, from, offsets, want)
			}
		}
	}
}

// A segment that is corrupt at its very end is refused before anything of it can be taken.
func TestContentOfACorruptSegment(t *testing.T) {
	tp := kafka.TP{Topic: "trips", Partition: 3}
	data := aSegment(t, tp)
	data[len(data)-20] ^= 1
	for _, kept := range []bool{true, false} {
		_, err := readContent(tp, 0, data, func(int64) bool { return kept })
		if e := new(Error); !errors.As(err, &e) || e.Status != http.StatusUnprocessableEntity {
			t.Errorf("kept %v: %v", kept, err)
		}
	}
	if _, err := readContent(kafka.TP{Topic: "trips", Partition: 4}, 0, aSegment(t, tp), func(int64) bool { return true }); err == nil {
		t.Error("another partition's segment is taken")
	}
}
