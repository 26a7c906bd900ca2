package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"tapedeck.dev/tapedeck/shared/store"
)

// answer is what a failed call says about itself. The zero status means that there was no HTTP answer.
type answer struct {
	status  int
	code    string // S3's error code
	message string
	request string        // request id
	after   time.Duration // Retry-After; 0 = none
	html    bool          // the body is a page for people: a proxy answered, not S3
}

func readAnswer(err error) answer {
	var a answer
	var httpErr *smithyhttp.ResponseError
	if errors.As(err, &httpErr) && httpErr.Response != nil && httpErr.Response.Response != nil {
		a.status = httpErr.Response.StatusCode
		a.html = strings.HasPrefix(httpErr.Response.Header.Get("Content-Type"), "text/html")
		a.after = parseRetryAfter(httpErr.Response.Header.Get("Retry-After"), time.Now())
		a.request = httpErr.Response.Header.Get("X-Amz-Request-Id")
	}
	var apiErr smithy.APIError
	if errors.As(err, &apiErr) {
		a.code, a.message = apiErr.ErrorCode(), apiErr.ErrorMessage()
	}
	return a
}

func (a answer) String() string {
	s := fmt.Sprintf("HTTP %d", a.status)
	if a.code != "" && a.code != "UnknownError" {
		s += " " + a.code
	}
	if a.message != "" && a.message != a.code {
		s += " (" + a.message + ")"
	}
	if a.request != "" {
		s += ", request " + a.request
	}
	return s
}

