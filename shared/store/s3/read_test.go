package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

func object(data string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(data))
	}
}

// Each answer to a read means what the contract says; what may pass is repeated, a bounded number of times.
func TestReadAnswers(t *testing.T) {
	for _, c := range []struct {
		name     string
		answer   http.HandlerFunc
		want     error
		text     string
		requests int
	}{
		{"200", object("data"), nil, "", 1},
		{"500 twice", sequence(s3Error(500, "InternalError"), s3Error(503, "SlowDown"), object("data")), nil, "", 3},
		{"reset once", sequence(reset, object("data")), nil, "", 2},
		{"hang once", sequence(hang, object("data")), nil, "", 2},
		{"body broken off once", sequence(brokenOff, object("data")), nil, "", 2},
		{"503 for ever", s3Error(503, "SlowDown"), errNoClass, "SlowDown", 4},
		{"hang for ever", hang, errNoClass, "timeout", 4},
		{"body broken off for ever", brokenOff, errNoClass, "body broke off", 4},
		{"404", s3Error(404, "NoSuchKey"), store.ErrNotFound, "", 1},
		{"404 bucket", s3Error(404, "NoSuchBucket"), store.ErrNotFound, "bucket bucket does not exist", 1},
		{"404 of a proxy", page(404), errNoClass, "HTTP 404", 1},
		{"403", s3Error(403, "AccessDenied"), store.ErrNotAllowed, "s3:ListBucket", 1},
		{"400 expired", s3Error(400, "ExpiredToken"), store.ErrNotAllowed, "", 1},
		{"400", s3Error(400, "InvalidArgument"), store.ErrInvalid, "", 1},
		{"301", s3Error(301, "PermanentRedirect"), store.ErrInvalid, "check region", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, c.answer)
			s := f.store(t, s3.Options{Timeout: 200 * time.Millisecond})
			got, err := s.Get(t.Context(), "key")
			checkClass(t, err, c.want)
			if c.want == nil && string(got) != "data" {
				t.Errorf("got %q", got)
			}
			if c.want != nil && (err == nil || !strings.Contains(err.Error(), c.text)) {
				t.Errorf("message %v does not say %q", err, c.text)
			}
			if n := len(f.seen()); n != c.requests {
				t.Errorf("%d requests were sent, want %d", n, c.requests)
			}
		})
	}
}

func page(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<html><body>no such page</body></html>")
	}
}

// A body that trickles is given the time of its size and no more.
func TestReadStalls(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	s := f.store(t, s3.Options{Timeout: 200 * time.Millisecond})
	_, err := s.Get(t.Context(), "key")
	if err == nil || !strings.Contains(err.Error(), "too slow") {
		t.Errorf("error %v", err)
	}
	checkClass(t, err, errNoClass)
}

func TestReadCancelled(t *testing.T) {
	arrived := make(chan struct{}, 10)
	f := newFake(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	s := f.store(t, s3.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := s.Get(ctx, "key")
	checkClass(t, err, context.Canceled)
}

func TestRangeAnswers(t *testing.T) {
	ranged := func(contentRange, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", contentRange)
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, body)
		}
	}
	refusal := func(contentRange string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.Header().Set("Content-Length", "3")
				return
			}
			if contentRange != "" {
				w.Header().Set("Content-Range", contentRange)
			}
			s3Error(416, "InvalidRange")(w, r)
		}
	}
	for _, c := range []struct {
		name     string
		answer   http.HandlerFunc
		off, n   int64
		want     string
		size     int64
		fails    bool
		requests int
	}{
		{"part", ranged("bytes 2-4/10", "234"), 2, 3, "234", 10, false, 1},
		{"end", ranged("bytes 8-9/10", "89"), 8, 5, "89", 10, false, 1},
		{"Range ignored", status(200, "0123456789"), 2, 3, "234", 10, false, 1},
		{"Range ignored, beyond", status(200, "0123456789"), 20, 3, "", 10, false, 1},
		{"416 with size", refusal("bytes */3"), 3, 1, "", 3, false, 1},
		{"416 without size", refusal(""), 3, 1, "", 3, false, 2},
		{"416 inside the object", refusal("bytes */9"), 3, 1, "", 0, true, 1},
		{"another range", ranged("bytes 0-2/10", "012"), 2, 3, "", 0, true, 1},
		{"less than asked for", ranged("bytes 2-3/10", "23"), 2, 3, "", 0, true, 1},
		{"no size", ranged("bytes 2-4/*", "234"), 2, 3, "", 0, true, 1},
		{"shorter than it says", ranged("bytes 2-4/10", "23"), 2, 3, "", 0, true, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, c.answer)
			s := f.store(t, s3.Options{})
			got, size, err := s.GetRange(t.Context(), "key", c.off, c.n)
			if (err != nil) != c.fails {
				t.Fatalf("error %v", err)
			}
			if string(got) != c.want || size != c.size {
				t.Errorf("%q of %d, want %q of %d", got, size, c.want, c.size)
			}
			if n := len(f.seen()); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			if got, want := f.seen()[0].header.Get("Range"), fmt.Sprintf("bytes=%d-%d", c.off, c.off+c.n-1); got != want {
				t.Errorf("Range: %s, want %s", got, want)
			}
		})
	}
}

