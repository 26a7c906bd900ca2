package s3

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
)

// WithBackoff gives o with another bound of the pauses between the requests of a read.
func WithBackoff(o Options, d time.Duration) Options {
	o.maxBackoff = d
	return o
}

// Head is what the store says of an object besides its bytes.
func (s *Store) Head(ctx context.Context, key string) (*awss3.HeadObjectOutput, error) {
	return s.client.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: aws.String(s.o.Bucket), Key: aws.String(s.prefix + key)})
}

// Tags of an object.
func (s *Store) Tags(ctx context.Context, key string) (map[string]string, error) {
	out, err := s.client.GetObjectTagging(ctx, &awss3.GetObjectTaggingInput{Bucket: aws.String(s.o.Bucket), Key: aws.String(s.prefix + key)})
	if err != nil {
		return nil, err
	}
	tags := map[string]string{}
	for _, t := range out.TagSet {
		tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return tags, nil
}

// Versions is how many versions of a key there are, delete markers included.
func (s *Store) Versions(ctx context.Context, key string) (int, error) {
	out, err := s.client.ListObjectVersions(ctx, &awss3.ListObjectVersionsInput{Bucket: aws.String(s.o.Bucket), Prefix: aws.String(s.prefix + key)})
	if err != nil {
		return 0, err
	}
	return len(out.Versions) + len(out.DeleteMarkers), nil
}
