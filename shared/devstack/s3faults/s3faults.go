// Package s3faults stands between a client and an S3 server, counts what is asked and answers as badly as a test says: with
// statuses, resets in the middle of a body, answers that get lost, requests that take effect long after their client has gone.
package s3faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Request is what a script decides by.
type Request struct {
	Op  string // S3's name of the operation, e.g. PutObject
	Key string // bucket excluded
	N   int    // of this operation so far, from 1
}

// Fault is what becomes of a request. The zero value passes it on.
type Fault struct {
	// Status, if not 0, is answered with an S3 error of that Code, and the request is not passed on. With status 200 it is an error in
	// the body of a success.
	Status     int
	Code       string
	RetryAfter string // header; "" = none
	// Reset breaks the connection off in the middle of the request's body; it is not passed on.
	Reset bool
	// Lose passes the request on and breaks the connection off instead of giving its answer.
	Lose bool
	// Late keeps the request until Release, and answers nothing: the client gives up before.
	Late bool
	// Hang holds the request back until the client gives up or Release, and passes it on only in the latter case.
	Hang bool
}

// Proxy is one server.
type Proxy struct {
	target *url.URL
	server *http.Server
	addr   string
	done   chan struct{}

	mu       sync.Mutex
	script   func(Request) Fault
	counts   map[string]int // by operation
	answers  map[string]int // by operation and status: "PutObject 200"
	late     []func()
	released chan struct{}
}

// Start listens on a free port of this host and passes requests on to the server at target, a base URL.
func Start(target string) (*Proxy, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("start faulty S3 server: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start faulty S3 server: %w", err)
	}
	p := &Proxy{
		target: u, addr: l.Addr().String(), done: make(chan struct{}), counts: map[string]int{}, answers: map[string]int{}, released: make(chan struct{}),
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(l) // it ends by Close
	}()
	return p, nil
}

// URL is the endpoint for clients.
func (p *Proxy) URL() string { return "http://" + p.addr }

// Close ends connections and waits for the listener's end.
func (p *Proxy) Close() error {
	p.Release()
	err := p.server.Close()
	<-p.done
	return err
}

// Set gives the script that decides over each request from now on; nil passes all on. It is called by one request at a time.
func (p *Proxy) Set(script func(Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = script
}

// Release passes on what was kept as late or hangs, and answers how many of the late ones there were.
func (p *Proxy) Release() int {
	p.mu.Lock()
	late := p.late
	p.late = nil
	close(p.released)
	p.released = make(chan struct{})
	p.mu.Unlock()
	for _, pass := range late {
		pass()
	}
	return len(late)
}

// Counts is how many requests of each operation came.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Answers is how many requests got each answer of the server behind, as "PutObject 200".
func (p *Proxy) Answers() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.answers)
}

// ResetCounts begins to count anew. N of a Request too.
func (p *Proxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.counts)
	clear(p.answers)
}

// decide counts a request and asks the script.
func (p *Proxy) decide(r *http.Request) (Request, Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := Request{Op: operation(r, key), Key: key}
	p.counts[q.Op]++
	q.N = p.counts[q.Op]
	if p.script == nil {
		return q, Fault{}, p.released
	}
	return q, p.script(q), p.released
}

// operation names what is asked as S3's documentation does.
func operation(r *http.Request, key string) string {
	q := r.URL.Query()
	switch {
	case key == "" && r.Method == http.MethodPut:
		return "CreateBucket"
	case key == "" && q.Has("uploads"):
		return "ListMultipartUploads"
	case key == "" && r.Method == http.MethodGet:
		return "ListObjectsV2"
	case r.Method == http.MethodPost && q.Has("uploads"):
		return "CreateMultipartUpload"
	case r.Method == http.MethodPost && q.Has("uploadId"):
		return "CompleteMultipartUpload"
	case r.Method == http.MethodPut && q.Has("partNumber"):
		return "UploadPart"
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		return "AbortMultipartUpload"
	case r.Method == http.MethodPut:
		return "PutObject"
	case r.Method == http.MethodGet:
		return "GetObject"
	case r.Method == http.MethodHead:
		return "HeadObject"
	}
	return r.Method
}

// ServeHTTP is http.Handler's.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, f, released := p.decide(r)
	if f.Reset {
		_, _ = io.CopyN(io.Discard, r.Body, max(1, r.ContentLength/2))
		reset(w)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	switch {
	case f.Status != 0:
		w.Header().Set("Content-Type", "application/xml")
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		w.WriteHeader(f.Status)
		_, _ = fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>as the test says</Message></Error>", f.Code)
		return
	case f.Late:
		later := r.Clone(context.WithoutCancel(r.Context()))
		p.mu.Lock()
		p.late = append(p.late, func() {
			if resp, err := p.pass(later, q, body); err == nil {
				_ = resp.Body.Close()
			}
		})
		p.mu.Unlock()
		<-r.Context().Done()
		return
	case f.Hang:
		select {
		case <-released:
		case <-r.Context().Done():
			return
		}
	}
	resp, err := p.pass(r, q, body)
	if err != nil || f.Lose {
		if err == nil {
			_ = resp.Body.Close()
		}
		reset(w)
		return
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// pass asks the server behind. The Host stays the client's: it is part of the signature.
func (p *Proxy) pass(r *http.Request, q Request, body []byte) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = p.target.Scheme, p.target.Host, ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.Header.Del("Expect") // the body is here already
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil && errors.Is(err, context.Canceled) {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.answers[q.Op+" none"]++
		return nil, err
	}
	p.answers[fmt.Sprintf("%s %d", q.Op, resp.StatusCode)]++
	return resp, nil
}

// reset breaks the connection off.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
