package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

// startFrame serves f on a free port; the returned function shuts down and gives Serve's error.
func startFrame(t *testing.T, set func(*Frame), settings ...string) (url string, stop func() error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "port")
	cfg, err := Load(testKeys(), "", append(settings, "rest.port.file="+file), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := NewFrame("test", cfg, zap.NewNop())
	if set != nil {
		set(f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return scheme(cfg) + "://" + awaitFile(t, file), stop
}

func awaitFile(t *testing.T, file string) string {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	t.Fatal("no port file")
	return ""
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestProbesStatusAndMetrics(t *testing.T) {
	var sick, ready atomic.Bool
	url, _ := startFrame(t, func(f *Frame) {
		f.Health = func() error {
			if sick.Load() {
				return errors.New("poll loop stuck")
			}
			return nil
		}
		f.Ready = func() error {
			if !ready.Load() {
				return errors.New("waiting for partitions")
			}
			return nil
		}
		f.Status = func() any { return map[string]int{"partitions": 4} }
		f.Mux.HandleFunc("GET /mine", func(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, 201, "hi") })
	})
	check := func(path string, code int, part string) {
		t.Helper()
		if c, b := get(t, url+path); c != code || !strings.Contains(b, part) {
			t.Errorf("%s: %d %s; want %d …%s…", path, c, b, code, part)
		}
	}
	check("/healthz", 200, "ok")
	check("/readyz", 503, "waiting for partitions")
	check("/status", 200, `"notReady": "waiting for partitions"`)
	ready.Store(true)
	sick.Store(true)
	check("/readyz", 200, "ok")
	check("/healthz", 503, "poll loop stuck")
	check("/mine", 201, "hi")
	check("/nope", 404, "")
	check("/metrics", 200, "go_goroutines")
	check("/metrics", 200, "process_open_fds")
	check("/metrics", 200, `tapedeck_build_info{`)
	_, b := get(t, url+"/status")
	var s struct {
		Name, Version, Revision string
		UptimeSeconds           *int64
		Ready                   bool
		Status                  map[string]int
	}
	if err := json.Unmarshal([]byte(b), &s); err != nil || s.Name != "test" || s.Version == "" || s.Revision == "" || s.UptimeSeconds == nil ||
		!s.Ready || s.Status["partitions"] != 4 {
		t.Errorf("status %s: %v", b, err)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	url, _ := startFrame(t, func(f *Frame) {
		f.MaxBody = 10
		f.Mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				WriteError(w, http.StatusRequestEntityTooLarge, "read body: %v", err)
				return
			}
			WriteJSON(w, 200, string(b))
		})
	})
	for body, want := range map[string]int{"0123456789": 200, "0123456789a": 413} {
		resp, err := http.Post(url+"/echo", "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("%q: %d %s", body, resp.StatusCode, b)
		}
		if want == 413 && !strings.Contains(string(b), `"error_code": 413`) {
			t.Errorf("error body %s", b)
		}
	}
}

// A request that runs when the shutdown begins is answered, and Serve returns only after it.
func TestShutdownFinishesRunningRequests(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	var finished atomic.Bool
	url, stop := startFrame(t, func(f *Frame) {
		f.Mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-release
			finished.Store(r.Context().Err() == nil)
			WriteJSON(w, 200, "done")
		})
	})
	got := make(chan string, 1)
	go func() {
		resp, err := http.Get(url + "/slow")
		if err != nil {
			got <- err.Error()
			return
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		got <- strings.TrimSpace(string(b))
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	// The listener closes first; then the request may go on.
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		resp, err := http.Get(url + "/healthz")
		if err != nil {
			break
		}
		_ = resp.Body.Close()
		if time.Now().After(deadline) {
			t.Fatal("still accepting")
		}
	}
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if g := <-got; g != `"done"` || !finished.Load() {
		t.Errorf("request ended with %q", g)
	}
}

