package segment

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// errShort says that the bytes end before what is to be read.
var errShort = errors.New("too few bytes")

// cursor reads Avro's primitives from b.
type cursor struct {
	b   []byte
	pos int
}

// long reads a varint, in its only minimal spelling.
func (c *cursor) long() (int64, error) {
	v, n := binary.Varint(c.b[c.pos:])
	switch {
	case n == 0:
		return 0, errShort
	case n < 0:
		return 0, errors.New("number of more than 64 bits")
	case n > 1 && c.b[c.pos+n-1] == 0:
		return 0, errors.New("number with padding")
	}
	c.pos += n
	return v, nil
}

// bytes reads a length of at most limit and as many bytes.
func (c *cursor) bytes(limit int) ([]byte, error) {
	n, err := c.long()
	switch {
	case err != nil:
		return nil, err
	case n < 0 || n > int64(limit):
		return nil, fmt.Errorf("length %d, at most %d expected", n, limit)
	case n > int64(len(c.b)-c.pos):
		return nil, errShort
	}
	b := c.b[c.pos : c.pos+int(n) : c.pos+int(n)]
	c.pos += int(n)
	return b, nil
}

// maxKeyBytes is more than any key has.
const maxKeyBytes = 256

// headerParser reads the metadata entries in their order.
type headerParser struct {
	cursor
	left int64 // entries
	key  string
	at   int // position of the entry
	held bool
	err  error // the first
}

// peek reads the next entry's key and leaves its value.
func (p *headerParser) peek() string {
	if p.held || p.err != nil {
		return p.key
	}
	p.key, p.held, p.at = "", true, p.pos
	if p.left == 0 {
		return ""
	}
	k, err := p.bytes(maxKeyBytes)
	if err != nil {
		p.err = err
		return ""
	}
	p.key = string(k)
	return p.key
}

// value reads the value of the entry whose key must be key, of at most limit bytes.
func (p *headerParser) value(key string, limit int) []byte {
	if k := p.peek(); p.err == nil && k != key {
		p.err = fmt.Errorf("metadata key %.64q, want %q", k, key)
	}
	if p.err != nil {
		return nil
	}
	v, err := p.bytes(limit)
	if err != nil {
		p.err = fmt.Errorf("metadata %s: %w", key, err)
		return nil
	}
	p.held = false
	p.left--
	return v
}

func (p *headerParser) text(key string) string { return string(p.value(key, maxTextBytes)) }

// number reads a decimal number in its only canonical spelling.
func (p *headerParser) number(key string, bits int) int64 {
	s := string(p.value(key, 20))
	if p.err != nil {
		return 0
	}
	v, err := strconv.ParseInt(s, 10, bits)
	if err != nil || strconv.FormatInt(v, 10) != s {
		p.err = fmt.Errorf("metadata %s: %q is not a number", key, s)
	}
	return v
}

// sum reads 16 lower-case hexadecimal digits.
func (p *headerParser) sum(key string) uint64 {
	s := string(p.value(key, sumDigits))
	if p.err != nil {
		return 0
	}
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil || fmt.Sprintf("%0*x", sumDigits, v) != s {
		p.err = fmt.Errorf("metadata %s: %q is not %d hexadecimal digits", key, s, sumDigits)
	}
	return v
}

// base64 reads binary data.
func (p *headerParser) base64(key string) []byte {
	v := p.value(key, MaxHeaderBytes)
	if p.err != nil {
		return nil
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(v)))
	n, err := base64.StdEncoding.Strict().Decode(b, v)
	if err != nil || strings.ContainsAny(string(v), "\r\n") {
		p.err = fmt.Errorf("metadata %s: not base64", key)
		return nil
	}
	return b[:n]
}

