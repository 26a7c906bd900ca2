package s3_test

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

// newTLSFake is a fake behind TLS, and the file of its authority.
func newTLSFake(t *testing.T, answer http.HandlerFunc) (*fake, string) {
	t.Helper()
	f := &fake{}
	f.Server = httptest.NewUnstartedServer(f.record(answer))
	f.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are the test's doing
	f.StartTLS()
	t.Cleanup(f.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return f, ca
}

// What each checksum mode puts on the wire. Over https the SDK's default frames the body in chunks with a trailer, which
// stores that do not know it keep inside the object: the modes are there to turn that off.
func TestChecksumOnTheWire(t *testing.T) {
	data := bytes.Repeat([]byte("data"), 1<<20) // enough to be announced by Expect: 100-continue
	for _, c := range []struct {
		mode                                  s3.Checksum
		tls, framed, checksum, unsigned, asks bool
	}{
		{s3.ChecksumAuto, true, true, true, false, true},
		{s3.ChecksumAuto, false, false, true, false, true},
		{s3.ChecksumWhenRequired, true, false, false, true, true}, // the SDK leaves the bytes to TLS
		{s3.ChecksumWhenRequired, false, false, false, false, true},
		{s3.ChecksumNone, true, false, false, true, false},
		{s3.ChecksumNone, false, false, false, true, false},
	} {
		t.Run(fmt.Sprintf("%s/tls=%v", c.mode, c.tls), func(t *testing.T) {
			o := s3.Options{Checksum: c.mode}
			var f *fake
			if c.tls {
				f, o.CAFile = newTLSFake(t, created)
			} else {
				f = newFake(t, created)
			}
			if err := f.store(t, o).Create(t.Context(), "k", data); err != nil {
				t.Fatal(err)
			}
			r := f.last(t)
			if framed := !bytes.Equal(r.body, data); framed != c.framed {
				t.Errorf("body of %d bytes, framed %v, want %v", len(r.body), framed, c.framed)
			}
			if framed := strings.Contains(r.header.Get("Content-Encoding"), "aws-chunked"); framed != c.framed {
				t.Errorf("Content-Encoding %q", r.header.Get("Content-Encoding"))
			}
			checksum := r.header.Get("X-Amz-Trailer") != "" || r.header.Get("X-Amz-Sdk-Checksum-Algorithm") != ""
			for name := range r.header {
				checksum = checksum || strings.HasPrefix(name, "X-Amz-Checksum-") || name == "Content-Md5"
			}
			if checksum != c.checksum {
				t.Errorf("a checksum is sent: %v, want %v (%v)", checksum, c.checksum, r.header)
			}
			if unsigned := r.header.Get("X-Amz-Content-Sha256") == "UNSIGNED-PAYLOAD"; unsigned != c.unsigned {
				t.Errorf("X-Amz-Content-Sha256 %s", r.header.Get("X-Amz-Content-Sha256"))
			}
			if asks := r.header.Get("Expect") != ""; asks != c.asks {
				t.Errorf("Expect %q", r.header.Get("Expect"))
			}
		})
	}
}

// A store that keeps the framing inside the object: create succeeds, and the bytes read back differ, by which the
// start-up probe finds it; the other modes keep the bytes.
func TestStoreThatKeepsFraming(t *testing.T) {
	var kept []byte
	answer := func(w http.ResponseWriter, r *http.Request) {}
	for mode, same := range map[s3.Checksum]bool{s3.ChecksumAuto: false, s3.ChecksumWhenRequired: true, s3.ChecksumNone: true} {
		f, ca := newTLSFake(t, func(w http.ResponseWriter, r *http.Request) { answer(w, r) })
		answer = func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				kept = f.last(t).body
				w.Header().Set("ETag", `"etag"`)
				return
			}
			_, _ = w.Write(kept)
		}
		s := f.store(t, s3.Options{Checksum: mode, CAFile: ca})
		if err := s.Create(t.Context(), "k", []byte("data")); err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(t.Context(), "k")
		if err != nil || (string(got) == "data") != same {
			t.Errorf("checksum=%s: got %q, %v", mode, got, err)
		}
	}
}

func TestUntrustedServer(t *testing.T) {
	f, _ := newTLSFake(t, created)
	s := f.store(t, s3.Options{})
	err := s.Create(t.Context(), "k", nil)
	checkClass(t, err, store.ErrInvalid)
	if err == nil || !strings.Contains(err.Error(), "ca-file") {
		t.Errorf("message %v does not name ca-file", err)
	}
	_, err = s.Get(t.Context(), "k")
	checkClass(t, err, store.ErrInvalid)
}

