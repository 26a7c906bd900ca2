package s3_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/s3"
	"tapedeck.dev/tapedeck/shared/store/storetest"
)

const mib = 1 << 20

// steps answers each step of a multipart upload; a nil one as S3 does. The probe's object is there already.
type steps struct{ begin, part, complete, abort http.HandlerFunc }

func (s steps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	xmlAnswer := func(body string) http.HandlerFunc { return status(200, `<?xml version="1.0"?>`+body) }
	probe := strings.Contains(r.URL.Path, "_tapedeck/probe/")
	h := http.HandlerFunc(nil)
	answer := xmlAnswer("")
	switch {
	case r.Method == http.MethodPost && q.Has("uploads"):
		h, answer = s.begin, xmlAnswer(`<InitiateMultipartUploadResult><UploadId>the-upload</UploadId></InitiateMultipartUploadResult>`)
	case r.Method == http.MethodPut && q.Has("partNumber"):
		h, answer = s.part, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"part-`+q.Get("partNumber")+`"`)
			w.Header().Set("X-Amz-Checksum-Crc32", r.Header.Get("X-Amz-Checksum-Crc32"))
		}
	case r.Method == http.MethodPost && q.Has("uploadId"):
		h, answer = s.complete, xmlAnswer(`<CompleteMultipartUploadResult><ETag>"etag"</ETag></CompleteMultipartUploadResult>`)
		if probe {
			answer = s3Error(412, "PreconditionFailed")
		}
	case r.Method == http.MethodDelete:
		h, answer = s.abort, status(204, "")
	case r.Method == http.MethodPut:
		answer = created
	}
	if h != nil && !probe {
		answer = h
	}
	answer(w, r)
}

func kind(r request) string {
	switch {
	case r.method == http.MethodPost && r.query["uploads"] != nil:
		return "begin"
	case r.query["partNumber"] != nil:
		return "part"
	case r.method == http.MethodPost:
		return "complete"
	case r.method == http.MethodDelete:
		return "abort"
	}
	return "put"
}

// kinds are the steps of the key k, in the order of their requests.
func (f *fake) kinds() string {
	var out []string
	for _, r := range f.seen() {
		if strings.HasSuffix(r.path, "/k") {
			out = append(out, kind(r))
		}
	}
	return strings.Join(out, " ")
}

var inParts = s3.Options{MultipartAbove: 4, PartSize: 4}

// Every answer to every step means what the contract says. What was refused is aborted; a completion without an answer is
// not, since it may be going on.
func TestMultipartAnswers(t *testing.T) {
	const whole = "begin part part part complete"
	for _, c := range []struct {
		name  string
		steps steps
		want  error
		text  string
		calls string
	}{
		{"created", steps{}, nil, "", whole},
		{"exists", steps{complete: s3Error(412, "PreconditionFailed")}, store.ErrExists, "", whole + " abort"},
		{"exists, told late", steps{complete: s3Error(200, "PreconditionFailed")}, store.ErrExists, "", whole},
		{"409", steps{complete: s3Error(409, "ConditionalRequestConflict")}, store.ErrUnknown, "Conflict", whole + " abort"},
		{"upload gone at completion", steps{complete: s3Error(404, "NoSuchUpload")}, store.ErrUnknown, "NoSuchUpload", whole + " abort"},
		{"part gone at completion", steps{complete: s3Error(400, "InvalidPart")}, store.ErrUnknown, "InvalidPart", whole + " abort"},
		{"error told late", steps{complete: s3Error(200, "InternalError")}, store.ErrUnknown, "InternalError", whole},
		{"page of a proxy", steps{complete: status(200, "<html>log in</html>")}, store.ErrUnknown, "log in", whole},
		{"completion broken off", steps{complete: brokenOff}, store.ErrUnknown, "", whole},
		{"completion 503", steps{complete: s3Error(503, "SlowDown")}, store.ErrUnknown, "SlowDown", whole},
		{"completion reset", steps{complete: reset}, store.ErrUnknown, "", whole},
		{"completion hangs", steps{complete: hang}, store.ErrUnknown, "timeout", whole},
		{"completion 403", steps{complete: s3Error(403, "AccessDenied")}, store.ErrNotAllowed, "", whole + " abort"},
		{"completion refused", steps{complete: s3Error(400, "EntityTooSmall")}, store.ErrInvalid, "", whole + " abort"},
		{"begin 503", steps{begin: s3Error(503, "SlowDown")}, store.ErrUnknown, "", "begin"},
		{"begin 403", steps{begin: s3Error(403, "AccessDenied")}, store.ErrNotAllowed, "s3:PutObject", "begin"},
		{"begin page", steps{begin: status(200, "<html>log in</html>")}, store.ErrUnknown, "log in", "begin"},
		{"credentials expire in the middle", steps{part: sequence(created, s3Error(400, "ExpiredToken"))}, store.ErrNotAllowed, "ExpiredToken", "abort"},
		{"403 in the middle", steps{part: sequence(created, s3Error(403, "AccessDenied"))}, store.ErrNotAllowed, "", "abort"},
		{"part fails for good", steps{part: s3Error(503, "SlowDown")}, store.ErrUnknown, "SlowDown", "abort"},
		{"upload gone at a part", steps{part: s3Error(404, "NoSuchUpload")}, store.ErrUnknown, "NoSuchUpload", "abort"},
		{"abort fails", steps{complete: s3Error(412, "PreconditionFailed"), abort: s3Error(403, "AccessDenied")}, store.ErrExists, "", whole + " abort"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, c.steps.ServeHTTP)
			o := inParts
			if strings.Contains(c.name, "hang") {
				o.Timeout = 300 * time.Millisecond
			}
			err := f.store(t, o).Create(t.Context(), "k", []byte("0123456789"))
			checkClass(t, err, c.want)
			if err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("message %v does not say %q", err, c.text)
			}
			calls := f.kinds()
			if c.calls == "abort" { // how many parts were sent before the failure is a matter of luck, and when a cancelled one is seen
				if !strings.HasPrefix(calls, "begin part") || strings.Count(calls, " abort") != 1 || strings.Contains(calls, "complete") {
					t.Errorf("requests %s", calls)
				}
			} else if calls != c.calls {
				t.Errorf("requests %s, want %s", calls, c.calls)
			}
		})
	}
}

// A part that fails for a moment is repeated, and the object is created.
func TestMultipartRepeatsParts(t *testing.T) {
	f := newFake(t, steps{part: sequence(s3Error(503, "SlowDown"), reset, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"p"`)
	})}.ServeHTTP)
	if err := f.store(t, inParts).Create(t.Context(), "k", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(f.kinds(), "part"); n != 5 {
		t.Errorf("%d requests for 3 parts of which 2 failed", n)
	}
}

