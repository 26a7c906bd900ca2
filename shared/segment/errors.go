package segment

import (
	"errors"
	"fmt"
)

// CorruptError says what is wrong with a segment, and where.
type CorruptError struct {
	Object string
	Offset int64 // byte position in the object
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("segment %s: at byte %d: %v", e.Object, e.Offset, e.Err)
}

// Unwrap returns Err.
func (e *CorruptError) Unwrap() error { return e.Err }

// ErrNewerVersion is inside the CorruptError of a segment whose format version is above FormatVersion.
var ErrNewerVersion = errors.New("written by a newer version; upgrade")

// ErrTruncated is inside the CorruptError of a segment that ends too early.
var ErrTruncated = errors.New("object is truncated")

// ErrNeedMore is returned by ParseHeader where head is shorter than the header; it says how many bytes to ask for, from the
// start of the object. An object that has no more bytes is truncated.
type ErrNeedMore struct{ Bytes int64 }

func (e *ErrNeedMore) Error() string {
	return fmt.Sprintf("the segment's header needs the first %d bytes of the object", e.Bytes)
}
