// Package segment is the archive's file format: one Avro Object Container File holding one contiguous offset range
// [start, next) of one partition. FORMAT.md beside this file describes every byte.
//
// The package knows bytes, names and the cut rule. It takes no clock, logger, context or store.
package segment

import "tapedeck.dev/tapedeck/shared/record"

// FormatVersion is written into every segment. A reader refuses a higher one.
const FormatVersion = 1

// HeadBytes is how many bytes from the start of an object a reader asks for first to get a Header.
const HeadBytes = 64 << 10

// Class says why a range of offsets holds no records in the archive.
type Class string

// The four classes of a skipped range.
const (
	NoData      Class = "no-data"      // transaction markers, aborted records, compaction: Kafka has no record there
	Lost        Class = "lost"         // retention or truncation removed it before it was archived
	NotArchived Class = "not-archived" // outside what the archiver was configured to take (start position)
	Replayed    Class = "replayed"     // written by a replay of this archive
)

// Skip is a range of offsets [From, To) without records.
type Skip struct {
	From  int64 `json:"from"`
	To    int64 `json:"to"`
	Class Class `json:"class"`
}

// Row describes one segment for planning: its own range is [Start, the following row's Start).
type Row struct {
	Start        int64 `json:"start"`
	Count        int64 `json:"count"`        // records
	Bytes        int64 `json:"bytes"`        // size of the object
	MinTimestamp int64 `json:"minTimestamp"` // ms; 0 where Count is 0
	MaxTimestamp int64 `json:"maxTimestamp"` // ms; 0 where Count is 0
}

// Reference is a schema's reference to another subject's version.
type Reference struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
	Text    string `json:"text,omitempty"` // the referred schema, so that the segment stands alone
	// Indirect marks a reference of a reference that the schema does not name itself.
	Indirect bool `json:"indirect,omitempty"`
	// References are the referred schema's own, without Text: each stands in the schema's list too, before this one.
	References []Reference `json:"references,omitempty"`
}

// Schema is a writer schema seen in keys or values of the segment.
type Schema struct {
	ID         int         `json:"id"`             // registry id from the wire format; −1 where only a GUID is known
	GUID       string      `json:"guid,omitempty"` // where the wire format carries one
	Type       string      `json:"type"`           // AVRO, JSON or PROTOBUF
	Text       string      `json:"schema"`
	References []Reference `json:"references,omitempty"` // direct and indirect, each after those that it needs
	Subject    string      `json:"subject,omitempty"`    // where known
	Version    int         `json:"version,omitempty"`    // where known
}

// Header is a segment's metadata, readable from the first bytes of the object alone.
type Header struct {
	FormatVersion int
	ClusterID     string
	TopicID       string
	Topic         string
	Partition     int32
	Start         int64 // first offset, inclusive
	Next          int64 // first offset after the segment = the consumer position, past markers
	Ordinal       int64 // place in the chain, the first segment is 0
	Count         int64 // records
	DatumBytes    int64 // uncompressed size of all records, in bytes
	MaxBlockBytes int64 // uncompressed size of the largest block, in bytes; 0 where Count is 0
	// Checksum is the sum modulo 2^64 of Checksum(datum) over the records; 0 where Count is 0.
	Checksum     uint64
	MinTimestamp int64 // ms; 0 where Count is 0
	MaxTimestamp int64 // ms; 0 where Count is 0
	// RunningMaxTimestamp is the maximum timestamp in ms of all records of the chain up to and including this segment, −1
	// where there was none. It is never below −1.
	RunningMaxTimestamp int64
	Isolation           string // read_committed or read_uncommitted
	Skipped             []Skip // ascending, inside [Start, Next); every offset is a record or in one Skip
	LastOffset          int64  // of the last record of the chain so far, −1 where there was none
	LastEpoch           int32  // leader epoch of that record, record.NoEpoch where unknown
	LastHash            []byte // Hash of that record (32 bytes), nil where there was none
	Rows                []Row  // the segments since the last index object, before this one, in order
	Schemas             []Schema
	Codec               string // avro.codec: null, deflate, snappy or zstandard
}

// LogIdentity is what two segments of one chain must share.
type LogIdentity struct {
	ClusterID string
	TopicID   string
	Topic     string
	Partition int32
	Isolation string
}

// Identity returns what h says about its log.
func (h *Header) Identity() LogIdentity {
	return LogIdentity{h.ClusterID, h.TopicID, h.Topic, h.Partition, h.Isolation}
}

// TP returns the log's name.
func (h *Header) TP() record.TopicPartition {
	return record.TopicPartition{Topic: h.Topic, Partition: h.Partition}
}

// IndexEvery is the number of segments that one index object covers: the segment with ordinal ≡ IndexEvery−1 writes it.
const IndexEvery = 256
