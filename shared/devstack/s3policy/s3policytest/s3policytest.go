// Package s3policytest runs a test against S3 with exactly the rights of a policy.
package s3policytest

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"tapedeck.dev/tapedeck/shared/devstack/s3policy"
	"tapedeck.dev/tapedeck/shared/devstack/s3server"
)

// Guarded is an S3 server behind a policy.
type Guarded struct {
	*s3policy.Guard
	guarded, open string
}

// Start runs an S3 server with an empty bucket and the policy of file before it until the test ends, which is skipped under -short.
// The credentials are in the environment: not for parallel tests.
func Start(t *testing.T, file string) *Guarded {
	t.Helper()
	if testing.Short() {
		t.Skip("starts an S3 server")
	}
	file, err := filepath.Abs(file) // the server changes the working directory
	if err != nil {
		t.Fatal(err)
	}
	const access, secret = "test-access", "test-secret-key"
	t.Setenv("AWS_ACCESS_KEY_ID", access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	endpoint, stop, err := s3server.Start(context.Background(), t.TempDir(), "127.0.0.1:0", access, secret, "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	guard, err := s3policy.New(file, "bucket", "my/archive", endpoint)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(guard)
	t.Cleanup(srv.Close)
	address := func(endpoint string) string {
		return "s3://bucket/my/archive?endpoint=" + endpoint + "&region=us-east-1&path-style=true"
	}
	return &Guarded{Guard: guard, guarded: address(srv.URL), open: address(endpoint)}
}

// URL is the store's address with the rights of the policy.
func (g *Guarded) URL() string { return g.guarded }

// OwnerURL is the store's address with every right.
func (g *Guarded) OwnerURL() string { return g.open }

// Check demands that nothing was refused, and that every right was used but those that idle names.
func (g *Guarded) Check(t *testing.T, idle func(right string) bool) {
	t.Helper()
	for _, d := range g.Denied() {
		t.Errorf("refused: %s", d)
	}
	for _, u := range g.Unused() {
		if !idle(u) {
			t.Errorf("never needed: %s", u)
		}
	}
}
