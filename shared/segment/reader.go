package segment

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"

	"tapedeck.dev/tapedeck/shared/record"
)

// Reader yields the records of one object held in memory, with bounded additional memory (one decompressed block). It is not
// safe for concurrent use.
type Reader struct {
	object string
	data   []byte
	h      *Header
	codec  codec
	sync   [16]byte

	pos     int    // of the next block in data
	blockAt int    // of the current block in data
	block   cursor // the current block, decompressed
	left    int64  // records of it
	datum   []byte
	sum     uint64 // of datum

	want       offsets
	count      int64
	datumBytes int64
	maxBlock   int64
	checksum   uint64
	minTs      int64
	maxTs      int64

	headers []record.Header // free space for the headers of the next records
	keys    map[string]string
	err     error
}

// NewReader parses the header of data. The reader and its records use data; it must not change while they live.
func NewReader(object string, data []byte) (*Reader, error) {
	h, body, err := ParseHeader(object, data)
	if more := (*ErrNeedMore)(nil); errors.As(err, &more) {
		return nil, &CorruptError{object, int64(len(data)), fmt.Errorf("%w: the header needs %d bytes", ErrTruncated, more.Bytes)}
	}
	if err != nil {
		return nil, err
	}
	c, err := codecByName(h.Codec)
	if err != nil {
		return nil, &CorruptError{object, 0, err}
	}
	r := &Reader{
		object: object, data: data, h: h, codec: c, pos: int(body), blockAt: int(body),
		sync: syncMarker(h.ClusterID, h.TopicID, h.Partition, h.Start),
		want: offsets{h.Skipped, h.Start},
	}
	return r, nil
}

// Header returns the parsed header.
func (r *Reader) Header() *Header { return r.h }

// Datum returns the encoded datum of the record that Next returned last (FORMAT.md); valid until the next call of Next.
func (r *Reader) Datum() []byte { return r.datum }

// DatumChecksum is Checksum(Datum()), which Next has computed.
func (r *Reader) DatumChecksum() uint64 { return r.sum }

// Next fills rec with the next record; its slices stay valid after further calls, and its leader epoch is unknown. io.EOF after
// the last; before that it checks count, order, range, skipped ranges, sizes, checksum, min and max timestamps and, where the last record
// is in this segment, LastHash, against the header. Other errors are *CorruptError. After an error Next returns it again.
func (r *Reader) Next(rec *record.Record) error {
	if r.err != nil {
		return r.err
	}
	if r.left == 0 {
		if err := r.nextBlock(); err != nil {
			r.datum, r.err = nil, err
			return err
		}
	}
	from := r.block.pos
	if err := r.decode(rec); err != nil {
		r.datum, r.err = nil, &CorruptError{r.object, int64(r.blockAt),
			fmt.Errorf("record %d, at byte %d of the block: %w", r.count, from, noShort(err))}
		return r.err
	}
	r.datum = r.block.b[from:r.block.pos:r.block.pos]
	if r.count == 0 {
		r.minTs, r.maxTs = rec.Timestamp, rec.Timestamp
	}
	r.minTs, r.maxTs = min(r.minTs, rec.Timestamp), max(r.maxTs, rec.Timestamp)
	r.count++
	r.datumBytes += int64(len(r.datum))
	r.sum = Checksum(r.datum)
	r.checksum += r.sum
	r.left--
	if r.left == 0 && r.block.pos != len(r.block.b) {
		r.datum, r.err = nil, &CorruptError{r.object, int64(r.blockAt),
			fmt.Errorf("%d bytes after the block's last record", len(r.block.b)-r.block.pos)}
		return r.err
	}
	return nil
}

// nextBlock decompresses the block at pos; io.EOF where there is none and everything is as the header says.
func (r *Reader) nextBlock() error {
	if r.pos == len(r.data) {
		if err := r.finish(); err != nil {
			return &CorruptError{r.object, int64(len(r.data)), err}
		}
		return io.EOF
	}
	r.blockAt = r.pos
	if err := r.readBlock(); err != nil {
		if errors.Is(err, errShort) {
			return &CorruptError{r.object, int64(len(r.data)), fmt.Errorf("%w: in the block at byte %d", ErrTruncated, r.blockAt)}
		}
		return &CorruptError{r.object, int64(r.blockAt), fmt.Errorf("block: %w", err)}
	}
	return nil
}

func (r *Reader) readBlock() error {
	c := cursor{r.data, r.pos}
	n, err := c.long()
	if err != nil {
		return err
	}
	if n <= 0 || n > r.h.Count-r.count {
		return fmt.Errorf("%d records, where the header leaves %d", n, r.h.Count-r.count)
	}
	comp, err := c.bytes(math.MaxInt)
	if err != nil {
		return err
	}
	if len(r.data)-c.pos < len(r.sync) {
		return errShort
	}
	if string(r.data[c.pos:c.pos+len(r.sync)]) != string(r.sync[:]) {
		return fmt.Errorf("no sync marker at byte %d", c.pos)
	}
	limit := min(r.h.MaxBlockBytes, r.h.DatumBytes-r.datumBytes)
	b, err := r.codec.decompress(comp, limit)
	if err != nil {
		return err
	}
	if n > int64(len(b)/minDatumBytes) {
		return fmt.Errorf("%d records in %d bytes", n, len(b))
	}
	r.maxBlock = max(r.maxBlock, int64(len(b)))
	r.block, r.left = cursor{b, 0}, n
	r.pos = c.pos + len(r.sync)
	return nil
}

