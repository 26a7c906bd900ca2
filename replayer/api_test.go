package replayer

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/api"
	"tapedeck.dev/tapedeck/replayer/internal/apicheck"
	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
)

// Every call of the document, whatever it does, needs the token, takes a bounded body, and is refused to a page of another site; and the answers are those that
// the document declares.
func TestEveryCallIsGuarded(t *testing.T) {
	const token = "0123456789abcdef"
	port := filepath.Join(t.TempDir(), "port")
	f := frame(t, "store=mem://"+t.Name(), "rest.listen=127.0.0.1:0", "rest.port.file="+port, "rest.auth.token="+token,
		"targets.x.url=http://127.0.0.1:9", "targets.x.pipeline=p", "replayer.id=me", "target.retry.timeout=1s")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, f) }()
	var base string
	replaytest.Until(t, "it is ready", func() bool {
		data, err := os.ReadFile(port)
		base = "http://" + strings.TrimSpace(string(data))
		if err != nil || len(data) == 0 {
			return false
		}
		resp, err := http.Get(base + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	doc := apicheck.Load(t, api.OpenAPI)
	call := func(method, path, body string, header ...string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		doc.Answered(t, req, body, resp, data)
		return resp.StatusCode
	}
	calls := 0
	for _, o := range doc.Operations() {
		path := strings.ReplaceAll(o.Path, "{name}", "none")
		calls++
		for _, wrong := range [][]string{nil, {"Authorization", "Bearer fedcba9876543210"}, {"Authorization", "Basic " + token}} {
			if code := call(o.Method, path, `{"name":"a","target":"x"}`, wrong...); code != http.StatusUnauthorized {
				t.Errorf("%s %s with %v: HTTP %d", o.Method, o.Path, wrong, code)
			}
		}
		if code := call(o.Method, path, "{", "Authorization", "Bearer "+token); code == http.StatusUnauthorized {
			t.Errorf("%s %s: the token is not taken", o.Method, o.Path)
		}
		if o.Method == http.MethodGet {
			continue
		}
		if code := call(o.Method, path, "{}", "Authorization", "Bearer "+token, "Sec-Fetch-Site", "cross-site", "Origin", "https://elsewhere.example"); code != http.StatusForbidden {
			t.Errorf("%s %s from another site's page: HTTP %d", o.Method, o.Path, code)
		}
		if !o.Body {
			continue
		}
		large := string(bytes.Repeat([]byte(" "), job.MaxRequestBytes+1))
		if code := call(o.Method, path, large, "Authorization", "Bearer "+token); code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s %s with %d bytes: HTTP %d", o.Method, o.Path, len(large), code)
		}
	}
	if calls < 10 {
		t.Errorf("only %d calls are described", calls)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
