package schema_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/schema"
)

type posted struct {
	Schema     string      `json:"schema"`
	Type       string      `json:"schemaType,omitempty"`
	References []reference `json:"references,omitempty"`
}

type reference struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

// TestRealRegistry finds schemas of the three types, with their references, in the registry at TAPEDECK_TEST_REGISTRY.
func TestRealRegistry(t *testing.T) {
	base := os.Getenv("TAPEDECK_TEST_REGISTRY")
	if base == "" {
		t.Skip("TAPEDECK_TEST_REGISTRY names no registry: scripts/real/run.sh starts one")
	}
	run := rand.Text()[:8]
	post := func(subject string, p posted) int {
		t.Helper()
		body, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/subjects/"+subject+"/versions", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		var got struct{ ID int }
		if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(answer, &got) != nil {
			t.Fatalf("%s: %s %s, %v", subject, resp.Status, answer, err)
		}
		return got.ID
	}
	r := newRegistry(t, schema.Config{URL: base, Timeout: 30 * time.Second, Refresh: time.Nanosecond})
	for _, c := range []struct {
		typ, ref, name, main string
	}{
		{"AVRO", `{"type":"record","name":"Zone` + run + `","fields":[{"name":"id","type":"int"}]}`, "Zone" + run,
			`{"type":"record","name":"Trip` + run + `","fields":[{"name":"zone","type":"Zone` + run + `"}]}`},
		{"JSON", `{"$id":"zone` + run + `.json","type":"object","properties":{"id":{"type":"integer"}}}`, "zone" + run + ".json",
			`{"$id":"trip` + run + `.json","type":"object","properties":{"zone":{"$ref":"zone` + run + `.json"}}}`},
		{"PROTOBUF", `syntax = "proto3"; package z` + run + `; message Zone { int32 id = 1; }`, "zone" + run + ".proto",
			`syntax = "proto3"; import "zone` + run + `.proto"; message Trip { z` + run + `.Zone zone = 1; }`},
	} {
		zone, trip := "zone-"+c.typ+"-"+run, "trip-"+c.typ+"-"+run
		post(zone, posted{Schema: c.ref, Type: c.typ})
		id := post(trip, posted{Schema: c.main, Type: c.typ, References: []reference{{c.name, zone, 1}}})
		got, err := r.ByID(t.Context(), id)
		if err != nil {
			t.Fatalf("%s: %v", c.typ, err)
		}
		if got.Type != c.typ || got.Text == "" || got.Subject != trip || got.Version != 1 || len(got.References) != 1 || got.References[0].Name != c.name || got.References[0].Text == "" {
			t.Errorf("%s: %+v", c.typ, got)
		}
		again, err := r.ByID(t.Context(), id) // asked again, as the first time is long ago
		if err != nil || again.Fingerprint() != got.Fingerprint() {
			t.Errorf("%s: asked again %+v, %v", c.typ, again, err)
		}
	}
	if _, err := r.ByID(t.Context(), 1<<30); !errors.Is(err, schema.ErrNoSuchID) {
		t.Errorf("an id that is not there: %v", err)
	}
	// A registry without GUIDs and one that does not know this one both say so.
	if _, err := r.Find(t.Context(), schema.ByGUID("00000000-0000-4000-8000-000000000000")); !errors.Is(err, schema.ErrNoSuchID) {
		t.Errorf("a guid that is not there: %v", err)
	}
}
