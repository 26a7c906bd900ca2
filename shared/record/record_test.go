package record_test

import (
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

func full() record.Record {
	return record.Record{
		Topic: "t", Partition: 1, Offset: 2, Timestamp: 3, TimestampType: record.LogAppendTime, Key: []byte("k"), Value: []byte("v"),
		Headers:     []record.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b"}, {Key: "c", Value: []byte{}}},
		LeaderEpoch: 4,
	}
}

func TestEqual(t *testing.T) {
	a, b := full(), full()
	if !record.Equal(&a, &b) {
		t.Error("equal records are not equal")
	}
	b.LeaderEpoch = record.NoEpoch
	if !record.Equal(&a, &b) {
		t.Error("leader epochs are compared")
	}
	for name, edit := range map[string]func(*record.Record){
		"topic":             func(r *record.Record) { r.Topic = "u" },
		"partition":         func(r *record.Record) { r.Partition++ },
		"offset":            func(r *record.Record) { r.Offset++ },
		"timestamp":         func(r *record.Record) { r.Timestamp++ },
		"timestamp type":    func(r *record.Record) { r.TimestampType = record.CreateTime },
		"key":               func(r *record.Record) { r.Key = []byte("K") },
		"null key":          func(r *record.Record) { r.Key = nil },
		"empty key":         func(r *record.Record) { r.Key = []byte{} },
		"value":             func(r *record.Record) { r.Value = []byte("V") },
		"null value":        func(r *record.Record) { r.Value = nil },
		"no headers":        func(r *record.Record) { r.Headers = nil },
		"one header less":   func(r *record.Record) { r.Headers = r.Headers[:3] },
		"header order":      func(r *record.Record) { slices.Reverse(r.Headers) },
		"header key":        func(r *record.Record) { r.Headers[0].Key = "A" },
		"header value":      func(r *record.Record) { r.Headers[0].Value = []byte("0") },
		"null header":       func(r *record.Record) { r.Headers[3].Value = nil },
		"empty header":      func(r *record.Record) { r.Headers[2].Value = []byte{} },
		"duplicates merged": func(r *record.Record) { r.Headers = slices.Delete(r.Headers, 0, 1) },
	} {
		b := full()
		edit(&b)
		if record.Equal(&a, &b) || record.Equal(&b, &a) {
			t.Errorf("%s: different records are equal", name)
		}
	}
	// Null and empty differ; no headers and an empty list of headers do not.
	null, empty := record.Record{}, record.Record{Key: []byte{}}
	if record.Equal(&null, &empty) {
		t.Error("null key equals empty key")
	}
	if none := (record.Record{Headers: []record.Header{}}); !record.Equal(&null, &none) {
		t.Error("an empty list of headers is not no headers")
	}
}

func TestClone(t *testing.T) {
	a := full()
	c := a.Clone()
	if !record.Equal(&a, &c) || c.LeaderEpoch != a.LeaderEpoch {
		t.Fatalf("clone %+v of %+v", c, a)
	}
	c.Key[0], c.Value[0], c.Headers[0].Value[0] = 'x', 'x', 'x'
	c.Headers[1].Key = "x"
	if want := full(); !record.Equal(&a, &want) {
		t.Errorf("the clone shares bytes with its record: %+v", a)
	}
	for _, r := range []record.Record{{}, {Key: []byte{}, Value: []byte{}, Headers: []record.Header{{Value: []byte{}}, {}}}} {
		if c := r.Clone(); !record.Equal(&r, &c) {
			t.Errorf("clone %+v of %+v", c, r)
		}
	}
}

func TestTopicPartition(t *testing.T) {
	sorted := []record.TopicPartition{{Topic: "a", Partition: 2}, {Topic: "a", Partition: 10}, {Topic: "a-1", Partition: 0}, {Topic: "b", Partition: 0}}
	for i, a := range sorted {
		for j, b := range sorted {
			if a.Less(b) != (i < j) {
				t.Errorf("%v < %v is %v", a, b, a.Less(b))
			}
		}
	}
	r := full()
	if s := r.TP().String(); s != "t-1" {
		t.Errorf("name %s", s)
	}
}