// What the requests carry: the condition and the checksums on the completion; attributes and protection on the begin; each part its
// bytes. A body at the threshold goes in one PUT.
func TestMultipartOnTheWire(t *testing.T) {
	f := newFake(t, steps{}.ServeHTTP)
	o := inParts
	o.ACL, o.Attributes = "private", store.Attributes{StorageClass: "STANDARD_IA", Tags: map[string]string{"a": "b"}}
	o.Protection = s3.Protection{Encryption: "aws:kms", KMSKeyID: "key", BucketKey: true, LockMode: "GOVERNANCE", LockDays: 2, LegalHold: true}
	s := f.store(t, o)
	if err := s.Create(t.Context(), "k", []byte("0123")); err != nil || f.kinds() != "put" {
		t.Fatalf("%v, %s", err, f.kinds())
	}
	if err := s.Create(t.Context(), "k", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for _, r := range f.seen() {
		if !strings.HasSuffix(r.path, "/k") {
			continue
		}
		switch kind(r) {
		case "begin":
			for name, want := range map[string]string{
				"X-Amz-Acl": "private", "X-Amz-Storage-Class": "STANDARD_IA", "X-Amz-Tagging": "a=b", "X-Amz-Checksum-Algorithm": "CRC32",
				"X-Amz-Server-Side-Encryption": "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "key",
				"X-Amz-Server-Side-Encryption-Bucket-Key-Enabled": "true",
				"X-Amz-Object-Lock-Mode":                          "GOVERNANCE", "X-Amz-Object-Lock-Legal-Hold": "ON",
			} {
				if r.header.Get(name) != want {
					t.Errorf("%s is %q, want %q", name, r.header.Get(name), want)
				}
			}
			if r.header.Get("X-Amz-Object-Lock-Retain-Until-Date") == "" {
				t.Error("no date of retention")
			}
		case "part":
			parts[r.query["partNumber"][0]] = string(r.body)
		case "complete":
			if r.header.Get("If-None-Match") != "*" {
				t.Error("an unconditional completion")
			}
			if n := strings.Count(string(r.body), "<ChecksumCRC32>"); n != 3 {
				t.Errorf("%d checksums in %s", n, r.body)
			}
		}
	}
	if fmt.Sprint(parts) != "map[1:0123 2:4567 3:89]" {
		t.Errorf("parts %v", parts)
	}
}

// A store that takes a completion over what is there, or knows no multipart uploads, gets every object in one PUT; the question
// is put once.
func TestMultipartThatDoesNotHold(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"ignores the condition": func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = "/bucket/elsewhere" // not the probe's, so that steps answers success
			steps{}.ServeHTTP(w, r)
		},
		"knows no uploads": func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				s3Error(501, "NotImplemented")(w, r)
				return
			}
			created(w, r)
		},
	} {
		f := newFake(t, answer)
		s := f.store(t, inParts)
		for range 2 {
			if err := s.Create(t.Context(), "k", []byte("0123456789")); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if got := f.kinds(); got != "put put" {
			t.Errorf("%s: requests %s", name, got)
		}
		if n := len(f.seen()); n > 2+2*6 {
			t.Errorf("%s: %d requests: it was asked twice", name, n)
		}
	}
	// An answer that settles nothing leaves the question open, and nothing is written.
	f := newFake(t, sequence(s3Error(503, "SlowDown"), steps{}.ServeHTTP))
	s := f.store(t, inParts)
	checkClass(t, s.Create(t.Context(), "k", []byte("0123456789")), store.ErrUnknown)
	if got := f.kinds(); got != "" {
		t.Errorf("requests %s", got)
	}
	if err := s.Create(t.Context(), "k", []byte("0123456789")); err != nil || !strings.HasSuffix(f.kinds(), "complete") {
		t.Errorf("%v, requests %s", err, f.kinds())
	}
}

