package s3_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/store/s3"
)

// fake is a server that answers as a test says, and keeps what it was asked.
type fake struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
}

type request struct {
	method, path string
	query        map[string][]string
	header       http.Header
	body         []byte
}

func newFake(t *testing.T, answer http.HandlerFunc) *fake {
	t.Helper()
	f := &fake{}
	f.Server = httptest.NewServer(f.record(answer))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) record(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a broken request is the test's own doing
		f.mu.Lock()
		f.requests = append(f.requests, request{r.Method, r.URL.Path, r.URL.Query(), r.Header.Clone(), body})
		f.mu.Unlock()
		answer(w, r)
	}
}

func (f *fake) seen() []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// last is the newest request.
func (f *fake) last(t *testing.T) request {
	t.Helper()
	seen := f.seen()
	if len(seen) == 0 {
		t.Fatal("no request came")
	}
	return seen[len(seen)-1]
}

// store gives a store on the server, with short pauses between the requests of a read.
func (f *fake) store(t *testing.T, o s3.Options) *s3.Store {
	t.Helper()
	if o.Bucket == "" {
		o.Bucket = "bucket"
	}
	o.Endpoint = f.URL
	return newStore(t, s3.WithBackoff(o, 5*time.Millisecond))
}

// status answers with a status and a body.
func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if body != "" {
			w.Header().Set("Content-Type", "application/xml")
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// s3Error answers as S3 does.
func s3Error(code int, name string) http.HandlerFunc {
	return status(code, `<?xml version="1.0" encoding="UTF-8"?>`+"\n<Error><Code>"+name+"</Code><Message>the message</Message></Error>")
}

// reset cuts the connection off without an answer.
func reset(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// sequence answers by the first handler, then by the second, and by the last one from then on.
func sequence(answers ...http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	n := 0
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		answer := answers[min(n, len(answers)-1)]
		n++
		mu.Unlock()
		answer(w, r)
	}
}

// hang answers nothing until the client has gone.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func created(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("ETag", `"etag"`)
}
