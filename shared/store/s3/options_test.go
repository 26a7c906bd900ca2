package s3_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

func parse(t *testing.T, addr string) (s3.Options, error) {
	t.Helper()
	u, err := url.Parse(addr)
	if err != nil {
		t.Fatal(err)
	}
	return s3.ParseURL(u)
}

func TestParseURL(t *testing.T) {
	for addr, want := range map[string]s3.Options{
		"s3://bucket":              {Bucket: "bucket"},
		"s3://bucket/":             {Bucket: "bucket"},
		"s3://my.bucket/a/b.c/":    {Bucket: "my.bucket", Prefix: "a/b.c"},
		"s3://bucket/with%20space": {Bucket: "bucket", Prefix: "with space"},
		"s3://b-1/p?endpoint=http://127.0.0.1:9000/&region=eu-west-1&path-style=true&checksum=when-required&timeout=5s": {
			Bucket: "b-1", Prefix: "p", Endpoint: "http://127.0.0.1:9000", Region: "eu-west-1", PathStyle: true,
			Checksum: s3.ChecksumWhenRequired, Timeout: 5 * time.Second,
		},
		"s3://b-1?role-arn=arn:aws:iam::123456789012:role/archive&external-id=abc&acl=bucket-owner-full-control&ca-file=/etc/ca.pem&proxy=socks5://proxy:1080": {
			Bucket: "b-1", RoleARN: "arn:aws:iam::123456789012:role/archive", ExternalID: "abc", ACL: "bucket-owner-full-control",
			CAFile: "/etc/ca.pem", Proxy: "socks5://proxy:1080",
		},
		"s3://b-1?storage-class=STANDARD_IA&tags=team=data,env=a+b%2Bc": {
			Bucket: "b-1", Attributes: store.Attributes{StorageClass: "STANDARD_IA", Tags: map[string]string{"team": "data", "env": "a b+c"}},
		},
	} {
		got, err := parse(t, addr)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(s3.Options{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", addr, diff)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	for addr, text := range map[string]string{
		"s3:///prefix":                      "names no bucket",
		"s3://host:9000/bucket":             "endpoint=http://host:port",
		"s3://b/p#x":                        "fragment",
		"s3://b/a//b":                       "path element",
		"s3://b/../c":                       "path element",
		"s3://b?pathstyle=true":             "did you mean path-style?",
		"s3://b?endpont=http://x":           "did you mean endpoint?",
		"s3://b?check_sum=auto":             "did you mean checksum?",
		"s3://b?ca=x":                       "did you mean acl?",
		"s3://b?roleArn=x":                  "did you mean role-arn?",
		"s3://b?region=":                    "exactly one value",
		"s3://b?region=a&region=b":          "exactly one value",
		"s3://b?path-style=yes":             "not true or false",
		"s3://b?checksum=md5":               "auto, when-required or none",
		"s3://b?acl=public":                 "public-read",
		"s3://b?endpoint=127.0.0.1:9000":    "want http://host:port",
		"s3://b?endpoint=http://x?y=z":      "has a query",
		"s3://b?proxy=proxy:3128":           "want http://host:port",
		"s3://b?timeout=60":                 "not a duration",
		"s3://b?timeout=0s":                 "not a duration",
		"s3://b?storage-class=DEEP_ARCHIVE": "GLACIER_IR is the coldest",
		"s3://b?tags=team":                  "no value",
		"s3://b?external-id=x":              "needs role-arn",
		"s3://b?region=%zz":                 "cannot be read",
		"gs://b/p":                          "not s3",
	} {
		_, err := parse(t, addr)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: error %v does not say %q", addr, err, text)
		}
	}
}

// Credentials in an address are refused with the right place for them, and no message repeats them.
func TestParseURLRefusesSecrets(t *testing.T) {
	const secret = "hunter2"
	for _, addr := range []string{
		"s3://key:" + secret + "@bucket/prefix",
		"s3://b?secret-key=" + secret,
		"s3://b?secretKey=" + secret,
		"s3://b?AWS_SECRET_ACCESS_KEY=" + secret,
		"s3://b?access-key=" + secret,
		"s3://b?access_key_id=" + secret,
		"s3://b?session-token=" + secret,
		"s3://b?endpoint=http://user:" + secret + "@host",
		"s3://b?proxy=http://user:" + secret + "@host:3128",
		"s3://b?pasword=" + secret, // misspelled: unknown
		"s3://b?endpoint=" + secret,
		"s3://b?secret=" + secret + ";x",
	} {
		_, err := parse(t, addr)
		if err == nil {
			t.Errorf("%s: no error", addr)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the message repeats the secret: %v", addr, err)
		}
		if !strings.Contains(addr, "pasword") && !strings.Contains(addr, "endpoint="+secret) && !strings.Contains(addr, ";") &&
			!strings.Contains(err.Error(), "AWS_SECRET_ACCESS_KEY") && !strings.Contains(err.Error(), "HTTPS_PROXY") {
			t.Errorf("%s: the message does not say where credentials belong: %v", addr, err)
		}
	}
}

func TestStringHasNoSecrets(t *testing.T) {
	s := newStore(t, s3.Options{
		Bucket: "b", Prefix: "p/", Endpoint: "http://127.0.0.1:1", AccessKey: "access", SecretKey: "hunter2", SessionToken: "token",
		ExternalID: "external",
	})
	if got, want := s.String(), "s3://b/p?endpoint=http://127.0.0.1:1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestNewNeedsRegion(t *testing.T) {
	isolate(t)
	_, err := s3.New(t.Context(), s3.Options{Bucket: "b"})
	if err == nil || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("error %v", err)
	}
	t.Setenv("AWS_REGION", "eu-central-1")
	if _, err := s3.New(t.Context(), s3.Options{Bucket: "b"}); err != nil {
		t.Errorf("with AWS_REGION: %v", err)
	}
}

// isolate hides the configuration of the machine from the SDK.
func isolate(t *testing.T) {
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_CA_BUNDLE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}
