package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"tapedeck.dev/tapedeck/replayer/api"
	"tapedeck.dev/tapedeck/replayer/internal/apicheck"
)

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Everything that the command line does is one call that the OpenAPI document describes; waiting is the event stream besides.
func TestCommandsAreDocumentedCalls(t *testing.T) {
	g := newRig(t)
	behind, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var calls []string
	proxy := httputil.NewSingleHostReverseProxy(behind)
	proxy.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		calls = append(calls, r.Method+" "+r.URL.RequestURI())
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	g.url = front.URL
	documented := apicheck.Load(t, api.OpenAPI).Operations()
	used := map[string]bool{}
	job := []string{"--target", "proc", "--promise", "recompute", "--name"}
	for _, c := range []struct {
		args  []string
		calls []string
	}{
		{append([]string{"plan"}, append(job, "j")...), []string{"POST /replays?dryRun=true"}},
		{append([]string{"start"}, append(job, "j")...), []string{"POST /replays"}},
		{[]string{"wait", "j"}, []string{"GET /replays/j/events"}},
		{append([]string{"start"}, append(job, "k", "--wait")...), []string{"POST /replays", "GET /replays/k/events"}},
		{[]string{"restore", "--target", "proc", "--name", "r", "--topics", "none", "--wait"}, []string{"POST /replays", "GET /replays/r/events"}},
		{[]string{"list"}, []string{"GET /replays"}},
		{[]string{"status", "j"}, []string{"GET /replays/j"}},
		{[]string{"pause", "j"}, []string{"POST /replays/j/pause"}},
		{[]string{"resume", "j"}, []string{"POST /replays/j/resume"}},
		{[]string{"cancel", "j"}, []string{"POST /replays/j/cancel"}},
		{[]string{"retry", "j"}, []string{"POST /replays/j/retry"}},
	} {
		calls = nil
		g.run(c.args...)
		if !slices.Equal(calls, c.calls) {
			t.Errorf("%q calls %q, want %q", c.args, calls, c.calls)
		}
		for _, call := range calls {
			method, uri, _ := strings.Cut(call, " ")
			p, _, _ := strings.Cut(uri, "?")
			if !slices.ContainsFunc(documented, func(o apicheck.Operation) bool {
				ok, err := path.Match(strings.ReplaceAll(o.Path, "{name}", "*"), p)
				return ok && err == nil && o.Method == method
			}) {
				t.Errorf("%q calls %s, which is not in the document", c.args, call)
			}
		}
		used[c.args[0]] = true
	}
	for _, cmd := range root().Commands() {
		if name := cmd.Name(); cmd.Flags().Lookup("url") != nil && !used[name] {
			t.Errorf("%s is not tried", name)
		}
	}
}

// A stream of events that breaks off is taken up again; the job goes on meanwhile.
func TestWaitOverABrokenStream(t *testing.T) {
	g := newRig(t)
	g.want(0, "", "", "start", "--target", "proc", "--promise", "recompute", "--name", "j", "--wait")
	streams := 0
	behind, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(behind)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streams++
		switch streams {
		case 1: // it breaks off in an event
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, "id: 1\nevent: state\ndata: {\"name\":\"j\",\"state\":\"RUNNING\"}\n\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		case 2: // a shutdown ends it cleanly, before the job
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, "event: state\ndata: {\"name\":\"j\",\"state\":\"RUNNING\"}\n\n")
		case 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	defer front.Close()
	g.url = front.URL
	g.want(0, "j COMPLETED", "j RUNNING", "wait", "j")
	if streams != 4 {
		t.Errorf("%d streams", streams)
	}
}
