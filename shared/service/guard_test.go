package service

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"tapedeck.dev/tapedeck/shared/secure"
	"tapedeck.dev/tapedeck/shared/secure/securetest"
)

const (
	oldToken = "old-0123456789abcdef"
	newToken = "new-0123456789abcdef"
)

func guardOf(t *testing.T, settings ...string) *guard {
	t.Helper()
	cfg, err := Load(testKeys(), "", settings, nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGuard(cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// productRoutes finds the routes of every service in the sources, so that a new one is tested without anybody thinking of it.
func productRoutes(t *testing.T) []string {
	t.Helper()
	literal := regexp.MustCompile(`"(GET|HEAD|POST|PUT|PATCH|DELETE) (/[^" ]*)"`)
	table := regexp.MustCompile(`\{"(GET|HEAD|POST|PUT|PATCH|DELETE)", "(/[^" ]*)"`)
	var routes []string
	for _, dir := range []string{"archiver", "replayer", "processor", "shared/service"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			for _, re := range []*regexp.Regexp{literal, table} {
				for _, m := range re.FindAllStringSubmatch(string(src), -1) {
					routes = append(routes, m[1]+" "+m[2])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, known := range []string{"POST /replays", "PUT /sessions/{name}", "GET /status", "GET /healthz"} {
		if !slices.Contains(routes, known) {
			t.Fatalf("%s is not among the routes found: %v", known, routes)
		}
	}
	slices.Sort(routes)
	return slices.Compact(routes)
}

// TestEveryRouteNeedsTheToken asks every route of the three services, and methods and paths that none of them has.
func TestEveryRouteNeedsTheToken(t *testing.T) {
	reached := ""
	cfg, err := Load(testKeys(), "", []string{"rest.auth.token=" + oldToken}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := NewFrame("test", cfg, zap.NewNop())
	f.Mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { reached = r.Method + " " + r.URL.Path })
	g, err := newGuard(cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	h := f.handler(g)
	routes := append(productRoutes(t), "DELETE /", "POST /healthz", "PUT /readyz", "GET /healthz/", "GET //healthz", "GET /x/../healthz", "POST /loggers")
	for _, route := range routes {
		method, path, _ := strings.Cut(route, " ")
		path = regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "x")
		for _, auth := range []string{"", "Bearer", "Bearer ", "Bearer wrong-0123456789ab", "Bearer " + oldToken[1:], "Basic " + oldToken, oldToken, "Bearer " + oldToken} {
			r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader("{}"))
			if auth != "" {
				r.Header.Set("Authorization", auth)
			}
			w := httptest.NewRecorder()
			reached = ""
			h.ServeHTTP(w, r)
			free := route == "GET /healthz" || route == "GET /readyz"
			if admitted := w.Code != http.StatusUnauthorized; admitted != (free || auth == "Bearer "+oldToken) {
				t.Errorf("%s with %q: %d %s", route, auth, w.Code, w.Body)
			}
			if w.Code == http.StatusUnauthorized && (reached != "" || w.Header().Get("WWW-Authenticate") == "") {
				t.Errorf("%s with %q: refused, but reached %q; header %q", route, auth, reached, w.Header())
			}
		}
	}
}

// TestOnlyTheFrameServes: a listener made elsewhere would be one without TLS and token.
func TestOnlyTheFrameServes(t *testing.T) {
	server := regexp.MustCompile(`http\.Server\{|http\.ListenAndServe|http\.Serve\(|http\.ServeTLS|net\.Listen\(|tls\.Listen\(|ListenConfig`)
	found := 0
	for _, dir := range []string{"archiver", "replayer", "processor", "shared"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			if err == nil && server.Match(src) {
				switch {
				case strings.HasSuffix(path, "service/frame.go"):
					found++
				case strings.Contains(path, "/devstack/"), strings.Contains(path, "/e2e/"), strings.Contains(path, "/internal/"), strings.Contains(path, "test/"):
				default:
					t.Errorf("%s opens a listener of its own", path)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found != 1 {
		t.Errorf("the frame's own listener was found %d times", found)
	}
}

func TestTokensAreRotatedWithoutRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	at := time.Now().Add(-time.Hour)
	write := func(lines string) {
		t.Helper()
		at = at.Add(time.Second)
		if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(oldToken + "\n")
	url, _ := startFrame(t, nil, "rest.auth.token.file="+file)
	check := func(token string, want int) {
		t.Helper()
		c := http.Client{Transport: secure.WithToken(http.DefaultTransport, func() string { return token })}
		resp, err := c.Get(url + "/status")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d; want %d", token, resp.StatusCode, want)
		}
	}
	check(oldToken, 200)
	check(newToken, 401)
	write("# both, while clients change over\n" + newToken + "\n" + oldToken + "\n")
	check(oldToken, 200)
	check(newToken, 200)
	write(newToken + "\n")
	check(oldToken, 401)
	check(newToken, 200)
}

func TestProbesTellStrangersNoReason(t *testing.T) {
	url, _ := startFrame(t, func(f *Frame) { f.Ready = func() error { return fmt.Errorf("kafka at secret.example is away") } }, "rest.auth.token="+oldToken)
	if code, body := get(t, url+"/readyz"); code != 503 || strings.Contains(body, "secret.example") {
		t.Errorf("%d %s", code, body)
	}
	r, _ := http.NewRequest(http.MethodGet, url+"/readyz", nil)
	r.Header.Set("Authorization", "Bearer "+oldToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); !strings.Contains(string(b), "secret.example") {
		t.Errorf("with the token: %s", b)
	}
}

func TestClientCertificateIsAskedFor(t *testing.T) {
	ca, other := securetest.NewCA(t, "ca"), securetest.NewCA(t, "other")
	server, mine, foreign := ca.Issue("server"), ca.Issue("client"), other.Issue("foreign")
	url, _ := startFrame(t, nil, "rest.ssl.certificate.location="+server.Certificate, "rest.ssl.key.location="+server.Key, "rest.ssl.client.ca.location="+ca.File)
	ask := func(path string, p securetest.Pair) int {
		t.Helper()
		tr, err := secure.Transport(secure.ClientSettings{ClientFiles: secure.ClientFiles{CA: secure.File{Path: ca.File}, Certificate: secure.File{Path: p.Certificate}, Key: secure.File{Path: p.Key}}})
		if err != nil {
			t.Fatal(err)
		}
		c := http.Client{Transport: tr}
		defer c.CloseIdleConnections()
		resp, err := c.Get(url + path)
		if err != nil {
			return 0 // the handshake was refused
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := ask("/status", mine); got != 200 {
		t.Errorf("own certificate: %d", got)
	}
	if got := ask("/status", securetest.Pair{}); got != 401 {
		t.Errorf("no certificate: %d", got)
	}
	if got := ask("/status", foreign); got != 401 && got != 0 {
		t.Errorf("foreign certificate: %d", got)
	}
	if got := ask("/healthz", securetest.Pair{}); got != 200 {
		t.Errorf("probe without a certificate: %d", got)
	}
	if code, _ := get(t, strings.Replace(url, "https", "http", 1)+"/healthz"); code != 400 {
		t.Errorf("plain http: %d", code)
	}
}

func TestHealthcheckOverTLS(t *testing.T) {
	ca := securetest.NewCA(t, "ca")
	server, twin := ca.Issue("service.example"), ca.Issue("twin")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(oldToken), 0o600); err != nil {
		t.Fatal(err)
	}
	listener := []string{"rest.ssl.certificate.location=" + server.Certificate, "rest.ssl.key.location=" + server.Key, "rest.auth.token.file=" + token}
	var sick bool
	url, _ := startFrame(t, func(f *Frame) {
		f.Health = func() error {
			if sick {
				return fmt.Errorf("poll loop stuck")
			}
			return nil
		}
	}, listener...)
	addr := strings.TrimPrefix(url, "https://")
	check := func(code int, text string, sets ...string) {
		t.Helper()
		cmd := &cobra.Command{Use: "svc"}
		cmd.AddCommand(healthcheckCommand(merge(testKeys())))
		var out bytes.Buffer
		cmd.SetErr(&out)
		args := []string{"healthcheck", "--set", "rest.listen=" + addr}
		for _, s := range sets {
			args = append(args, "--set", s)
		}
		if got := Main(cmd, args); got != code || !strings.Contains(out.String(), text) {
			t.Errorf("%v: exit %d, %q; want %d, …%s…", sets, got, out.String(), code, text)
		}
	}
	check(0, "", listener...)
	check(1, "another certificate", "rest.ssl.certificate.location="+twin.Certificate, "rest.ssl.key.location="+twin.Key)
	check(1, "answers 400") // plain HTTP to a TLS port
	sick = true
	check(1, "poll loop stuck", listener...)
	check(1, "ask with the token", listener[:2]...)
}

func TestOtherSitesPagesAreRefused(t *testing.T) {
	g := guardOf(t)
	h := g.protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	for origin, want := range map[string]int{"": 200, "http://127.0.0.1": 200, "https://evil.example": 403} {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/replays", nil)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%q: %d; want %d", origin, w.Code, want)
		}
	}
}

func TestListenerSettings(t *testing.T) {
	ca := securetest.NewCA(t, "ca")
	p := ca.Issue("a")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("# none yet\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, sets := range map[string][]string{
		"rest.ssl.certificate.location: give its private key too, as rest.ssl.key.location": {"rest.ssl.certificate.location=" + p.Certificate},
		"rest.ssl.key.location: give the certificate too":                                   {"rest.ssl.key.location=" + p.Key},
		"rest.ssl.client.ca.location has no meaning without":                                {"rest.ssl.client.ca.location=" + ca.File},
		"rest.auth.token.file: open /does/not/exist":                                        {"rest.auth.token.file=/does/not/exist"},
		"rest.auth.token.file (" + empty + "): holds no token":                              {"rest.auth.token.file=" + empty},
		"rest.auth.token is also given as rest.auth.token.file":                             {"rest.auth.token=" + oldToken, "rest.auth.token.file=" + empty},
	} {
		cfg, err := Load(testKeys(), "", sets, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newGuard(cfg, zap.NewNop()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v; want %s…", err, want)
		}
	}
	if _, err := Load(testKeys(), "", []string{"rest.auth.token=too-short"}, nil); err == nil || strings.Contains(err.Error(), "too-short") ||
		!strings.Contains(err.Error(), "rest.auth.token") {
		t.Errorf("a short token: %v", err)
	}
	cfg, err := Load(testKeys(), "", []string{"rest.auth.token=" + oldToken}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := cfg.print(&b); err != nil || strings.Contains(b.String(), oldToken) || !strings.Contains(b.String(), "rest.auth.token:") {
		t.Errorf("%v: %s", err, b.String())
	}
}

func TestWarnsBeyondThisHost(t *testing.T) {
	for _, c := range []struct {
		listen, token string
		warns         bool
	}{{"127.0.0.1:0", "", false}, {"0.0.0.0:0", "", true}, {"0.0.0.0:0", oldToken, false}} {
		cfg, err := Load(testKeys(), "", []string{"rest.listen=" + c.listen, "rest.auth.token=" + c.token}, nil)
		if err != nil {
			t.Fatal(err)
		}
		core, logs := observer.New(zapcore.WarnLevel)
		f := NewFrame("test", cfg, zap.New(core))
		g, err := newGuard(cfg, f.Log)
		if err != nil {
			t.Fatal(err)
		}
		l, err := f.listen(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if got := logs.FilterMessageSnippet("rest.auth.token.file").Len() > 0; got != c.warns {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for addr, want := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if loopback(a) != want {
			t.Errorf("%s: %v", addr, !want)
		}
	}
}
