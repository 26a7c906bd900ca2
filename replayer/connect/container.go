package connect

import (
	"bytes"
	"compress/bzip2"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/twmb/avro"
)

// Bounds of what is read: an object, a block of it unpacked, and its schema.
const (
	maxObjectBytes = 1 << 30
	maxBlockBytes  = 256 << 20
	maxMetaBytes   = 16 << 20
	maxRows        = 1 << 28
)

const containerMagic = "Obj\x01"

// container reads an Avro Object Container File (the Avro specification, "Object Container Files") datum by datum and keeps the bytes of each
// as they are: a datum in a container and one in the registry's wire format are the same bytes, so nothing is encoded again.
type container struct {
	object string
	rest   []byte // not read yet
	size   int    // of the object
	text   string // of the schema
	schema *avro.Schema
	codec  string
	sync   [16]byte

	block []byte // datums not read yet
	left  int64  // how many
	row   int64  // of the next datum
}

// DamagedError says what is wrong with an object of a foreign archive, and where.
type DamagedError struct {
	Object string
	At     int // byte position
	Err    error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("object %s: at byte %d: %v", e.Object, e.At, e.Err)
}

// DamagedAt is At, for those who know only that an object can be damaged.
func (e *DamagedError) DamagedAt() int64 { return int64(e.At) }

// Unwrap returns Err.
func (e *DamagedError) Unwrap() error { return e.Err }

func (c *container) damaged(format string, args ...any) error {
	return &DamagedError{c.object, c.size - len(c.rest), fmt.Errorf(format, args...)}
}

var errTruncated = errors.New("the object ends too early")

// openContainer reads the header. The object's bytes are kept, not copied.
func openContainer(object string, data []byte) (*container, error) {
	c := &container{object: object, rest: data, size: len(data), codec: "null"}
	if !bytes.HasPrefix(data, []byte(containerMagic)) {
		return nil, c.damaged("not an Avro Object Container File (it begins with %.8q)", data)
	}
	c.rest = data[len(containerMagic):]
	for {
		n, err := c.long()
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		if n < 0 { // the size of the block in bytes follows
			if n == -n {
				return nil, c.damaged("metadata of %d entries", n)
			}
			n = -n
			if _, err := c.long(); err != nil {
				return nil, err
			}
		}
		for range n {
			key, err := c.bytes(maxMetaBytes)
			if err != nil {
				return nil, err
			}
			value, err := c.bytes(maxMetaBytes)
			if err != nil {
				return nil, err
			}
			switch string(key) {
			case "avro.schema":
				c.text = string(value)
			case "avro.codec":
				c.codec = string(value)
			case "tapedeck.format":
				return nil, refused("object %s is a segment of Tapedeck's own archive: set store.layout to tapedeck", object)
			}
		}
	}
	if c.text == "" {
		return nil, c.damaged("no avro.schema in the metadata")
	}
	s, err := parseSchema(c.text)
	if err != nil {
		return nil, c.damaged("avro.schema: %w", err)
	}
	c.schema = s
	if _, known := unpackers[c.codec]; !known {
		return nil, c.damaged("avro.codec %q is none of null, deflate, snappy, bzip2, zstandard", c.codec)
	}
	if len(c.rest) < len(c.sync) {
		return nil, c.damaged("%w", errTruncated)
	}
	c.rest = c.rest[copy(c.sync[:], c.rest):]
	return c, nil
}

// parseSchema allows any names: Connect's need not be Avro's.
func parseSchema(text string) (*avro.Schema, error) { return avro.Parse(text, avro.WithLaxNames(nil)) }

func (c *container) long() (int64, error) {
	v, n := binary.Varint(c.rest)
	if n <= 0 {
		if n == 0 {
			return 0, c.damaged("%w", errTruncated)
		}
		return 0, c.damaged("a number of more than 64 bits")
	}
	c.rest = c.rest[n:]
	return v, nil
}

