package archiver

import (
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/devstack/s3policy/s3policytest"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// TestLeastPolicy runs the archiver against S3 with exactly the rights of deploy/iam/archiver.json: its checks at the start, segments small
// and in parts, a restart that reads its own archive, a verification. Nothing may be refused, and no right may be idle.
func TestLeastPolicy(t *testing.T) {
	guard := s3policytest.Start(t, "../deploy/iam/archiver.json")
	st, err := storeurl.Open(t.Context(), guard.URL()+"&multipart-above=5MiB")
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
	// Asked for only to clean up after an upload that failed, or that a kill left behind for a day.
	guard.Check(t, func(right string) bool { return strings.HasPrefix(right, "s3:AbortMultipartUpload ") })
}
