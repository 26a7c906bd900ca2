package s3

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
)

// Requests are the names under which requests are observed, S3's own; any other is "other".
var requestNames = []string{
	"PutObject", "GetObject", "HeadObject", "ListObjectsV2", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload",
	"AbortMultipartUpload", "ListMultipartUploads", "CreateBucket", "AssumeRole",
}

// answerNames are the statuses that have a name of their own; others are "1xx" to "5xx".
var answerNames = []int{200, 204, 206, 301, 304, 307, 400, 401, 403, 404, 408, 409, 412, 416, 429, 500, 501, 502, 503, 504}

// Observe has f called after each HTTP request with the request's name and its answer, both of a small fixed set: a status; "timeout",
// "cancelled" or "none" where there was no answer. Retries count. It replaces the function before; call it ahead of the first request.
func (s *Store) Observe(f func(request, answer string)) { s.observed.f.Store(&f) }

// observed is the transport of a store.
type observed struct {
	next http.RoundTripper
	f    atomic.Pointer[func(request, answer string)]
}

func (o *observed) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if f := o.f.Load(); f != nil {
		name := awsmiddleware.GetOperationName(r.Context())
		if !slices.Contains(requestNames, name) {
			name = "other"
		}
		(*f)(name, answerName(resp, err))
	}
	return resp, err
}

func answerName(resp *http.Response, err error) string {
	var network net.Error
	switch {
	case err == nil && slices.Contains(answerNames, resp.StatusCode):
		return strconv.Itoa(resp.StatusCode)
	case err == nil:
		return strconv.Itoa(resp.StatusCode/100) + "xx"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	}
	return "none"
}
