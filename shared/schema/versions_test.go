package schema_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"

	"tapedeck.dev/tapedeck/shared/schema"
)

func TestVersionsOfASubject(t *testing.T) {
	f := newFake(t)
	r, err := schema.NewRegistry(schema.Config{URL: f.URL()})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if got, err := r.Versions(ctx, "none/at all"); err != nil || len(got) != 0 {
		t.Errorf("no such subject: %v, %v", got, err)
	}
	if _, err := r.Register(ctx, "other", user, "AVRO"); err != nil {
		t.Fatal(err)
	}
	texts := []string{user, `"string"`, `"long"`}
	for _, text := range texts {
		if _, err := r.Register(ctx, "a/b-value", text, "AVRO"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.Versions(ctx, "a/b-value")
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, %v", got, err)
	}
	for i, s := range got {
		if s.Version != i+1 || s.Subject != "a/b-value" || s.Text != texts[i] || s.Type != "AVRO" {
			t.Errorf("version %d is %+v", i+1, s)
		}
	}
	client, err := sr.NewClient(sr.URLs(f.URL()))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.DeleteSchema(ctx, "a/b-value", 2, sr.SoftDelete); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Versions(ctx, "a/b-value"); err != nil || len(got) != 2 || got[1].Version != 3 {
		t.Errorf("after a deletion: %v, %v", got, err)
	}
	f.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	if _, err := r.Versions(ctx, "a/b-value"); !errors.Is(err, schema.ErrRefused) {
		t.Errorf("forbidden: %v", err)
	}
	f.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	if _, err := r.Versions(ctx, "a/b-value"); !errors.Is(err, schema.ErrUnavailable) {
		t.Errorf("503: %v", err)
	}
}
