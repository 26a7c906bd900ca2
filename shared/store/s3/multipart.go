package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"tapedeck.dev/tapedeck/shared/store"
)

// Defaults and bounds of multipart uploads, in bytes.
const (
	// DefaultMultipartAbove is above a whole segment of the default size (64 MiB of records) with its header, even uncompressed: one
	// PUT creates it.
	DefaultMultipartAbove = 80 << 20
	DefaultPartSize       = 16 << 20
	minPartSize           = 5 << 20 // S3 takes no smaller part but the last
	maxPutSize            = 5 << 30 // S3 takes no larger single PUT
	maxParts              = 10_000
)

const (
	parallelParts = 4
	// abortBound is how long the removal of a refused upload may take. What it leaves is swept some day.
	abortBound = 5 * time.Second
	// multipartProbe is the object that is created twice before the first multipart upload, as the start-up probe does with plain creates.
	multipartProbe = "_tapedeck/probe/multipart"
)

func setMultipartAbove(o *Options, v string) (err error) {
	o.MultipartAbove, err = parseSize(v, minPartSize, maxPutSize)
	return err
}

func setPartSize(o *Options, v string) (err error) {
	o.PartSize, err = parseSize(v, minPartSize, maxPutSize)
	return err
}

// parseSize reads "80MiB", "5GiB" or a number of bytes.
func parseSize(v string, lo, hi int64) (int64, error) {
	digits, unit := v, int64(1)
	for suffix, n := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(v, suffix); ok {
			digits, unit = rest, n
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < (lo+unit-1)/unit || n > hi/unit {
		return 0, fmt.Errorf("%q is not a size between %dMiB and %dMiB, as 80MiB", v, lo>>20, hi>>20)
	}
	return n * unit, nil
}

// createParts creates an object by a multipart upload: parts in bounded parallel, each repeated as reads are, and one conditional
// completion, sent once. Until that is answered nothing can be seen under the key. Its answers mean what those of a PUT do.
//
// An upload whose completion was not sent, or was refused, is aborted. One whose completion has no answer is left alone: it may be
// completing now, and to remove its parts under it is nothing that every store survives. Sweep removes it one day.
func (s *Store) createParts(ctx context.Context, key string, data []byte, attrs store.Attributes) error {
	rights := s.writeRights(attrs)
	bounded, cancel := context.WithTimeout(ctx, s.bound(int64(len(data))))
	defer cancel()
	u := &upload{s: s, key: s.prefix + key}
	err := u.begin(bounded, attrs)
	if err == nil {
		err = u.parts(bounded, data)
	}
	if err == nil && s.o.beforeComplete != nil {
		s.o.beforeComplete()
	}
	settled := true
	if err == nil {
		if err = u.complete(bounded); err == nil {
			return nil
		}
		status := readAnswer(err).status
		settled = status >= 400 && status < 500
	}
	if settled && u.id != "" {
		u.abort(ctx)
	}
	return s.createError(ctx, key, rights, err)
}

// upload is one multipart upload.
type upload struct {
	s    *Store
	key  string // full
	id   string
	done []types.CompletedPart
}

func (u *upload) begin(ctx context.Context, attrs store.Attributes) error {
	put := u.s.putInput(attrs)
	in := &awss3.CreateMultipartUploadInput{
		Bucket: put.Bucket, Key: aws.String(u.key), ContentType: put.ContentType, ACL: put.ACL, StorageClass: put.StorageClass, Tagging: put.Tagging,
		ServerSideEncryption: put.ServerSideEncryption, SSEKMSKeyId: put.SSEKMSKeyId, BucketKeyEnabled: put.BucketKeyEnabled,
		ObjectLockMode: put.ObjectLockMode, ObjectLockRetainUntilDate: put.ObjectLockRetainUntilDate, ObjectLockLegalHoldStatus: put.ObjectLockLegalHoldStatus,
	}
	if u.s.o.Checksum == ChecksumAuto {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32
	}
	// Not repeated: a second one could be a second upload.
	out, err := u.s.client.CreateMultipartUpload(ctx, in, once(wholeResult("InitiateMultipartUploadResult")))
	if err != nil {
		return err
	}
	if u.id = aws.ToString(out.UploadId); u.id == "" {
		return fmt.Errorf("%w: no upload id", errBody)
	}
	return nil
}

// parts uploads data. An attempt that is repeated replaces its part.
func (u *upload) parts(ctx context.Context, data []byte) error {
	size := max(u.s.o.PartSize, (int64(len(data))+maxParts-1)/maxParts)
	chunks := slices.Collect(slices.Chunk(data, int(size)))
	u.done = make([]types.CompletedPart, len(chunks))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelParts)
	for i, chunk := range chunks {
		g.Go(func() error {
			in := &awss3.UploadPartInput{
				Bucket: aws.String(u.s.o.Bucket), Key: aws.String(u.key), UploadId: aws.String(u.id), PartNumber: aws.Int32(int32(i + 1)),
				Body: bytes.NewReader(chunk), ContentLength: aws.Int64(int64(len(chunk))), ContentMD5: u.s.contentMD5(chunk),
			}
			if u.s.o.Checksum == ChecksumAuto {
				in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32
			}
			out, err := u.s.client.UploadPart(ctx, in)
			if err != nil {
				return err
			}
			if out.ETag == nil {
				return fmt.Errorf("%w: no ETag of part %d", errBody, i+1)
			}
			u.done[i] = types.CompletedPart{ETag: out.ETag, PartNumber: in.PartNumber, ChecksumCRC32: out.ChecksumCRC32}
			return nil
		})
	}
	return g.Wait()
}