func listing(truncated bool, next string, keys ...string) http.HandlerFunc {
	var b strings.Builder
	fmt.Fprintf(&b, `<?xml version="1.0"?><ListBucketResult><IsTruncated>%v</IsTruncated>`, truncated)
	if next != "" {
		fmt.Fprintf(&b, "<NextContinuationToken>%s</NextContinuationToken>", next)
	}
	for _, k := range keys {
		fmt.Fprintf(&b, "<Contents><Key>%s</Key><Size>7</Size></Contents>", k)
	}
	b.WriteString("</ListBucketResult>")
	return status(200, b.String())
}

// A listing that cannot be trusted is an error: unsorted (directory buckets, some gateways), outside the prefix, or
// ignoring start-after.
func TestListDistrusts(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"unsorted":           listing(false, "", "p/b", "p/a"),
		"repeated":           listing(false, "", "p/b", "p/b"),
		"outside the prefix": listing(false, "", "p/b", "q/a"),
		"start ignored":      listing(false, "", "p/a0", "p/b"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newFake(t, answer).store(t, s3.Options{Prefix: "p"})
			_, _, err := s.List(t.Context(), "", "a0", 0)
			checkClass(t, err, store.ErrInvalid)
		})
	}
}

func TestListPages(t *testing.T) {
	t.Run("empty page", func(t *testing.T) {
		// Deleted versions can fill a page; the caller cannot go on from an empty one.
		f := newFake(t, sequence(listing(true, "token"), listing(true, "token2", "p/a", "p/b")))
		objs, more, err := f.store(t, s3.Options{Prefix: "p"}).List(t.Context(), "", "", 2)
		if err != nil || !more || len(objs) != 2 || objs[0] != (store.Object{Key: "a", Size: 7}) {
			t.Errorf("list = %v, %v, %v", objs, more, err)
		}
		if got := f.last(t).query["continuation-token"]; len(got) != 1 || got[0] != "token" {
			t.Errorf("continuation-token %v", got)
		}
	})
	t.Run("no way on", func(t *testing.T) {
		f := newFake(t, listing(true, ""))
		if _, _, err := f.store(t, s3.Options{}).List(t.Context(), "", "", 2); err == nil {
			t.Error("no error")
		}
		if _, err := f.store(t, s3.Options{}).ListDirs(t.Context(), ""); err == nil {
			t.Error("no error for directories")
		}
	})
	t.Run("after a key in a directory", func(t *testing.T) {
		f := newFake(t, sequence(listing(true, "token", "p/a-b/x", "p/a/x"), listing(true, "token2", "p/a/y", "p/b/x"), listing(false, "", "p/c")))
		objs, more, err := f.store(t, s3.Options{Prefix: "p"}).List(t.Context(), "", "a/x", 2)
		if err != nil || !more || len(objs) != 2 || objs[0].Key != "a/y" || objs[1].Key != "b/x" {
			t.Errorf("list = %v, %v, %v", objs, more, err)
		}
		if got := f.seen()[0].query["start-after"]; len(got) != 1 || got[0] != "p/a" {
			t.Errorf("start-after %v", got)
		}
	})
	t.Run("after a key in the directory itself", func(t *testing.T) {
		f := newFake(t, listing(false, "", "p/a/y"))
		if _, _, err := f.store(t, s3.Options{Prefix: "p"}).List(t.Context(), "a/", "a/x", 2); err != nil {
			t.Error(err)
		}
		if got := f.last(t).query["start-after"]; len(f.seen()) != 1 || len(got) != 1 || got[0] != "p/a/x" {
			t.Errorf("%d requests, start-after %v", len(f.seen()), got)
		}
	})
	t.Run("folder object", func(t *testing.T) {
		f := newFake(t, listing(false, "", "p/", "p/a"))
		objs, _, err := f.store(t, s3.Options{Prefix: "p"}).List(t.Context(), "", "", 0)
		if err != nil || len(objs) != 1 || objs[0].Key != "a" {
			t.Errorf("list = %v, %v", objs, err)
		}
	})
	// A listing whose body breaks off, or is none, is repeated as other answers are.
	broken := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a</Key>")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	t.Run("broken off", func(t *testing.T) {
		f := newFake(t, sequence(broken, listing(false, "", "a", "b")))
		objs, _, err := f.store(t, s3.Options{}).List(t.Context(), "", "", 0)
		if err != nil || len(objs) != 2 {
			t.Errorf("list = %v, %v", objs, err)
		}
	})
	t.Run("broken off for ever", func(t *testing.T) {
		f := newFake(t, broken)
		_, _, err := f.store(t, s3.Options{}).List(t.Context(), "", "", 0)
		checkClass(t, err, errNoClass)
		if n := len(f.seen()); err == nil || n != 4 {
			t.Errorf("error %v after %d requests", err, n)
		}
		if _, err = f.store(t, s3.Options{}).ListDirs(t.Context(), ""); err == nil {
			t.Error("directories of a listing that broke off")
		}
	})
	t.Run("no listing", func(t *testing.T) {
		f := newFake(t, status(200, "<html>please log in</html>"))
		objs, _, err := f.store(t, s3.Options{}).List(t.Context(), "", "", 0)
		if err == nil {
			t.Errorf("a page was taken for the listing %v", objs)
		}
	})
	t.Run("errors", func(t *testing.T) {
		f := newFake(t, sequence(s3Error(500, "InternalError"), s3Error(403, "AccessDenied")))
		_, _, err := f.store(t, s3.Options{}).List(t.Context(), "", "", 0)
		if !errors.Is(err, store.ErrNotAllowed) {
			t.Errorf("error %v", err)
		}
	})
}

