package archiver

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/store"
)

// fakeRegistry is a registry that counts its questions and can be down.
type fakeRegistry struct {
	*srfake.Registry
	down  atomic.Bool
	asked atomic.Int64
}

func newFakeRegistry(t *testing.T) *fakeRegistry {
	t.Helper()
	f := &fakeRegistry{Registry: srfake.New()}
	t.Cleanup(f.Close)
	f.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		f.asked.Add(1)
		if f.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return f.down.Load()
	})
	return f
}

func (f *fakeRegistry) client(t *testing.T, cfg schema.Config) func(*Parts) {
	t.Helper()
	cfg.URL = f.URL()
	reg, err := schema.NewRegistry(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return func(p *Parts) { p.Registry = reg }
}

func recordOf(name string) string {
	return fmt.Sprintf(`{"type":"record","name":"%s","fields":[]}`, name)
}

func (e *env) withSchemas(topic string, flush int64) Settings {
	s := e.settings(topic)
	s.Partition.Rule.FlushSize = flush
	s.Partition.SchemaIDs = true
	return s
}

// sendFramed produces n records whose values name a schema.
func (e *env) sendFramed(topic string, id, n int) {
	e.t.Helper()
	recs := make([]record.Record, n)
	for i := range recs {
		recs[i].Value = framed(id)
	}
	p := e.producer("")
	defer p.Close()
	e.send(p, topic, 0, recs...)
}

func (e *env) kept(folder string) []string {
	var keys []string
	for _, k := range e.store.Keys() {
		if strings.HasPrefix(k, "_tapedeck/schemas/"+folder) {
			keys = append(keys, k)
		}
	}
	return keys
}

// What segments lacked while the registry was down is kept when it is back, by the range of the segments: one object for the whole outage.
func TestSchemasThatSegmentsLackAreKeptLater(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	reg := newFakeRegistry(t)
	reg.SeedSchema("trips-value", 1, 1, sr.Schema{Schema: recordOf("One")})
	reg.SeedSchema("trips-value", 2, 2, sr.Schema{Schema: recordOf("Two")})
	r := e.start(e.withSchemas("trips", 10), reg.client(t, schema.Config{Rest: 200 * time.Millisecond}))
	e.sendFramed("trips", 1, 10)
	e.awaitArchived("trips", 0, 10)
	reg.down.Store(true)
	for range 3 {
		e.sendFramed("trips", 2, 10)
	}
	e.awaitArchived("trips", 0, 40)
	reg.down.Store(false)
	e.await("the schema is kept", func() bool { return len(e.kept("ranges/")) > 0 })
	r.end()
	if got := e.kept("ranges/"); len(got) != 1 || !strings.HasPrefix(got[0], "_tapedeck/schemas/ranges/trips/0/00000000000000000010+00000000000000000040+") {
		t.Errorf("kept %v", got)
	}
	if got := e.kept("ids/"); len(got) != 2 {
		t.Errorf("kept %v", got)
	}
	reg.down.Store(true)
	texts := e.arc.NewSchemaFinder(nil)
	for i, h := range e.headers("trips", 0) {
		id, text, want := 1, recordOf("One"), archive.FromSegment
		if i > 0 {
			id, text, want = 2, recordOf("Two"), archive.FromArchive
		}
		if got, from, err := texts.Find(t.Context(), h.TP(), h, id, ""); err != nil || got.Text != text || from != want {
			t.Errorf("segment %d: %s from %s, %v", i, got.Text, from, err)
		}
	}
	if n := r.metric("tapedeck_archiver_schemas_late_total"); n != 1 {
		t.Errorf("schemas_late_total = %v", n)
	}
	e.checkClean()
}

// Field fault 24: the registry was rebuilt and gives an id another meaning. The segments before hold the old text, those after the new one.
func TestARebuiltRegistry(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	reg := newFakeRegistry(t)
	reg.SeedSchema("trips-value", 1, 7, sr.Schema{Schema: recordOf("Old")})
	r := e.start(e.withSchemas("trips", 10), reg.client(t, schema.Config{Refresh: time.Millisecond}))
	e.sendFramed("trips", 7, 20)
	e.awaitArchived("trips", 0, 20)

	// Empty, it says nothing about what the records of before meant.
	reg.Reset()
	e.sendFramed("trips", 7, 10)
	e.awaitArchived("trips", 0, 30)

	reg.SeedSchema("other-value", 1, 7, sr.Schema{Schema: recordOf("New")})
	e.sendFramed("trips", 7, 10)
	e.awaitArchived("trips", 0, 40)
	e.await("both texts are kept", func() bool { return len(e.kept("ids/0000000007/")) == 2 })
	r.end()
	texts := e.arc.NewSchemaFinder(nil)
	for i, want := range []string{"Old", "Old", "Old", "New"} {
		if got, _, err := texts.Find(t.Context(), e.headers("trips", 0)[i].TP(), e.headers("trips", 0)[i], 7, ""); err != nil || got.Text != recordOf(want) {
			t.Errorf("segment %d: %s, %v; want %s", i, got.Text, err, want)
		}
	}
	if n := r.metric("tapedeck_archiver_schemas_changed_total"); n != 1 {
		t.Errorf("schemas_changed_total = %v", n)
	}
	e.checkClean()
}

// Binary values that begin like the wire format by accident must not flood the registry, and must not keep another topic from its schemas.
func TestValuesThatOnlyLookLikeTheWireFormat(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("noise", 1)
	e.topic("trips", 1)
	reg := newFakeRegistry(t)
	reg.SeedSchema("trips-value", 1, 1, sr.Schema{Schema: recordOf("One")})
	s := e.withSchemas("trips", 1000)
	s.Topics.Names = []string{"noise", "trips"}
	recs := make([]record.Record, 5000)
	for i := range recs {
		recs[i].Value = framed(1_000_000 + i)
	}
	e.send(e.producer(""), "noise", 0, recs...)
	began := time.Now()
	r := e.start(s, reg.client(t, schema.Config{}))
	e.awaitArchived("noise", 0, 5000)
	e.sendFramed("trips", 1, 1000)
	e.awaitArchived("trips", 0, 1000)
	r.end()
	// The burst, one a second, and the parts of the one schema that is there.
	if n, bound := reg.asked.Load(), int64(doubtBurst+time.Since(began)/doubtEvery+10); n > bound {
		t.Errorf("%d questions, at most %d expected", n, bound)
	}
	if got := ids(e.headers("trips", 0)[0].Schemas); got != "[1]" {
		t.Errorf("schemas of trips %s", got)
	}
	if n := r.metric("tapedeck_archiver_schemas_missing_total"); n < 1000 {
		t.Errorf("schemas_missing_total = %v", n)
	}
}

// A schema that a header names by its GUID is in the segment like any other.
func TestSchemaByGUIDHeader(t *testing.T) {
	t.Parallel()
	const guid = "89791762-2336-4186-9674-299b90a802e2"
	e := newEnv(t)
	e.topic("trips", 1)
	reg := newFakeRegistry(t)
	reg.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/schemas/guids/"+guid {
			return false
		}
		fmt.Fprintf(w, `{"schemaType":"JSON","schema":"{\"type\":\"object\"}","guid":"%s"}`, guid)
		return true
	})
	raw, err := hex.DecodeString(strings.ReplaceAll(guid, "-", ""))
	if err != nil {
		t.Fatal(err)
	}
	rec := record.Record{Value: []byte(`{}`), Headers: []record.Header{{Key: schema.ValueHeader, Value: append([]byte{1}, raw...)}}}
	glue := record.Record{Value: append([]byte{3, 0}, raw...)}
	r := e.start(e.withSchemas("trips", 2), reg.client(t, schema.Config{}))
	e.send(e.producer(""), "trips", 0, rec, glue)
	e.awaitArchived("trips", 0, 2)
	e.await("the text is kept", func() bool { return len(e.kept("guids/"+guid+"/")) == 1 })
	r.end()
	h := e.headers("trips", 0)[0]
	got, from, err := e.arc.NewSchemaFinder(nil).Find(t.Context(), h.TP(), h, 0, guid)
	if err != nil || from != archive.FromSegment || got.ID != -1 || got.GUID != guid || got.Type != "JSON" || got.Text != `{"type":"object"}` || len(h.Schemas) != 1 {
		t.Errorf("%+v from %s, %v", h.Schemas, from, err)
	}
	e.checkEqual("trips", 0, e.log("trips", 0))
}

