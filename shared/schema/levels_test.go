package schema_test

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/schema/schematest"
	"tapedeck.dev/tapedeck/shared/segment"
)

// TestLevels: levels of subjects and the registry's, read and set; at TAPEDECK_TEST_REGISTRY too, where there is one.
func TestLevels(t *testing.T) {
	f := schematest.New()
	t.Cleanup(f.Close)
	urls := map[string]string{"test": f.URL}
	if url := os.Getenv("TAPEDECK_TEST_REGISTRY"); url != "" {
		urls["real"] = url
	}
	for name, url := range urls {
		r := newRegistry(t, schema.Config{URL: url})
		subject := "levels-" + rand.Text()[:8]
		level := func(want string) {
			t.Helper()
			if got, err := r.Level(t.Context(), subject); err != nil || got != want {
				t.Errorf("%s: %q, %v; want %q", name, got, err, want)
			}
		}
		if all, err := r.Level(t.Context(), ""); err != nil || all == "" {
			t.Errorf("%s: the registry's level is %q, %v", name, all, err)
		}
		level("")
		if has, err := r.HasSubject(t.Context(), subject); err != nil || has {
			t.Errorf("%s: has the subject: %v, %v", name, has, err)
		}
		if _, err := r.RegisterDraft(t.Context(), subject, schema.Draft{Type: "AVRO", Text: `"long"`, References: []segment.Reference{}}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if has, err := r.HasSubject(t.Context(), subject); err != nil || !has {
			t.Errorf("%s: has the subject: %v, %v", name, has, err)
		}
		level("")
		for range 2 {
			if err := r.SetLevel(t.Context(), subject, "FULL_TRANSITIVE"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		level("FULL_TRANSITIVE")
		if err := r.SetLevel(t.Context(), subject, "SOME"); err == nil {
			t.Errorf("%s: an unknown level is taken", name)
		}
	}
	if err := newRegistry(t, schema.Config{URL: f.URL}).SetLevel(t.Context(), "s", "SOME"); !errors.Is(err, schema.ErrRefused) || !strings.Contains(err.Error(), "Invalid compatibility level") {
		t.Error(err)
	}
	f.SetLevel("", "FORWARD")
	if all, err := newRegistry(t, schema.Config{URL: f.URL}).Level(t.Context(), ""); err != nil || all != "FORWARD" {
		t.Errorf("the registry's level is %q, %v", all, err)
	}
}

// TestNoLevels: a registry without the routes, one that is down, and Apicurio's NONE, which is none.
func TestNoLevels(t *testing.T) {
	answer := http.NotFound
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { answer(w, req) }))
	t.Cleanup(srv.Close)
	r := newRegistry(t, schema.Config{URL: srv.URL})
	apicurio := newRegistry(t, schema.Config{URL: srv.URL + "/apis/ccompat/v7"})
	for _, subject := range []string{"", "s"} {
		if _, err := r.Level(t.Context(), subject); !errors.Is(err, schema.ErrNoLevels) {
			t.Errorf("no route: %v", err)
		}
	}
	if err := r.SetLevel(t.Context(), "s", "FULL"); !errors.Is(err, schema.ErrNoLevels) {
		t.Errorf("no route: %v", err)
	}
	answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	if _, err := r.Level(t.Context(), "s"); !errors.Is(err, schema.ErrUnavailable) {
		t.Errorf("down: %v", err)
	}
	if err := r.SetLevel(t.Context(), "s", "FULL"); !errors.Is(err, schema.ErrUnavailable) {
		t.Errorf("down: %v", err)
	}
	answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"compatibilityLevel":"NONE"}`)) }
	if got, err := r.Level(t.Context(), "s"); err != nil || got != "NONE" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := apicurio.Level(t.Context(), "s"); err != nil || got != "" {
		t.Errorf("apicurio: %q, %v", got, err)
	}
	if got, err := apicurio.Level(t.Context(), ""); err != nil || got != "NONE" {
		t.Errorf("apicurio's own: %q, %v", got, err)
	}
}
