package replayer_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/shared/devstack/s3server"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/file"
	"tapedeck.dev/tapedeck/shared/store/mem"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

// An archive is its objects' keys and bytes: copied to another kind of store, another bucket and another prefix, in any order and with any times
// of modification, it is the same archive. Plans, what is sent, and what is proved are equal.
func TestCopiedArchiveReplaysIdentically(t *testing.T) {
	a := replaytest.New()
	rng := rand.New(rand.NewPCG(7, 7))
	a.Fill(t, rng, "trips", 2, 900, 3) // some 450 segments each: there is an index
	a.Fill(t, rng, "quiet", 1, 5, 2)
	a.Decide(t, "p.decisions", replaytest.Origin("trips", 2))
	indexed := false
	for _, key := range a.Mem.Keys() {
		indexed = indexed || filepath.Dir(key) == "_tapedeck/index/trips/0"
	}
	if !indexed {
		t.Fatal("the archive has no index object: the test does not cover them")
	}
	want := replayed(t, a.Mem)
	if want["reproduce"].taken == 0 || want["recompute"].taken == 0 || want["recompute"].taken >= want["reproduce"].taken {
		t.Fatalf("took %d and %d records: the window does not cut", want["reproduce"].taken, want["recompute"].taken)
	}
	for name, open := range map[string]func(t *testing.T, dir string) store.Store{
		"memory": func(*testing.T, string) store.Store { return mem.New().Sub("elsewhere/deep") },
		"file": func(t *testing.T, dir string) store.Store {
			st, err := file.Open(filepath.Join(dir, "elsewhere"))
			if err != nil {
				t.Fatal(err)
			}
			return st
		},
		"s3": func(t *testing.T, dir string) store.Store {
			endpoint, stop, err := s3server.Start(t.Context(), dir, "127.0.0.1:0", "test-access", "test-secret", "another")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = stop() })
			st, err := s3.New(t.Context(), s3.Options{Bucket: "another", Prefix: "by/another/road", Endpoint: endpoint, Region: s3server.Region,
				AccessKey: "test-access", SecretKey: "test-secret"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = st.Close() })
			return st
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			st := open(t, dir)
			copyAll(t, st, a.Mem, rng)
			oldTimes(t, dir, rng) // the server keeps its objects as files too
			got := replayed(t, st)
			for promise := range want {
				if got[promise] != want[promise] {
					g, w := got[promise], want[promise]
					t.Errorf("%s: %d records, the original %d\nplan %.300s\n     %.300s\njob %s\n    %s", promise, g.taken, w.taken, g.plan, w.plan, g.view, w.view)
				}
			}
		})
	}
}

// outcome is what must not depend on where the archive lies.
type outcome struct {
	plan, view string // JSON
	taken      int
	records    string // what the target took, partition by partition in order
}

// replayed runs a whole replay and one of a window of time, each planned by a dry run first.
func replayed(t *testing.T, st store.Store) map[string]outcome {
	t.Helper()
	rc := replaytest.NewReceiver(t, session.Pipeline{Name: "p", Hash: "hash", Inputs: []string{"trips"}, DecisionsTopic: "p.decisions"})
	n := replaytest.StartOn(t, st, rc, manager.Settings{ID: "a", Lease: time.Hour, Scan: 10 * time.Millisecond})
	out := map[string]outcome{}
	for name, body := range map[string]string{
		"reproduce": `{"name":"reproduce","target":"proc"}`,
		"recompute": `{"name":"recompute","target":"proc","promise":"recompute","from":{"kind":"timestamp","value":100000},"until":{"kind":"timestamp","value":500000}}`,
	} {
		req, err := job.ParseRequest([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		plan, err := n.DryRun(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := n.Create(ctx, req); err != nil {
			t.Fatal(err)
		}
		var v *manager.View
		replaytest.Until(t, name+" ends", func() bool {
			v, err = n.Get(ctx, name)
			return err != nil || v.State.Ended()
		})
		if err != nil || v.State != job.Completed {
			t.Fatalf("%s: %v: %s %s", name, err, v.State, v.Error)
		}
		v.CreatedAt, v.StartedAt, v.FinishedAt, v.Entry = time.Time{}, nil, nil, 0
		o := outcome{plan: asJSON(t, plan), view: asJSON(t, v)}
		for p := range int32(2) {
			for _, r := range rc.Taken(name, record.TopicPartition{Topic: "trips", Partition: p}) {
				o.taken++
				o.records += string(segment.AppendDatum(nil, &r))
			}
		}
		out[name] = o
	}
	n.Stop()
	return out
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// copyAll puts every object but the jobs into another store, in random order.
func copyAll(t *testing.T, to store.Store, from *mem.Store, rng *rand.Rand) {
	t.Helper()
	keys := from.Keys()
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, key := range keys {
		if strings.HasPrefix(key, "_tapedeck/jobs/") { // the names are wanted again
			continue
		}
		data, err := from.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := to.Create(t.Context(), key, data); err != nil {
			t.Fatal(err)
		}
	}
}

// oldTimes gives every file a random time of the last ten years.
func oldTimes(t *testing.T, dir string, rng *rand.Rand) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		at := time.Now().Add(-time.Duration(rng.Int64N(int64(10 * 365 * 24 * time.Hour))))
		return os.Chtimes(path, at, at)
	})
	if err != nil {
		t.Fatal(err)
	}
}
