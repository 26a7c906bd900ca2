// Package archive is segments in a store: the chain of each partition, its tail, the index, listing, plan and verify.
// Everything that is not a segment lives under "_tapedeck/".
package archive

import (
	"context"
	"errors"
	"time"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

var (
	// ErrOtherLog: the chain in the store belongs to another log (cluster, topic id or isolation differ).
	ErrOtherLog = errors.New("the archive holds another log under this name")
	// ErrForeign: the prefix holds objects in the shape of segments that are not Tapedeck's.
	ErrForeign = errors.New("the prefix holds foreign objects")
	// ErrBroken: the chain does not tile (a segment names a next that is not there although later ones are).
	ErrBroken = errors.New("the chain is broken")
)

// Archive reads and extends the chains in one store. Safe for concurrent use, but one Create per partition at a time.
type Archive struct{}

// Open wraps st. topicsDir is the first path element(s) of segment names. now and sleep are for retry backoff only (nil: the real ones).
func Open(st store.Store, topicsDir string) *Archive { panic("stub") }

// Store returns the underlying store; TopicsDir the directory of the segments.
func (a *Archive) Store() store.Store { panic("stub") }
func (a *Archive) TopicsDir() string  { panic("stub") }

// Probe is the start-up check of a store: on fixed keys under _tapedeck/probe/ a conditional create twice (success or already there with the
// same bytes, then refusal), GET and compare, LIST order. The error names the setting to change.
func Probe(ctx context.Context, st store.Store) error { panic("stub") }

// CheckForeign refuses a prefix that holds objects in the shape of segments that are not Tapedeck's (reads one header per partition found, bounded).
func (a *Archive) CheckForeign(ctx context.Context) error { panic("stub") }

// Tail is the newest segment of a chain.
type Tail struct {
	Header *segment.Header
	Size   int64 // bytes of the object
}

// Tail finds the newest segment of a partition: from hint (the start of some segment known to exist, −1 for none), else the newest
// index object, else by galloping. nil, nil where the chain is empty. Never lists the whole chain where an index or hint exists.
func (a *Archive) Tail(ctx context.Context, topic string, partition int32, hint int64) (*Tail, error) {
	panic("stub")
}

// Outcome of a Create.
type Outcome struct {
	// Adopted is false where our object is the one in the store (created, or found with our very bytes).
	Adopted bool
	// Tail is the segment that now holds the name: ours or the winner's. The writer goes on at Tail.Header.Next.
	Tail Tail
}

// RetryPolicy bounds the waits between tries; retries end only with ctx.
type RetryPolicy struct {
	Min, Max time.Duration
	// OnRetry, if set, is told of every failed try (for metrics, logs and pausing).
	OnRetry func(key string, attempt int, err error)
}

// Create puts one closed segment under its name, through every answer of the table in chain.go, until it is confirmed or another writer's segment is
// adopted. After ordinal ≡ 255 (mod 256) it writes the index object. Errors: ErrOtherLog, ErrInvalid of the store, or the context's (then the
// outcome is unknown and the segment may still appear).
func (a *Archive) Create(ctx context.Context, h *segment.Header, data []byte, p RetryPolicy) (*Outcome, error) {
	panic("stub")
}

// List returns the partitions that have a chain, sorted. topics empty: all.
func (a *Archive) List(ctx context.Context, topics ...string) ([]record.TopicPartition, error) {
	panic("stub")
}

// Bound is one end of a range to replay.
type Bound struct {
	// Kind: "offset" (Value is an offset), "timestamp" (ms), "earliest", "end".
	Kind  string `json:"kind"`
	Value int64  `json:"value,omitempty"`
}

// Request asks for ranges of records, from inclusive, until exclusive.
type Request struct {
	TP          record.TopicPartition
	From, Until Bound
}

// PlannedSegment is one object to read.
type PlannedSegment struct {
	Key   string `json:"key"`
	Start int64  `json:"start"`
	Next  int64  `json:"next"`
	Count int64  `json:"count"` // records in the whole object
	Bytes int64  `json:"bytes"`
}

// PartitionPlan is what a replay of one partition reads. Offsets [From, Until); with a timestamp bound the filter is record by record:
// FromTimestamp / UntilTimestamp (ms; −1 = none) hold inside the offset range.
type PartitionPlan struct {
	record.TopicPartition
	TopicID        string           `json:"topicId"`
	ClusterID      string           `json:"clusterId"`
	Isolation      string           `json:"isolation"`
	From           int64            `json:"from"`
	Until          int64            `json:"until"`
	FromTimestamp  int64            `json:"fromTimestamp"`
	UntilTimestamp int64            `json:"untilTimestamp"`
	Segments       []PlannedSegment `json:"segments"`
	Gaps           []segment.Skip   `json:"gaps"` // lost and not-archived ranges inside [From, Until)
}

// Plan is a pure function of index, headers and names. Errors name what is not there (topic, partition, empty range).
func (a *Archive) Plan(ctx context.Context, r Request) (*PartitionPlan, error) { panic("stub") }

// PartitionInfo is one row of inspect.
type PartitionInfo struct {
	record.TopicPartition
	TopicID      string         `json:"topicId"`
	Start        int64          `json:"start"` // after a leading skip
	Next         int64          `json:"next"`
	Records      int64          `json:"records"`
	Segments     int64          `json:"segments"`
	Bytes        int64          `json:"bytes"`
	MinTimestamp int64          `json:"minTimestamp"`
	MaxTimestamp int64          `json:"maxTimestamp"`
	Gaps         []segment.Skip `json:"gaps"` // all but no-data
}

// Inspect summarises a partition.
func (a *Archive) Inspect(ctx context.Context, tp record.TopicPartition) (*PartitionInfo, error) {
	panic("stub")
}

// Finding is one thing that verify objects to.
type Finding struct {
	record.TopicPartition
	Object string `json:"object,omitempty"`
	Offset int64  `json:"bytePosition,omitempty"`
	Kind   string `json:"kind"` // corrupt, gap, overlap, off-chain, lost, index, foreign, identity
	Text   string `json:"text"`
}

// VerifyReport is the result of Verify.
type VerifyReport struct {
	Partitions int       `json:"partitions"`
	Segments   int64     `json:"segments"`
	Records    int64     `json:"records"`
	Bytes      int64     `json:"bytes"`
	Findings   []Finding `json:"findings"`
}

// Verify reads every segment of the topics (all where empty) in full and checks it against its chain: tiling from 0, headers, records, rows,
// running maximum, hashes, index objects. A finding is not an error; an error means it could not run.
func (a *Archive) Verify(ctx context.Context, topics ...string) (*VerifyReport, error) { panic("stub") }
