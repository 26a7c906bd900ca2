package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// The codecs of a segment, by their names in avro.codec.
const (
	CodecNull    = "null"
	CodecDeflate = "deflate"
	CodecSnappy  = "snappy"
	CodecZstd    = "zstandard"
)

const deflateLevel = 6

// codec compresses one block at a time. Both functions are safe for concurrent use.
type codec struct {
	name string
	// compress appends the compressed src to dst. The result depends on src alone.
	compress func(dst, src []byte) ([]byte, error)
	// decompress returns a new slice of at most limit bytes, or src itself (null).
	decompress func(src []byte, limit int64) ([]byte, error)
}

var codecs = map[string]codec{
	CodecNull:    {CodecNull, func(dst, src []byte) ([]byte, error) { return append(dst, src...), nil }, copyNothing},
	CodecDeflate: {CodecDeflate, deflateCompress, deflateDecompress},
	CodecSnappy:  {CodecSnappy, snappyCompress, snappyDecompress},
	CodecZstd:    {CodecZstd, zstdCompress, zstdDecompress},
}

func codecByName(name string) (codec, error) {
	c, ok := codecs[name]
	if !ok {
		return codec{}, fmt.Errorf("unknown codec %q: use %s, %s, %s or %s", name, CodecZstd, CodecSnappy, CodecDeflate, CodecNull)
	}
	return c, nil
}

func tooLarge(limit int64) error {
	return fmt.Errorf("block is larger than the %d bytes that the header allows", limit)
}

func copyNothing(src []byte, limit int64) ([]byte, error) {
	if int64(len(src)) > limit {
		return nil, tooLarge(limit)
	}
	return src[:len(src):len(src)], nil
}

// The encoders are pooled, since each owns tables of some hundred KiB, and single-threaded, since the order in which parallel
// encoders finish must not reach the bytes.
var (
	zstdEncoders = sync.Pool{New: func() any {
		return must(zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault),
			zstd.WithEncoderCRC(true), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true)))
	}}
	zstdDecoders = sync.Pool{New: func() any {
		// The capacity of the destination is the limit, so one decoder serves every limit.
		return must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderMaxMemory(MaxBlockBytes)))
	}}
	flateWriters = sync.Pool{New: func() any { return must(flate.NewWriter(io.Discard, deflateLevel)) }}
	flateReaders = sync.Pool{New: func() any { return flate.NewReader(bytes.NewReader(nil)) }}
)

// must is for constructors that fail only on bad options; here the options are constants.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func zstdCompress(dst, src []byte) ([]byte, error) {
	e := zstdEncoders.Get().(*zstd.Encoder)
	defer zstdEncoders.Put(e)
	return e.EncodeAll(src, dst), nil
}

func zstdDecompress(src []byte, limit int64) ([]byte, error) {
	var fh zstd.Header
	if err := fh.Decode(src); err != nil {
		return nil, fmt.Errorf("zstandard frame: %w", err)
	}
	size := limit
	if fh.HasFCS {
		if fh.FrameContentSize > uint64(limit) {
			return nil, tooLarge(limit)
		}
		size = int64(fh.FrameContentSize)
	}
	d := zstdDecoders.Get().(*zstd.Decoder)
	defer zstdDecoders.Put(d)
	b, err := d.DecodeAll(src, make([]byte, 0, size))
	if err != nil {
		return nil, fmt.Errorf("zstandard: %w", err)
	}
	return b, nil
}

// appender is an io.Writer onto a slice.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

func deflateCompress(dst, src []byte) ([]byte, error) {
	w := flateWriters.Get().(*flate.Writer)
	defer flateWriters.Put(w)
	a := &appender{dst}
	w.Reset(a)
	if _, err := w.Write(src); err != nil {
		return nil, fmt.Errorf("deflate: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("deflate: %w", err)
	}
	w.Reset(io.Discard) // the pool must not keep the caller's memory
	return a.b, nil
}

func deflateDecompress(src []byte, limit int64) ([]byte, error) {
	r := flateReaders.Get().(io.ReadCloser)
	defer flateReaders.Put(r)
	in := bytes.NewReader(src)
	if err := r.(flate.Resetter).Reset(in, nil); err != nil {
		return nil, fmt.Errorf("deflate: %w", err)
	}
	out := make([]byte, 0, min(limit, max(blockBytes+blockBytes/8, int64(len(src)))))
	for {
		if len(out) == cap(out) {
			// One byte past the limit shows that the block is too large.
			if int64(len(out)) > limit {
				return nil, tooLarge(limit)
			}
			grown := make([]byte, len(out), min(limit+1, int64(2*cap(out)+512)))
			copy(grown, out)
			out = grown
		}
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("deflate: %w", err)
		}
	}
	if int64(len(out)) > limit {
		return nil, tooLarge(limit)
	}
	if in.Len() > 0 {
		return nil, fmt.Errorf("deflate: %d bytes after the end of the stream", in.Len())
	}
	return out, nil
}

func snappyCompress(dst, src []byte) ([]byte, error) {
	if int64(len(src)) > MaxBlockBytes {
		return nil, tooLarge(MaxBlockBytes)
	}
	at := len(dst)
	dst = slices.Grow(dst, snappy.MaxEncodedLen(len(src))+4)
	dst = dst[:at+len(snappy.Encode(dst[at:cap(dst)], src))]
	return binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(src)), nil
}

func snappyDecompress(src []byte, limit int64) ([]byte, error) {
	if len(src) < 4 {
		return nil, errors.New("snappy: block is shorter than its checksum")
	}
	body, sum := src[:len(src)-4], binary.BigEndian.Uint32(src[len(src)-4:])
	size, err := snappy.DecodedLen(body)
	if err != nil {
		return nil, fmt.Errorf("snappy: %w", err)
	}
	if int64(size) > limit {
		return nil, tooLarge(limit)
	}
	b, err := snappy.Decode(nil, body)
	if err != nil {
		return nil, fmt.Errorf("snappy: %w", err)
	}
	if crc32.ChecksumIEEE(b) != sum {
		return nil, errors.New("snappy: checksum does not match")
	}
	return b, nil
}
