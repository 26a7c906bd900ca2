package schema_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
)

const user = `{"type":"record","name":"User","fields":[{"name":"id","type":"long"}]}`

// fake is a registry that counts requests by path and can be told to answer otherwise.
type fake struct {
	*srfake.Registry
	mu    sync.Mutex
	calls map[string]int
	wrong http.HandlerFunc
}

func newFake(t *testing.T, opts ...srfake.Option) *fake {
	f := &fake{Registry: srfake.New(opts...), calls: map[string]int{}}
	t.Cleanup(f.Close)
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.calls[r.URL.Path]++
		if f.wrong != nil {
			f.wrong(w, r)
			return true
		}
		return false
	})
	return f
}

func (f *fake) answer(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = h
}

func (f *fake) asked(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[path]
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

func newRegistry(t *testing.T, cfg schema.Config) *schema.Registry {
	t.Helper()
	r, err := schema.NewRegistry(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestByID(t *testing.T) {
	f := newFake(t)
	f.SeedSchema("users-value", 4, 7, sr.Schema{Schema: user, Type: sr.TypeAvro})
	f.SeedSchema("doc", 1, 8, sr.Schema{Schema: `{"type":"object"}`, Type: sr.TypeJSON})
	r := newRegistry(t, schema.Config{URL: f.URL() + "/"})
	want := segment.Schema{ID: 7, Type: "AVRO", Text: user, Subject: "users-value", Version: 4}
	for range 3 {
		got, err := r.ByID(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	if n := f.asked("/schemas/ids/7"); n != 1 {
		t.Errorf("asked %d times for one id", n)
	}
	got, err := r.ByID(t.Context(), 8)
	if err != nil || got.Type != "JSON" || got.Text != `{"type":"object"}` {
		t.Errorf("%+v, %v", got, err)
	}
	// What is known stays known when the registry is gone.
	f.answer(status(500, ""))
	if got, err := r.ByID(t.Context(), 7); err != nil || got.Text != user {
		t.Errorf("with the registry gone: %+v, %v", got, err)
	}
}

func TestFirstSubject(t *testing.T) {
	f := newFake(t)
	for _, subject := range []string{"c", "a", "b"} {
		if _, _, err := f.RegisterSchema(subject, sr.Schema{Schema: user, Type: sr.TypeAvro}); err != nil {
			t.Fatal(err)
		}
	}
	r := newRegistry(t, schema.Config{URL: f.URL()})
	got, err := r.ByID(t.Context(), 1)
	if err != nil || got.Subject != "a" || got.Version != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestReferences: main needs b and c, b needs c and d, d needs c.
func TestReferences(t *testing.T) {
	f := newFake(t)
	reg := func(subject string, refs ...string) int {
		s := sr.Schema{Schema: fmt.Sprintf(`syntax = "proto3"; message %s {}`, subject), Type: sr.TypeProtobuf}
		for _, ref := range refs {
			s.References = append(s.References, sr.SchemaReference{Name: ref + ".proto", Subject: ref, Version: 1})
		}
		id, _, err := f.RegisterSchema(subject, s)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	reg("c")
	reg("d", "c")
	reg("b", "c", "d")
	id := reg("main", "b", "c")
	got, err := newRegistry(t, schema.Config{URL: f.URL()}).ByID(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	ref := func(s string) segment.Reference { return segment.Reference{Name: s + ".proto", Subject: s, Version: 1} }
	full := func(s string, indirect bool, own ...string) segment.Reference {
		x := ref(s)
		x.Text, x.Indirect = fmt.Sprintf(`syntax = "proto3"; message %s {}`, s), indirect
		for _, o := range own {
			x.References = append(x.References, ref(o))
		}
		return x
	}
	want := []segment.Reference{full("c", false), full("d", true, "c"), full("b", false, "c", "d")}
	if d := cmp.Diff(want, got.References); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got.Type != "PROTOBUF" {
		t.Errorf("type %s", got.Type)
	}
	// A reference that cannot be read is no definite answer about the id.
	r := newRegistry(t, schema.Config{URL: f.URL()})
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/subjects/d/") {
			status(404, `{"error_code":40402,"message":"Version not found"}`)(w, r)
			return true
		}
		return false
	})
	if _, err := r.ByID(t.Context(), id); !errors.Is(err, schema.ErrUnavailable) || !strings.Contains(err.Error(), "subject d version 1") {
		t.Errorf("with a reference missing: %v", err)
	}
}

func TestReferencesAreBounded(t *testing.T) {
	// Each schema refers to the next, without end.
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/subjects/s/versions/%d", &n)
		fmt.Fprintf(w, `{"schema":"x","references":[{"name":"n","subject":"s","version":%d}]}`, n+1)
	}))
	defer s.Close()
	_, err := newRegistry(t, schema.Config{URL: s.URL}).ByID(t.Context(), 1)
	if !errors.Is(err, schema.ErrUnavailable) || !strings.Contains(err.Error(), "more than 1000 references") {
		t.Errorf("error %v", err)
	}
}

func TestReferenceCycle(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/ids/1/versions") {
			fmt.Fprint(w, `[]`)
			return
		}
		fmt.Fprint(w, `{"schema":"x","references":[{"name":"n","subject":"s","version":1}]}`)
	}))
	defer s.Close()
	got, err := newRegistry(t, schema.Config{URL: s.URL}).ByID(t.Context(), 1)
	if err != nil || len(got.References) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNoSuchID(t *testing.T) {
	f := newFake(t)
	now := time.Unix(1_000_000, 0)
	r := newRegistry(t, schema.Config{URL: f.URL(), NegativeTTL: time.Minute, Now: func() time.Time { return now }})
	ask := func() error { _, err := r.ByID(t.Context(), 1); return err }
	for range 3 {
		if err := ask(); !errors.Is(err, schema.ErrNoSuchID) || errors.Is(err, schema.ErrUnavailable) || !strings.Contains(err.Error(), "schema id 1") {
			t.Errorf("error %v", err)
		}
	}
	if n := f.asked("/schemas/ids/1"); n != 1 {
		t.Errorf("asked %d times within the negative cache's time", n)
	}
	if _, _, err := f.RegisterSchema("s", sr.Schema{Schema: user}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute - 1)
	if err := ask(); !errors.Is(err, schema.ErrNoSuchID) {
		t.Errorf("just before the negative answer ends: %v", err)
	}
	now = now.Add(1)
	if err := ask(); err != nil {
		t.Errorf("after the negative answer: %v", err)
	}
	// Ids that a registry cannot give are not asked for.
	for _, id := range []int{-1, 1 << 31, 1 << 40} {
		if _, err := r.ByID(t.Context(), id); !errors.Is(err, schema.ErrNoSuchID) {
			t.Errorf("id %d: %v", id, err)
		}
	}
}

