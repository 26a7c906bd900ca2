package s3

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"tapedeck.dev/tapedeck/shared/store"
)

// List is store.Store's. A page that does not come in ascending byte order after startAfter is an error that wraps
// store.ErrInvalid: nothing that is found by its place in a listing could be found there.
func (s *Store) List(ctx context.Context, prefix, startAfter string, limit int) ([]store.Object, bool, error) {
	if err := s.ready(ctx, store.OpList, prefix); err != nil {
		return nil, false, err
	}
	size := store.PageSize(limit)
	in := &awss3.ListObjectsV2Input{
		Bucket: aws.String(s.o.Bucket),
		Prefix: aws.String(s.prefix + prefix),
		// One more than asked for tells whether more follow: at the end of a full page some stores announce more where only
		// keys with another prefix come. 1000 is the most that S3 lists.
		MaxKeys: aws.Int32(int32(min(size+1, 1000))),
	}
	last := ""
	if startAfter != "" {
		last = s.prefix + startAfter
		in.StartAfter = aws.String(last)
	}
	for {
		out, err := s.client.ListObjectsV2(ctx, in, wholeListing)
		if err != nil {
			return nil, false, s.readError(ctx, "list", prefix, err)
		}
		objs := make([]store.Object, 0, len(out.Contents))
		for _, row := range out.Contents {
			key := aws.ToString(row.Key)
			if !strings.HasPrefix(key, s.prefix+prefix) || key <= last && last != "" {
				return nil, false, fmt.Errorf("list %s in %s: %q after %q: this store lists keys out of byte order or outside the prefix: %w",
					prefix, s, key, last, store.ErrInvalid)
			}
			last = key
			if key == s.prefix {
				continue // a "folder" that a console has made
			}
			objs = append(objs, store.Object{Key: key[len(s.prefix):], Size: aws.ToInt64(row.Size)})
		}
		more := aws.ToBool(out.IsTruncated)
		if len(objs) > size {
			objs, more = objs[:size], true
		}
		if len(objs) > 0 || !more {
			return objs, more, nil
		}
		// A page may be empty though more follow, where deleted versions fill it; the caller could not go on from it.
		if err := nextPage(in, out); err != nil {
			return nil, false, fmt.Errorf("list %s in %s: %w", prefix, s, err)
		}
	}
}

// ListDirs is store.Store's.
func (s *Store) ListDirs(ctx context.Context, prefix string) ([]string, error) {
	if err := store.CheckDirPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list directories: %w", err)
	}
	if err := s.ready(ctx, store.OpListDirs, prefix); err != nil {
		return nil, err
	}
	in := &awss3.ListObjectsV2Input{
		Bucket:    aws.String(s.o.Bucket),
		Prefix:    aws.String(s.prefix + prefix),
		Delimiter: aws.String("/"),
	}
	var dirs []string
	for {
		out, err := s.client.ListObjectsV2(ctx, in, wholeListing)
		if err != nil {
			return nil, s.readError(ctx, "list directories", prefix, err)
		}
		for _, row := range out.CommonPrefixes {
			dir, ok := strings.CutPrefix(aws.ToString(row.Prefix), s.prefix+prefix)
			if dir = strings.TrimSuffix(dir, "/"); ok && dir != "" {
				dirs = append(dirs, dir)
			}
		}
		if !aws.ToBool(out.IsTruncated) {
			// The store's order is that of "dir/", and a name may stand on two pages of a careless one.
			slices.Sort(dirs)
			return slices.Compact(dirs), nil
		}
		if err := nextPage(in, out); err != nil {
			return nil, fmt.Errorf("list directories %s in %s: %w", prefix, s, err)
		}
	}
}

// nextPage makes in the request of the page after out.
func nextPage(in *awss3.ListObjectsV2Input, out *awss3.ListObjectsV2Output) error {
	next := aws.ToString(out.NextContinuationToken)
	if next == "" || next == aws.ToString(in.ContinuationToken) {
		return fmt.Errorf("this store announces more keys and no way to go on")
	}
	in.ContinuationToken = aws.String(next)
	return nil
}
