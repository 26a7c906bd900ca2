package schemas

import (
	"errors"
	"testing"

	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

func TestOrderDecisionSegmentRegistry(t *testing.T) {
	p0 := record.TopicPartition{Topic: "t", Partition: 0}
	p1 := record.TopicPartition{Topic: "t", Partition: 1}
	s := New()
	_, _, err := s.Writer(p0, 5, 7)
	var missing *MissingError
	if !errors.As(err, &missing) || missing.ID != 7 || missing.Offset != 5 || !errors.Is(err, engine.ErrNotReady) {
		t.Fatalf("unknown id: %v", err)
	}
	s.Know(7, segment.Schema{ID: 7, Text: "registry"})
	s.Segment(p0, []segment.Schema{{ID: 7, Text: "segment"}, {ID: -1, GUID: "x", Text: "guid"}})
	s.Decide(p0, 6)
	for _, c := range []struct {
		tp     record.TopicPartition
		offset int64
		text   string
		known  bool
	}{
		{p0, 5, "segment", true},
		{p1, 5, "registry", true},
		{p0, 6, "", false},
		{p1, 6, "registry", true},
	} {
		w, known, err := s.Writer(c.tp, c.offset, 7)
		if err != nil || known != c.known || w.Text != c.text {
			t.Errorf("%s@%d: %q %v %v, want %q %v", c.tp, c.offset, w.Text, known, err, c.text, c.known)
		}
	}
	// The next segment replaces the embedded schemas: the id may mean another text there.
	s.Segment(p0, []segment.Schema{{ID: 7, Text: "rebuilt"}})
	if w, _, _ := s.Writer(p0, 5, 7); w.Text != "rebuilt" {
		t.Errorf("after the next segment: %q", w.Text)
	}
	if _, _, err := s.Writer(p0, 5, -1); err == nil {
		t.Error("a schema without an id must not answer for id −1")
	}
}
