package segment

import "tapedeck.dev/tapedeck/shared/record"

// --- names (names.go) ---

// Name is the key of a segment: <topicsDir>/<topic>/partition=<p>/<topic>+<p>+<start, 20 digits>.avro.
type Name struct {
	TopicsDir string // e.g. "topics"; may hold slashes, never empty, no leading or trailing slash
	Topic     string
	Partition int32
	Start     int64
}

// Format returns the key.
func (n Name) Format() string { panic("stub") }

// PartitionPrefix returns "<topicsDir>/<topic>/partition=<p>/".
func PartitionPrefix(topicsDir, topic string, partition int32) string { panic("stub") }

// ParseName is the inverse of Format; any other key is an error.
func ParseName(topicsDir, key string) (Name, error) { panic("stub") }

// --- cut rule (cut.go) ---

// CutRule decides from the records alone where a segment ends; a zero field is off.
type CutRule struct {
	FlushSize        int64 // records
	SegmentBytes     int64 // uncompressed encoded bytes
	RotateIntervalMs int64 // record-time span in ms: cut before a record whose timestamp ≥ first record's timestamp + this
}

// Cutter applies a CutRule. The zero Cutter of a rule is an empty segment.
type Cutter struct{}

// NewCutter returns a Cutter at the beginning of a segment.
func NewCutter(rule CutRule) *Cutter { panic("stub") }

// Before reports whether the segment must end before r (encoded size n bytes); the caller then Resets.
func (c *Cutter) Before(r *record.Record, n int) bool { panic("stub") }

// Add counts r and reports whether the segment is full with it.
func (c *Cutter) Add(r *record.Record, n int) bool { panic("stub") }

// Reset begins a new segment.
func (c *Cutter) Reset() { panic("stub") }

// --- writer (writer.go) ---

// Hash is the SHA-256 of r's encoded datum (FORMAT.md); it includes topic, partition and offset.
func Hash(r *record.Record) [32]byte { panic("stub") }

// Writer collects the records of one segment in memory, compressed block by block. It is not safe for concurrent use.
type Writer struct{}

// NewWriter begins a segment at start. codec "" means zstandard.
func NewWriter(id LogIdentity, start int64, codec string) (*Writer, error) { panic("stub") }

// Append adds r. Its offset must be ≥ start and > the last record's; topic and partition must be the writer's. It returns
// the encoded size in bytes (uncompressed). The bytes of r are copied.
func (w *Writer) Append(r *record.Record) (int, error) { panic("stub") }

// Skip records that [from, to) holds no data, with its class. Ranges between records that nobody skips are NoData.
func (w *Writer) Skip(from, to int64, class Class) error { panic("stub") }

// Count returns the number of records so far.
func (w *Writer) Count() int64 { panic("stub") }

// MemBytes returns about how many bytes of memory w holds.
func (w *Writer) MemBytes() int64 { panic("stub") }

// Chain is what a segment inherits from the one before it in its chain.
type Chain struct {
	Ordinal             int64
	RunningMaxTimestamp int64 // −1 for none
	LastOffset          int64 // −1 for none
	LastEpoch           int32
	LastHash            []byte
	Rows                []Row
}

// First is the Chain of a partition's first segment.
func First() Chain { panic("stub") }

// After returns the Chain for the segment that follows h, whose object has size bytes.
func After(h *Header, size int64) Chain { panic("stub") }

// Close ends the segment at next (≥ last record's offset+1, ≥ start; > start) and returns the whole object and its header.
// schemas are written in the order of (ID, GUID).
func (w *Writer) Close(next int64, c Chain, schemas []Schema) (data []byte, h *Header, err error) {
	panic("stub")
}

// --- reader (reader.go) ---

// CorruptError says what is wrong with a segment, and where.
type CorruptError struct {
	Object string
	Offset int64 // byte position in the object
	Err    error
}

func (e *CorruptError) Error() string { panic("stub") }
func (e *CorruptError) Unwrap() error { return e.Err }

// ErrNeedMore is returned by ParseHeader where head is shorter than the header; it says how many bytes to ask for.
type ErrNeedMore struct{ Bytes int64 }

func (e *ErrNeedMore) Error() string { panic("stub") }

// ParseHeader reads the header from the first bytes of the object; object names it in errors. It returns the byte position
// of the first block. Errors: *ErrNeedMore, *CorruptError (a newer format version is one that says so).
func ParseHeader(object string, head []byte) (h *Header, body int64, err error) { panic("stub") }

// Reader yields the records of one object held in memory, with bounded additional memory (one decompressed block).
type Reader struct{}

// NewReader parses the header of data.
func NewReader(object string, data []byte) (*Reader, error) { panic("stub") }

// Header returns the parsed header.
func (r *Reader) Header() *Header { panic("stub") }

// Next fills rec with the next record; its slices stay valid after further calls. io.EOF after the last; before that it
// checks count, order, range, min and max timestamps and, where the last record is in this segment, LastHash, against the header. Other errors
// are *CorruptError.
func (r *Reader) Next(rec *record.Record) error { panic("stub") }

// Datum returns the encoded datum of the record that Next returned last (FORMAT.md); valid until the next call of Next.
func (r *Reader) Datum() []byte { panic("stub") }

// Checksum is the xxHash64 of a datum. The checksum of a set of records is the sum of theirs modulo 2^64, so that it can be
// carried on from any point.
func Checksum(datum []byte) uint64 { panic("stub") }
