package s3_test

import (
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"maps"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

// What each option puts on the wire, and nothing where none is set.
func TestProtectionOnTheWire(t *testing.T) {
	const until = "X-Amz-Object-Lock-Retain-Until-Date"
	names := []string{
		"X-Amz-Server-Side-Encryption", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", "X-Amz-Server-Side-Encryption-Bucket-Key-Enabled",
		"X-Amz-Object-Lock-Mode", "X-Amz-Object-Lock-Legal-Hold",
	}
	for name, c := range map[string]struct {
		p    s3.Protection
		want []string // in the order of names
		days int
	}{
		"none":       {s3.Protection{}, []string{"", "", "", "", ""}, 0},
		"SSE-S3":     {s3.Protection{Encryption: "AES256"}, []string{"AES256", "", "", "", ""}, 0},
		"SSE-KMS":    {s3.Protection{Encryption: "aws:kms"}, []string{"aws:kms", "", "", "", ""}, 0},
		"KMS key":    {s3.Protection{Encryption: "aws:kms", KMSKeyID: "alias/archive", BucketKey: true}, []string{"aws:kms", "alias/archive", "true", "", ""}, 0},
		"DSSE":       {s3.Protection{Encryption: "aws:kms:dsse", KMSKeyID: "k"}, []string{"aws:kms:dsse", "k", "", "", ""}, 0},
		"retention":  {s3.Protection{LockMode: "COMPLIANCE", LockDays: 30}, []string{"", "", "", "COMPLIANCE", ""}, 30},
		"legal hold": {s3.Protection{LegalHold: true}, []string{"", "", "", "", "ON"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, created)
			for _, checksum := range []s3.Checksum{s3.ChecksumAuto, s3.ChecksumWhenRequired, s3.ChecksumNone} {
				before := time.Now().Truncate(time.Second)
				if err := f.store(t, s3.Options{Protection: c.p, Checksum: checksum}).Create(t.Context(), "k", []byte("data")); err != nil {
					t.Fatal(err)
				}
				h := f.last(t).header
				for i, name := range names {
					if got := h.Get(name); got != c.want[i] {
						t.Errorf("%s is %q, want %q", name, got, c.want[i])
					}
				}
				if c.days == 0 {
					if h.Get(until) != "" {
						t.Errorf("retained until %s", h.Get(until))
					}
				} else if got, err := time.Parse(time.RFC3339, h.Get(until)); err != nil || got.Before(before.AddDate(0, 0, c.days)) ||
					got.After(time.Now().AddDate(0, 0, c.days)) {
					t.Errorf("retained until %s, %v", h.Get(until), err)
				}
				// S3 refuses a lock without one or the other.
				sum := md5.Sum([]byte("data"))
				digest := h.Get("Content-Md5") == base64.StdEncoding.EncodeToString(sum[:])
				if locks := c.p.LockMode != "" || c.p.LegalHold; digest != (locks && checksum != s3.ChecksumAuto) {
					t.Errorf("checksum=%s: Content-MD5 %q", checksum, h.Get("Content-Md5"))
				}
				if checksum == s3.ChecksumAuto && h.Get("X-Amz-Checksum-Crc32") == "" {
					t.Errorf("no checksum: %v", h)
				}
			}
		})
	}
}

func TestProtectionRefuses(t *testing.T) {
	for addr, text := range map[string]string{
		"s3://b?sse=aes":                                "not one of AES256",
		"s3://b?kms-key-id=x":                           "needs sse=aws:kms",
		"s3://b?sse=AES256&bucket-key=true":             "needs sse=aws:kms",
		"s3://b?sse=aws:kms&bucket-key=yes":             "not true or false",
		"s3://b?lock-mode=GOVERNANCE":                   "need each other",
		"s3://b?lock-days=3":                            "need each other",
		"s3://b?lock-mode=governance&lock-days=3":       "not GOVERNANCE or COMPLIANCE",
		"s3://b?lock-mode=GOVERNANCE&lock-days=0":       "between 1 and 36500",
		"s3://b?lock-mode=GOVERNANCE&lock-days=9999999": "between 1 and 36500",
		"s3://b?legal-hold=on":                          "not true or false",
	} {
		if _, err := parse(t, addr); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: error %v does not say %q", addr, err, text)
		}
	}
	o, err := parse(t, "s3://b?sse=aws:kms&kms-key-id=alias/a&bucket-key=true&lock-mode=GOVERNANCE&lock-days=7&legal-hold=true")
	want := s3.Protection{Encryption: "aws:kms", KMSKeyID: "alias/a", BucketKey: true, LockMode: "GOVERNANCE", LockDays: 7, LegalHold: true}
	if err != nil || o.Protection != want {
		t.Errorf("%+v, %v", o.Protection, err)
	}
}

