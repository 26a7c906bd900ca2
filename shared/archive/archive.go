// Package archive is segments in a store: the chain of each partition, its tail, the index, listing, plan and verify.
// Everything that is not a segment lives under "_tapedeck/". docs/archive.md describes the layout and counts the calls.
package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

var (
	// ErrOtherLog: the chain in the store belongs to another log (cluster, topic id or isolation differ).
	ErrOtherLog = errors.New("the archive holds another log under this name")
	// ErrForeign: the prefix holds objects in the shape of segments that are not Tapedeck's, or not readable as such.
	ErrForeign = errors.New("the prefix holds foreign objects")
	// ErrBroken: the chain does not tile (a segment names a next that is not there although later ones are), its newest
	// segments are gone, or two objects contradict each other about it.
	ErrBroken = errors.New("the chain is broken")
	// ErrDamaged: an object that begins as our segments do cannot be read as one. It is an ErrBroken too.
	ErrDamaged = fmt.Errorf("%w: damaged segment", ErrBroken)
	// ErrBusy: another Create of the same partition is running in this process.
	ErrBusy = errors.New("another create of this partition is in flight")
)

// parallel bounds the store calls that one operation of this package makes at a time.
const parallel = 8

// Archive reads and extends the chains in one store. Safe for concurrent use, but one Create per partition at a time.
type Archive struct {
	st        store.Store
	topicsDir string
	wait      waiter

	mu       sync.Mutex
	creating map[record.TopicPartition]bool
	// due holds, per partition, the last segment of an index block whose index object this process has not seen written.
	due map[record.TopicPartition]*Tail
}

// Open wraps st. topicsDir is the first path element(s) of segment names. It makes no store call.
func Open(st store.Store, topicsDir string) *Archive {
	return &Archive{
		st: st, topicsDir: topicsDir, wait: realWaiter(),
		creating: map[record.TopicPartition]bool{}, due: map[record.TopicPartition]*Tail{},
	}
}

// Store returns the underlying store.
func (a *Archive) Store() store.Store { return a.st }

// TopicsDir returns the directory of the segments, e.g. "topics".
func (a *Archive) TopicsDir() string { return a.topicsDir }

// key returns the name of a segment of tp.
func (a *Archive) key(tp record.TopicPartition, start int64) string {
	return segment.Name{TopicsDir: a.topicsDir, Topic: tp.Topic, Partition: tp.Partition, Start: start}.Format()
}

// found is one segment seen in a listing.
type found struct {
	start int64
	size  int64  // bytes
	class string // storage class, where the store tells of one
}

// segmentsFrom returns up to max segments of tp with a start ≥ from, ascending, and whether more follow: one store call.
// A key in the partition's directory that is not a segment's name is ErrForeign.
func (a *Archive) segmentsFrom(ctx context.Context, tp record.TopicPartition, from int64, max int) ([]found, bool, error) {
	prefix := segment.PartitionPrefix(a.topicsDir, tp.Topic, tp.Partition)
	after := ""
	if from > 0 {
		after = a.key(tp, from-1)
	}
	objs, more, err := listSorted(ctx, a.st, prefix, after, max)
	if err != nil {
		return nil, false, err
	}
	segs := make([]found, 0, len(objs))
	for _, o := range objs {
		if o.Key == prefix { // the empty object by which consoles draw a folder
			continue
		}
		n, err := segment.ParseName(a.topicsDir, o.Key)
		if err != nil {
			return nil, false, fmt.Errorf("%w: %s in the directory of %s is not a segment's name (move it away, or use another prefix)",
				ErrForeign, o.Key, tp)
		}
		segs = append(segs, found{n.Start, o.Size, o.Class})
	}
	return segs, more, nil
}

// listSorted is one LIST whose answer is checked: keys below prefix, after startAfter, ascending. An unsorted listing
// would show an old segment as the newest one; the start-up probe refuses such a store, and this check holds where a
// store begins to misbehave later.
func listSorted(ctx context.Context, st store.Store, prefix, startAfter string, max int) ([]store.Object, bool, error) {
	objs, more, err := st.List(ctx, prefix, startAfter, max)
	if err != nil {
		return nil, false, fmt.Errorf("list %s: %w", prefix, err)
	}
	last := startAfter
	for i, o := range objs {
		if len(o.Key) < len(prefix) || o.Key[:len(prefix)] != prefix || (o.Key <= last && (i > 0 || startAfter != "")) {
			return nil, false, fmt.Errorf("list %s: the store answers out of order (%q after %q): it cannot hold an archive", prefix, o.Key, last)
		}
		last = o.Key
	}
	if more && len(objs) == 0 {
		return nil, false, fmt.Errorf("list %s: the store answers an empty page and says that more follow", prefix)
	}
	return objs, more, nil
}