// complete makes the object of the parts if nothing is under its key.
func (u *upload) complete(ctx context.Context) error {
	out, err := u.s.client.CompleteMultipartUpload(ctx, &awss3.CompleteMultipartUploadInput{
		Bucket: aws.String(u.s.o.Bucket), Key: aws.String(u.key), UploadId: aws.String(u.id), IfNoneMatch: aws.String("*"),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.done},
	}, once(wholeResult("CompleteMultipartUploadResult")))
	if err == nil && out.ETag == nil {
		err = fmt.Errorf("%w: no ETag", errBody)
	}
	return err
}

// abort removes the parts, also where the caller has given up.
func (u *upload) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortBound)
	defer cancel()
	_ = u.s.abort(ctx, u.key, u.id) // what it leaves is swept
}

func (s *Store) abort(ctx context.Context, fullKey, id string) error {
	_, err := s.client.AbortMultipartUpload(ctx, &awss3.AbortMultipartUploadInput{
		Bucket: aws.String(s.o.Bucket), Key: aws.String(fullKey), UploadId: aws.String(id),
	})
	return err
}

// multipartHolds says whether the store honours the condition of a completion; it is asked once, before the first upload. Stores are known
// that honour it for a plain PUT and ignore it here, and two writers of one segment would overwrite each other. For those, and for
// stores without multipart uploads, every object is one PUT. The error is of an answer that settles nothing.
func (s *Store) multipartHolds(ctx context.Context) (bool, error) {
	s.multipart.Lock()
	defer s.multipart.Unlock()
	if s.multipart.known {
		return s.multipart.holds, nil
	}
	for range 2 {
		err := s.createParts(ctx, multipartProbe, []byte("tapedeck probe\n"), store.Attributes{})
		switch {
		case errors.Is(err, store.ErrExists):
			s.multipart.known, s.multipart.holds = true, true
			return true, nil
		case errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrNoBucket):
			s.multipart.known = true
			return false, nil
		case err != nil:
			return false, err
		}
	}
	s.multipart.known = true
	return false, nil
}

// wholeResult makes an answer of success an error if its body breaks off, or is neither the result nor an error of S3: a page of
// a proxy would be taken for a result without fields. S3 itself sends an error under status 200 where it had begun to answer;
// the SDK reads that.
func wholeResult(root string) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("TapedeckWholeResult", func(
			ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
		) (middleware.DeserializeOutput, middleware.Metadata, error) {
			out, meta, err := next.HandleDeserialize(ctx, in)
			resp, ok := out.RawResponse.(*smithyhttp.Response)
			if err != nil || !ok || resp.StatusCode/100 != 2 {
				return out, meta, err
			}
			body, err := readLimit(resp.Body, 1<<20)
			if err != nil {
				return out, meta, fmt.Errorf("%w: read its body: %w", errBody, err)
			}
			if got := rootElement(body); got != root && got != "Error" {
				return out, meta, fmt.Errorf("%w: HTTP %d with the body %.200q", errBody, resp.StatusCode, body)
			}
			resp.Body = replacedBody{bytes.NewReader(body), resp.Body}
			return out, meta, nil
		}), middleware.After)
	}
}

// once makes a call without retries, with one more middleware.
func once(more func(*middleware.Stack) error) func(*awss3.Options) {
	return func(o *awss3.Options) {
		o.Retryer = aws.NopRetryer{}
		o.APIOptions = append(slices.Clone(o.APIOptions), more)
	}
}
