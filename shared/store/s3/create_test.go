package s3_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

// Each answer to a create means what the contract says, and the request is sent once, whatever the answer.
func TestCreateAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   error
		text   string // part of the message
	}{
		{"200", created, nil, ""},
		{"412", s3Error(412, "PreconditionFailed"), store.ErrExists, ""},
		{"304", status(304, ""), store.ErrExists, ""},
		{"409", s3Error(409, "ConditionalRequestConflict"), store.ErrUnknown, "ConditionalRequestConflict"},
		{"500", s3Error(500, "InternalError"), store.ErrUnknown, "InternalError (the message)"},
		{"503", s3Error(503, "SlowDown"), store.ErrUnknown, ""},
		{"502 page", status(502, "<html>Bad Gateway</html>"), store.ErrUnknown, "HTTP 502"},
		{"429", status(429, ""), store.ErrUnknown, ""},
		{"408", status(408, ""), store.ErrUnknown, ""},
		{"400 timeout", s3Error(400, "RequestTimeout"), store.ErrUnknown, ""},
		{"reset", reset, store.ErrUnknown, ""},
		{"hang", hang, store.ErrUnknown, "timeout"},
		{"200 error", s3Error(200, "InternalError"), store.ErrUnknown, "InternalError"},
		{"200 page", status(200, "<html>please log in</html>"), store.ErrUnknown, "please log in"},
		{"200 without ETag", status(200, ""), store.ErrUnknown, "ETag"},
		{"200 broken off", brokenOff, store.ErrUnknown, "answer of success is not S3's"},
		{"404 of a proxy", status(404, "<html>no such page</html>"), store.ErrUnknown, ""},
		{"401", status(401, ""), store.ErrNotAllowed, ""},
		{"403", s3Error(403, "AccessDenied"), store.ErrNotAllowed, "AccessDenied"},
		{"403 key", s3Error(403, "InvalidAccessKeyId"), store.ErrNotAllowed, ""},
		{"400 expired", s3Error(400, "ExpiredToken"), store.ErrNotAllowed, "ExpiredToken"},
		{"400", s3Error(400, "InvalidRequest"), store.ErrInvalid, "checksum=when-required"},
		{"400 digest", s3Error(400, "XAmzContentSHA256Mismatch"), store.ErrInvalid, "checksum=when-required"},
		{"400 region", s3Error(400, "AuthorizationHeaderMalformed"), store.ErrInvalid, "check region"},
		{"301", s3Error(301, "PermanentRedirect"), store.ErrInvalid, "check region"},
		{"405", s3Error(405, "MethodNotAllowed"), store.ErrInvalid, ""},
		{"411", s3Error(411, "MissingContentLength"), store.ErrInvalid, "checksum"},
		{"413", s3Error(413, "EntityTooLarge"), store.ErrInvalid, "EntityTooLarge"},
		{"501", s3Error(501, "NotImplemented"), store.ErrInvalid, "checksum=when-required"},
		{"no bucket", s3Error(404, "NoSuchBucket"), store.ErrInvalid, "bucket bucket does not exist"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, c.answer)
			s := f.store(t, s3.Options{Prefix: "pre/fix", Timeout: 300 * time.Millisecond})
			err := s.Create(t.Context(), "dir/key", []byte("data"))
			checkClass(t, err, c.want)
			if err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("message %q does not say %q", err, c.text)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "create dir/key in s3://bucket/pre/fix?endpoint=http://") {
				t.Errorf("message %q does not begin with what was tried", err)
			}
			if n := len(f.seen()); n != 1 {
				t.Errorf("%d requests were sent, want 1", n)
			}
			r := f.last(t)
			if r.method != "PUT" || r.path != "/bucket/pre/fix/dir/key" || r.header.Get("If-None-Match") != "*" || string(r.body) != "data" {
				t.Errorf("request %s %s, If-None-Match %q, body %q", r.method, r.path, r.header.Get("If-None-Match"), r.body)
			}
		})
	}
}

// checkClass expects err to be of the class and of no other. A time-out of one call is not the end of the caller's context.
func checkClass(t *testing.T, err, want error) {
	t.Helper()
	if want == nil && err != nil {
		t.Errorf("error %v, want none", err)
	}
	for _, class := range []error{
		store.ErrExists, store.ErrNotFound, store.ErrUnknown, store.ErrNotAllowed, store.ErrInvalid, context.Canceled, context.DeadlineExceeded,
	} {
		if got := errors.Is(err, class); got != (class == want) {
			t.Errorf("error %q: is %q = %v", err, class, got)
		}
	}
}

// brokenOff announces a body and does not send it.
func brokenOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("ETag", `"etag"`)
	w.Header().Set("Content-Length", "100")
	_, _ = io.WriteString(w, "half")
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// A connection that was in use before and dies under a create: Go's client repeats some requests then. Not this one.
func TestCreateIsNotRepeatedOnADeadConnection(t *testing.T) {
	f := newFake(t, sequence(created, reset, created))
	s := f.store(t, s3.Options{})
	if err := s.Create(t.Context(), "one", nil); err != nil {
		t.Fatal(err)
	}
	checkClass(t, s.Create(t.Context(), "two", []byte("x")), store.ErrUnknown)
	if n := len(f.seen()); n != 2 {
		t.Errorf("%d requests came, want 2", n)
	}
}

func TestCreateServerGone(t *testing.T) {
	f := newFake(t, created)
	s := f.store(t, s3.Options{Timeout: time.Second})
	f.Close()
	checkClass(t, s.Create(t.Context(), "k", nil), store.ErrUnknown)
	_, err := s.Get(t.Context(), "k")
	if err == nil {
		t.Error("got an object from a server that is gone")
	}
	checkClass(t, err, errNoClass)
}

// errNoClass is a class that no error has.
var errNoClass = errors.New("no class")

// A create that is cancelled while it is under way is cancelled for the caller, and unknown: the store may go on with it.
func TestCreateCancelledUnderWay(t *testing.T) {
	arrived := make(chan struct{})
	f := newFake(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	s := f.store(t, s3.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	err := s.Create(ctx, "k", []byte("x"))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrUnknown) {
		t.Errorf("error %v, want cancelled and unknown", err)
	}
}

// A store that ignores the condition writes twice and says 200 twice: that is seen by the start-up probe, from exactly this.
func TestConditionIgnored(t *testing.T) {
	f := newFake(t, created)
	s := f.store(t, s3.Options{})
	for range 2 {
		if err := s.Create(t.Context(), "k", nil); err != nil {
			t.Fatalf("the store told %v, and the server 200", err)
		}
	}
}

// What cannot even be asked is refused for good: a retry would ask the same.
func TestRequestCannotBeMade(t *testing.T) {
	isolate(t)
	s := newStore(t, s3.Options{Bucket: "bucket", Region: "no region"})
	err := s.Create(t.Context(), "k", nil)
	checkClass(t, err, store.ErrInvalid)
	if err == nil || !strings.Contains(err.Error(), "check bucket, region") {
		t.Errorf("message %v", err)
	}
	_, err = s.Get(t.Context(), "k")
	checkClass(t, err, store.ErrInvalid)
}
