package archiver

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/devstack/s3policy"
	"tapedeck.dev/tapedeck/shared/devstack/s3server"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// TestLeastPolicy runs the archiver against S3 with exactly the rights of deploy/iam/archiver.json: its checks at the start, segments small
// and in parts, a restart that reads its own archive, a verification. Nothing may be refused, and no right may be idle.
func TestLeastPolicy(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an S3 server")
	}
	policy, err := filepath.Abs("../deploy/iam/archiver.json")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "test-access")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test-secret-key")
	endpoint, stop, err := s3server.Start(context.Background(), t.TempDir(), "127.0.0.1:0", "test-access", "test-secret-key", "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	guard, err := s3policy.New(policy, "bucket", "my/archive", endpoint)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(guard)
	t.Cleanup(srv.Close)
	st, err := storeurl.Open(t.Context(), "s3://bucket/my/archive?endpoint="+srv.URL+"&region=us-east-1&path-style=true&multipart-above=5MiB")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })

	e := newEnv(t)
	e.topic("a", 1)
	e.arc = archive.Open(st, "topics")
	set := e.settings("a")
	set.Partition.Codec = "null"
	set.Partition.Rule.FlushSize = 10
	check := func(to int64) {
		t.Helper()
		r := e.start(set, func(p *Parts) { p.Store = st })
		if err := r.CheckStore(e.ctx()); err != nil {
			t.Error(err)
		}
		e.await("archived", func() bool { return e.next(e.arc, "a", 0) == to })
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
	e.fill("a", 0, 0, 20)
	check(20)
	big := numbered(20, 10)
	for i := range big {
		big[i].Value = []byte(strings.Repeat("x", 900_000))
	}
	e.send(e.producer(""), "a", 0, big...)
	check(30)
	if report, err := e.arc.Verify(e.ctx()); err != nil || len(report.Findings) > 0 || report.Records != 30 {
		t.Errorf("%+v, %v", report, err)
	}
	for _, d := range guard.Denied() {
		t.Errorf("refused: %s", d)
	}
	for _, u := range guard.Unused() {
		// Asked for only to clean up after an upload that failed, or that a kill left behind for a day.
		if !strings.HasPrefix(u, "s3:AbortMultipartUpload ") {
			t.Errorf("never needed: %s", u)
		}
	}
}
