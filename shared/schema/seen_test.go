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
	if got := ids(s.Refs()); !slices.Equal(got, []int{0, 3, 7, 100_001}) || s.Full() {
		t.Errorf("ids %v, full %v", got, s.Full())
	}
	s.Reset()
	if got := s.Refs(); len(got) != 0 {
		t.Errorf("after Reset: %v", got)
	}
	for i := range 3 * schema.MaxSeen {
		if full := i > schema.MaxSeen; s.Full() != full {
			t.Fatalf("full %v after %d ids", s.Full(), i)
		}
		s.Add(&record.Record{Value: wire(i)})
	}
	if got := s.Refs(); len(got) != schema.MaxSeen || got[len(got)-1].ID != schema.MaxSeen-1 {
		t.Errorf("%d ids", len(got))
	}
	s.Reset()
	if s.Full() {
		t.Error("full after Reset")
	}
}

func ids(refs []schema.Ref) []int {
	var out []int
	for _, ref := range refs {
		out = append(out, ref.ID)
	}
	return out
}

// TestSeenInHeaders: what a header names goes before what the bytes look like, for key and value apart.
func TestSeenInHeaders(t *testing.T) {
	const guid = "89791762-2336-4186-9674-299b90a802e2"
	guidHeader := []byte{1, 0x89, 0x79, 0x17, 0x62, 0x23, 0x36, 0x41, 0x86, 0x96, 0x74, 0x29, 0x9b, 0x90, 0xa8, 0x02, 0xe2}
	wire := func(id int) []byte { return append(schema.AppendWire(nil, id), 'x') }
	value := func(v []byte, headers ...record.Header) record.Record {
		return record.Record{Value: v, Headers: headers}
	}
	h := func(name string, v []byte) record.Header { return record.Header{Key: name, Value: v} }
	for _, c := range []struct {
		name string
		r    record.Record
		want []schema.Ref
	}{
		{"guid", value([]byte("{}"), h(schema.ValueHeader, guidHeader)), []schema.Ref{schema.ByGUID(guid)}},
		{"guid, and bytes like a prefix", value(wire(9), h(schema.ValueHeader, guidHeader)), []schema.Ref{schema.ByGUID(guid)}},
		{"guid of the key only", record.Record{Key: []byte("k"), Value: wire(9), Headers: []record.Header{h(schema.KeyHeader, guidHeader)}},
			[]schema.Ref{schema.ByGUID(guid), {ID: 9}}},
		{"id with its magic byte", value([]byte("{}"), h(schema.ValueHeader, []byte{0, 0, 0, 1, 2})), []schema.Ref{{ID: 258}}},
		{"plain id as text", value([]byte("{}"), h(schema.ValueHeader, []byte("1234"))), []schema.Ref{{ID: 1234}}},
		{"plain id as 4 bytes", value([]byte("{}"), h(schema.ValueHeader, []byte{0, 0, 1, 2})), []schema.Ref{{ID: 258}}},
		{"plain id as 8 bytes", value([]byte("{}"), h(schema.ValueHeader, []byte{0, 0, 0, 0, 0, 0, 1, 2})), []schema.Ref{{ID: 258}}},
		{"the last header holds", value([]byte("{}"), h(schema.ValueHeader, []byte("5")), h(schema.ValueHeader, []byte("6"))), []schema.Ref{{ID: 6}}},
		{"a header that cannot be read", value(wire(9), h(schema.ValueHeader, []byte("none"+"!!"))), []schema.Ref{{ID: 9}}},
		{"too large", value([]byte("{}"), h(schema.ValueHeader, []byte{0xff, 0, 0, 0})), []schema.Ref{}},
		{"null header", value(wire(9), h(schema.ValueHeader, nil)), []schema.Ref{{ID: 9}}},
		{"tombstone", value(nil, h(schema.ValueHeader, guidHeader)), []schema.Ref{}},
		{"glue", value(append([]byte{3, 0}, guidHeader[1:]...)), []schema.Ref{}},
	} {
		var s schema.Seen
		s.Add(&c.r)
		if got := s.Refs(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if s.Glue() != (c.name == "glue") {
			t.Errorf("%s: glue %v", c.name, s.Glue())
		}
	}
}

func TestGlueFrame(t *testing.T) {
	frame := append([]byte{3, 5}, []byte{0x89, 0x79, 0x17, 0x62, 0x23, 0x36, 0x41, 0x86, 0x96, 0x74, 0x29, 0x9b, 0x90, 0xa8, 0x02, 0xe2, 'x'}...)
	if v, ok := schema.GlueFrame(frame); !ok || v != "89791762-2336-4186-9674-299b90a802e2" {
		t.Errorf("%s %v", v, ok)
	}
	if _, _, ok := schema.WireID(frame); ok {
		t.Error("taken for an id")
	}
	if _, ok := schema.HeaderRef(frame); ok {
		t.Error("taken for a header")
	}
	for _, b := range [][]byte{nil, {3}, frame[:17], append([]byte{3, 1}, frame[2:]...), append([]byte{0, 5}, frame[2:]...)} {
		if _, ok := schema.GlueFrame(b); ok {
			t.Errorf("%x", b)
		}
	}
}

func FuzzHeaderRef(f *testing.F) {
	for _, b := range []string{"7", "\x00\x00\x00\x00\x07", "\x01abcdefghijklmnop", "\x00\x00\x00\x07", ""} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ref, ok := schema.HeaderRef(b)
		if ok && (ref.GUID == "") == (ref.ID < 0 || ref.ID > 1<<31-1) {
			t.Fatalf("%x: %+v", b, ref)
		}
	})
}

func BenchmarkSeen(b *testing.B) {
	r := record.Record{Key: []byte("key"), Value: schema.AppendWire(nil, 7)}
	var s schema.Seen
	for b.Loop() {
		s.Add(&r)
	}
}