// TestUnavailable: none of these answers says anything about the id, and none is remembered.
func TestUnavailable(t *testing.T) {
	f := newFake(t)
	f.SeedSchema("s", 1, 7, sr.Schema{Schema: user})
	r := newRegistry(t, schema.Config{URL: f.URL()})
	for name, h := range map[string]http.HandlerFunc{
		"500":                    status(500, `{"error_code":50001,"message":"store"}`),
		"503 without body":       status(503, ""),
		"401":                    status(401, `{"error_code":401,"message":"Unauthorized"}`),
		"403":                    status(403, `{"error_code":40301,"message":"denied"}`),
		"404 of another service": status(404, "<html>Not Found</html>"),
		"404 of a wrong path":    status(404, `{"error_code":404,"message":"HTTP 404 Not Found"}`),
		"404 without code":       status(404, `{"message":"no route"}`),
		"200 of another service": status(200, "<html>Welcome</html>"),
		"200 without a schema":   status(200, "{}"),
		"200 null":               status(200, "null"),
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"schema":"`)
		},
	} {
		f.answer(h)
		for range 2 {
			if _, err := r.ByID(t.Context(), 7); !errors.Is(err, schema.ErrUnavailable) || errors.Is(err, schema.ErrNoSuchID) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := r.Ping(t.Context()); !errors.Is(err, schema.ErrUnavailable) {
			t.Errorf("%s: ping %v", name, err)
		}
	}
	f.answer(nil)
	if _, err := r.ByID(t.Context(), 7); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := r.Ping(t.Context()); err != nil { // there is no id 1, which is an answer
		t.Errorf("ping: %v", err)
	}
	f.Close()
	if _, err := newRegistry(t, schema.Config{URL: f.URL()}).ByID(t.Context(), 7); !errors.Is(err, schema.ErrUnavailable) {
		t.Errorf("with nothing listening: %v", err)
	}
}

// TestVersionsRoute: subject and version are left out where the registry has no such route, but not for a moment's trouble.
func TestVersionsRoute(t *testing.T) {
	for _, c := range []struct {
		name string
		h    http.HandlerFunc
		ok   bool
	}{
		{"no route", status(404, "not found"), true},
		{"no route, as JSON", status(404, `{"error_code":404,"message":"HTTP 404 Not Found"}`), true},
		{"none left", status(404, `{"error_code":40403,"message":"Schema not found"}`), true},
		{"empty", status(200, `[]`), true},
		{"trouble", status(500, `{"error_code":50001,"message":"x"}`), false},
		{"denied", status(403, `{"error_code":40301,"message":"x"}`), false},
	} {
		f := newFake(t)
		f.SeedSchema("s", 1, 7, sr.Schema{Schema: user})
		f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/schemas/ids/7/versions" {
				c.h(w, r)
				return true
			}
			return false
		})
		got, err := newRegistry(t, schema.Config{URL: f.URL()}).ByID(t.Context(), 7)
		if c.ok && (err != nil || got.Subject != "" || got.Version != 0 || got.Text != user) || !c.ok && !errors.Is(err, schema.ErrUnavailable) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestContextEndsLookup(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := newRegistry(t, schema.Config{URL: s.URL}).ByID(ctx, 1)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, schema.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	_, err := newRegistry(t, schema.Config{URL: s.URL, Timeout: 20 * time.Millisecond}).ByID(t.Context(), 1)
	if !errors.Is(err, schema.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("timeout: %v", err)
	}
}

