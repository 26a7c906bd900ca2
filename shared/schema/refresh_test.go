package schema_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"tapedeck.dev/tapedeck/shared/schema"
)

// TestRefresh: the registry is asked again after a while, and its new answer holds; its silence and its ignorance change nothing.
func TestRefresh(t *testing.T) {
	f := newFake(t)
	f.SeedSchema("s", 1, 7, sr.Schema{Schema: user})
	now := time.Unix(1_000_000, 0)
	r := newRegistry(t, schema.Config{URL: f.URL(), Refresh: time.Minute, Now: func() time.Time { return now }})
	text := func() string {
		t.Helper()
		s, err := r.ByID(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		return s.Text
	}
	expect := func(what, want string, asked int) {
		t.Helper()
		if got := text(); got != want {
			t.Errorf("%s: %s", what, got)
		}
		if n := f.asked("/schemas/ids/7"); n != asked {
			t.Errorf("%s: asked %d times, want %d", what, n, asked)
		}
	}
	expect("first", user, 1)
	f.Reset()
	f.SeedSchema("other", 1, 7, sr.Schema{Schema: `"string"`})
	now = now.Add(time.Minute - 1)
	expect("before the time", user, 1)
	now = now.Add(1)
	expect("rebuilt", `"string"`, 2)
	now = now.Add(time.Minute)
	f.answer(status(503, ""))
	expect("down", `"string"`, 3)
	f.answer(nil)
	f.Reset()
	expect("empty", `"string"`, 4)
	expect("empty, a moment later", `"string"`, 4)
	// The same text under another subject is the same schema, to the last byte of what a segment holds of it.
	f.SeedSchema("a", 3, 7, sr.Schema{Schema: `"string"`})
	now = now.Add(time.Minute)
	expect("another subject", `"string"`, 5)
	if s, err := r.ByID(t.Context(), 7); err != nil || s.Subject != "other" {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestRest: a registry that did not answer is left in peace; what is known is answered all the same. A caller that gave up says nothing about it.
func TestRest(t *testing.T) {
	f := newFake(t)
	f.SeedSchema("s", 1, 7, sr.Schema{Schema: user})
	f.SeedSchema("s", 2, 8, sr.Schema{Schema: `"string"`})
	now := time.Unix(1_000_000, 0)
	r := newRegistry(t, schema.Config{URL: f.URL(), Rest: time.Minute, Now: func() time.Time { return now }})
	ask := func(id int) error { _, err := r.ByID(t.Context(), id); return err }
	if err := ask(7); err != nil {
		t.Fatal(err)
	}
	f.answer(status(503, ""))
	if err := ask(8); !errors.Is(err, schema.ErrUnavailable) {
		t.Error(err)
	}
	f.answer(nil)
	if err := ask(8); !errors.Is(err, schema.ErrUnavailable) || f.asked("/schemas/ids/8") != 1 {
		t.Errorf("%v after %d questions", err, f.asked("/schemas/ids/8"))
	}
	if err := ask(7); err != nil {
		t.Error(err)
	}
	now = now.Add(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.ByID(ctx, 8); !errors.Is(err, schema.ErrUnavailable) {
		t.Error(err)
	}
	if err := ask(8); err != nil {
		t.Errorf("after a caller that gave up: %v", err)
	}
}

func TestByGUID(t *testing.T) {
	const guid = "89791762-2336-4186-9674-299b90a802e2"
	f := newFake(t)
	f.answer(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/schemas/guids/"+guid {
			status(200, `{"schemaType":"PROTOBUF","schema":"syntax = \"proto3\";"}`)(w, r)
			return
		}
		status(404, `{"error_code":404,"message":"HTTP 404 Not Found"}`)(w, r) // as a registry without GUIDs
	})
	r := newRegistry(t, schema.Config{URL: f.URL()})
	s, err := r.Find(t.Context(), schema.ByGUID(guid))
	if err != nil || s.ID != -1 || s.GUID != guid || s.Type != "PROTOBUF" || s.Text != `syntax = "proto3";` || s.Subject != "" {
		t.Errorf("%+v, %v", s, err)
	}
	other := schema.ByGUID("00000000-0000-0000-0000-000000000000")
	for range 2 {
		if _, err := r.Find(t.Context(), other); !errors.Is(err, schema.ErrNoSuchID) {
			t.Error(err)
		}
	}
	if n := f.asked("/schemas/guids/" + other.GUID); n != 1 || r.State(other) != schema.Missing || r.State(schema.ByGUID(guid)) != schema.Known {
		t.Errorf("asked %d times", n)
	}
}