// A store that asks for more time than a read waits inside is not asked again by it: the caller is told how long to wait.
func TestReadHonoursRetryAfter(t *testing.T) {
	busy := func(after string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", after)
			s3Error(503, "SlowDown")(w, r)
		}
	}
	for after, c := range map[string]struct {
		requests int
		asked    time.Duration
	}{
		"120": {1, 2 * time.Minute}, "86400": {1, store.MaxRetryAfter}, "0": {4, 0}, "soon": {4, 0},
	} {
		f := newFake(t, busy(after))
		s := f.store(t, s3.Options{})
		_, err := s.Get(t.Context(), "k")
		if n := len(f.seen()); n != c.requests || store.RetryAfter(err) != c.asked {
			t.Errorf("Retry-After %s: %d requests, try again after %s: %v", after, n, store.RetryAfter(err), err)
		}
		err = s.Create(t.Context(), "k", nil)
		checkClass(t, err, store.ErrUnknown)
		if store.RetryAfter(err) != c.asked {
			t.Errorf("create, Retry-After %s: try again after %s", after, store.RetryAfter(err))
		}
	}
	f := newFake(t, busy(time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)))
	if _, err := f.store(t, s3.Options{}).Get(t.Context(), "k"); store.RetryAfter(err) != store.MaxRetryAfter {
		t.Errorf("a date: %s", store.RetryAfter(err))
	}
}
