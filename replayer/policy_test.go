package replayer

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/client"
	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/devstack/s3policy/s3policytest"
	"tapedeck.dev/tapedeck/shared/secure"
	"tapedeck.dev/tapedeck/shared/session"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// TestLeastPolicy runs the replayer against S3 with exactly the rights of deploy/iam/replayer.json: its checks at the start and a whole job.
// Nothing may be refused, and no right may be idle.
func TestLeastPolicy(t *testing.T) {
	guard := s3policytest.Start(t, "../deploy/iam/replayer.json")

	// The archive is somebody else's work.
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), "trips", 2, 40, 4)
	owner, err := storeurl.Open(t.Context(), guard.OwnerURL())
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	for after := ""; ; {
		objs, more, err := a.Mem.List(t.Context(), "", after, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objs {
			after = o.Key
			data, err := a.Mem.Get(t.Context(), o.Key)
			if err == nil {
				err = owner.Create(t.Context(), o.Key, data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !more {
			break
		}
	}

	rc := replaytest.NewReceiver(t, session.Pipeline{Name: "p", Hash: "hash", Inputs: []string{"trips"}, DecisionsTopic: "p.decisions"})
	port := filepath.Join(t.TempDir(), "port")
	f := frame(t, "store="+guard.URL(), "rest.listen=127.0.0.1:0", "rest.port.file="+port, "replayer.id=me", "job.scan.interval=100ms",
		"targets.proc.url="+rc.Config().URL.String(), "targets.proc.pipeline=p")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, f) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	var c *client.Client
	replaytest.Until(t, "it is ready", func() bool {
		b, err := os.ReadFile(port)
		if err != nil || len(b) == 0 {
			return false
		}
		base := "http://" + strings.TrimSpace(string(b))
		resp, err := http.Get(base + "/readyz")
		if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
			return false
		}
		c, err = client.New(base, secure.ClientSettings{})
		return err == nil
	})
	if _, _, err := c.Start(t.Context(), []byte(`{"name":"j","target":"proc","promise":"recompute"}`)); err != nil {
		t.Fatal(err)
	}
	replaytest.Until(t, "the job has ended", func() bool {
		v, err := c.Get(t.Context(), "j")
		if err != nil {
			t.Fatal(err)
		}
		if v.State.Ended() && v.State != job.Completed {
			t.Fatalf("%+v", v)
		}
		return v.State == job.Completed
	})
	guard.Check(t, func(string) bool { return false })
}
