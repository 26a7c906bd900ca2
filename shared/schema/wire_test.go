package schema_test

import (
	"bytes"
	"math"
	"testing"

	"tapedeck.dev/tapedeck/shared/schema"
)

func TestWire(t *testing.T) {
	for _, id := range []int{0, 1, 255, 256, 0x01020304, math.MaxInt32} {
		b := append(schema.AppendWire([]byte("x"), id), "payload"...)
		got, payload, ok := schema.WireID(b[1:])
		if !ok || got != id || string(payload) != "payload" || b[0] != 'x' {
			t.Errorf("id %d: %d %q %v", id, got, payload, ok)
		}
	}
	if b := schema.AppendWire(nil, 0x01020304); !bytes.Equal(b, []byte{0, 1, 2, 3, 4}) {
		t.Errorf("bytes %x", b)
	}
	if id, payload, ok := schema.WireID([]byte{0, 0, 0, 0, 9}); id != 9 || len(payload) != 0 || !ok {
		t.Errorf("empty payload: %d %q %v", id, payload, ok)
	}
	for _, b := range [][]byte{nil, {}, {0}, {0, 0, 0, 0}, {1, 0, 0, 0, 1}, []byte("hello"), {0, 0x80, 0, 0, 0}, {0, 255, 255, 255, 255, 7}} {
		if id, payload, ok := schema.WireID(b); ok || id != 0 || payload != nil {
			t.Errorf("%x: %d %x %v", b, id, payload, ok)
		}
	}
}

func FuzzWireID(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 7, 'x'})
	f.Add([]byte{0, 0x80, 0, 0, 0})
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, payload, ok := schema.WireID(b)
		if ok && !bytes.Equal(append(schema.AppendWire(nil, id), payload...), b) {
			t.Fatalf("%x is not id %d and %x", b, id, payload)
		}
		if ok != (len(b) >= 5 && b[0] == 0 && b[1] < 0x80) {
			t.Fatalf("%x: ok %v", b, ok)
		}
	})
}