func (c *container) bytes(limit int64) ([]byte, error) {
	n, err := c.long()
	switch {
	case err != nil:
		return nil, err
	case n < 0 || n > limit:
		return nil, c.damaged("a length of %d bytes (at most %d)", n, limit)
	case n > int64(len(c.rest)):
		return nil, c.damaged("%w", errTruncated)
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b, nil
}

// nextBlock reads the head of a block, and checks its end. io.EOF at the end of the object.
func (c *container) nextBlock() (count int64, packed []byte, err error) {
	if len(c.rest) == 0 {
		return 0, nil, io.EOF
	}
	if count, err = c.long(); err != nil {
		return 0, nil, err
	}
	if count < 0 || count > maxRows {
		return 0, nil, c.damaged("a block of %d records", count)
	}
	if packed, err = c.bytes(maxObjectBytes); err != nil {
		return 0, nil, err
	}
	if len(c.rest) < len(c.sync) {
		return 0, nil, c.damaged("%w", errTruncated)
	}
	if !bytes.Equal(c.rest[:len(c.sync)], c.sync[:]) {
		return 0, nil, c.damaged("the block's sync marker is not the object's")
	}
	c.rest = c.rest[len(c.sync):]
	return count, packed, nil
}

// count returns how many records the object holds, by the heads of its blocks; nothing is unpacked.
func (c *container) count() (int64, error) {
	var total int64
	for {
		n, _, err := c.nextBlock()
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return 0, err
		}
		if total += n; total > maxRows {
			return 0, c.damaged("more than %d records", maxRows)
		}
	}
}

// next returns the next datum and what it says. The bytes are valid until the following call. io.EOF at the end.
func (c *container) next() (datum []byte, v any, err error) {
	for c.left == 0 {
		n, packed, err := c.nextBlock()
		if err != nil {
			return nil, nil, err
		}
		if c.block, err = unpackers[c.codec](packed); err != nil {
			return nil, nil, c.damaged("unpack a block (%s): %w", c.codec, err)
		}
		c.left = n
		if n == 0 && len(c.block) > 0 {
			return nil, nil, c.damaged("a block of no records holds %d bytes", len(c.block))
		}
	}
	rest, err := c.schema.Decode(c.block, &v)
	if err != nil {
		return nil, nil, c.damaged("record %d does not fit the object's schema: %w", c.row, err)
	}
	datum, c.block = c.block[:len(c.block)-len(rest)], rest
	c.left--
	c.row++
	if c.left == 0 && len(rest) > 0 {
		return nil, nil, c.damaged("%d bytes follow the last record of a block", len(rest))
	}
	return datum, v, nil
}

var unpackers = map[string]func([]byte) ([]byte, error){
	"null":      func(b []byte) ([]byte, error) { return b, nil },
	"deflate":   func(b []byte) ([]byte, error) { return readBounded(flate.NewReader(bytes.NewReader(b))) },
	"bzip2":     func(b []byte) ([]byte, error) { return readBounded(bzip2.NewReader(bytes.NewReader(b))) },
	"snappy":    unpackSnappy,
	"zstandard": unpackZstd,
}

var errTooLarge = fmt.Errorf("more than %d bytes", int64(maxBlockBytes))

// readBounded reads all of r, and refuses to pass the bound.
func readBounded(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxBlockBytes+1))
	if err == nil && len(b) > maxBlockBytes {
		err = errTooLarge
	}
	return b, err
}

func unpackSnappy(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, errTruncated
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if n, err := snappy.DecodedLen(body); err != nil || n > maxBlockBytes {
		return nil, errors.Join(errTooLarge, err)
	}
	out, err := snappy.Decode(nil, body)
	if err == nil && crc32.ChecksumIEEE(out) != sum {
		err = errors.New("the checksum does not fit")
	}
	return out, err
}

func unpackZstd(b []byte) ([]byte, error) {
	d, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBlockBytes))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return readBounded(d)
}