// A create that is given up aborts its parts, and its outcome is unknown.
func TestMultipartGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := newFake(t, steps{part: func(w http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }}.ServeHTTP)
	err := f.store(t, inParts).Create(ctx, "k", []byte("0123456789"))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrUnknown) {
		t.Errorf("%v", err)
	}
	if strings.Count(f.kinds(), "abort") != 1 {
		t.Errorf("requests %s", f.kinds())
	}
}

// servers are the embedded one and those of TAPEDECK_TEST_S3_URLS, each with a prefix of its own.
func servers(t *testing.T) map[string]s3.Options {
	all := map[string]s3.Options{"embedded": {Endpoint: gateway, Bucket: "bucket-one", Prefix: "multipart/" + rand.Text()}}
	for _, raw := range strings.Fields(os.Getenv("TAPEDECK_TEST_S3_URLS")) {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		o, err := s3.ParseURL(u)
		if err != nil {
			t.Fatal(err)
		}
		o.AccessKey, o.SecretKey = os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
		o.Prefix += "/" + rand.Text()
		all[o.Endpoint] = o
	}
	return all
}

// On real servers: an object of three parts, a refused second one, and a race of completions, which one writer wins.
func TestMultipartOnServers(t *testing.T) {
	for name, o := range servers(t) {
		for _, checksum := range []s3.Checksum{s3.ChecksumAuto, s3.ChecksumNone} {
			t.Run(name+"/"+string(checksum), func(t *testing.T) {
				o := o
				o.Checksum, o.MultipartAbove, o.PartSize = checksum, 5*mib, 5*mib
				o.Prefix += "/" + string(checksum)
				s := newStore(t, o)
				if err := s.MakeBucket(t.Context()); err != nil {
					t.Fatal(err)
				}
				if holds, err := s.MultipartHolds(t.Context()); err != nil || !holds {
					t.Fatalf("conditional completions: %v, %v", holds, err)
				}
				data := make([]byte, 11*mib+7)
				_, _ = rand.Read(data)
				if err := s.Create(t.Context(), "large", data, store.Attributes{Tags: map[string]string{"a": "b"}}); err != nil {
					t.Fatal(err)
				}
				checkBytes(t, s, "large", data)
				if err := s.Create(t.Context(), "large", data[1:]); !errors.Is(err, store.ErrExists) {
					t.Fatalf("second create: %v", err)
				}
				if err := s.Create(t.Context(), "large", []byte("small")); !errors.Is(err, store.ErrExists) {
					t.Fatalf("small create over a large object: %v", err)
				}
				checkBytes(t, s, "large", data)
				race(t, o)
				if left, err := s.Uploads(t.Context(), "large"); err != nil || len(left) > 0 {
					t.Errorf("uploads left of a refused create: %v, %v", left, err)
				}
			})
		}
	}
}

