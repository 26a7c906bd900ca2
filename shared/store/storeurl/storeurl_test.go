package storeurl_test

import (
	"path/filepath"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/store/mem"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

func TestOpen(t *testing.T) {
	t.Cleanup(func() { mem.Forget("archive") })
	dir := filepath.Join(t.TempDir(), "archive")
	for addr, want := range map[string]string{
		"mem://archive":          "mem://archive",
		"mem://archive/a/b/":     "mem://archive/a/b",
		"file://" + dir:          "file://" + dir,
		"file://" + dir + "/":    "file://" + dir,
		"file://" + dir + "%201": "file://" + dir + " 1",
		"s3://bucket/prefix?endpoint=http://127.0.0.1:9000": "s3://bucket/prefix?endpoint=http://127.0.0.1:9000",
	} {
		s, err := storeurl.Open(t.Context(), addr)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		if got := s.String(); got != want {
			t.Errorf("%s opened %s, want %s", addr, got, want)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close %s: %v", addr, err)
		}
	}
}

// One name is one store in the process.
func TestOpenMemTwice(t *testing.T) {
	t.Cleanup(func() { mem.Forget("twice") })
	a, err := storeurl.Open(t.Context(), "mem://twice")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Create(t.Context(), "k", []byte("x")); err != nil {
		t.Fatal(err)
	}
	b, err := storeurl.Open(t.Context(), "mem://twice")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.Get(t.Context(), "k"); err != nil || string(got) != "x" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	const secret = "hunter2"
	for addr, text := range map[string]string{
		"":                                 "has no scheme",
		"/var/archive":                     "file:///absolute/directory",
		"bucket/prefix?secret=" + secret:   "s3://bucket/prefix",
		"gs://bucket":                      "unknown scheme",
		"http://u:" + secret + "@host/x":   "unknown scheme",
		"file://var/archive":               "file:///absolute/directory",
		"file://":                          "file:///absolute/directory",
		"file:///var/archive?sync=false":   "file:///absolute/directory",
		"mem://":                           "mem://name",
		"mem://name?x=" + secret:           "mem://name",
		"s3://k:" + secret + "%zz@b":       "not a URL",
		"s3://bucket?regoin=x":             "did you mean region?",
		"s3://bucket?secret-key=" + secret: "AWS_SECRET_ACCESS_KEY",
	} {
		_, err := storeurl.Open(t.Context(), addr)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: error %v does not say %q", addr, err, text)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the message repeats the secret: %v", addr, err)
		}
	}
}
