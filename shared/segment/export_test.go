package segment

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// What tests use to make segments that no writer makes.

var (
	EncodeHeader = encodeHeader
	SyncMarker   = syncMarker
)

const (
	BlockBytes   = blockBytes
	MaxMetaValue = maxMetaValue
)

// Seal puts a valid beginning of count metadata entries (three of them its own) before rest, which follows the header's checksum.
func Seal(count int64, rest []byte) []byte {
	b := binary.AppendVarint([]byte(magic), count)
	b = appendMeta(b, keyFormat, []byte("1"))
	total := len(b) + len(appendMeta(nil, keyHeaderBytes, make([]byte, headerBytesDigits))) +
		len(appendMeta(nil, keyHeaderSum, make([]byte, sumDigits))) + len(rest)
	b = appendMeta(b, keyHeaderBytes, fmt.Appendf(nil, "%0*d", headerBytesDigits, total))
	b = appendMeta(b, keyHeaderSum, fmt.Appendf(nil, "%0*x", sumDigits, xxhash.Sum64(rest)))
	return append(b, rest...)
}

// Unseal is the inverse of Seal for a valid header.
func Unseal(head []byte) (count int64, rest []byte) {
	c := cursor{head, len(magic)}
	count, err := c.long()
	for range 6 { // three keys and values
		if err == nil {
			_, err = c.bytes(1 << 10)
		}
	}
	if err != nil {
		panic(err)
	}
	return count, head[c.pos:]
}

// Meta is one metadata entry.
type Meta struct{ Key, Value string }

// Entries splits rest into its entries and what follows them.
func Entries(count int64, rest []byte) (entries []Meta, end []byte) {
	c := cursor{rest, 0}
	for range count - 3 {
		k, err := c.bytes(len(rest))
		if err != nil {
			panic(err)
		}
		v, err := c.bytes(len(rest))
		if err != nil {
			panic(err)
		}
		entries = append(entries, Meta{string(k), string(v)})
	}
	return entries, rest[c.pos:]
}

// Join is the inverse of Entries, sealed.
func Join(entries []Meta, end []byte) []byte {
	var rest []byte
	for _, e := range entries {
		rest = appendMeta(rest, e.Key, []byte(e.Value))
	}
	return Seal(int64(len(entries)+3), append(rest, end...))
}