// Keeping schemas costs one create per text, whatever the number of segments.
func TestCallsOfKeptSchemas(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	reg := newFakeRegistry(t)
	reg.SeedSchema("trips-value", 1, 1, sr.Schema{Schema: recordOf("One")})
	reg.SeedSchema("trips-value", 2, 2, sr.Schema{Schema: recordOf("Two")})
	var creates atomic.Int64
	e.store.SetAfter(func(_ context.Context, op, key string, err error) error {
		if op == store.OpCreate && strings.HasPrefix(key, "_tapedeck/schemas/") {
			creates.Add(1)
		}
		return err
	})
	for range 2 {
		r := e.start(e.withSchemas("trips", 10), reg.client(t, schema.Config{}))
		next := int64(0)
		if hs := e.headers("trips", 0); len(hs) > 0 {
			next = hs[len(hs)-1].Next
		}
		before := creates.Load()
		for range 5 {
			e.sendFramed("trips", 1, 10)
			e.sendFramed("trips", 2, 10)
		}
		e.awaitArchived("trips", 0, next+100)
		e.await("the texts are kept", func() bool { return creates.Load() == before+2 })
		r.end()
	}
	if n := creates.Load(); n != 4 || len(e.kept("")) != 2 {
		t.Errorf("%d creates, %d objects", n, len(e.kept("")))
	}
}
