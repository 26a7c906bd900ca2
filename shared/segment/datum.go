package segment

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"tapedeck.dev/tapedeck/shared/record"
)

// RecordSchema is the Avro schema of every segment: the columns of Spark's Kafka source.
const RecordSchema = `{"type":"record","name":"Record","namespace":"dev.tapedeck","fields":[` +
	`{"name":"key","type":["null","bytes"]},` +
	`{"name":"value","type":["null","bytes"]},` +
	`{"name":"topic","type":"string"},` +
	`{"name":"partition","type":"int"},` +
	`{"name":"offset","type":"long"},` +
	`{"name":"timestamp","type":{"type":"long","logicalType":"timestamp-millis"}},` +
	`{"name":"timestampType","type":"int"},` +
	`{"name":"headers","type":{"type":"array","items":{"type":"record","name":"Header","fields":[` +
	`{"name":"key","type":"string"},` +
	`{"name":"value","type":["null","bytes"]}]}}}]}`

// minDatumBytes is the smallest possible datum: null key and value, one byte of topic, one byte for each other field.
const minDatumBytes = 9

// Size is the encoded size of r in bytes, uncompressed: what Append returns.
func Size(r *record.Record) int {
	n := sizeNullable(r.Key) + sizeNullable(r.Value) +
		sizeLong(int64(len(r.Topic))) + len(r.Topic) +
		sizeLong(int64(r.Partition)) + sizeLong(r.Offset) + sizeLong(r.Timestamp) + sizeLong(int64(r.TimestampType)) + 1
	if len(r.Headers) > 0 {
		n += sizeLong(int64(len(r.Headers)))
		for i := range r.Headers {
			h := &r.Headers[i]
			n += sizeLong(int64(len(h.Key))) + len(h.Key) + sizeNullable(h.Value)
		}
	}
	return n
}

func sizeNullable(b []byte) int {
	if b == nil {
		return 1
	}
	return 1 + sizeLong(int64(len(b))) + len(b)
}

func sizeLong(v int64) int {
	n := 1
	for u := uint64(v)<<1 ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

// AppendDatum appends r's encoded datum (FORMAT.md) to dst.
func AppendDatum(dst []byte, r *record.Record) []byte {
	dst = appendNullable(dst, r.Key)
	dst = appendNullable(dst, r.Value)
	dst = appendString(dst, r.Topic)
	dst = binary.AppendVarint(dst, int64(r.Partition)) // AppendVarint's zigzag is Avro's
	dst = binary.AppendVarint(dst, r.Offset)
	dst = binary.AppendVarint(dst, r.Timestamp)
	dst = binary.AppendVarint(dst, int64(r.TimestampType))
	if len(r.Headers) > 0 {
		dst = binary.AppendVarint(dst, int64(len(r.Headers)))
		for i := range r.Headers {
			dst = appendString(dst, r.Headers[i].Key)
			dst = appendNullable(dst, r.Headers[i].Value)
		}
	}
	return append(dst, 0)
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0)
	}
	dst = append(dst, 2)
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendVarint(dst, int64(len(s)))
	return append(dst, s...)
}

// Hash is the SHA-256 of r's encoded datum (FORMAT.md); it includes topic, partition and offset.
func Hash(r *record.Record) [32]byte { return sha256.Sum256(AppendDatum(nil, r)) }

// Checksum is the xxHash64 of a datum. The checksum of a set of records is the sum of theirs modulo 2^64, so that it can be
// carried on from any point.
func Checksum(datum []byte) uint64 { return xxhash.Sum64(datum) }