// eachObject pages through every object below prefix in order.
func eachObject(ctx context.Context, st store.Store, prefix string, f func(store.Object) error) error {
	after := ""
	for {
		objs, more, err := listSorted(ctx, st, prefix, after, 0)
		if err != nil {
			return err
		}
		for _, o := range objs {
			if err := f(o); err != nil {
				return err
			}
			after = o.Key
		}
		if !more {
			return nil
		}
	}
}

// readHeader reads the header of one segment: one ranged GET, more only where the header is longer than its first page.
// It checks the header against the name. Errors: store.ErrNotFound and the store's others; *segment.CorruptError.
func (a *Archive) readHeader(ctx context.Context, tp record.TopicPartition, start int64) (*Tail, error) {
	key := a.key(tp, start)
	head, size, err := a.st.GetRange(ctx, key, 0, segment.HeadBytes)
	if err != nil {
		return nil, fmt.Errorf("read header of %s: %w", key, err)
	}
	return a.parseHeader(ctx, key, head, size)
}

// parseHeader goes on from the first bytes of the object. What is ours and cannot be read is ErrDamaged.
func (a *Archive) parseHeader(ctx context.Context, key string, head []byte, size int64) (*Tail, error) {
	for {
		h, _, err := segment.ParseHeader(key, head)
		var more *segment.ErrNeedMore
		switch {
		case err == nil:
			topic, err := a.checkName(key, h)
			if err != nil {
				return nil, err
			}
			return &Tail{Topic: topic, Header: h, Size: size}, nil
		case !errors.As(err, &more):
			return nil, asDamaged(err, head)
		case int64(len(head)) >= size:
			return nil, asDamaged(&segment.CorruptError{Object: key, Offset: size, Err: errors.New("the object ends inside its header")}, head)
		case more.Bytes <= int64(len(head)) || more.Bytes > segment.MaxHeaderBytes:
			return nil, asDamaged(&segment.CorruptError{Object: key, Err: fmt.Errorf("a header of %d bytes", more.Bytes)}, head)
		}
		head, size, err = a.st.GetRange(ctx, key, 0, more.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read header of %s: %w", key, err)
		}
	}
}

// checkName compares what a header says with the name it was found under, and returns the topic as the name has it: the header tells Kafka's name
// of it, the object's name that of the incarnation.
func (a *Archive) checkName(key string, h *segment.Header) (topic string, err error) {
	n, err := segment.ParseName(a.topicsDir, key)
	base, _ := segment.SplitTopic(n.Topic)
	if err != nil || h.Topic != n.Topic && h.Topic != base || h.Partition != n.Partition || h.Start != n.Start {
		return "", &segment.CorruptError{Object: key, Err: fmt.Errorf("its header names %s from offset %d", h.TP(), h.Start)}
	}
	if h.Next <= h.Start {
		return "", &segment.CorruptError{Object: key, Err: fmt.Errorf("its header names the empty range [%d, %d)", h.Start, h.Next)}
	}
	return n.Topic, nil
}

// asForeign marks an object that could not be read as a segment; other errors stay what they are, and so does what is ours and damaged.
func asForeign(err error) error {
	var corrupt *segment.CorruptError
	if errors.As(err, &corrupt) && !errors.Is(err, ErrDamaged) {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return err
}

// asDamaged marks an object under a segment's name that begins as our segments do and cannot be read: it was cut off or changed after it
// was written, and is nobody else's.
func asDamaged(err error, head []byte) error {
	var corrupt *segment.CorruptError
	if errors.As(err, &corrupt) && bytes.HasPrefix(head, []byte("Obj\x01")) && bytes.Contains(head[:min(len(head), 64)], []byte("tapedeck.format")) {
		return &damagedError{corrupt}
	}
	return err
}

// damagedError is ErrDamaged with its place, which the CorruptError would say a second time.
type damagedError struct{ corrupt *segment.CorruptError }

func (e *damagedError) Error() string {
	return fmt.Sprintf("%v %s at byte %d: %v", ErrDamaged, e.corrupt.Object, e.corrupt.Offset, e.corrupt.Err)
}

func (e *damagedError) Unwrap() []error { return []error{ErrDamaged, e.corrupt} }

// CheckLog compares the log that a chain belongs to with the one that a writer reads. The error is ErrOtherLog and says
// what differs.
func CheckLog(h *segment.Header, id segment.LogIdentity) error {
	have := h.Identity()
	for _, f := range []struct{ what, have, want string }{
		{"cluster id", have.ClusterID, id.ClusterID},
		{"topic", have.Topic, id.Topic},
		{"topic id", have.TopicID, id.TopicID},
		{"partition", fmt.Sprint(have.Partition), fmt.Sprint(id.Partition)},
		{"isolation", have.Isolation, id.Isolation},
	} {
		if f.have != f.want {
			return fmt.Errorf("%w: %s of %s is %q in the archive and %q in Kafka", ErrOtherLog, f.what, h.TP(), f.have, f.want)
		}
	}
	return nil
}
