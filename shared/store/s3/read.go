package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// byteRange is [off, off+n).
type byteRange struct{ off, n int64 }

type part struct {
	data []byte
	size int64 // of the whole object
}

var (
	// errBroken: the answer began well, and its body did not come whole.
	errBroken = errors.New("body broke off")
	errSlow   = errors.New("too slow for the timeout")
)

// fetch gets an object, or a range of it where r is not nil. The SDK repeats requests whose answer fails; an answer whose
// body breaks off is repeated here, with the same bounds.
func (s *Store) fetch(ctx context.Context, key string, r *byteRange) (part, error) {
	for try := 1; ; try++ {
		p, err := s.fetchOnce(ctx, key, r)
		if err == nil || !errors.Is(err, errBroken) || try == readAttempts || ctx.Err() != nil {
			return p, err
		}
		// A random part of a bound that doubles, as the SDK waits between requests.
		wait := time.NewTimer(time.Duration(rand.Int64N(int64(min(s.o.maxBackoff, 250*time.Millisecond<<try)))))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return part{}, ctx.Err()
		}
	}
}

func (s *Store) fetchOnce(ctx context.Context, key string, r *byteRange) (part, error) {
	in := &awss3.GetObjectInput{Bucket: aws.String(s.o.Bucket), Key: aws.String(s.prefix + key)}
	if r != nil {
		last := int64(math.MaxInt64)
		if r.n <= math.MaxInt64-r.off {
			last = r.off + r.n - 1
		}
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", r.off, last))
	}
	// Each attempt inside is bounded by the transport up to its answer. The body has the time of its size.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, err := s.client.GetObject(ctx, in)
	if err != nil {
		return part{}, err
	}
	defer out.Body.Close()
	length := aws.ToInt64(out.ContentLength)
	timer := time.AfterFunc(s.bound(length), func() { cancel(errSlow) })
	defer timer.Stop()
	p, err := readPart(out, r)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errSlow) {
		err = fmt.Errorf("%w: %w", errBroken, errSlow)
	}
	return p, err
}

// readPart reads the body of an answer: the range asked for, or the whole object from a store that ignores Range.
func readPart(out *awss3.GetObjectOutput, r *byteRange) (part, error) {
	if out.ContentRange == nil {
		data, err := readBody(out.Body, out.ContentLength)
		if err != nil {
			return part{}, err
		}
		p := part{data: data, size: int64(len(data))}
		if r != nil {
			from := min(r.off, p.size)
			p.data = data[from : from+min(r.n, p.size-from)]
		}
		return p, nil
	}
	if r == nil {
		return part{}, fmt.Errorf("answer of the range %s to a request of the whole object", *out.ContentRange)
	}
	first, last, size, err := parseContentRange(*out.ContentRange)
	if err != nil {
		return part{}, err
	}
	want := min(r.n, size-r.off)
	if first != r.off || last-first+1 != want {
		return part{}, fmt.Errorf("answer of the range %s to a request of %d bytes at %d", *out.ContentRange, r.n, r.off)
	}
	data, err := readBody(out.Body, &want)
	return part{data: data, size: size}, err
}

// readBody reads a body whole and checks it against the length announced, nil where none was.
func readBody(body io.Reader, length *int64) ([]byte, error) {
	var buf bytes.Buffer
	if length != nil {
		// Not more than a step ahead of the bytes that came: the length is only a claim.
		buf.Grow(int(min(max(*length, 0), 64<<20)) + bytes.MinRead)
	}
	n, err := buf.ReadFrom(body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w after %d bytes: %w", errBroken, n, err)
	case length != nil && n != *length:
		return nil, fmt.Errorf("%w: %d bytes of %d", errBroken, n, *length)
	case n == 0:
		return []byte{}, nil
	}
	return buf.Bytes(), nil
}

// parseContentRange reads "bytes first-last/size".
func parseContentRange(v string) (first, last, size int64, err error) {
	span, total, ok := strings.Cut(strings.TrimPrefix(v, "bytes "), "/")
	from, to, dash := strings.Cut(span, "-")
	if ok && dash {
		var errs [3]error
		first, errs[0] = strconv.ParseInt(from, 10, 64)
		last, errs[1] = strconv.ParseInt(to, 10, 64)
		size, errs[2] = strconv.ParseInt(total, 10, 64)
		if errors.Join(errs[:]...) == nil && 0 <= first && first <= last && last < size {
			return first, last, size, nil
		}
	}
	return 0, 0, 0, fmt.Errorf("answer with the Content-Range %q", v)
}

// size finds the size of an object whose range request was refused with 416: the answer says it ("bytes */size"), or a
// HEAD does.
func (s *Store) size(ctx context.Context, key string, refused error) (int64, error) {
	var httpErr *smithyhttp.ResponseError
	if errors.As(refused, &httpErr) && httpErr.Response != nil && httpErr.Response.Response != nil {
		if total, ok := strings.CutPrefix(httpErr.Response.Header.Get("Content-Range"), "bytes */"); ok {
			if size, err := strconv.ParseInt(total, 10, 64); err == nil && size >= 0 {
				return size, nil
			}
		}
	}
	out, err := s.client.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: aws.String(s.o.Bucket), Key: aws.String(s.prefix + key)})
	if err != nil {
		return 0, err
	}
	return aws.ToInt64(out.ContentLength), nil
}
