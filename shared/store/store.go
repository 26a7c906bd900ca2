// Package store is the contract for an object store as Tapedeck uses it: objects are immutable, presence means complete.
//
// Implementations: s3 (aws-sdk-go-v2), file (a directory) and mem (tests). One suite, storetest, holds over all of them.
// A Store is scoped to the prefix of its address: keys are relative to it, contain no leading slash, and List never shows
// an object outside it.
package store

import (
	"context"
	"errors"
	"time"
)

// SweepAge is the age at which what an unfinished create has left is nobody's any more: no create takes so long. (s3 ends its own at
// half of it.)
const SweepAge = 24 * time.Hour

// Errors that an implementation wraps. Classify with errors.Is.
var (
	// ErrExists: the key is taken; nothing was written (HTTP 412, or 304).
	ErrExists = errors.New("object exists")
	// ErrNotFound: no such object (or no such bucket, where the text says so).
	ErrNotFound = errors.New("object not found")
	// ErrNoBucket: the bucket of the address is not there; joined to ErrInvalid of a create and ErrNotFound of a read.
	ErrNoBucket = errors.New("no such bucket")
	// ErrUnknown: the outcome of a Create is not known: 409, time-out, reset, 5xx, 200 with an error body. The object may be
	// there now, appear later, or never.
	ErrUnknown = errors.New("outcome unknown")
	// ErrNotAllowed: 401, 403, expired or missing credentials. Nothing was written.
	ErrNotAllowed = errors.New("not allowed")
	// ErrInvalid: the request itself is refused by this store or its settings (400, 411, 501, checksum refused); repeating
	// it is of no use.
	ErrInvalid = errors.New("request refused")
	// ErrCold: the object lies in a storage class from which it must be restored before it can be read; joined to ErrInvalid.
	ErrCold = errors.New("the object must be restored first")
)

// Object is one row of a listing.
type Object struct {
	Key  string // relative to the store's prefix
	Size int64  // bytes
	// Class is the storage class where the store tells of another than its usual one, as GLACIER; else "".
	Class string
}

// ColdClass reports whether objects of that storage class must be restored before they can be read.
func ColdClass(class string) bool { return class == "GLACIER" || class == "DEEP_ARCHIVE" }

// Store is safe for concurrent use.
type Store interface {
	// Create writes data at key if and only if nothing is there (If-None-Match: *). nil: created by this call. It is not
	// retried inside (a retry could meet its own first try): the chain decides. Errors: ErrExists, ErrUnknown,
	// ErrNotAllowed, ErrInvalid, or the context's, which is ErrUnknown as well if it ended while the request was under way.
	// CheckKey says which keys are valid.
	//
	// with are attributes of this object over those of the store, joined by Merge. s3 sends them, mem keeps them for tests, file
	// has no place for them and ignores them; all refuse those that Merge refuses, with ErrInvalid. An object that is there
	// already keeps its own.
	Create(ctx context.Context, key string, data []byte, with ...Attributes) error
	// Get returns the whole object. Errors: ErrNotFound, ErrNotAllowed, ErrInvalid (also for a key that CheckKey refuses), the
	// context's, or another after bounded retries.
	Get(ctx context.Context, key string) ([]byte, error)
	// GetRange returns the bytes [off, off+n) of the object, fewer where it ends sooner (an empty slice where off ≥ size),
	// and the size of the whole object in bytes. off ≥ 0, n > 0. Errors as Get.
	GetRange(ctx context.Context, key string, off, n int64) (data []byte, size int64, err error)
	// List returns up to max objects whose key starts with prefix and is > startAfter ("" = from the beginning), in
	// ascending byte order of the key, and whether more follow. max ≤ 0 or > 1000 means 1000. After a full page of 1000 some
	// servers say more where nothing follows: the next page is empty then. One store call, unless startAfter lies in a
	// directory below prefix: list directory by directory.
	List(ctx context.Context, prefix, startAfter string, max int) (objs []Object, more bool, err error)
	// ListDirs returns the distinct next path elements (without the delimiter '/') below prefix, which is "" or ends in
	// '/', in ascending byte order; objects directly below prefix are not shown. It pages by itself.
	ListDirs(ctx context.Context, prefix string) ([]string, error)
	// Sweep removes what creates that were cut off, by a kill for example, more than SweepAge ago have left behind, and never an
	// object: unfinished multipart uploads of keys that ours accepts (s3), temporary files (file). It answers how many, also beside an
	// error. Other writers may be at work: no create of any of them takes as long as SweepAge.
	Sweep(ctx context.Context, ours func(key string) bool) (removed int, err error)
	// String is the address without secrets, for messages.
	String() string
	// Close frees connections.
	Close() error
}