// A refusal names every right that the create needs; a KMS key that is not usable now is a matter of rights, which may be
// given, and not of the request.
func TestRefusalsNameTheRights(t *testing.T) {
	f := newFake(t, s3Error(403, "AccessDenied"))
	s := f.store(t, s3.Options{
		ACL: "private", Attributes: store.Attributes{Tags: map[string]string{"a": "b"}},
		Protection: s3.Protection{Encryption: "aws:kms", LockMode: "GOVERNANCE", LockDays: 1, LegalHold: true},
	})
	err := s.Create(t.Context(), "k", nil)
	checkClass(t, err, store.ErrNotAllowed)
	for _, right := range []string{"s3:PutObject,", "PutObjectAcl", "PutObjectTagging", "PutObjectRetention", "PutObjectLegalHold", "kms:GenerateDataKey"} {
		if err == nil || !strings.Contains(err.Error(), right) {
			t.Errorf("%v does not name %s", err, right)
		}
	}
	f = newFake(t, s3Error(400, "KMS.DisabledException"))
	checkClass(t, f.store(t, s3.Options{}).Create(t.Context(), "k", nil), store.ErrNotAllowed)
	_, err = f.store(t, s3.Options{}).Get(t.Context(), "k")
	checkClass(t, err, store.ErrNotAllowed)
	f = newFake(t, s3Error(403, "InvalidObjectState"))
	_, err = f.store(t, s3.Options{}).Get(t.Context(), "k")
	checkClass(t, err, store.ErrInvalid)
	if err == nil || !strings.Contains(err.Error(), "restore it") {
		t.Errorf("%v", err)
	}
}

// Locks, tags and storage class on a real server; encryption too where it has a key.
func TestProtectionOnServers(t *testing.T) {
	servers := map[string]s3.Options{"embedded": {Endpoint: gateway}}
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
		servers[o.Endpoint] = o
	}
	encrypts := strings.Fields(os.Getenv("TAPEDECK_TEST_S3_KMS")) // endpoint=key id
	for name, o := range servers {
		t.Run(name, func(t *testing.T) {
			o.Bucket, o.Prefix = "locked-"+strings.ToLower(rand.Text()), "p"
			o.Attributes = store.Attributes{StorageClass: "STANDARD", Tags: map[string]string{"team": "data", "cost center": "a/b+c=d"}}
			o.Protection = s3.Protection{LockMode: "GOVERNANCE", LockDays: 1, LegalHold: true}
			for _, e := range encrypts {
				if key, ok := strings.CutPrefix(e, o.Endpoint+"="); ok {
					o.Protection.Encryption, o.Protection.KMSKeyID = "aws:kms", key
				}
			}
			for _, checksum := range []s3.Checksum{s3.ChecksumAuto, s3.ChecksumWhenRequired, s3.ChecksumNone} {
				o.Checksum = checksum
				s := newStore(t, o)
				if err := s.MakeBucket(t.Context()); err != nil {
					t.Fatal(err)
				}
				key := "object-" + string(checksum)
				if err := s.Create(t.Context(), key, []byte("data"), store.Attributes{Tags: map[string]string{"topic": "trips"}}); err != nil {
					t.Fatal(err)
				}
				if err := s.Create(t.Context(), key, []byte("data")); !errors.Is(err, store.ErrExists) {
					t.Fatalf("second create: %v", err)
				}
				if got, err := s.Get(t.Context(), key); err != nil || string(got) != "data" {
					t.Fatalf("%q, %v", got, err)
				}
				h, err := s.Head(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				if h.ObjectLockMode != "GOVERNANCE" || h.ObjectLockLegalHoldStatus != "ON" || h.ObjectLockRetainUntilDate == nil ||
					h.ObjectLockRetainUntilDate.Before(time.Now().Add(23*time.Hour)) {
					t.Errorf("lock %s until %v, hold %s", h.ObjectLockMode, h.ObjectLockRetainUntilDate, h.ObjectLockLegalHoldStatus)
				}
				if want := o.Protection.Encryption; want != "" && string(h.ServerSideEncryption) != want {
					t.Errorf("encryption %q", h.ServerSideEncryption)
				}
				tags, err := s.Tags(t.Context(), key)
				if want := map[string]string{"team": "data", "cost center": "a/b+c=d", "topic": "trips"}; err != nil || !maps.Equal(tags, want) {
					t.Errorf("tags %v, %v", tags, err)
				}
				if n, err := s.Versions(t.Context(), key); err == nil && n != 1 {
					t.Errorf("%d versions of one key", n)
				}
			}
		})
	}
}