// finish compares what was read with the header. Offsets have been compared one by one.
func (r *Reader) finish() error {
	h := r.h
	switch {
	case r.count != h.Count:
		return fmt.Errorf("%w: %d records, want %d", ErrTruncated, r.count, h.Count)
	case r.datumBytes != h.DatumBytes || r.maxBlock != h.MaxBlockBytes:
		return fmt.Errorf("records of %d bytes with blocks up to %d, want %d and %d", r.datumBytes, r.maxBlock, h.DatumBytes, h.MaxBlockBytes)
	case r.checksum != h.Checksum:
		return fmt.Errorf("checksum of the records is %016x, want %016x", r.checksum, h.Checksum)
	case r.minTs != h.MinTimestamp || r.maxTs != h.MaxTimestamp:
		return fmt.Errorf("timestamps from %d to %d, want %d to %d", r.minTs, r.maxTs, h.MinTimestamp, h.MaxTimestamp)
	}
	if h.Count > 0 && sha256.Sum256(r.datum) != [32]byte(h.LastHash) {
		return errors.New("hash of the last record is not the header's")
	}
	return nil
}

// decode reads one datum.
func (r *Reader) decode(rec *record.Record) error {
	c := &r.block
	key, err := c.nullable()
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	value, err := c.nullable()
	if err != nil {
		return fmt.Errorf("value: %w", err)
	}
	topic, err := c.bytes(math.MaxInt)
	if err != nil {
		return fmt.Errorf("topic: %w", err)
	}
	if string(topic) != r.h.Topic {
		return fmt.Errorf("topic %.100q is not the segment's", topic)
	}
	var v [4]int64
	for i := range v {
		if v[i], err = c.long(); err != nil {
			return err
		}
	}
	if v[0] != int64(r.h.Partition) {
		return fmt.Errorf("partition %d is not the segment's", v[0])
	}
	if want := r.want.peek(); v[1] != want {
		return fmt.Errorf("offset %d, want %d", v[1], want)
	}
	r.want.advance()
	if v[3] < -1 || v[3] > int64(record.LogAppendTime) {
		return fmt.Errorf("unknown timestamp type %d", v[3])
	}
	headers, err := r.decodeHeaders()
	if err != nil {
		return fmt.Errorf("headers: %w", err)
	}
	*rec = record.Record{
		Topic: r.h.Topic, Partition: r.h.Partition, Offset: v[1], Timestamp: v[2], TimestampType: record.TimestampType(v[3]),
		Key: key, Value: value, Headers: headers, LeaderEpoch: record.NoEpoch,
	}
	return nil
}

// nullable reads a union of null and bytes.
func (c *cursor) nullable() ([]byte, error) {
	if c.pos == len(c.b) {
		return nil, errShort
	}
	branch := c.b[c.pos]
	c.pos++
	switch branch {
	case 0:
		return nil, nil
	case 2:
		return c.bytes(math.MaxInt)
	default:
		return nil, fmt.Errorf("union branch byte %#x", branch)
	}
}

// How many distinct header keys a reader remembers, so that records share them, and how long ones.
const (
	maxKeys     = 256
	maxKeyShare = 128 // bytes
)

func (r *Reader) decodeHeaders() ([]record.Header, error) {
	c := &r.block
	n, err := c.long()
	if err != nil || n == 0 {
		return nil, err
	}
	if n < 0 || n > int64((len(c.b)-c.pos)/2) { // an empty key and a null value have two bytes
		return nil, fmt.Errorf("%d headers in %d bytes", n, len(c.b)-c.pos)
	}
	if int(n) > len(r.headers) {
		r.headers = make([]record.Header, max(int(n), 256))
	}
	hs := r.headers[:n:n]
	r.headers = r.headers[n:]
	for i := range hs {
		key, err := c.bytes(math.MaxInt)
		if err != nil {
			return nil, err
		}
		value, err := c.nullable()
		if err != nil {
			return nil, err
		}
		hs[i] = record.Header{Key: r.shareKey(key), Value: value}
	}
	end, err := c.long()
	if err == nil && end != 0 {
		err = errors.New("array does not end")
	}
	return hs, err
}

func (r *Reader) shareKey(b []byte) string {
	if s, ok := r.keys[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(b) <= maxKeyShare && len(r.keys) < maxKeys {
		if r.keys == nil {
			r.keys = map[string]string{}
		}
		r.keys[s] = s
	}
	return s
}
