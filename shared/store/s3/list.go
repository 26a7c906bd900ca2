package s3

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"tapedeck.dev/tapedeck/shared/store"
)

// List is store.Store's. A page that does not come in ascending byte order is an error that wraps store.ErrInvalid: nothing
// that is found by its place in a listing could be found there.
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
	after, last := "", ""
	if startAfter != "" {
		after = s.prefix + startAfter
		last = after
	}
	dir, deep := below(prefix, startAfter)
	if deep {
		last = s.prefix + dir
		in.MaxKeys = aws.Int32(1000)
	}
	if last != "" {
		in.StartAfter = aws.String(last)
	}

	var objs []store.Object
	for {
		out, err := s.client.ListObjectsV2(ctx, in, wholeListing)
		if err != nil {
			return nil, false, s.readError(ctx, "list", prefix, err)
		}
		for _, row := range out.Contents {
			key := aws.ToString(row.Key)
			if !strings.HasPrefix(key, s.prefix+prefix) || key <= last && last != "" {
				return nil, false, fmt.Errorf("list %s in %s: %q after %q: this store lists keys out of byte order or outside the prefix: %w",
					prefix, s, key, last, store.ErrInvalid)
			}
			last = key
			if key <= after && after != "" || key == s.prefix { // the latter is a "folder" that a console has made
				continue
			}
			objs = append(objs, store.Object{Key: key[len(s.prefix):], Size: aws.ToInt64(row.Size), Class: class(row.StorageClass)})
		}
		switch {
		case len(objs) > size:
			return objs[:size], true, nil
		case !aws.ToBool(out.IsTruncated):
			return objs, false, nil
		case len(objs) == size, len(objs) > 0 && !deep:
			return objs, true, nil
		}
		// A page may be empty though more follow, where deleted versions fill it, or what was listed before; the caller
		// could not go on from it.
		if err := nextPage(in, out); err != nil {
			return nil, false, fmt.Errorf("list %s in %s: %w", prefix, s, err)
		}
	}
}

// below says whether startAfter lies in a directory below the one that prefix lists, and names that directory without its
// slash. MinIO (all releases up to the last, of 2026) goes wrong there: with startAfter "a/x" its drives count the keys of
// directories such as "a-b/" and "a.b/", which sort ahead of "a/", towards the page and drop them from it afterwards. The
// page comes short or empty, and says that nothing follows. Such a listing therefore starts at "a", where nothing is
// dropped, and passes over what is not wanted.
func below(prefix, startAfter string) (dir string, deep bool) {
	if !strings.HasPrefix(startAfter, prefix) {
		return "", false
	}
	base := strings.LastIndexByte(prefix, '/') + 1
	i := strings.IndexByte(startAfter[base:], '/')
	if i < 0 {
		return "", false
	}
	return startAfter[:base+i], true
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

// class is the storage class of a row, "" for S3's usual one.
func class(c types.ObjectStorageClass) string {
	if c == types.ObjectStorageClassStandard {
		return ""
	}
	return string(c)
}
