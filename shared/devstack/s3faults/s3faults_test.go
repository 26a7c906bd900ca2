package s3faults_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/devstack/s3faults"
	"tapedeck.dev/tapedeck/shared/devstack/s3server"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

// Each fault as a store sees it, and whether the object is there afterwards.
func TestFaults(t *testing.T) {
	endpoint, stop, err := s3server.Start(t.Context(), t.TempDir(), "127.0.0.1:0", "test-access", "test-secret-key", "bucket")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	p, err := s3faults.Start(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	open := func(at string) *s3.Store {
		st, err := s3.New(t.Context(), s3.Options{
			Bucket: "bucket", Endpoint: at, Region: s3server.Region, AccessKey: "test-access", SecretKey: "test-secret-key", Timeout: 2 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		return st
	}
	st, direct := open(p.URL()), open(endpoint)
	for _, c := range []struct {
		name  string
		fault s3faults.Fault
		want  error
		there bool
	}{
		{"none", s3faults.Fault{}, nil, true},
		{"status", s3faults.Fault{Status: 503, Code: "SlowDown", RetryAfter: "7"}, store.ErrUnknown, false},
		{"error in a success", s3faults.Fault{Status: 200, Code: "InternalError"}, store.ErrUnknown, false},
		{"refusal", s3faults.Fault{Status: 400, Code: "ExpiredToken"}, store.ErrNotAllowed, false},
		{"reset", s3faults.Fault{Reset: true}, store.ErrUnknown, false},
		{"lost", s3faults.Fault{Lose: true}, store.ErrUnknown, true},
		{"hang", s3faults.Fault{Hang: true}, store.ErrUnknown, false},
		{"late", s3faults.Fault{Late: true}, store.ErrUnknown, false},
	} {
		p.Set(func(r s3faults.Request) s3faults.Fault {
			if r.Op != "PutObject" || r.Key != c.name {
				t.Errorf("%s: asked for %+v", c.name, r)
			}
			return c.fault
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err := st.Create(ctx, c.name, []byte("data of some length"))
		cancel()
		if !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if want := 7 * time.Second; c.fault.RetryAfter != "" && store.RetryAfter(err) != want {
			t.Errorf("%s: try again after %s, want %s", c.name, store.RetryAfter(err), want)
		}
		p.Set(nil)
		if _, err := direct.Get(t.Context(), c.name); (err == nil) != c.there {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if n := p.Release(); n != 1 {
		t.Errorf("%d late requests", n)
	}
	if got, err := direct.Get(t.Context(), "late"); err != nil || string(got) != "data of some length" {
		t.Errorf("late: %q, %v", got, err)
	}
	if n := p.Counts()["PutObject"]; n != 8 {
		t.Errorf("%d puts counted", n)
	}
	if n := p.Answers()["PutObject 200"]; n != 3 {
		t.Errorf("%d puts answered 200", n)
	}
}
