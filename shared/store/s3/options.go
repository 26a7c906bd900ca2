package s3

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"tapedeck.dev/tapedeck/shared/store"
)

// Checksum says which checksums and framing requests carry. Many S3-compatible stores refuse the SDK's defaults, or keep
// its chunk framing inside the object; the start-up probe finds that.
type Checksum string

const (
	// ChecksumAuto is the SDK's default for writes: a CRC on every one, as a trailer of a chunked body over https. Reads are not
	// checked against the store's checksum in any mode: a segment holds its own, which tell the place of a fault.
	ChecksumAuto Checksum = "auto"
	// ChecksumWhenRequired sends one only where S3 demands it, which no call here does: plain bodies, whose SHA-256 is signed
	// over http and not sent over https.
	ChecksumWhenRequired Checksum = "when-required"
	// ChecksumNone sends the plainest request there is: as when-required, and the body is never part of the signature
	// (UNSIGNED-PAYLOAD) nor announced by Expect: 100-continue. Over http nothing protects the bytes then.
	ChecksumNone Checksum = "none"
)

// DefaultTimeout is Options.Timeout where none is given.
const DefaultTimeout = 60 * time.Second

// Options says where a store is and how to reach it. ParseURL makes it from an address.
type Options struct {
	Bucket string
	Prefix string // without slashes at its ends; "" is the whole bucket

	Region    string   // "" = the SDK's chain (AWS_REGION, profile); with an endpoint and no region anywhere, us-east-1
	Endpoint  string   // base URL of an S3-compatible store; "" = AWS
	PathStyle bool     // bucket in the path, not in the host name; always so for an endpoint at an IP address or localhost
	Checksum  Checksum // "" = ChecksumAuto
	ACL       string   // canned ACL of created objects; "" = none sent
	// Attributes of every object, the small ones under _tapedeck/ included.
	Attributes store.Attributes
	Protection Protection
	CAFile     string // PEM file of certificate authorities trusted besides the system's
	Proxy      string // URL of an HTTP(S) or SOCKS5 proxy; "" = HTTPS_PROXY, HTTP_PROXY, NO_PROXY

	RoleARN    string // role to assume by STS, with the credentials of the chain; "" = none
	ExternalID string // external id for the assumed role; not shown in messages

	// Timeout bounds one attempt: a connection, the wait for an answer, a pause inside a body. An upload and a download
	// have a second more for each 256 KiB. 0 = DefaultTimeout.
	Timeout time.Duration

	// AccessKey, SecretKey and SessionToken are used instead of the SDK's chain where AccessKey is set. No address can
	// carry them.
	AccessKey, SecretKey, SessionToken string

	// MultipartAbove is the size in bytes above which an object is uploaded in parts; 0 = DefaultMultipartAbove. PartSize is that of a
	// part; 0 = DefaultPartSize. Both at least 5 MiB (a smaller one is taken, for tests; S3 refuses the upload).
	MultipartAbove, PartSize int64

	beforeComplete func()        // tests
	maxBackoff     time.Duration // longest pause between the requests of a read; 0 = maxBackoff. Tests shorten it.
}

// An option of the address.
type option struct {
	set  func(o *Options, v string) error
	help string
}

var options = map[string]option{
	"endpoint":        {setEndpoint, "base URL of an S3-compatible store"},
	"region":          {func(o *Options, v string) error { o.Region = v; return nil }, "region"},
	"path-style":      {setPathStyle, "true: bucket in the path instead of the host name"},
	"checksum":        {setChecksum, "auto, when-required or none"},
	"acl":             {setACL, "canned ACL of created objects"},
	"ca-file":         {func(o *Options, v string) error { o.CAFile = v; return nil }, "PEM file of trusted authorities"},
	"proxy":           {setProxy, "URL of a proxy"},
	"role-arn":        {func(o *Options, v string) error { o.RoleARN = v; return nil }, "role to assume"},
	"external-id":     {func(o *Options, v string) error { o.ExternalID = v; return nil }, "external id for the role"},
	"sse":             {setEncryption, "server-side encryption: AES256, aws:kms or aws:kms:dsse"},
	"kms-key-id":      {func(o *Options, v string) error { o.Protection.KMSKeyID = v; return nil }, "KMS key, with sse=aws:kms"},
	"bucket-key":      {setBucketKey, "true: S3 Bucket Key, with sse=aws:kms"},
	"lock-mode":       {setLockMode, "Object Lock: GOVERNANCE or COMPLIANCE, with lock-days"},
	"lock-days":       {setLockDays, "Object Lock: days from its create for which an object cannot be removed"},
	"legal-hold":      {setLegalHold, "true: Object Lock legal hold"},
	"multipart-above": {setMultipartAbove, "size above which objects are uploaded in parts, as 80MiB"},
	"part-size":       {setPartSize, "size of a part, as 16MiB"},
	"storage-class":   {setStorageClass, "storage class of created objects, as STANDARD_IA"},
	"tags":            {setTags, "tags of created objects, as team=data,env=prod"},
	"timeout":         {setTimeout, "bound of one attempt, as 60s"},
}

// Secrets that people try to put into addresses, where logs and process lists would show them.
var secretNames = []string{
	"access-key", "access-key-id", "aws-access-key-id", "key", "secret", "secret-key", "secret-access-key",
	"aws-secret-access-key", "session-token", "aws-session-token", "token", "password",
}

