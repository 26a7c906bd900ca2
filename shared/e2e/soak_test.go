package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/e2e/soak"
)

// TestSoak is `make soak` in short: a count of events, not a time, so that a slow machine does the same.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	// The embedded broker, after kills in the middle of rebalances, now and then answers no JoinGroup any more.
	if os.Getenv("TAPEDECK_TEST_KAFKA") == "" {
		t.Skip("needs a real broker: TAPEDECK_TEST_KAFKA")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f, err := soak.Run(t.Context(), soak.Options{
		Bootstrap: env.Bootstrap, Store: env.StoreURL, Archiver: filepath.Join(binDir, "archiver"), Dir: t.TempDir(),
		Events: 25, Pause: time.Second, Rate: 300, Seed: seed, Out: testWriter{t},
	})
	t.Log(f)
	if err != nil {
		t.Fatal(err)
	}
	if f.Records == 0 || f.Kills == 0 {
		t.Error("nothing was archived, or nobody killed")
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}
