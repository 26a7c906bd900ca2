package s3_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/devstack/s3server"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/s3"
	"tapedeck.dev/tapedeck/shared/store/storetest"
)

const testAccess, testSecret = "test-access", "test-secret-key"

// gateway is the base URL of the one S3 server of this process.
var gateway string

func TestMain(m *testing.M) {
	if place := os.Getenv(killedEnv); place != "" {
		log.Fatal(killed(place)) // it is dead before it comes to this
	}
	code, err := withGateway(m.Run)
	if err != nil {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}

func withGateway(run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "tapedeck-s3-test-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	endpoint, stop, err := s3server.Start(context.Background(), dir, "127.0.0.1:0", testAccess, testSecret, "bucket-one", "bucket-two")
	if err != nil {
		return 1, err
	}
	gateway = endpoint
	code = run()
	return code, stop()
}

func newStore(t *testing.T, o s3.Options) *s3.Store {
	t.Helper()
	if o.AccessKey == "" && o.RoleARN == "" {
		o.AccessKey, o.SecretKey = testAccess, testSecret
	}
	s, err := s3.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestSuite(t *testing.T) {
	for _, checksum := range []s3.Checksum{s3.ChecksumAuto, s3.ChecksumWhenRequired, s3.ChecksumNone} {
		for _, place := range []struct{ bucket, prefix string }{{"bucket-one", ""}, {"bucket-two", "some/pre.fix"}} {
			t.Run(fmt.Sprintf("%s/%s", checksum, place.bucket), func(t *testing.T) {
				// A place of its own for each mode: with the prefix "" the suites would meet in the bucket.
				base := strings.Trim(place.prefix+"/"+string(checksum), "/")
				storetest.Run(t, func(t *testing.T, prefix string) store.Store {
					return newStore(t, s3.Options{
						Bucket: place.bucket, Prefix: base + "/" + prefix, Endpoint: gateway, Checksum: checksum,
					})
				})
			})
		}
	}
}

// TestServers runs the suite on the servers of TAPEDECK_TEST_S3_URLS: addresses s3://bucket/prefix?endpoint=…, separated
// by spaces, with credentials by the SDK's chain.
func TestServers(t *testing.T) {
	urls := strings.Fields(os.Getenv("TAPEDECK_TEST_S3_URLS"))
	if len(urls) == 0 {
		t.Skip("TAPEDECK_TEST_S3_URLS names no server")
	}
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		o, err := s3.ParseURL(u)
		if err != nil {
			t.Fatal(err)
		}
		base := strings.Trim(o.Prefix+"/"+rand.Text(), "/")
		for _, checksum := range []s3.Checksum{s3.ChecksumAuto, s3.ChecksumWhenRequired, s3.ChecksumNone} {
			t.Run(fmt.Sprintf("%s/%s", u.Host, checksum), func(t *testing.T) {
				storetest.Run(t, func(t *testing.T, prefix string) store.Store {
					o := o
					o.Prefix, o.Checksum = fmt.Sprintf("%s/%s/%s", base, checksum, prefix), checksum
					s, err := s3.New(t.Context(), o)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = s.Close() })
					return s
				})
			})
		}
	}
}

// Against the real server: what a wrong bucket and wrong credentials are.
func TestGatewayRefusals(t *testing.T) {
	ctx := t.Context()
	noBucket := newStore(t, s3.Options{Bucket: "no-such-bucket", Endpoint: gateway})
	if err := noBucket.Create(ctx, "k", nil); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "bucket no-such-bucket does not exist") {
		t.Errorf("create without a bucket: %v", err)
	}
	if _, err := noBucket.Get(ctx, "k"); !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), "bucket no-such-bucket does not exist") {
		t.Errorf("get without a bucket: %v", err)
	}
	if _, _, err := noBucket.List(ctx, "", "", 0); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("list without a bucket: %v", err)
	}
	if _, err := noBucket.ListDirs(ctx, ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("directories without a bucket: %v", err)
	}
	for name, o := range map[string]s3.Options{
		"secret": {AccessKey: testAccess, SecretKey: "wrong"},
		"user":   {AccessKey: "nobody", SecretKey: testSecret},
	} {
		o.Bucket, o.Endpoint = "bucket-one", gateway
		wrong := newStore(t, o)
		if err := wrong.Create(ctx, "wrong", nil); !errors.Is(err, store.ErrNotAllowed) {
			t.Errorf("create with a wrong %s: %v", name, err)
		}
		if _, err := wrong.Get(ctx, "wrong"); !errors.Is(err, store.ErrNotAllowed) {
			t.Errorf("get with a wrong %s: %v", name, err)
		}
		if _, _, err := wrong.List(ctx, "", "", 0); !errors.Is(err, store.ErrNotAllowed) {
			t.Errorf("list with a wrong %s: %v", name, err)
		}
	}
}
