package s3

import (
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"tapedeck.dev/tapedeck/shared/store"
)

// Protection says how the store encrypts created objects, and how it keeps them from being removed. The zero value leaves both
// to the bucket's defaults.
type Protection struct {
	// Encryption is AES256 (SSE-S3), aws:kms or aws:kms:dsse; "" = none asked for.
	Encryption string
	// KMSKeyID is an id, alias or ARN of a key; "" = the account's own key for S3.
	KMSKeyID string
	// BucketKey lets S3 derive keys from one of the bucket, which costs fewer calls of KMS.
	BucketKey bool
	// LockMode is GOVERNANCE or COMPLIANCE; "" = no retention. The bucket must have been made with Object Lock.
	LockMode string
	// LockDays is for how many days from its create an object cannot be removed, 1 to MaxLockDays.
	LockDays int
	// LegalHold keeps an object until somebody lifts the hold, whatever LockMode says.
	LegalHold bool
}

// MaxLockDays is the longest retention that S3 takes.
const MaxLockDays = 36500

// locks says whether a create asks for a lock. S3 demands a checksum or an MD5 with it.
func (p Protection) locks() bool { return p.LockMode != "" || p.LegalHold }

// check compares fields with each other.
func (p Protection) check() error {
	kms := strings.HasPrefix(p.Encryption, "aws:kms")
	switch {
	case p.KMSKeyID != "" && !kms:
		return errors.New("option kms-key-id needs sse=aws:kms or sse=aws:kms:dsse")
	case p.BucketKey && p.Encryption != string(types.ServerSideEncryptionAwsKms):
		return errors.New("option bucket-key needs sse=aws:kms")
	case (p.LockMode == "") != (p.LockDays == 0):
		return errors.New("options lock-mode and lock-days need each other")
	case p.LockDays < 0 || p.LockDays > MaxLockDays:
		return fmt.Errorf("option lock-days is not between 1 and %d", MaxLockDays)
	}
	return nil
}

func setEncryption(o *Options, v string) error {
	known := []string{"AES256", "aws:kms", "aws:kms:dsse"}
	if !slices.Contains(known, v) {
		return fmt.Errorf("%q is not one of %s", v, strings.Join(known, ", "))
	}
	o.Protection.Encryption = v
	return nil
}

func setBucketKey(o *Options, v string) (err error) {
	if o.Protection.BucketKey, err = strconv.ParseBool(v); err != nil {
		return fmt.Errorf("%q is not true or false", v)
	}
	return nil
}

func setLockMode(o *Options, v string) error {
	if !slices.Contains(types.ObjectLockMode("").Values(), types.ObjectLockMode(v)) {
		return fmt.Errorf("%q is not GOVERNANCE or COMPLIANCE", v)
	}
	o.Protection.LockMode = v
	return nil
}

func setLockDays(o *Options, v string) error {
	days, err := strconv.Atoi(v)
	if err != nil || days < 1 || days > MaxLockDays {
		return fmt.Errorf("%q is not a number of days between 1 and %d", v, MaxLockDays)
	}
	o.Protection.LockDays = days
	return nil
}

func setLegalHold(o *Options, v string) (err error) {
	if o.Protection.LegalHold, err = strconv.ParseBool(v); err != nil {
		return fmt.Errorf("%q is not true or false", v)
	}
	return nil
}

func setStorageClass(o *Options, v string) error {
	o.Attributes.StorageClass = v
	return store.CheckStorageClass(v)
}

func setTags(o *Options, v string) (err error) {
	o.Attributes.Tags, err = store.ParseTags(v)
	return err
}

// putInput is the request of one object without its key and body. A multipart upload takes the same fields from it.
func (s *Store) putInput(attrs store.Attributes) *awss3.PutObjectInput {
	p := s.o.Protection
	in := &awss3.PutObjectInput{
		Bucket:               aws.String(s.o.Bucket),
		ContentType:          aws.String("application/octet-stream"),
		ACL:                  types.ObjectCannedACL(s.o.ACL),
		StorageClass:         types.StorageClass(attrs.StorageClass),
		Tagging:              tagging(attrs.Tags),
		ServerSideEncryption: types.ServerSideEncryption(p.Encryption),
		ObjectLockMode:       types.ObjectLockMode(p.LockMode),
	}
	if p.KMSKeyID != "" {
		in.SSEKMSKeyId = aws.String(p.KMSKeyID)
	}
	if p.BucketKey {
		in.BucketKeyEnabled = aws.Bool(true)
	}
	if p.LockMode != "" {
		in.ObjectLockRetainUntilDate = aws.Time(time.Now().UTC().AddDate(0, 0, p.LockDays).Truncate(time.Second))
	}
	if p.LegalHold {
		in.ObjectLockLegalHoldStatus = types.ObjectLockLegalHoldStatusOn
	}
	return in
}

// contentMD5 is the digest that S3 demands with a lock where no checksum is sent, nil where it does not.
func (s *Store) contentMD5(data []byte) *string {
	if !s.o.Protection.locks() || s.o.Checksum == ChecksumAuto {
		return nil
	}
	sum := md5.Sum(data)
	return aws.String(base64.StdEncoding.EncodeToString(sum[:]))
}

// tagging writes tags as S3's header carries them; nil for none.
func tagging(tags map[string]string) *string {
	if len(tags) == 0 {
		return nil
	}
	values := url.Values{}
	for k, v := range tags {
		values.Set(k, v)
	}
	// Sorted by name. A space is "%20": some servers do not read '+' as one.
	return aws.String(strings.ReplaceAll(values.Encode(), "+", "%20"))
}

// writeRights names what creates of this store need, for the message of a refusal.
func (s *Store) writeRights(attrs store.Attributes) string {
	rights := []string{"s3:PutObject"}
	p := s.o.Protection
	for _, r := range []struct {
		needed bool
		right  string
	}{
		{s.o.ACL != "", "s3:PutObjectAcl"},
		{len(attrs.Tags) > 0, "s3:PutObjectTagging"},
		{p.LockMode != "", "s3:PutObjectRetention"},
		{p.LegalHold, "s3:PutObjectLegalHold"},
		{strings.HasPrefix(p.Encryption, "aws:kms"), "kms:GenerateDataKey"},
		{strings.HasPrefix(p.Encryption, "aws:kms"), "kms:Decrypt"},
	} {
		if r.needed {
			rights = append(rights, r.right)
		}
	}
	if len(rights) == 1 {
		return "the right " + rights[0]
	}
	return "the rights " + strings.Join(rights, ", ")
}
