package s3

import (
	"context"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"tapedeck.dev/tapedeck/shared/store"
)

// sweepPages bounds what one sweep lists: a bucket of somebody else's unfinished uploads must not hold up a start.
const sweepPages = 10

// Sweep is store.Store's: it aborts multipart uploads of ours that were begun more than store.SweepAge ago. One call, and one for
// each upload removed, where no more than 1000 are unfinished.
func (s *Store) Sweep(ctx context.Context, ours func(key string) bool) (int, error) {
	return s.sweep(ctx, ours, time.Now().Add(-store.SweepAge))
}

func (s *Store) sweep(ctx context.Context, ours func(key string) bool, before time.Time) (int, error) {
	if err := s.ready(ctx, store.OpSweep, s.prefix); err != nil {
		return 0, err
	}
	in := &awss3.ListMultipartUploadsInput{Bucket: aws.String(s.o.Bucket)}
	if s.prefix != "" {
		in.Prefix = aws.String(s.prefix)
	}
	removed := 0
	for range sweepPages {
		out, err := s.client.ListMultipartUploads(ctx, in, func(o *awss3.Options) {
			o.APIOptions = append(o.APIOptions[:len(o.APIOptions):len(o.APIOptions)], wholeResult("ListMultipartUploadsResult"))
		})
		if err != nil {
			return removed, s.readError(ctx, "list unfinished uploads", s.prefix, err)
		}
		for _, u := range out.Uploads {
			key, ok := strings.CutPrefix(aws.ToString(u.Key), s.prefix)
			if !ok || !ours(key) || u.Initiated == nil || !u.Initiated.Before(before) {
				continue
			}
			// Removed by another sweep in between is removed.
			if err := s.abort(ctx, s.prefix+key, aws.ToString(u.UploadId)); err != nil && readAnswer(err).code != "NoSuchUpload" {
				return removed, s.readError(ctx, "abort unfinished upload", key, err)
			}
			removed++
		}
		if !aws.ToBool(out.IsTruncated) || out.NextKeyMarker == nil {
			break
		}
		in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker
	}
	return removed, nil
}
