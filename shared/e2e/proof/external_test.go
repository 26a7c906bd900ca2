package proof

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An external service is ended and started by the hook alone, and a failing hook is an error that says what it printed.
func TestExternalProcess(t *testing.T) {
	ready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer ready.Close()
	dir := t.TempDir()
	calls, hook := filepath.Join(dir, "calls"), filepath.Join(dir, "hook")
	script := "#!/bin/sh\necho $1 $2 >> " + calls + "\n[ $1 != stop ] || { echo exit status 137; exit 1; }\n"
	if err := os.WriteFile(hook, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p := &Process{Name: "archiver", URL: ready.URL, hook: hook}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if err := p.Start(ctx); err != nil {
		t.Error(err)
	}
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "exit status 137") {
		t.Errorf("stop: %v", err)
	}
	if got, err := os.ReadFile(calls); err != nil || string(got) != "kill archiver\nstart archiver\nstop archiver\n" {
		t.Errorf("the hook was called with %q, %v", got, err)
	}
	p.hook = ""
	if err := p.Kill(); err == nil {
		t.Error("killed without a hook")
	}
}
