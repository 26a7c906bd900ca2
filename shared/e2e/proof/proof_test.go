package proof

import (
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

// The comparison itself must be able to fail: every field that counts changes the hash and is found as a difference.
func TestComparisonSeesEveryField(t *testing.T) {
	base := func() map[int32]Sequence {
		return map[int32]Sequence{0: {{Key: []byte("k"), Value: []byte("v"), Timestamp: 5, Offset: 1,
			Headers: []record.Header{{Key: "h", Value: []byte{}}, {Key: "i"}}}, {Key: []byte("l"), Offset: 2}}, 1: nil}
	}
	same := base()
	if d := FirstDifference(base(), same); d != "" || HashTopic(base()) != HashTopic(same) {
		t.Fatalf("equal topics differ: %s", d)
	}
	moved := base()
	moved[0][1].Offset = 9 // a marker between them is no difference
	if d := FirstDifference(base(), moved); d != "" || HashTopic(base()) != HashTopic(moved) {
		t.Fatalf("offsets were compared: %s", d)
	}
	for name, change := range map[string]func(m map[int32]Sequence){
		"key":               func(m map[int32]Sequence) { m[0][0].Key = []byte("x") },
		"null key":          func(m map[int32]Sequence) { m[0][0].Key = nil },
		"value":             func(m map[int32]Sequence) { m[0][0].Value = []byte("w") },
		"empty value":       func(m map[int32]Sequence) { m[0][1].Value = []byte{} },
		"timestamp":         func(m map[int32]Sequence) { m[0][0].Timestamp++ },
		"header key":        func(m map[int32]Sequence) { m[0][0].Headers[0].Key = "g" },
		"null header value": func(m map[int32]Sequence) { m[0][0].Headers[0].Value = nil },
		"header order": func(m map[int32]Sequence) {
			h := m[0][0].Headers
			h[0], h[1] = h[1], h[0]
		},
		"header gone":     func(m map[int32]Sequence) { m[0][0].Headers = m[0][0].Headers[:1] },
		"record order":    func(m map[int32]Sequence) { m[0][0], m[0][1] = m[0][1], m[0][0] },
		"record gone":     func(m map[int32]Sequence) { m[0] = m[0][:1] },
		"other partition": func(m map[int32]Sequence) { m[0], m[1] = m[1], m[0] },
		"partition gone":  func(m map[int32]Sequence) { delete(m, 1) },
	} {
		m := base()
		change(m)
		if FirstDifference(base(), m) == "" {
			t.Errorf("%s: no difference found", name)
		}
		if HashTopic(base()) == HashTopic(m) {
			t.Errorf("%s: same hash", name)
		}
	}
}
