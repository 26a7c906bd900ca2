package s3

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// MakeBucket creates the bucket of the store, with Object Lock where the options ask for it, for tests and demonstrations; one that is there already is as good. The
// services never call it.
func (s *Store) MakeBucket(ctx context.Context) error {
	if err := s.ready(ctx, "make bucket", s.o.Bucket); err != nil {
		return err
	}
	in := &awss3.CreateBucketInput{Bucket: aws.String(s.o.Bucket)}
	if s.o.Protection.locks() {
		in.ObjectLockEnabledForBucket = aws.Bool(true)
	}
	if region := s.client.Options().Region; region != "us-east-1" {
		in.CreateBucketConfiguration = &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraint(region)}
	}
	_, err := s.client.CreateBucket(ctx, in)
	var mine *types.BucketAlreadyOwnedByYou
	if err == nil || errors.As(err, &mine) || readAnswer(err).code == "BucketAlreadyOwnedByYou" {
		return nil
	}
	return s.readError(ctx, "make bucket", s.o.Bucket, err)
}