const credentialsHint = "give credentials in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), " +
	"by AWS_PROFILE and a shared credentials file, or by the role of the machine"

// ParseURL reads an address s3://bucket/prefix?option=value&…. It refuses credentials, and an unknown option by naming the
// nearest one. Its errors never repeat a value that could be secret.
func ParseURL(u *url.URL) (Options, error) {
	var o Options
	if u.Scheme != "s3" {
		return o, fmt.Errorf("store address has the scheme %q, not s3", u.Scheme)
	}
	if u.User != nil {
		return o, fmt.Errorf("store address carries credentials before the @: %s", credentialsHint)
	}
	if u.Host == "" {
		return o, fmt.Errorf("store address names no bucket; give s3://bucket/prefix")
	}
	if u.Port() != "" {
		return o, fmt.Errorf("store address s3://%s has a port: the bucket stands there, give the server as endpoint=http://host:port", u.Host)
	}
	if u.Fragment != "" {
		return o, fmt.Errorf("store address s3://%s has a fragment (#…); write %%23 for a # in the prefix", u.Host)
	}
	o.Bucket = u.Host
	o.Prefix = strings.Trim(u.Path, "/")
	if o.Prefix != "" {
		if err := store.CheckKey(o.Prefix); err != nil {
			return o, fmt.Errorf("prefix of store address s3://%s: %w", u.Host, err)
		}
	}

	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return o, fmt.Errorf("options of store address s3://%s/%s cannot be read: join them by & and escape special characters", o.Bucket, o.Prefix)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if slices.Contains(secretNames, normal(name)) {
			return o, fmt.Errorf("store address s3://%s/%s has the option %s: secrets do not belong in an address; %s", o.Bucket, o.Prefix, name, credentialsHint)
		}
		opt, ok := options[name]
		if !ok {
			return o, fmt.Errorf("store address s3://%s/%s has the unknown option %q: did you mean %s? (known: %s)",
				o.Bucket, o.Prefix, name, nearest(name), strings.Join(slices.Sorted(maps.Keys(options)), ", "))
		}
		if len(query[name]) != 1 || query[name][0] == "" {
			return o, fmt.Errorf("store address s3://%s/%s: option %s needs exactly one value (%s)", o.Bucket, o.Prefix, name, opt.help)
		}
		if err := opt.set(&o, query[name][0]); err != nil {
			return o, fmt.Errorf("store address s3://%s/%s: option %s: %w", o.Bucket, o.Prefix, name, err)
		}
	}
	if o.ExternalID != "" && o.RoleARN == "" {
		return o, fmt.Errorf("store address s3://%s/%s: option external-id needs role-arn", o.Bucket, o.Prefix)
	}
	if err := o.Protection.check(); err != nil {
		return o, fmt.Errorf("store address s3://%s/%s: %w", o.Bucket, o.Prefix, err)
	}
	return o, nil
}

func setEndpoint(o *Options, v string) error {
	u, err := url.Parse(v)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return fmt.Errorf("want http://host:port or https://host")
	case u.User != nil:
		return fmt.Errorf("it carries credentials: %s", credentialsHint)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("it has a query; want http://host:port or https://host")
	}
	o.Endpoint = strings.TrimSuffix(v, "/")
	return nil
}

func setPathStyle(o *Options, v string) (err error) {
	if o.PathStyle, err = strconv.ParseBool(v); err != nil {
		return fmt.Errorf("%q is not true or false", v)
	}
	return nil
}

func setChecksum(o *Options, v string) error {
	switch c := Checksum(v); c {
	case ChecksumAuto, ChecksumWhenRequired, ChecksumNone:
		o.Checksum = c
		return nil
	}
	return fmt.Errorf("%q is not auto, when-required or none", v)
}

func setACL(o *Options, v string) error {
	known := types.ObjectCannedACL("").Values()
	if !slices.Contains(known, types.ObjectCannedACL(v)) {
		return fmt.Errorf("%q is not one of %v", v, known)
	}
	o.ACL = v
	return nil
}

func setProxy(o *Options, v string) error {
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme):
		return fmt.Errorf("want http://host:port, https://… or socks5://…")
	case u.User != nil:
		return fmt.Errorf("it carries credentials: leave the option out and give the proxy in the environment (HTTPS_PROXY, HTTP_PROXY)")
	}
	o.Proxy = v
	return nil
}

func setTimeout(o *Options, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d < 100*time.Millisecond || d > time.Hour {
		return fmt.Errorf("%q is not a duration between 100ms and 1h", v)
	}
	o.Timeout = d
	return nil
}

// String is the address without secrets: bucket, prefix and endpoint.
func (o Options) String() string {
	s := "s3://" + o.Bucket
	if o.Prefix != "" {
		s += "/" + o.Prefix
	}
	if o.Endpoint != "" {
		s += "?endpoint=" + o.Endpoint
	}
	return s
}

// normal makes the ways to write a name alike: accessKey, access_key and Access-Key.
func normal(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 && name[i-1] >= 'a' && name[i-1] <= 'z' {
				b.WriteByte('-')
			}
			r += 'a' - 'A'
		}
		if r == '_' || r == '.' {
			r = '-'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// nearest is the known option with the least edits to name.
func nearest(name string) string {
	best, least := "", 1<<30
	for _, known := range slices.Sorted(maps.Keys(options)) {
		if d := edits(normal(name), known); d < least {
			best, least = known, d
		}
	}
	return best
}

// edits is the Levenshtein distance in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
