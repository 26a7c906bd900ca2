package secure

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/secure/securetest"
)

func file(setting, path string) File { return File{Setting: setting, Path: path} }

// replace gives a file new content and a time of its own, however fast the test is.
func replace(t *testing.T, path string, content []byte, at time.Time) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTokens(t *testing.T) {
	got, err := ParseTokens("# old\n0123456789abcdef\r\n\n  fedcba9876543210  \n")
	if err != nil || fmt.Sprint(got) != "[0123456789abcdef fedcba9876543210]" {
		t.Errorf("%q, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                        "holds no token",
		"# only this":             "holds no token",
		"0123456789abcde":         "line 1 has 15 characters",
		"\n0123456789abcdef with": "line 2 holds blanks",
		"0123456789abcdefä":       "printable ASCII",
	} {
		_, err := ParseTokens(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "0123") {
			t.Errorf("%q: %v; want …%s… and no token", text, err, want)
		}
	}
	for shown, want := range map[string]bool{"": false, "a": false, "aaaa": true, "bbbb": true, "aaab": false, "aaaabbbb": false} {
		if Accepted(shown, []string{"aaaa", "bbbb", "aaaa!"}) != want {
			t.Errorf("%q: %v", shown, !want)
		}
	}
}

func TestBearerHeader(t *testing.T) {
	for header, want := range map[string]string{"Bearer abc": "abc", "bearer  abc": "abc", "Basic abc": "-", "abc": "-", "": "-", "Bearer": "-"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", header)
		got, ok := Bearer(r)
		if !ok {
			got = "-"
		}
		if got != want {
			t.Errorf("%q: %q; want %q", header, got, want)
		}
	}
}

func TestReloadKeepsWhatWorked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	at := time.Now().Add(-time.Hour)
	replace(t, path, []byte("0123456789abcdef\n"), at)
	var warnings []error
	r, err := TokenFile(file("rest.auth.token.file", path), func(err error) { warnings = append(warnings, err) })
	if err != nil {
		t.Fatal(err)
	}
	check := func(first string, warned int) {
		t.Helper()
		if got := r.Get(); got[0] != first || len(warnings) != warned {
			t.Errorf("%q, warnings %v; want %q, %d", got, warnings, first, warned)
		}
	}
	check("0123456789abcdef", 0)
	replace(t, path, []byte("fedcba9876543210\n"), at.Add(time.Second))
	check("fedcba9876543210", 0)
	replace(t, path, []byte("short\n"), at.Add(2*time.Second))
	check("fedcba9876543210", 1)
	check("fedcba9876543210", 1) // said once
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check("fedcba9876543210", 2)
	replace(t, path, []byte("aaaaaaaaaaaaaaaaaaaaa\n"), at.Add(3*time.Second))
	check("aaaaaaaaaaaaaaaaaaaaa", 2)
	if _, err := TokenFile(file("--token-file", path+".no"), nil); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "--token-file: ") {
		t.Errorf("a missing file: %v", err)
	}
}

// serve answers over TLS with the settings of f, and says whether the client showed a verified certificate.
func serve(t *testing.T, f ServerFiles, warn func(error)) string {
	t.Helper()
	conf, err := ServerTLS(f, warn)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, VerifiedClient(r)) }))
	srv.TLS = conf
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL
}

// ask makes a new connection.
func ask(t *testing.T, url string, s ClientSettings) (string, error) {
	t.Helper()
	tr, err := Transport(s)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: tr, Timeout: 10 * time.Second}
	defer c.CloseIdleConnections()
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var b [5]byte
	n, _ := resp.Body.Read(b[:])
	return string(b[:n]), nil
}

