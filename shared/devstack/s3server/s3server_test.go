package s3server_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"tapedeck.dev/tapedeck/shared/devstack/s3server"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

// A server keeps its objects over a restart on the same directory, refuses a second create, and gives the working
// directory back.
func TestStartStopStart(t *testing.T) {
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var first []byte
	for run := range 2 {
		endpoint, stop, err := s3server.Start(t.Context(), dir, "127.0.0.1:0", "test-access", "test-secret", "one", "two")
		if err != nil {
			t.Fatal(err)
		}
		st, err := s3.New(t.Context(), s3.Options{
			Bucket: "two", Prefix: "p", Endpoint: endpoint, Region: s3server.Region, AccessKey: "test-access", SecretKey: "test-secret",
		})
		if err != nil {
			t.Fatal(err)
		}
		err = st.Create(t.Context(), "key", []byte{byte(run)})
		if run == 0 && err != nil || run == 1 && !errors.Is(err, store.ErrExists) {
			t.Fatalf("create in run %d: %v", run, err)
		}
		got, err := st.Get(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		if run == 0 {
			first = got
		}
		if !bytes.Equal(got, first) {
			t.Fatalf("object changed from %v to %v", first, got)
		}
		if err := errors.Join(st.Close(), stop(), stop()); err != nil {
			t.Fatalf("stop: %v", err)
		}
		if now, _ := os.Getwd(); now != cwd {
			t.Fatalf("working directory is %s, was %s", now, cwd)
		}
	}
}

func TestPortTaken(t *testing.T) {
	if _, _, err := s3server.Start(t.Context(), t.TempDir(), "256.0.0.1:1", "a", "secret-key"); err == nil {
		t.Fatal("started on an address that is none")
	}
}
