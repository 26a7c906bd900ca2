package main

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/replayer"
	"tapedeck.dev/tapedeck/replayer/api"
	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/shared/secure/securetest"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/session"
)

// TestCommandsOverTLSWithAToken runs the commands against the frame that the service serves with.
func TestCommandsOverTLSWithAToken(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), "trips", 2, 40, 4)
	rc := replaytest.NewReceiver(t, session.Pipeline{Name: "p", Hash: "hash", Inputs: []string{"trips"}, DecisionsTopic: "p.decisions"})
	n := replaytest.Start(t, a, rc, manager.Settings{ID: "a", Lease: time.Hour, Scan: 10 * time.Millisecond})
	ca, other := securetest.NewCA(t, "ca"), securetest.NewCA(t, "other")
	p := ca.Issue("replayer")
	dir := t.TempDir()
	tokens, wrong, port := filepath.Join(dir, "tokens"), filepath.Join(dir, "wrong"), filepath.Join(dir, "port")
	for file, text := range map[string]string{tokens: "first-0123456789abcdef\nsecond-0123456789abcdef\n", wrong: "other-0123456789abcdef\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := service.Load(replayer.Keys(), "", []string{"store=mem://x", "rest.listen=127.0.0.1:0", "rest.port.file=" + port,
		"rest.ssl.certificate.location=" + p.Certificate, "rest.ssl.key.location=" + p.Key, "rest.auth.token.file=" + tokens}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := service.NewFrame("replayer", cfg, zap.NewNop())
	api.New(n.Manager).Register(f.Mux)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	g := &rig{t: t, a: a}
	replaytest.Until(t, "it listens", func() bool {
		b, err := os.ReadFile(port)
		g.url = "https://" + strings.TrimSpace(string(b))
		return err == nil && len(b) > 0
	})
	start := []string{"start", "--target", "proc", "--promise", "recompute", "--name", "ok", "--wait", "--ca-file", ca.File}
	g.want(0, "ok COMPLETED", "", append(start, "--token-file", tokens)...)
	g.want(2, "", "this needs a token", start...)
	g.want(2, "", "the token is not one of this service", append(start, "--token-file", wrong)...)
	g.want(2, "", "unknown authority", "list", "--ca-file", other.File, "--token-file", tokens)
	g.want(2, "", "--token-file: open ", "list", "--token-file", filepath.Join(dir, "none"))
	for _, e := range []string{"pause", "resume", "cancel", "retry"} {
		g.want(2, "", "this needs a token", e, "ok", "--ca-file", ca.File)
	}
}