func TestHandshakes(t *testing.T) {
	ca, other := securetest.NewCA(t, "one"), securetest.NewCA(t, "other")
	server, mine, foreign := ca.Issue("server"), ca.Issue("client"), other.Issue("foreign")
	url := serve(t, ServerFiles{
		Certificate: file("c", server.Certificate), Key: file("k", server.Key), ClientCA: file("a", ca.File),
	}, nil)
	client := func(ca string, p securetest.Pair) ClientSettings {
		return ClientSettings{ClientFiles: ClientFiles{CA: file("ca", ca), Certificate: file("cert", p.Certificate), Key: file("key", p.Key)}}
	}
	if got, err := ask(t, url, client(ca.File, mine)); got != "true" || err != nil {
		t.Errorf("a certificate of the CA: %q, %v", got, err)
	}
	if got, err := ask(t, url, client(ca.File, securetest.Pair{})); got != "false" || err != nil {
		t.Errorf("without a certificate: %q, %v", got, err)
	}
	if got, err := ask(t, url, client(ca.File, foreign)); err == nil && got != "false" {
		t.Errorf("a foreign certificate: %q", got)
	}
	if _, err := ask(t, url, client(other.File, mine)); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("an untrusted server: %v", err)
	}
	if _, err := ask(t, url, client("", mine)); err == nil {
		t.Error("the system's roots trust a CA of this test")
	}
}

func TestCertificateIsReloaded(t *testing.T) {
	before, after := securetest.NewCA(t, "before"), securetest.NewCA(t, "after")
	server, next := before.Issue("server"), after.Issue("server")
	var warnings int
	url := serve(t, ServerFiles{Certificate: file("cert", server.Certificate), Key: file("key", server.Key)}, func(error) { warnings++ })
	trusting := func(ca *securetest.CA) error {
		_, err := ask(t, url, ClientSettings{ClientFiles: ClientFiles{CA: file("ca", ca.File)}})
		return err
	}
	if err := trusting(before); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Minute)
	replace(t, server.Certificate, mustRead(t, next.Certificate), at)
	if err := trusting(before); err != nil || warnings != 1 {
		t.Errorf("half replaced: %v, %d warnings; want the old pair and one", err, warnings)
	}
	replace(t, server.Key, mustRead(t, next.Key), at)
	if err := trusting(after); err != nil || warnings != 1 {
		t.Errorf("replaced: %v, %d warnings", err, warnings)
	}
	if trusting(before) == nil {
		t.Error("the old certificate is still shown")
	}
}

func TestPinned(t *testing.T) {
	ca := securetest.NewCA(t, "ca")
	server, twin := ca.Issue("server"), ca.Issue("twin")
	url := serve(t, ServerFiles{Certificate: file("c", server.Certificate), Key: file("k", server.Key)}, nil)
	for _, p := range []securetest.Pair{server, twin} {
		conf, err := PinnedTLS(file("rest.ssl.certificate.location", p.Certificate))
		if err != nil {
			t.Fatal(err)
		}
		tr := &http.Transport{TLSClientConfig: conf}
		resp, err := (&http.Client{Transport: tr}).Get(url)
		if err == nil {
			resp.Body.Close()
		}
		tr.CloseIdleConnections()
		if (err == nil) != (p.Certificate == server.Certificate) {
			t.Errorf("%s: %v", p.Certificate, err)
		}
	}
}

func TestErrorsNameTheSetting(t *testing.T) {
	ca := securetest.NewCA(t, "ca")
	a, b := ca.Issue("a"), ca.Issue("b")
	none := filepath.Join(t.TempDir(), "none")
	for want, f := range map[string]ServerFiles{
		"k: give the certificate too, as c": {Certificate: file("c", ""), Key: file("k", a.Key)},
		"c: give its private key too, as k": {Certificate: file("c", a.Certificate), Key: file("k", "")},
		"c: open " + none:                   {Certificate: file("c", none), Key: file("k", a.Key)},
		"private key does not match":        {Certificate: file("c", a.Certificate), Key: file("k", b.Key)},
		"a: " + a.Key + " holds no PEM":     {Certificate: file("c", a.Certificate), Key: file("k", a.Key), ClientCA: file("a", a.Key)},
	} {
		if _, err := ServerTLS(f, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want …%s…", err, want)
		}
	}
	if _, err := Transport(ClientSettings{ClientFiles: ClientFiles{CA: file("--ca-file", none)}}); err == nil || !strings.HasPrefix(err.Error(), "--ca-file: ") {
		t.Errorf("%v", err)
	}
	if _, err := Transport(ClientSettings{TokenFile: file("targets.a.token", ""), Token: "short"}); err == nil || !strings.HasPrefix(err.Error(), "targets.a.token: ") {
		t.Errorf("%v", err)
	}
}
