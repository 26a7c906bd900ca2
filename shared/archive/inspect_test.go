package archive

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// bytesOf is the size of all segments of the archive.
func bytesOf(t *testing.T, a *Archive) (n int64) {
	t.Helper()
	for _, key := range storeOf(a).Keys() {
		if strings.HasPrefix(key, "topics/") {
			data, err := storeOf(a).Get(context.Background(), key)
			if err != nil {
				t.Fatal(err)
			}
			n += int64(len(data))
		}
	}
	return n
}

func TestInspect(t *testing.T) {
	a, _ := gappy(t)
	got, err := a.Inspect(context.Background(), trips)
	if err != nil {
		t.Fatal(err)
	}
	want := &PartitionInfo{
		TopicPartition: trips, TopicID: "topic-id-trips", Incarnation: 1, Start: 100, Next: 180, Records: 9 + 10 + 10 + 10 + 10, Segments: 7, Bytes: bytesOf(t, a),
		MinTimestamp: 100_000, MaxTimestamp: 179_000,
		Gaps: []segment.Skip{{From: 0, To: 100, Class: segment.Lost}, {From: 115, To: 120, Class: segment.NotArchived}, {From: 140, To: 160, Class: segment.Lost}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// The names of the JSON form are an interface.
func TestInspectJSON(t *testing.T) {
	data, err := json.Marshal(PartitionInfo{TopicPartition: trips, Gaps: []segment.Skip{}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"topic":"trips","partition":0,"topicId":"","incarnation":0,"start":0,"next":0,"records":0,"segments":0,"bytes":0,"minTimestamp":0,"maxTimestamp":0,"gaps":[]}`
	if string(data) != want {
		t.Error(string(data))
	}
}

func TestInspectLongChain(t *testing.T) {
	st := longChain(t)
	a := Open(st, "topics")
	st.ResetCounts()
	got, err := a.Inspect(context.Background(), trips)
	if err != nil {
		t.Fatal(err)
	}
	if n := st.Counts(); calls(n) > 3+longBlocks {
		t.Errorf("calls %v", n)
	}
	if got.Records != longNext || got.Next != longNext || got.Segments != longSegments || got.MaxTimestamp != (longNext-1)*1000 || got.MinTimestamp != 0 || len(got.Gaps) != 0 || got.Bytes != bytesOf(t, a) {
		t.Errorf("%+v", got)
	}
}

// The smallest timestamp is not 0 where records lie before 1970, and segments without records say nothing about it.
func TestInspectTimestamps(t *testing.T) {
	a, _ := open(t)
	none := func(int64) bool { return true }
	tail := create(t, a, trips, nil, cut{next: 3, without: none})
	if got, err := a.Inspect(context.Background(), trips); err != nil || got.Records != 0 || got.MinTimestamp != 0 || got.Start != 0 || got.Next != 3 || got.Gaps == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	tail = create(t, a, trips, tail, cut{next: 5, ts: func(o int64) int64 { return -9 + o }})
	create(t, a, trips, tail, cut{next: 8, without: none})
	if got, err := a.Inspect(context.Background(), trips); err != nil || got.MinTimestamp != -6 || got.MaxTimestamp != -5 || got.Records != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestInspectErrors(t *testing.T) {
	a, st := open(t)
	if _, err := a.Inspect(context.Background(), trips); !errors.Is(err, ErrNotArchived) {
		t.Error(err)
	}
	grow(t, a, trips, nil, 300, 1)
	for _, op := range []string{store.OpList, store.OpGet, store.OpGetRange} {
		st.SetBefore(func(_ context.Context, o, _ string) error {
			if o == op {
				return err403
			}
			return nil
		})
		if _, err := a.Inspect(context.Background(), trips); !errors.Is(err, store.ErrNotAllowed) || !strings.Contains(err.Error(), "trips-0") {
			t.Errorf("%s: %v", op, err)
		}
	}
	st.SetBefore(nil)
	st.Put(indexPrefix(trips)+"x", nil)
	if _, err := a.Inspect(context.Background(), trips); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
}