func TestRegister(t *testing.T) {
	f := newFake(t)
	r := newRegistry(t, schema.Config{URL: f.URL()})
	if _, err := r.ByID(t.Context(), 1); !errors.Is(err, schema.ErrNoSuchID) {
		t.Fatal(err)
	}
	id, err := r.Register(t.Context(), "trips-value", user, "AVRO")
	if err != nil || id != 1 {
		t.Fatalf("%d, %v", id, err)
	}
	if got, err := r.ByID(t.Context(), id); err != nil || got.Subject != "trips-value" || got.Text != user {
		t.Errorf("right after registering: %+v, %v", got, err)
	}
	if again, err := r.Register(t.Context(), "trips-value", user, "AVRO"); err != nil || again != id {
		t.Errorf("again: %d, %v", again, err)
	}
	if _, err := r.Register(t.Context(), "s", user, "XML"); err == nil || errors.Is(err, schema.ErrUnavailable) {
		t.Errorf("unknown type: %v", err)
	}
	f.answer(status(409, `{"error_code":409,"message":"incompatible"}`))
	if _, err := r.Register(t.Context(), "s", user, "AVRO"); err == nil || errors.Is(err, schema.ErrUnavailable) || !strings.Contains(err.Error(), "incompatible") {
		t.Errorf("incompatible: %v", err)
	}
	f.answer(status(422, `{"error_code":42201,"message":"invalid"}`))
	if _, err := r.Register(t.Context(), "s", user, "AVRO"); err == nil || errors.Is(err, schema.ErrUnavailable) {
		t.Errorf("invalid: %v", err)
	}
	f.answer(status(500, ""))
	if _, err := r.Register(t.Context(), "s", user, "AVRO"); !errors.Is(err, schema.ErrUnavailable) {
		t.Errorf("trouble: %v", err)
	}
}

func TestPassword(t *testing.T) {
	f := newFake(t, srfake.WithAuth("Basic dXNlcjpzZWNyZXQ=")) // user:secret
	f.SeedSchema("s", 1, 7, sr.Schema{Schema: user})
	if _, err := newRegistry(t, schema.Config{URL: f.URL(), User: "user", Password: "secret"}).ByID(t.Context(), 7); err != nil {
		t.Error(err)
	}
	_, err := newRegistry(t, schema.Config{URL: f.URL(), User: "user", Password: "guess"}).ByID(t.Context(), 7)
	if !errors.Is(err, schema.ErrUnavailable) || strings.Contains(err.Error(), "guess") {
		t.Errorf("wrong password: %v", err)
	}
}

func TestCAFile(t *testing.T) {
	f := newFake(t)
	f.SeedSchema("s", 1, 7, sr.Schema{Schema: user})
	s := httptest.NewUnstartedServer(f.Handler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // a refused handshake is expected
	s.StartTLS()
	defer s.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newRegistry(t, schema.Config{URL: s.URL, CAFile: file}).ByID(t.Context(), 7); err != nil {
		t.Error(err)
	}
	if _, err := newRegistry(t, schema.Config{URL: s.URL}).ByID(t.Context(), 7); !errors.Is(err, schema.ErrUnavailable) {
		t.Errorf("without the CA: %v", err)
	}
}

func TestNewRegistryRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  schema.Config
		want string
	}{
		{schema.Config{}, "schema.registry.url"},
		{schema.Config{URL: "localhost:8081"}, "http:// or https://"},
		{schema.Config{URL: "ftp://x"}, "http:// or https://"},
		{schema.Config{URL: "http://"}, "http:// or https://"},
		{schema.Config{URL: "http://user:secret@x"}, "basic.auth.user.info"},
		{schema.Config{URL: "://user:secret@x"}, "schema.registry.url"},
		{schema.Config{URL: "http://x", User: "u"}, "basic.auth.user.info"},
		{schema.Config{URL: "http://x", Password: "secret"}, "basic.auth.user.info"},
		{schema.Config{URL: "http://x", CAFile: empty + ".missing"}, "schema.registry.ssl.ca.location"},
		{schema.Config{URL: "http://x", CAFile: empty}, "no PEM certificate"},
	} {
		_, err := schema.NewRegistry(c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v, want …%s…", c.cfg, err, c.want)
		}
	}
}

// TestCallersDoNotShare: a caller may change what it got.
func TestCallersDoNotShare(t *testing.T) {
	f := newFake(t)
	if _, _, err := f.RegisterSchema("a", sr.Schema{Schema: user}); err != nil {
		t.Fatal(err)
	}
	id, _, err := f.RegisterSchema("b", sr.Schema{Schema: `"User"`, References: []sr.SchemaReference{{Name: "User", Subject: "a", Version: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRegistry(t, schema.Config{URL: f.URL()})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				s, err := r.ByID(t.Context(), id)
				if err != nil || len(s.References) != 1 || s.References[0].Text != user {
					t.Errorf("%+v, %v", s, err)
					return
				}
				s.References[0].Text = "changed"
				s.References = slices.Delete(s.References, 0, 1)
			}
		})
	}
	wg.Wait()
}
