// Package s3 is a store in a bucket of Amazon S3 or of a store that speaks its protocol, by aws-sdk-go-v2. It is the only
// package that imports the SDK.
package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"tapedeck.dev/tapedeck/shared/store"
)

// Store is a bucket below a prefix.
type Store struct {
	o         Options
	prefix    string // "" or ends in "/"
	client    *awss3.Client
	transport *http.Transport
	observed  *observed

	// multipart is what the store does with the condition of a completion, once that is known.
	multipart struct {
		sync.Mutex
		known, holds bool
	}
}

var _ store.Store = (*Store)(nil)

// Open reads an address as ParseURL does and makes the store of it. It makes no request.
func Open(ctx context.Context, u *url.URL) (*Store, error) {
	o, err := ParseURL(u)
	if err != nil {
		return nil, err
	}
	return New(ctx, o)
}

// New makes the store of these options. It makes no request.
func New(ctx context.Context, o Options) (*Store, error) {
	if o.Bucket == "" {
		return nil, errors.New("store options name no bucket")
	}
	if err := o.Protection.check(); err != nil {
		return nil, fmt.Errorf("store options: %w", err)
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Checksum == "" {
		o.Checksum = ChecksumAuto
	}
	if o.MultipartAbove <= 0 {
		o.MultipartAbove = DefaultMultipartAbove
	}
	if o.PartSize <= 0 {
		o.PartSize = DefaultPartSize
	}
	if o.maxBackoff <= 0 {
		o.maxBackoff = maxBackoff
	}
	o.Prefix = strings.Trim(o.Prefix, "/")
	client, transport, seen, err := newClient(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &Store{o: o, client: client, transport: transport, observed: seen}
	if o.Prefix != "" {
		s.prefix = o.Prefix + "/"
	}
	return s, nil
}

// String is store.Store's.
func (s *Store) String() string { return s.o.String() }

// Close is store.Store's.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// Create is store.Store's: one PutObject with If-None-Match: *, sent once, or above MultipartAbove a multipart upload that is completed so. If ctx ends while it is under way, the error
// is ctx's and store.ErrUnknown in one.
func (s *Store) Create(ctx context.Context, key string, data []byte, with ...store.Attributes) error {
	if err := s.checkKey(key); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	attrs, err := store.Merge(append([]store.Attributes{s.o.Attributes}, with...)...)
	if err != nil {
		return fmt.Errorf("create %s in %s: %w", key, s, err)
	}
	if err := s.ready(ctx, store.OpCreate, key); err != nil {
		return err
	}
	if int64(len(data)) > s.o.MultipartAbove {
		holds, err := s.multipartHolds(ctx)
		if err != nil {
			return fmt.Errorf("create %s: ask for conditional multipart uploads first: %w", key, err)
		}
		if holds {
			return s.createParts(ctx, key, data, attrs)
		}
	}
	in := s.putInput(attrs)
	in.Key, in.IfNoneMatch = aws.String(s.prefix+key), aws.String("*")
	in.Body, in.ContentLength, in.ContentMD5 = bytes.NewReader(data), aws.Int64(int64(len(data))), s.contentMD5(data)
	bounded, cancel := context.WithTimeout(ctx, s.bound(int64(len(data))))
	defer cancel()
	out, err := s.client.PutObject(bounded, in, sendOnce)
	if err == nil && out.ETag == nil {
		// S3 always names an ETag; a page of a proxy in between does not.
		err = fmt.Errorf("%w: no ETag", errBody)
	}
	if err != nil {
		return s.createError(ctx, key, s.writeRights(attrs), err)
	}
	return nil
}

// sendOnce makes a call without retries: a second try could meet the first one's object and take it for another's.
func sendOnce(o *awss3.Options) {
	o.Retryer = aws.NopRetryer{}
	o.APIOptions = append(slices.Clone(o.APIOptions), refuseBody)
}

// Get is store.Store's.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	if err := s.checkKey(key); err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	if err := s.ready(ctx, store.OpGet, key); err != nil {
		return nil, err
	}
	p, err := s.fetch(ctx, key, nil)
	if err != nil {
		return nil, s.readError(ctx, "get", key, err)
	}
	return p.data, nil
}

// GetRange is store.Store's.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) ([]byte, int64, error) {
	if off < 0 || n <= 0 {
		return nil, 0, fmt.Errorf("get %s: range of %d bytes at %d: %w", key, n, off, store.ErrInvalid)
	}
	if err := s.checkKey(key); err != nil {
		return nil, 0, fmt.Errorf("get: %w", err)
	}
	if err := s.ready(ctx, store.OpGetRange, key); err != nil {
		return nil, 0, err
	}
	p, err := s.fetch(ctx, key, &byteRange{off: off, n: n})
	if readAnswer(err).status == http.StatusRequestedRangeNotSatisfiable {
		var size int64
		if size, err = s.size(ctx, key, err); err == nil && off < size {
			err = fmt.Errorf("range at %d of %d bytes refused", off, size)
		}
		p = part{data: []byte{}, size: size}
	}
	if err != nil {
		return nil, 0, s.readError(ctx, "get", key, err)
	}
	return p.data, p.size, nil
}

// ready finds credentials ahead of a request, so that their lack is told from a failed request: without them nothing was
// sent. They are cached.
func (s *Store) ready(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return &callError{op: op, key: key, addr: s.String(), class: err}
	}
	bounded, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	if _, err := s.client.Options().Credentials.Retrieve(bounded); err != nil {
		return s.noCredentials(ctx, op, key, err)
	}
	return nil
}

func (s *Store) checkKey(key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	if len(s.prefix)+len(key) > store.MaxKeyBytes {
		return fmt.Errorf("key %.40q… below %s has more than %d bytes: %w", key, s, store.MaxKeyBytes, store.ErrInvalid)
	}
	return nil
}

// bound is the time that a transfer of so many bytes may take. It stays below store.SweepAge: a sweep by another process never meets an upload
// that is still going on.
func (s *Store) bound(size int64) time.Duration {
	return min(s.o.Timeout+time.Duration(min(size, 1<<40)/slowestBytes)*time.Second, store.SweepAge/2)
}

var errBody = errors.New("answer of success is not S3's")

// readLimit reads a small body whole, at most max bytes of it.
func readLimit(r io.Reader, max int64) ([]byte, error) { return io.ReadAll(io.LimitReader(r, max)) }