// The suite over uploads in parts: of one part, however small, for all but empty objects and those of one byte.
func TestSuiteInParts(t *testing.T) {
	for name, o := range servers(t) {
		t.Run(name, func(t *testing.T) {
			o.MultipartAbove, o.PartSize = 1, 5*mib
			if err := newStore(t, o).MakeBucket(t.Context()); err != nil {
				t.Fatal(err)
			}
			storetest.RunCreates(t, func(t *testing.T, prefix string) store.Store {
				o := o
				o.Prefix += "/" + prefix
				s := newStore(t, o)
				s.AssumeMultipart() // TestMultipartOnServers asks
				return s
			})
		})
	}
}

func checkBytes(t *testing.T, s *s3.Store, key string, want []byte) {
	t.Helper()
	if got, err := s.Get(t.Context(), key); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes, want %d; %v", key, len(got), len(want), err)
	}
}

// race lets writers upload their parts and then complete together.
func race(t *testing.T, o s3.Options) {
	const racers = 4
	var ready sync.WaitGroup
	ready.Add(racers)
	won := make([]bool, racers)
	content := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 6*mib+i) }
	var g errgroup.Group
	for i := range racers {
		first := true
		s := newStore(t, s3.BeforeComplete(o, func() {
			if first { // of the probe, which each store makes
				return
			}
			ready.Done()
			ready.Wait()
		}))
		if holds, err := s.MultipartHolds(t.Context()); err != nil || !holds {
			t.Fatalf("conditional completions: %v, %v", holds, err)
		}
		first = false
		g.Go(func() error {
			err := s.Create(t.Context(), "race", content(i))
			won[i] = err == nil
			if err != nil && !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrUnknown) {
				return fmt.Errorf("racer %d: %w", i, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	winner := -1
	for i, w := range won {
		if w && winner >= 0 {
			t.Fatalf("writers %d and %d completed one key", winner, i)
		} else if w {
			winner = i
		}
	}
	if winner < 0 {
		t.Fatal("nobody completed") // no server here answers 409 to all of them
	}
	checkBytes(t, newStore(t, o), "race", content(winner))
}

// killedEnv makes this test program one that is killed between the parts of an upload and its completion.
const killedEnv = "TAPEDECK_TEST_KILLED_AT"

func TestKilledBetweenPartsAndCompletion(t *testing.T) {
	for name, o := range servers(t) {
		t.Run(name, func(t *testing.T) {
			o.MultipartAbove, o.PartSize = 5*mib, 5*mib
			s := newStore(t, o)
			if err := s.MakeBucket(t.Context()); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestMain$")
			cmd.Env = append(os.Environ(), killedEnv+"="+o.Endpoint+" "+o.Bucket+" "+o.Prefix)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the writer ended with %v: %s", err, &stderr)
			}
			if objs, _, err := s.List(t.Context(), "topics/", "", 0); err != nil || len(objs) != 0 {
				t.Fatalf("objects of a create that was cut off: %v, %v", objs, err)
			}
			const key = "topics/k"
			left, err := s.Uploads(t.Context(), key)
			if err != nil || len(left) != 1 {
				t.Fatalf("unfinished uploads: %v, %v", left, err)
			}
			// Young uploads may be a live writer's, others are nobody's business here.
			all := func(string) bool { return true }
			if n, err := s.Sweep(t.Context(), all); err != nil || n != 0 {
				t.Fatalf("swept %d, %v", n, err)
			}
			later := time.Now().Add(time.Hour)
			if n, err := s.SweepBefore(t.Context(), func(k string) bool { return k != key }, later); err != nil || n != 0 {
				t.Fatalf("swept %d of others, %v", n, err)
			}
			// The next writer takes no notice of them.
			data := bytes.Repeat([]byte("y"), 6*mib)
			if err := s.Create(t.Context(), key, data); err != nil {
				t.Fatal(err)
			}
			n, err := s.SweepBefore(t.Context(), func(k string) bool { return k == key }, later)
			if err != nil {
				t.Fatal(err)
			}
			left, err = s.Uploads(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			// MinIO lists uploads of whole keys only; it sweeps by itself, by default after a day.
			if minio := n == 0 && len(left) == 1 && name != "embedded"; !minio && (n != 1 || len(left) != 0) {
				t.Errorf("swept %d, %v left", n, left)
			}
			checkBytes(t, s, key, data)
		})
	}
}

// killed is the writer of the test above.
func killed(place string) error {
	at := strings.Fields(place)
	o := s3.Options{Endpoint: at[0], Bucket: at[1], Prefix: at[2], MultipartAbove: 5 * mib, PartSize: 5 * mib,
		AccessKey: testAccess, SecretKey: testSecret}
	if key := os.Getenv("AWS_ACCESS_KEY_ID"); key != "" && os.Getenv("TAPEDECK_TEST_S3_URLS") != "" && !strings.HasPrefix(at[2], "multipart/") {
		o.AccessKey, o.SecretKey = key, os.Getenv("AWS_SECRET_ACCESS_KEY")
	}
	probing := true
	s, err := s3.New(context.Background(), s3.BeforeComplete(o, func() {
		if !probing {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}))
	if err != nil {
		return err
	}
	if holds, err := s.MultipartHolds(context.Background()); err != nil || !holds {
		return fmt.Errorf("conditional completions: %v, %w", holds, err)
	}
	probing = false
	return s.Create(context.Background(), "topics/k", bytes.Repeat([]byte("x"), 11*mib))
}

// A sweep shows an error as what it is; a page of a proxy is no empty list.
func TestSweepAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"403":  {s3Error(403, "AccessDenied"), store.ErrNotAllowed},
		"501":  {s3Error(501, "NotImplemented"), store.ErrInvalid},
		"page": {status(200, "<html>"), nil},
	} {
		_, err := newFake(t, c.answer).store(t, s3.Options{}).Sweep(t.Context(), func(string) bool { return true })
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Only old uploads, of keys below the prefix that are ours, are aborted; one that is gone by then is no error.
func TestSweepTakesOnlyItsOwn(t *testing.T) {
	old, young := time.Now().Add(-25*time.Hour).UTC().Format(time.RFC3339), time.Now().Add(-23*time.Hour).UTC().Format(time.RFC3339)
	var list strings.Builder
	for _, u := range [][3]string{
		{"p/topics/a", "1", old}, {"p/topics/b", "2", young}, {"p/else/c", "3", old}, {"q/topics/d", "4", old}, {"p/topics/gone", "5", old},
	} {
		fmt.Fprintf(&list, "<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>", u[0], u[1], u[2])
	}
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, "<ListMultipartUploadsResult>"+list.String()+"</ListMultipartUploadsResult>")
		case r.URL.Query().Get("uploadId") == "5":
			s3Error(404, "NoSuchUpload")(w, r)
		default:
			w.WriteHeader(204)
		}
	})
	n, err := f.store(t, s3.Options{Prefix: "p"}).Sweep(t.Context(), func(k string) bool { return strings.HasPrefix(k, "topics/") })
	if err != nil || n != 2 {
		t.Errorf("swept %d, %v", n, err)
	}
	var aborted []string
	for _, r := range f.seen() {
		if r.method == http.MethodDelete {
			aborted = append(aborted, r.query["uploadId"][0])
		} else if got := r.query["prefix"]; len(got) != 1 || got[0] != "p/" {
			t.Errorf("listed %v", got)
		}
	}
	if fmt.Sprint(aborted) != "[1 5]" {
		t.Errorf("aborted %v", aborted)
	}
}
