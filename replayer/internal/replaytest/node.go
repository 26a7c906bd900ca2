package replaytest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/replayer/jobstore"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/replayer/metrics"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/replayer/target"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/store"
)

// Node is a replayer without its HTTP face.
type Node struct {
	*manager.Manager
	Jobs *CutStore // its own way to the store for jobs
	stop func()
}

// CutStore is a store that can be cut off: every call fails from then on, without effect.
type CutStore struct {
	store.Store
	off atomic.Bool
}

var errCut = errors.New("cut off from the store")

// Cut off, or not any more.
func (c *CutStore) Cut(off bool) { c.off.Store(off) }

// Create refuses where it is cut off.
func (c *CutStore) Create(ctx context.Context, key string, data []byte, with ...store.Attributes) error {
	if c.off.Load() {
		return errCut
	}
	return c.Store.Create(ctx, key, data, with...)
}

// Get refuses where it is cut off.
func (c *CutStore) Get(ctx context.Context, key string) ([]byte, error) {
	if c.off.Load() {
		return nil, errCut
	}
	return c.Store.Get(ctx, key)
}

// List refuses where it is cut off.
func (c *CutStore) List(ctx context.Context, prefix, after string, n int) ([]store.Object, bool, error) {
	if c.off.Load() {
		return nil, false, errCut
	}
	return c.Store.List(ctx, prefix, after, n)
}

// ListDirs refuses where it is cut off.
func (c *CutStore) ListDirs(ctx context.Context, prefix string) ([]string, error) {
	if c.off.Load() {
		return nil, errCut
	}
	return c.Store.ListDirs(ctx, prefix)
}

// Start runs a replayer over an archive, with the receiver as its target "proc". It is stopped with the test, if not before.
func Start(t testing.TB, a *Archive, rc *Receiver, set manager.Settings) *Node {
	t.Helper()
	return StartOn(t, a.Mem, rc, set)
}

// More adds further targets to a replayer's.
type More func(*run.Runner, map[string]manager.Destination)

// StartOn is Start over the archive in any store, and with further targets.
func StartOn(t testing.TB, st store.Store, rc *Receiver, set manager.Settings, more ...More) *Node {
	t.Helper()
	m := metrics.New(prometheus.NewRegistry())
	r := &run.Runner{Archive: archive.Open(st, "topics"), Log: zap.NewNop(), Metrics: m,
		Settings: run.Settings{Parallel: 2, RetryTimeout: 2 * time.Minute, Backoff: run.Backoff{Min: time.Millisecond, Max: 5 * time.Millisecond}}}
	n := &Node{Jobs: &CutStore{Store: st}}
	c, err := target.NewClient(rc.Config(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]manager.Destination{"proc": r.To(c)}
	for _, add := range more {
		add(r, targets)
	}
	n.Manager = manager.New(jobstore.New(n.Jobs), r.Archive, targets, set, zap.NewNop(), m)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	n.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		c.Close()
	})
	t.Cleanup(n.stop)
	Until(t, "the replayer is ready", func() bool { return n.Ready() == nil })
	return n
}

// Stop shuts the replayer down cleanly.
func (n *Node) Stop() { n.stop() }

// Until waits for a condition, and fails the test after minutes that only a hang takes.
func Until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(4 * time.Minute); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
