package target

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

func TestParseConfig(t *testing.T) {
	got, err := ParseConfig(map[string]string{"a.url": "http://h:1/base", "a.pipeline": "p", "b.type": "processor", "b.url": "https://h", "b.pipeline": "q"})
	if err != nil || len(got) != 2 || got["a"].Type != TypeProcessor || got["b"].URL.Host != "h" || got["a"].Name != "a" {
		t.Errorf("%v %v", got, err)
	}
	if n := Names(got); len(n) != 2 || n[0] != "a" {
		t.Errorf("names %v", n)
	}
	for _, c := range []struct {
		in   map[string]string
		want string
	}{
		{map[string]string{"a": "x"}, "targets.<name>.type"},
		{map[string]string{"a.url": "h:1", "a.pipeline": "p"}, "http://host:port"},
		{map[string]string{"a.url": "http://h?x=1", "a.pipeline": "p"}, "query"},
		{map[string]string{"a.url": "http://h"}, "targets.a.pipeline is missing"},
		{map[string]string{"a.type": "kafka"}, "targets.a.bootstrap.servers is missing"},
		{map[string]string{"a.urll": "x"}, "did you mean targets.a.url?"},
		{map[string]string{"a.colour": "x"}, "known: type, url, pipeline"},
	} {
		if _, err := ParseConfig(c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.in, err, c.want)
		}
	}
}

func TestClassOf(t *testing.T) {
	for code, want := range map[int]Class{400: Refused, 401: Refused, 404: Missing, 408: Retry, 409: Conflict, 413: Refused, 422: Refused, 429: Busy, 500: Retry, 502: Retry, 503: Busy, 504: Retry} {
		if got := ClassOf(fmt.Errorf("send: %w", &Error{Code: code})); got != want {
			t.Errorf("%d: %d, want %d", code, got, want)
		}
	}
	if got := ClassOf(errors.New("connection reset")); got != Retry {
		t.Errorf("no answer: %d", got)
	}
}

// Each call as the protocol describes it.
func TestCalls(t *testing.T) {
	var saw string
	code, answer := 200, "{}"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		saw = r.Method + " " + r.URL.RequestURI() + " " + r.Header.Get("Content-Type")
		w.WriteHeader(code)
		fmt.Fprint(w, answer)
	}))
	defer srv.Close()
	confs, err := ParseConfig(map[string]string{"a.url": srv.URL + "/base/", "a.pipeline": "p"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(confs["a"], time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	tp := record.TopicPartition{Topic: "a.b", Partition: 3}
	put := func() error { _, err := c.Put(ctx, "j", 7, tp, 12, []byte("x")); return err }
	calls := []struct {
		call func() error
		want string
	}{
		{func() error { _, err := c.Pipeline(ctx); return err }, "GET /base/pipelines/p "},
		{func() error { _, err := c.Open(ctx, "j", session.Request{}); return err }, "PUT /base/sessions/j application/json"},
		{put, "PUT /base/sessions/j/segments/a.b/3/12?epoch=7 application/avro"},
		{func() error { _, err := c.Status(ctx, "j"); return err }, "GET /base/sessions/j "},
		{func() error { _, err := c.Finish(ctx, "j", 7); return err }, "POST /base/sessions/j/finish?epoch=7 "},
		{func() error { return c.Cancel(ctx, "j", 7) }, "DELETE /base/sessions/j?epoch=7 "},
	}
	for _, k := range calls {
		if err := k.call(); err != nil || saw != k.want {
			t.Errorf("%q %v, want %q", saw, err, k.want)
		}
	}
	code, answer = 503, `{"expected":5,"needs":{"topic":"x","partition":2},"message":"full"}`
	var e *Error
	if err := put(); !errors.As(err, &e) || e.Needs == nil || e.Needs.Partition != 2 || e.Message != "full" || !strings.Contains(err.Error(), "HTTP 503: full") {
		t.Errorf("limit: %v", err)
	}
	code, answer = 400, `{"error_code":400,"message":"no"}`
	if err := put(); !errors.As(err, &e) || e.Needs != nil || e.Message != "no" {
		t.Errorf("refused: %v", err)
	}
	code, answer = 200, "<html>"
	if err := put(); err == nil || ClassOf(err) != Retry {
		t.Errorf("not the protocol: %v", err)
	}
	srv.Close()
	if err := put(); err == nil || ClassOf(err) != Retry {
		t.Errorf("no answer: %v", err)
	}
}
