package schema_test

import (
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
)

func TestSeen(t *testing.T) {
	var s schema.Seen
	wire := func(id int) []byte { return append(schema.AppendWire(nil, id), 'x') }
	for _, r := range []record.Record{
		{Key: nil, Value: wire(7)}, {Key: wire(3), Value: wire(7)}, {Key: wire(7), Value: wire(3)}, {Key: []byte("text"), Value: nil},
		{Key: wire(0), Value: []byte{0, 1}}, {Value: wire(100_001)}, {Value: wire(7)}, {Value: []byte{1, 0, 0, 0, 9}},
	} {
		s.Add(&r)
	}
	if got := s.IDs(); !slices.Equal(got, []int{0, 3, 7, 100_001}) || s.Full() {
		t.Errorf("ids %v, full %v", got, s.Full())
	}
	s.Reset()
	if got := s.IDs(); len(got) != 0 {
		t.Errorf("after Reset: %v", got)
	}
	for i := range 3 * schema.MaxSeen {
		if full := i > schema.MaxSeen; s.Full() != full {
			t.Fatalf("full %v after %d ids", s.Full(), i)
		}
		s.Add(&record.Record{Value: wire(i)})
	}
	if got := s.IDs(); len(got) != schema.MaxSeen || got[len(got)-1] != schema.MaxSeen-1 {
		t.Errorf("%d ids", len(got))
	}
	s.Reset()
	if s.Full() {
		t.Error("full after Reset")
	}
}

func BenchmarkSeen(b *testing.B) {
	r := record.Record{Key: []byte("key"), Value: schema.AppendWire(nil, 7)}
	var s schema.Seen
	for b.Loop() {
		s.Add(&r)
	}
}
