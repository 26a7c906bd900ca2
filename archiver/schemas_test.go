package archiver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
)

// registry answers for the ids 1, 2 and 3, until it is down.
func registry(t *testing.T) (*schema.Registry, *atomic.Bool) {
	t.Helper()
	down := &atomic.Bool{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /schemas/ids/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		if id := r.PathValue("id"); id == "1" || id == "2" || id == "3" {
			fmt.Fprintf(w, `{"schema":"{\"type\":\"record\",\"name\":\"R%s\",\"fields\":[]}"}`, id)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error_code":40403,"message":"Schema not found"}`)
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	reg, err := schema.NewRegistry(schema.Config{URL: srv.URL, Rest: registryRest})
	if err != nil {
		t.Fatal(err)
	}
	return reg, down
}

func framed(id int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), "payload"...)
}

func ids(ss []segment.Schema) string {
	var out []int
	for _, s := range ss {
		out = append(out, s.ID)
	}
	return fmt.Sprint(out)
}

// Field fault 5: ids that alternate do not split segments, and each segment holds the schemas of what is in it.
func TestAlternatingSchemas(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	recs := make([]record.Record, 10_000)
	for i := range recs {
		recs[i].Value = framed(1 + i%2)
		if i == 5500 {
			recs[i].Value = framed(3)
		}
		if i == 7500 { // not the wire format, though it begins so
			recs[i].Key = framed(1 << 20)
		}
	}
	e.send(e.producer(""), "trips", 0, recs...)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 1000
	s.Partition.SchemaIDs = true
	reg, _ := registry(t)
	r := e.start(s, func(p *Parts) { p.Registry = reg })
	e.awaitArchived("trips", 0, 10_000)
	r.end()
	hs := e.headers("trips", 0)
	if len(hs) != 10 {
		t.Fatalf("%d segments", len(hs))
	}
	for i, h := range hs {
		want := "[1 2]"
		if i == 5 {
			want = "[1 2 3]"
		}
		if got := ids(h.Schemas); got != want {
			t.Errorf("segment %d has the schemas %s, want %s", i, got, want)
		}
	}
	// Every value finds its own writer schema without any registry.
	texts := e.arc.NewSchemaFinder(nil)
	for _, k := range e.objects("trips", 0) {
		r := e.reader(k)
		for {
			var rec record.Record
			if err := r.Next(&rec); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			id, _, _ := schema.WireID(rec.Value)
			got, from, err := texts.Find(t.Context(), r.Header().TP(), r.Header(), id, "")
			if want := fmt.Sprintf(`{"type":"record","name":"R%d","fields":[]}`, id); err != nil || got.Text != want || from != archive.FromSegment {
				t.Fatalf("offset %d: %s from %s, %v; want %s", rec.Offset, got.Text, from, err, want)
			}
		}
	}
	if text := hs[0].Schemas[1].Text; text != `{"type":"record","name":"R2","fields":[]}` {
		t.Errorf("text %s", text)
	}
	e.checkEqual("trips", 0, e.log("trips", 0))
	e.checkClean()
}

// A registry that is down holds nothing up: the segment is written without the text, and a later one has it again.
func TestARegistryThatIsDownHoldsNothingUp(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	p := e.producer("")
	ten := func(id int) {
		recs := make([]record.Record, 10)
		for i := range recs {
			recs[i].Value = framed(id)
		}
		e.send(p, "trips", 0, recs...)
	}
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	s.Partition.SchemaIDs = true
	reg, down := registry(t)
	r := e.start(s, func(p *Parts) { p.Registry = reg })
	ten(1)
	e.awaitArchived("trips", 0, 10)
	down.Store(true)
	ten(2)
	e.awaitArchived("trips", 0, 20)
	if got := r.metric("tapedeck_archiver_schemas_missing_total"); got < 1 {
		t.Errorf("schemas_missing_total = %v", got)
	}
	// What was seen before is known without the registry, also while it is left in peace.
	ten(1)
	e.awaitArchived("trips", 0, 30)
	down.Store(false)
	resting := time.Now().Add(registryRest)
	e.await("the registry's rest passes", func() bool { return time.Now().After(resting) })
	ten(2)
	e.awaitArchived("trips", 0, 40)
	r.end()
	var got []string
	for _, h := range e.headers("trips", 0) {
		got = append(got, ids(h.Schemas))
	}
	if fmt.Sprint(got) != "[[1] [] [1] [2]]" {
		t.Errorf("schemas %v", got)
	}
	e.checkClean()
}