func TestListenErrorNamesTheSetting(t *testing.T) {
	cfg, err := Load(testKeys(), "", []string{"rest.listen=256.0.0.1:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := NewFrame("x", cfg, zap.NewNop()).Serve(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "rest.listen: ") {
		t.Errorf("got %v", err)
	}
}

func TestAtStart(t *testing.T) {
	cfg, err := Load(testKeys(), "", []string{"startup.timeout=900ms"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := NewFrame("x", cfg, zap.NewNop())
	n := 0
	if err := f.AtStart(t.Context(), "store", func(context.Context) error {
		if n++; n < 2 {
			return errors.New("not yet")
		}
		return nil
	}); err != nil || n != 2 {
		t.Errorf("retry: %d, %v", n, err)
	}
	err = f.AtStart(t.Context(), "bootstrap.servers", func(ctx context.Context) error { <-ctx.Done(); return errors.New("no broker answered at h:1") })
	if want := "bootstrap.servers: no broker answered at h:1 (gave up after 900ms, startup.timeout)"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	n = 0
	err = f.AtStart(t.Context(), "store", func(context.Context) error { n++; return Permanent(errors.New("refused")) })
	if n != 1 || err == nil || err.Error() != "store: refused" {
		t.Errorf("permanent: %d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.AtStart(ctx, "store", func(context.Context) error { return errors.New("x") }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log, err := NewLogger(&b, "json", "warn")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("hidden")
	log.Warn("shown", zap.Int("n", 1))
	var m map[string]any
	if err := json.Unmarshal(b.Bytes(), &m); err != nil || m["msg"] != "shown" || m["level"] != "warn" || m["n"] != 1.0 {
		t.Errorf("%v: %s", err, b.String())
	}
	b.Reset()
	if log, err = NewLogger(&b, "console", "debug"); err != nil {
		t.Fatal(err)
	}
	log.Debug("hi")
	if s := b.String(); !strings.Contains(s, "DEBUG") || !strings.Contains(s, "hi") {
		t.Error(s)
	}
	if _, err := NewLogger(&b, "xml", "info"); err == nil {
		t.Error("format xml accepted")
	}
}

func runCommand(run func(context.Context, *Frame) error, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	cmd := Command("test", "A test.", testKeys(), run)
	cmd.AddCommand(&cobra.Command{Use: "find", RunE: func(*cobra.Command, []string) error { return &ExitError{Code: 1} }})
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = Main(cmd, args)
	return code, out.String(), errs.String()
}

func TestMainExitStatuses(t *testing.T) {
	run := func(err error) func(context.Context, *Frame) error {
		return func(context.Context, *Frame) error { return err }
	}
	for _, tt := range []struct {
		err    error
		args   []string
		code   int
		stderr string
	}{
		{nil, nil, 0, ""},
		{errors.New("two\nlines"), nil, 2, "test: two lines\n"},
		{fmt.Errorf("w: %w", &ExitError{Code: 3, Err: errors.New("three")}), nil, 3, "test: w: three\n"},
		{nil, []string{"find"}, 1, ""},
		{nil, []string{"nope"}, 2, "unknown command"},
		{nil, []string{"--nope"}, 2, "unknown flag"},
		{nil, []string{"--set", "flsh.size=1"}, 2, `did you mean "flush.size"?`},
	} {
		code, _, stderr := runCommand(run(tt.err), append([]string{}, tt.args...)...)
		if code != tt.code || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%v %v: %d %q", tt.err, tt.args, code, stderr)
		}
	}
}

func TestConfigAndHelpCommands(t *testing.T) {
	code, out, _ := runCommand(nil, "config", "--set", "flush.size=7", "--set", "api.key=s3cret")
	if code != 0 || !strings.Contains(out, "flush.size: 7") || strings.Contains(out, "s3cret") || !strings.Contains(out, "'****'") {
		t.Errorf("%d\n%s", code, out)
	}
	_, out, _ = runCommand(nil, "--help")
	for _, k := range testKeys() {
		if !strings.Contains(out, k.Name) || !strings.Contains(out, k.Doc) {
			t.Errorf("--help does not show %s", k.Name)
		}
	}
	for _, part := range []string{"records per segment (int; default 100)", "  flush.size: 1000\n", "  topics: [a, b]\n"} {
		if !strings.Contains(out, part) {
			t.Errorf("--help lacks %q:\n%s", part, out)
		}
	}
	if _, err := Load(testKeys(), write(t, ExampleFile(testKeys())), nil, nil); err != nil {
		t.Errorf("the example file: %v", err)
	}
	if code, out, _ := runCommand(nil, "version"); code != 0 || !strings.HasPrefix(out, "test ") {
		t.Errorf("%d %s", code, out)
	}
}

func TestHealthcheckCommand(t *testing.T) {
	var sick atomic.Bool
	url, _ := startFrame(t, func(f *Frame) {
		f.Health = func() error {
			if sick.Load() {
				return errors.New("sick")
			}
			return nil
		}
	})
	addr := strings.TrimPrefix(url, "http://")
	file := filepath.Join(t.TempDir(), "port")
	if err := os.WriteFile(file, []byte(addr+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"rest.listen=" + addr, "rest.port.file=" + file, "rest.listen=" + strings.Replace(addr, "127.0.0.1", "", 1)} {
		if code, _, e := runCommand(nil, "healthcheck", "--set", set); code != 0 {
			t.Errorf("%s: %d %s", set, code, e)
		}
	}
	sick.Store(true)
	if code, _, e := runCommand(nil, "healthcheck", "--set", "rest.listen="+addr); code != 1 || !strings.Contains(e, "sick") {
		t.Errorf("%d %s", code, e)
	}
	if code, _, _ := runCommand(nil, "healthcheck", "--set", "rest.listen=127.0.0.1:1"); code != 1 {
		t.Errorf("nobody there: %d", code)
	}
}

func TestRefusalsOfTheMuxAreJSON(t *testing.T) {
	url, _ := startFrame(t, func(f *Frame) {
		f.Mux.HandleFunc("POST /things", func(w http.ResponseWriter, _ *http.Request) { WriteError(w, http.StatusNotFound, "no such thing") })
	})
	for _, c := range []struct {
		method, path, message string
		status                int
	}{
		{"GET", "/nowhere", "there is nothing at GET /nowhere", 404},
		{"GET", "/things", "the method GET is not allowed at /things", 405},
		{"POST", "/healthz", "POST /healthz", 404}, // the catch-all of the service's own routes has none for it
		{"POST", "/things", "no such thing", 404},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, url+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var body struct {
			Code    int    `json:"error_code"`
			Message string `json:"message"`
		}
		err = json.NewDecoder(resp.Body).Decode(&body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || body.Code != c.status || !strings.Contains(body.Message, c.message) {
			t.Errorf("%s %s: %d %+v %v", c.method, c.path, resp.StatusCode, body, err)
		}
		if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("%s %s: %s", c.method, c.path, ct)
		}
		if c.status == 405 && resp.Header.Get("Allow") != "POST" {
			t.Errorf("Allow is %q", resp.Header.Get("Allow"))
		}
	}
}
