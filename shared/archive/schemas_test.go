package archive

import (
	"context"
	"errors"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

func text(id int, s string) segment.Schema { return segment.Schema{ID: id, Type: "AVRO", Text: s} }

// The order is segment, archive (what was found for this very segment, then the only text of the id), registry.
func TestFindSchema(t *testing.T) {
	ctx := t.Context()
	st := mem.New()
	a := Open(st, "topics")
	guid := segment.Schema{ID: -1, GUID: "89791762-2336-4186-9674-299b90a802e2", Type: "JSON", Text: "{}"}
	for _, s := range []segment.Schema{text(7, "old"), text(7, "new"), text(8, "eight"), guid, text(7, "old")} {
		if err := a.KeepSchema(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []struct {
		from, until int64
		s           []segment.Schema
	}{{100, 200, []segment.Schema{text(9, "nine"), text(7, "old")}}, {200, 300, []segment.Schema{text(7, "new")}}, {200, 300, []segment.Schema{text(7, "new")}}} {
		if err := a.KeepSchemas(ctx, trips, r.from, r.until, r.s); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(st.Keys()); n != 6 {
		t.Fatalf("%d objects: %v", n, st.Keys())
	}
	asked := 0
	f := a.NewSchemaFinder(func(_ context.Context, id int, guid string) (segment.Schema, error) {
		asked++
		if id == 10 {
			return text(10, "ten"), nil
		}
		return segment.Schema{}, errors.New("unknown")
	})
	for _, c := range []struct {
		start int64
		id    int
		guid  string
		text  string
		from  SchemaSource
		err   error
	}{
		{0, 1, "", "one", FromSegment, nil},
		{150, 7, "", "old", FromArchive, nil},
		{200, 7, "", "new", FromArchive, nil},
		{199, 9, "", "nine", FromArchive, nil},
		{99, 7, "", "", "", ErrTwoSchemas},
		{300, 7, "", "", "", ErrTwoSchemas},
		{300, 8, "", "eight", FromArchive, nil},
		{0, 8, guid.GUID, "{}", FromArchive, nil},
		{0, 10, "", "ten", FromRegistry, nil},
		{0, 11, "", "", "", ErrNoSchema},
	} {
		h := &segment.Header{Topic: trips.Topic, Partition: trips.Partition, Start: c.start, Schemas: []segment.Schema{text(1, "one")}}
		got, from, err := f.Find(ctx, h.TP(), h, c.id, c.guid)
		if got.Text != c.text || from != c.from || !errors.Is(err, c.err) || c.err != nil && !strings.Contains(err.Error(), "schema id") {
			t.Errorf("%d from %d: %q from %q, %v", c.id, c.start, got.Text, from, err)
		}
	}
	if asked != 2 {
		t.Errorf("the registry was asked %d times", asked)
	}
	// One LIST and a GET per object of the partition, the folders once, and a LIST and GETs for each id or GUID that has one; none for 10 and 11.
	counts := st.Counts()
	if counts["list"] != 1+3 || counts["list_dirs"] != 2 || counts["get"] != 2+2+1+1 {
		t.Errorf("calls %v", counts)
	}
	// Another incarnation of the topic is another chain, with ranges of its own.
	second := record.TopicPartition{Topic: segment.Incarnation(trips.Topic, 2), Partition: trips.Partition}
	if err := a.KeepSchemas(ctx, second, 100, 200, []segment.Schema{text(7, "of the second log")}); err != nil {
		t.Fatal(err)
	}
	h := &segment.Header{Topic: trips.Topic, Partition: trips.Partition, Start: 150}
	for tp, want := range map[record.TopicPartition]string{trips: "old", second: "of the second log"} {
		if got, err := a.NewSchemaFinder(nil).Kept(ctx, tp, h, 7, ""); err != nil || got.Text != want {
			t.Errorf("%s: %q, %v", tp, got.Text, err)
		}
	}
	if err := a.KeepSchemas(ctx, trips, 5, 5, nil); err == nil {
		t.Error("an empty range")
	}
}

func TestDamagedSchemas(t *testing.T) {
	h := &segment.Header{Topic: trips.Topic, Partition: trips.Partition}
	for key, data := range map[string]string{
		rangesPrefix(trips) + "0+10+x": "[]",
		rangesPrefix(trips) + formatSchemaRange(schemaRange{0, 10, contentHash(nil)}): "[{",
		SchemaKey(text(7, "x")): `{"id":7,"type":"AVRO","schema":"y"}`,
	} {
		st := mem.New()
		st.Put(key, []byte(data))
		if _, _, err := Open(st, "topics").NewSchemaFinder(nil).Find(t.Context(), h.TP(), h, 7, ""); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func FuzzSchemaRangeName(f *testing.F) {
	f.Add(formatSchemaRange(schemaRange{0, 10, contentHash(nil)}))
	f.Add("00000000000000000000+1+")
	f.Fuzz(func(t *testing.T, name string) {
		if r, ok := parseSchemaRange(name); ok && formatSchemaRange(r) != name {
			t.Fatalf("%q is not %q", name, formatSchemaRange(r))
		}
	})
}