// ParseHeader reads the header from the first bytes of the object; object names it in errors. It returns the byte position
// of the first block. Errors: *ErrNeedMore, *CorruptError (around ErrNewerVersion for a newer format version).
//
// HeadBytes are enough to tell how many more are needed.
func ParseHeader(object string, head []byte) (h *Header, body int64, err error) {
	corrupt := func(at int, err error) (*Header, int64, error) {
		return nil, 0, &CorruptError{object, int64(at), err}
	}
	needMore := func(n int64) (*Header, int64, error) { return nil, 0, &ErrNeedMore{n} }

	n := min(len(head), len(magic))
	if string(head[:n]) != magic[:n] {
		return corrupt(0, errors.New("not an Avro object container file"))
	}
	if n < len(magic) {
		return needMore(HeadBytes)
	}
	p := &headerParser{cursor: cursor{head, n}}
	p.left, p.err = p.long()
	if p.err == nil && (p.left < 1 || p.left > MaxHeaderBytes/2) {
		p.err = fmt.Errorf("metadata of %d entries", p.left)
	}
	if key := p.peek(); p.err == nil && key != keyFormat {
		p.err = fmt.Errorf("first metadata key is %.64q, not %q: an Avro file of another writer", key, keyFormat)
	}
	version := p.number(keyFormat, 64)
	if p.err == nil && version > FormatVersion {
		return corrupt(p.at, fmt.Errorf("format version %d: %w", version, ErrNewerVersion))
	}
	if p.err == nil && version < 1 {
		p.err = fmt.Errorf("format version %d", version)
	}
	total := p.headerBytes()
	sum := p.sum(keyHeaderSum)
	if errors.Is(p.err, errShort) {
		if len(head) < HeadBytes {
			return needMore(HeadBytes)
		}
	}
	if p.err == nil && (total < int64(p.pos) || total > MaxHeaderBytes) {
		p.err = fmt.Errorf("header of %d bytes", total)
	}
	if p.err != nil {
		return corrupt(p.at, p.err)
	}
	if total > int64(len(head)) {
		return needMore(total)
	}
	p.b = head[:total]
	if got := xxhash.Sum64(p.b[p.pos:]); got != sum {
		return corrupt(p.pos, fmt.Errorf("header's checksum is %016x, want %016x", got, sum))
	}
	h = &Header{FormatVersion: int(version)}
	p.rest(h)
	if errors.Is(p.err, errShort) {
		p.err = errors.New("header ends too early")
	}
	if p.err != nil {
		return corrupt(p.at, p.err)
	}
	if err := h.check(); err != nil {
		return corrupt(0, err)
	}
	return h, total, nil
}

func (p *headerParser) headerBytes() int64 {
	s := string(p.value(keyHeaderBytes, headerBytesDigits))
	if p.err != nil {
		return 0
	}
	v, err := strconv.ParseUint(s, 10, 63)
	if err != nil || len(s) != headerBytesDigits {
		p.err = fmt.Errorf("metadata %s: %q is not %d digits", keyHeaderBytes, s, headerBytesDigits)
	}
	return int64(v)
}

// rest reads everything behind the header's checksum into h.
func (p *headerParser) rest(h *Header) {
	h.ClusterID = p.text(keyCluster)
	h.TopicID = p.text(keyTopicID)
	h.Topic = p.text(keyTopic)
	h.Partition = int32(p.number(keyPartition, 32))
	h.Isolation = p.text(keyIsolation)
	h.Start = p.number(keyStart, 64)
	h.Next = p.number(keyNext, 64)
	h.Ordinal = p.number(keyOrdinal, 64)
	h.Count = p.number(keyCount, 64)
	h.DatumBytes = p.number(keyDatumBytes, 64)
	h.MaxBlockBytes = p.number(keyBlockMax, 64)
	h.Checksum = p.sum(keyChecksum)
	h.MinTimestamp = p.number(keyTsMin, 64)
	h.MaxTimestamp = p.number(keyTsMax, 64)
	h.RunningMaxTimestamp = p.number(keyTsRunning, 64)
	h.LastOffset = p.number(keyLastOffset, 64)
	h.LastEpoch = int32(p.number(keyLastEpoch, 32))
	h.LastHash = p.hash(keyLastHash)
	if b := p.base64(keyRows); p.err == nil {
		h.Rows, p.err = decodeRows(b)
	}
	at := h.Start
	for i := 0; p.err == nil && strings.HasPrefix(p.peek(), keySkips); i++ {
		b := p.base64(fmt.Sprintf("%s%06d", keySkips, i))
		if p.err == nil {
			h.Skipped, at, p.err = decodeSkips(h.Skipped, b, at)
		}
	}
	for i := 0; p.err == nil && strings.HasPrefix(p.peek(), keySchema); i++ {
		p.schema(h, i)
	}
	last := ""
	for p.err == nil && strings.HasPrefix(p.peek(), keyOptional) {
		if p.key <= last {
			p.err = fmt.Errorf("metadata key %.64q is out of order", p.key)
			return
		}
		last = p.key
		p.value(p.key, MaxHeaderBytes)
	}
	if s := p.value(keyAvroSchema, maxTextBytes); p.err == nil && string(s) != RecordSchema {
		p.err = fmt.Errorf("metadata %s is not the record schema of format version %d", keyAvroSchema, h.FormatVersion)
	}
	h.Codec = p.text(keyAvroCodec)
	if p.err != nil {
		return
	}
	p.at = p.pos
	sync := syncMarker(h.ClusterID, h.TopicID, h.Partition, h.Start)
	switch end := p.b[p.pos:]; {
	case p.left != 0:
		p.err = fmt.Errorf("%d unknown metadata entries", p.left)
	case len(end) != 1+len(sync) || end[0] != 0:
		p.err = errors.New("metadata does not end where the header does")
	case string(end[1:]) != string(sync[:]):
		p.err = errors.New("sync marker is not that of cluster, topic id, partition and start")
	}
}