func TestBadCAFile(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{empty, empty + ".missing"} {
		_, err := s3.New(t.Context(), s3.Options{Bucket: "b", Endpoint: "https://127.0.0.1:1", CAFile: name})
		if err == nil || !strings.Contains(err.Error(), "ca-file") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// The bundle of the environment holds beside the address's own file.
func TestCABundleOfEnvironment(t *testing.T) {
	f, ca := newTLSFake(t, created)
	_, other := newTLSFake(t, created)
	t.Setenv("AWS_CA_BUNDLE", ca)
	for _, file := range []string{"", other} {
		if err := f.store(t, s3.Options{CAFile: file}).Create(t.Context(), "k", nil); err != nil {
			t.Errorf("with ca-file %q: %v", file, err)
		}
	}
}

func TestACL(t *testing.T) {
	f := newFake(t, created)
	for _, acl := range []string{"", "bucket-owner-full-control"} {
		if err := f.store(t, s3.Options{ACL: acl}).Create(t.Context(), "k", nil); err != nil {
			t.Fatal(err)
		}
		if got := f.last(t).header.Get("X-Amz-Acl"); got != acl {
			t.Errorf("X-Amz-Acl %q, want %q", got, acl)
		}
	}
}

// Storage class and tags are those of the store, and over them those of one create.
func TestAttributesOnTheWire(t *testing.T) {
	f := newFake(t, created)
	s := f.store(t, s3.Options{Attributes: store.Attributes{StorageClass: "STANDARD_IA", Tags: map[string]string{"team": "data", "env": "prod"}}})
	for _, c := range []struct {
		with        []store.Attributes
		class, tags string
	}{
		{nil, "STANDARD_IA", "env=prod&team=data"},
		{[]store.Attributes{{StorageClass: "GLACIER_IR", Tags: map[string]string{"env": "a b+c"}}}, "GLACIER_IR", "env=a%20b%2Bc&team=data"},
	} {
		if err := s.Create(t.Context(), "k", nil, c.with...); err != nil {
			t.Fatal(err)
		}
		h := f.last(t).header
		if h.Get("X-Amz-Storage-Class") != c.class || h.Get("X-Amz-Tagging") != c.tags {
			t.Errorf("class %q, tags %q", h.Get("X-Amz-Storage-Class"), h.Get("X-Amz-Tagging"))
		}
	}
	if err := f.store(t, s3.Options{}).Create(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if h := f.last(t).header; h["X-Amz-Storage-Class"] != nil || h["X-Amz-Tagging"] != nil {
		t.Errorf("sent without being asked for: %v", h)
	}
}

func TestProxy(t *testing.T) {
	var hosts []string
	proxy := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		hosts = append(hosts, r.URL.Host)
		w.Header().Set("ETag", `"etag"`)
	})
	s := newStore(t, s3.Options{Bucket: "bucket", Endpoint: "http://s3.example.test", PathStyle: true, Proxy: proxy.URL})
	if err := s.Create(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if len(hosts) != 1 || hosts[0] != "s3.example.test" {
		t.Errorf("the proxy was asked for %v", hosts)
	}
}

func TestPathStyle(t *testing.T) {
	var hosts []string
	proxy := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		hosts = append(hosts, r.URL.Host+r.URL.Path)
		w.Header().Set("ETag", `"etag"`)
	})
	for _, style := range []bool{false, true} {
		s := newStore(t, s3.Options{Bucket: "bucket", Endpoint: "http://s3.example.test", PathStyle: style, Proxy: proxy.URL})
		if err := s.Create(t.Context(), "k", nil); err != nil {
			t.Fatal(err)
		}
	}
	if want := "[bucket.s3.example.test/k s3.example.test/bucket/k]"; fmt.Sprint(hosts) != want {
		t.Errorf("asked for %v, want %s", hosts, want)
	}
}

func TestNoCredentials(t *testing.T) {
	isolate(t)
	f := newFake(t, created)
	s, err := s3.New(t.Context(), s3.Options{Bucket: "bucket", Endpoint: f.URL, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Create(t.Context(), "k", nil)
	checkClass(t, err, store.ErrNotAllowed)
	if err == nil || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
		t.Errorf("message %v does not say how to give credentials", err)
	}
	_, err = s.Get(t.Context(), "k")
	checkClass(t, err, store.ErrNotAllowed)
	if n := len(f.seen()); n != 0 {
		t.Errorf("%d requests were sent without credentials", n)
	}
}

func TestCredentialsOfEnvironment(t *testing.T) {
	isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "ENVIRONMENT")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	f := newFake(t, created)
	s, err := s3.New(t.Context(), s3.Options{Bucket: "bucket", Endpoint: f.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if auth := f.last(t).header.Get("Authorization"); !strings.Contains(auth, "Credential=ENVIRONMENT/") || !strings.Contains(auth, "/us-east-1/s3/") {
		t.Errorf("Authorization %s", auth)
	}
}

// A role is assumed with the external id, and its credentials sign the requests; a role that is refused is "not allowed".
func TestAssumedRole(t *testing.T) {
	isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "BASE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	sts := newFake(t, sequence(
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/xml")
			_, _ = fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>`+
				`<AccessKeyId>ASSUMED</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>the-token</SessionToken>`+
				`<Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`,
				time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		},
		func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `<ErrorResponse><Error><Code>AccessDenied</Code><Message>no such role</Message></Error></ErrorResponse>`)
		},
	))
	t.Setenv("AWS_ENDPOINT_URL_STS", sts.URL)
	f := newFake(t, created)
	o := s3.Options{RoleARN: "arn:aws:iam::123456789012:role/archive", ExternalID: "the-external-id"}
	s := f.store(t, o)
	for _, key := range []string{"one", "two"} {
		if err := s.Create(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	r := f.last(t)
	if !strings.Contains(r.header.Get("Authorization"), "Credential=ASSUMED/") || r.header.Get("X-Amz-Security-Token") != "the-token" {
		t.Errorf("headers %v", r.header)
	}
	if n := len(sts.seen()); n != 1 {
		t.Errorf("%d roles were assumed for two requests, want 1", n)
	}
	asked := string(sts.last(t).body)
	if !strings.Contains(asked, "ExternalId=the-external-id") || !strings.Contains(asked, "role%2Farchive") {
		t.Errorf("asked %s", asked)
	}

	err := f.store(t, o).Create(t.Context(), "three", nil)
	checkClass(t, err, store.ErrNotAllowed)
	if err != nil && strings.Contains(err.Error(), "the-external-id") {
		t.Errorf("message %v shows the external id", err)
	}
}