// Codes that S3 answers under status 400, with another meaning than "this request is wrong".
var (
	deniedCodes  = []string{"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed", "XAdminUserNotFound"}
	timeoutCodes = []string{"RequestTimeout", "IncompleteBody", "InvalidPart", "NoSuchUpload", "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded"}
	absentCodes  = []string{"NoSuchKey", "NotFound", "NoSuchVersion", "UnknownError", ""} // a HEAD has no body to name one
	// The store found other bytes than the request announced: it does not understand the framing or the checksum.
	checksumCodes = []string{"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "InvalidChunkSizeError", "MissingContentLength", "NotImplemented", "InvalidRequest", "InvalidArgument", "MalformedTrailerError"}
	regionCodes   = []string{"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "Redirect", "IllegalLocationConstraintException"}
)

// createError classifies the failure of a create, by the contract of store.Store. rights are what it needs.
func (s *Store) createError(ctx context.Context, key, rights string, err error) error {
	a := readAnswer(err)
	fail := func(class error, text string) error {
		return &callError{op: "create", key: key, addr: s.String(), text: text, class: class, after: a.after}
	}
	switch {
	case errors.Is(err, errBody):
		return fail(store.ErrUnknown, innerText(err))
	case a.status == 0 && ctx.Err() != nil:
		// The caller gave up, the store perhaps not: the object may appear yet.
		return fail(errors.Join(ctx.Err(), store.ErrUnknown), ctx.Err().Error()+" while the request was under way")
	case a.status == 0 && untrusted(err):
		return fail(store.ErrInvalid, rootText(err)+"; name the authority of the server's certificate by ca-file")
	case a.status == 0 && neverSent(err):
		return fail(store.ErrInvalid, rootText(err)+"; check bucket, region and endpoint of the address")
	case a.status == 0:
		return fail(store.ErrUnknown, rootText(err))
	case a.status == http.StatusPreconditionFailed, a.status == http.StatusNotModified,
		a.code == "PreconditionFailed": // also in the body of a 200
		return fail(store.ErrExists, a.String())
	case a.status == http.StatusForbidden && strings.Contains(a.message, "protected by object lock"):
		// Where there are no versions (versitygw without a directory for them) the lock of what is there is looked at first.
		return fail(store.ErrExists, a.String())
	case a.code == "NoSuchBucket":
		return fail(noBucket{store.ErrInvalid}, fmt.Sprintf("bucket %s does not exist (%s)", s.o.Bucket, a))
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden, a.status == http.StatusProxyAuthRequired,
		a.status < 500 && slices.Contains(deniedCodes, a.code):
		return fail(store.ErrNotAllowed, a.String()+"; check credentials, and "+rights)
	case strings.HasPrefix(a.code, "KMS."):
		return fail(store.ErrNotAllowed, a.String()+"; check the KMS key of the address or the bucket")
	case slices.Contains(regionCodes, a.code), a.status/100 == 3:
		return fail(store.ErrInvalid, a.String()+"; check region and endpoint of the address")
	case a.status == http.StatusNotImplemented:
		return fail(store.ErrInvalid, a.String()+checksumHint(s.o.Checksum))
	case a.status >= 500,
		a.status == http.StatusConflict, a.status == http.StatusRequestTimeout, a.status == http.StatusTooEarly,
		a.status == http.StatusLocked, a.status == http.StatusTooManyRequests,
		// Not S3's word on this object: a proxy without a server behind it says so too.
		a.status == http.StatusNotFound,
		slices.Contains(timeoutCodes, a.code),
		a.status/100 == 2:
		return fail(store.ErrUnknown, a.String())
	case a.status == http.StatusLengthRequired, slices.Contains(checksumCodes, a.code):
		return fail(store.ErrInvalid, a.String()+checksumHint(s.o.Checksum))
	default:
		return fail(store.ErrInvalid, a.String())
	}
}

// readError classifies the failure of a read after its retries.
func (s *Store) readError(ctx context.Context, op, key string, err error) error {
	a := readAnswer(err)
	fail := func(class error, text string) error {
		return &callError{op: op, key: key, addr: s.String(), text: text, class: class, after: a.after}
	}
	switch {
	case a.status == 0 && ctx.Err() != nil:
		return fail(ctx.Err(), "")
	case errors.Is(err, errBody), errors.Is(err, errBroken):
		return fail(nil, innerText(err))
	case a.status == 0 && untrusted(err):
		return fail(store.ErrInvalid, rootText(err)+"; name the authority of the server's certificate by ca-file")
	case a.status == 0 && neverSent(err):
		return fail(store.ErrInvalid, rootText(err)+"; check bucket, region and endpoint of the address")
	case a.status == 0:
		return fail(nil, rootText(err))
	case a.code == "NoSuchBucket":
		return fail(noBucket{store.ErrNotFound}, fmt.Sprintf("bucket %s does not exist (%s)", s.o.Bucket, a))
	case a.code == "InvalidObjectState":
		return fail(cold{store.ErrInvalid}, a.String()+"; the object was moved to a storage class from which it must be restored first: "+
			"restore it, and exclude this prefix from the rule that moved it")
	case strings.HasPrefix(a.code, "KMS."):
		return fail(store.ErrNotAllowed, a.String()+"; check the KMS key that the object was encrypted with")
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden, a.status == http.StatusProxyAuthRequired,
		a.status < 500 && slices.Contains(deniedCodes, a.code):
		return fail(store.ErrNotAllowed, a.String()+"; check credentials, and the rights s3:GetObject and s3:ListBucket")
	// Absence is believed to S3 alone, not to a proxy that knows no such page.
	case a.status == http.StatusNotFound && !a.html && slices.Contains(absentCodes, a.code):
		return fail(store.ErrNotFound, a.String())
	case slices.Contains(regionCodes, a.code), a.status/100 == 3:
		return fail(store.ErrInvalid, a.String()+"; check region and endpoint of the address")
	case a.status/100 == 2:
		return fail(nil, innerText(err))
	case slices.Contains(timeoutCodes, a.code):
		return fail(nil, a.String())
	case a.status == http.StatusBadRequest, a.status == http.StatusLengthRequired, a.status == http.StatusNotImplemented,
		a.status == http.StatusMethodNotAllowed:
		return fail(store.ErrInvalid, a.String())
	default:
		return fail(nil, a.String())
	}
}

// noBucket is the class of a failure for want of the bucket; it reads as the class it is joined to.
type noBucket struct{ error }

func (e noBucket) Unwrap() []error { return []error{e.error, store.ErrNoBucket} }

// cold is the class of a read of an object that must be restored first; it reads as the class it is joined to.
type cold struct{ error }

func (e cold) Unwrap() []error { return []error{e.error, store.ErrCold} }

// noCredentials is the failure to find or renew credentials: nothing was sent.
func (s *Store) noCredentials(ctx context.Context, op, key string, err error) error {
	e := &callError{op: op, key: key, addr: s.String()}
	if ctx.Err() != nil {
		e.class = ctx.Err()
	} else {
		e.class, e.text = store.ErrNotAllowed, "no credentials: "+rootText(err)+"; "+credentialsHint
	}
	return e
}

func checksumHint(c Checksum) string {
	switch c {
	case ChecksumNone:
		return ""
	case ChecksumWhenRequired:
		return "; if this store does not know the checksums or the framing of the request, set checksum=none"
	default:
		return "; if this store does not know the checksums or the framing of the request, set checksum=when-required or checksum=none"
	}
}

// untrusted says whether TLS refused the server: nothing was sent, and repeating it is of no use.
func untrusted(err error) bool {
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	return errors.As(err, &verify) || errors.As(err, &authority) || errors.As(err, &host)
}

// neverSent says whether the SDK could not even make the request, for example of a region that is no name. What goes wrong
// once a request is handed to the transport has an error of its own kind.
func neverSent(err error) bool {
	var send *smithyhttp.RequestSendError
	var canceled *smithy.CanceledError
	var operation *smithy.OperationError
	return errors.As(err, &operation) && !errors.As(err, &send) && !errors.As(err, &canceled) &&
		!errors.Is(err, errBroken) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// rootText is the innermost message of an error: the SDK wraps it in the names of its layers.
func rootText(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		// Of a context made here, since the caller's was looked at first.
		return "no progress within the timeout"
	}
	var send *smithyhttp.RequestSendError
	if errors.As(err, &send) {
		err = send.Err
	}
	return err.Error()
}

// innerText is the message of an error of this package without the layers that the SDK has put around it.
func innerText(err error) string {
	for {
		var operation *smithy.OperationError
		var response *smithyhttp.ResponseError
		var attempts *retry.MaxAttemptsError
		switch {
		case errors.As(err, &attempts):
			err = attempts.Err
		case errors.As(err, &response):
			err = response.Err
		case errors.As(err, &operation):
			err = operation.Err
		default:
			return err.Error()
		}
	}
}

// callError names operation, key, store and what went wrong in one line. It unwraps to its class alone: the SDK's error may
// wrap the end of a context which is not the caller's.
type callError struct {
	op, key, addr string
	text          string        // "" = the class says it
	after         time.Duration // that the store asked to wait
	class         error         // one of store's errors or the context's; nil = none of them
}

func (e *callError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s in %s", e.op, e.key, e.addr)
	if e.text != "" {
		b.WriteString(": " + e.text)
	}
	if e.class != nil {
		b.WriteString(": " + strings.ReplaceAll(e.class.Error(), "\n", ": "))
	}
	return b.String()
}

func (e *callError) Unwrap() error { return e.class }

// RetryAfter is what store.RetryAfter reads.
func (e *callError) RetryAfter() time.Duration { return e.after }

// parseRetryAfter reads the header: seconds, or a date.
func parseRetryAfter(v string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(v); err == nil {
		return time.Duration(min(max(n, 0), 1<<30)) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}
