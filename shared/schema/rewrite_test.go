package schema_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
)

// TestRewrite: ids change where they stand, in key, value and header, in the form that they have; the original bytes are not touched.
func TestRewrite(t *testing.T) {
	guid := append([]byte{1}, bytes.Repeat([]byte{9}, 16)...)
	wire := func(id int) []byte { return append(schema.AppendWire(nil, id), "payload"...) }
	h := func(name string, v []byte) record.Header { return record.Header{Key: name, Value: v} }
	to := func(id int) (int, bool) {
		m := map[int]int{7: 0x01020304, 8: 8}
		n, ok := m[id]
		return n, ok
	}
	for _, c := range []struct {
		name    string
		in, out record.Record
	}{
		{"value", record.Record{Key: []byte("k"), Value: wire(7)}, record.Record{Key: []byte("k"), Value: wire(0x01020304)}},
		{"key", record.Record{Key: wire(7), Value: nil}, record.Record{Key: wire(0x01020304), Value: nil}},
		{"both, and an id without a payload", record.Record{Key: schema.AppendWire(nil, 7), Value: wire(7)},
			record.Record{Key: schema.AppendWire(nil, 0x01020304), Value: wire(0x01020304)}},
		{"an id that stays", record.Record{Value: wire(8)}, record.Record{Value: wire(8)}},
		{"an id that nobody knows", record.Record{Value: wire(9)}, record.Record{Value: wire(9)}},
		{"no id", record.Record{Key: []byte{0, 0, 0, 7}, Value: []byte{1, 0, 0, 0, 7}}, record.Record{Key: []byte{0, 0, 0, 7}, Value: []byte{1, 0, 0, 0, 7}}},
		{"header, and a value that begins like the wire format", record.Record{Value: wire(7), Headers: []record.Header{h("x", nil), h(schema.ValueHeader, []byte{0, 0, 0, 0, 7})}},
			record.Record{Value: wire(7), Headers: []record.Header{h("x", nil), h(schema.ValueHeader, []byte{0, 1, 2, 3, 4})}}},
		{"header as text", record.Record{Value: []byte("v"), Headers: []record.Header{h(schema.ValueHeader, []byte("7"))}},
			record.Record{Value: []byte("v"), Headers: []record.Header{h(schema.ValueHeader, []byte("16909060"))}}},
		{"header as 4 bytes", record.Record{Value: []byte("v"), Headers: []record.Header{h(schema.ValueHeader, []byte{0, 0, 0, 7})}},
			record.Record{Value: []byte("v"), Headers: []record.Header{h(schema.ValueHeader, []byte{1, 2, 3, 4})}}},
		{"header as 8 bytes", record.Record{Value: []byte("v"), Headers: []record.Header{h(schema.ValueHeader, []byte{0, 0, 0, 0, 0, 0, 0, 7})}},
			record.Record{Value: []byte("v"), Headers: []record.Header{h(schema.ValueHeader, []byte{0, 0, 0, 0, 1, 2, 3, 4})}}},
		{"the last header of the name", record.Record{Value: []byte("v"), Headers: []record.Header{h(schema.ValueHeader, []byte("7")), h(schema.ValueHeader, []byte("7"))}},
			record.Record{Value: []byte("v"), Headers: []record.Header{h(schema.ValueHeader, []byte("7")), h(schema.ValueHeader, []byte("16909060"))}}},
		{"header with a guid", record.Record{Value: wire(7), Headers: []record.Header{h(schema.ValueHeader, guid)}}, record.Record{Value: wire(7), Headers: []record.Header{h(schema.ValueHeader, guid)}}},
		{"header that cannot be read", record.Record{Value: wire(7), Headers: []record.Header{h(schema.ValueHeader, []byte("??"))}},
			record.Record{Value: wire(0x01020304), Headers: []record.Header{h(schema.ValueHeader, []byte("??"))}}},
		{"tombstone with a header", record.Record{Key: []byte("k"), Headers: []record.Header{h(schema.ValueHeader, []byte("7"))}},
			record.Record{Key: []byte("k"), Headers: []record.Header{h(schema.ValueHeader, []byte("7"))}}},
	} {
		before := record.Record{Key: bytes.Clone(c.in.Key), Value: bytes.Clone(c.in.Value), Headers: slices.Clone(c.in.Headers)}
		key, value, headers := c.in.Key, c.in.Value, c.in.Headers
		got := c.in
		changed := schema.Rewrite(&got, to)
		if d := cmp.Diff(c.out, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", c.name, d)
		}
		if changed == cmp.Equal(before, got) {
			t.Errorf("%s: changed %v", c.name, changed)
		}
		if !bytes.Equal(key, before.Key) || !bytes.Equal(value, before.Value) || !cmp.Equal(headers, before.Headers) {
			t.Errorf("%s: the original bytes are not what they were", c.name)
		}
	}
}

// FuzzRewrite: what Seen finds in a record is what Rewrite changes, and nothing else: rewritten back it is the same record.
func FuzzRewrite(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 7, 1}, []byte("7"), true)
	f.Add([]byte{0, 0, 0, 0, 7, 1}, []byte{0, 0, 0, 0, 0, 0, 0, 9}, true)
	f.Add([]byte{0, 0, 0, 0, 7, 1}, []byte{}, false)
	f.Fuzz(func(t *testing.T, value, header []byte, with bool) {
		r := record.Record{Value: value}
		if with {
			r.Headers = []record.Header{{Key: schema.ValueHeader, Value: header}}
		}
		var seen schema.Seen
		seen.Add(&r)
		flip := func(id int) (int, bool) { return id ^ 1, true }
		out := r
		changed := schema.Rewrite(&out, flip)
		refs := seen.Refs()
		if named := len(refs) == 1 && refs[0].GUID == ""; changed != named {
			t.Fatalf("changed %v, and it names %v", changed, refs)
		}
		if !changed {
			return
		}
		seen.Reset()
		seen.Add(&out)
		if got := seen.Refs(); len(got) != 1 || got[0].ID != refs[0].ID^1 {
			t.Fatalf("%v became %v", refs, got)
		}
	})
}