// hash reads a hexadecimal hash, or nothing.
func (p *headerParser) hash(key string) []byte {
	s := string(p.value(key, 64))
	if p.err != nil || s == "" {
		return nil
	}
	b, err := hex.DecodeString(s)
	if err != nil || hex.EncodeToString(b) != s {
		p.err = fmt.Errorf("metadata %s: not hexadecimal", key)
	}
	return b
}

// schema reads the schema with number i and its further pieces.
func (p *headerParser) schema(h *Header, i int) {
	key := fmt.Sprintf("%s%06d", keySchema, i)
	text := p.value(key, MaxHeaderBytes)
	for j := 1; p.err == nil && strings.HasPrefix(p.peek(), key+"."); j++ {
		text = append(text, p.value(fmt.Sprintf("%s.%06d", key, j), MaxHeaderBytes)...)
	}
	if p.err != nil {
		return
	}
	var s Schema
	if err := json.Unmarshal(text, &s); err != nil {
		p.err = fmt.Errorf("metadata %s: %w", key, err)
		return
	}
	h.Schemas = append(h.Schemas, s)
}

// decodeRows is the inverse of encodeRows.
func decodeRows(b []byte) ([]Row, error) {
	c := &cursor{b, 0}
	n, err := arrayCount(c, 5)
	if err != nil {
		return nil, fmt.Errorf("rows: %w", err)
	}
	var rows []Row
	for range n {
		var v [5]int64
		for i := range v {
			if v[i], err = c.long(); err != nil {
				return nil, fmt.Errorf("rows: %w", noShort(err))
			}
		}
		rows = append(rows, Row{v[0], v[1], v[2], v[3], v[4]})
	}
	if err := arrayEnd(c, n); err != nil {
		return nil, fmt.Errorf("rows: %w", err)
	}
	return rows, nil
}

// decodeSkips is the inverse of one piece of encodeSkips; at is the end of the range before.
func decodeSkips(dst []Skip, b []byte, at int64) ([]Skip, int64, error) {
	c := &cursor{b, 0}
	n, err := arrayCount(c, 3)
	if err != nil {
		return nil, 0, fmt.Errorf("skipped ranges: %w", err)
	}
	if n == 0 {
		return nil, 0, errors.New("skipped ranges: an empty piece")
	}
	for range n {
		var v [3]int64
		for i := range v {
			if v[i], err = c.long(); err != nil {
				return nil, 0, fmt.Errorf("skipped ranges: %w", noShort(err))
			}
		}
		from := at + v[0]
		to := from + v[1]
		if v[0] < 0 || v[1] <= 0 || from < at || to <= from || v[2] < 0 || v[2] >= int64(len(classes)) {
			return nil, 0, fmt.Errorf("skipped ranges: gap %d, length %d, class %d after offset %d", v[0], v[1], v[2], at)
		}
		dst = append(dst, Skip{from, to, classes[v[2]]})
		at = to
	}
	if err := arrayEnd(c, n); err != nil {
		return nil, 0, fmt.Errorf("skipped ranges: %w", err)
	}
	return dst, at, nil
}

// arrayCount reads the count of an array's only block, or 0 for an empty array. Each item has itemBytes at least.
func arrayCount(c *cursor, itemBytes int) (int64, error) {
	n, err := c.long()
	if err != nil {
		return 0, noShort(err)
	}
	if n < 0 || n > int64((len(c.b)-c.pos)/itemBytes) {
		return 0, fmt.Errorf("%d items in %d bytes", n, len(c.b)-c.pos)
	}
	return n, nil
}

// arrayEnd reads the end of an array of n items, which must be the end of c too.
func arrayEnd(c *cursor, n int64) error {
	if n > 0 {
		if end, err := c.long(); err != nil || end != 0 {
			return errors.New("array does not end")
		}
	}
	if c.pos != len(c.b) {
		return fmt.Errorf("%d bytes after the end", len(c.b)-c.pos)
	}
	return nil
}

// noShort replaces errShort where more bytes of the object would not help.
func noShort(err error) error {
	if errors.Is(err, errShort) {
		return errors.New("value ends too early")
	}
	return err
}
