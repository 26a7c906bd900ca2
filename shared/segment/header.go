package segment

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"tapedeck.dev/tapedeck/shared/record"
)

const magic = "Obj\x01"

// The metadata keys, in the order in which they stand in the file. Numbered keys may be absent or many.
const (
	keyFormat      = "tapedeck.format"
	keyHeaderBytes = "tapedeck.header.bytes"
	keyHeaderSum   = "tapedeck.header.xxh64"
	keyCluster     = "tapedeck.cluster.id"
	keyTopicID     = "tapedeck.topic.id"
	keyTopic       = "tapedeck.topic"
	keyPartition   = "tapedeck.partition"
	keyIsolation   = "tapedeck.isolation"
	keyStart       = "tapedeck.start"
	keyNext        = "tapedeck.next"
	keyOrdinal     = "tapedeck.ordinal"
	keyCount       = "tapedeck.count"
	keyDatumBytes  = "tapedeck.datum.bytes"
	keyBlockMax    = "tapedeck.block.bytes.max"
	keyChecksum    = "tapedeck.checksum"
	keyTsMin       = "tapedeck.timestamp.min"
	keyTsMax       = "tapedeck.timestamp.max"
	keyTsRunning   = "tapedeck.timestamp.running.max"
	keyLastOffset  = "tapedeck.last.offset"
	keyLastEpoch   = "tapedeck.last.epoch"
	keyLastHash    = "tapedeck.last.hash"
	keyRows        = "tapedeck.rows"
	keySkips       = "tapedeck.skips."  // + 6 digits
	keySchema      = "tapedeck.schema." // + 6 digits, + "." and 6 digits for what does not fit one value
	keyOptional    = "tapedeck.opt."    // what a later writer of this version may add and a reader may ignore
	keyAvroSchema  = "avro.schema"
	keyAvroCodec   = "avro.codec"
)

const (
	headerBytesDigits = 12 // fixed, so that the value does not change the length that it tells
	sumDigits         = 16
)

// syncMarker is derived, not random, so that the same segment has the same bytes.
func syncMarker(cluster, topicID string, partition int32, start int64) [16]byte {
	var b []byte
	for _, s := range []string{cluster, topicID} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(partition))
	b = binary.BigEndian.AppendUint64(b, uint64(start))
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}

type meta struct {
	key   string
	value []byte
}

// encodeHeader returns the first bytes of a segment, up to its first block. h has been checked.
func encodeHeader(h *Header) ([]byte, error) {
	var m []meta
	text := func(key, value string) { m = append(m, meta{key, []byte(value)}) }
	number := func(key string, v int64) { text(key, strconv.FormatInt(v, 10)) }

	text(keyCluster, h.ClusterID)
	text(keyTopicID, h.TopicID)
	text(keyTopic, h.Topic)
	number(keyPartition, int64(h.Partition))
	text(keyIsolation, h.Isolation)
	number(keyStart, h.Start)
	number(keyNext, h.Next)
	number(keyOrdinal, h.Ordinal)
	number(keyCount, h.Count)
	number(keyDatumBytes, h.DatumBytes)
	number(keyBlockMax, h.MaxBlockBytes)
	text(keyChecksum, fmt.Sprintf("%0*x", sumDigits, h.Checksum))
	number(keyTsMin, h.MinTimestamp)
	number(keyTsMax, h.MaxTimestamp)
	number(keyTsRunning, h.RunningMaxTimestamp)
	number(keyLastOffset, h.LastOffset)
	number(keyLastEpoch, int64(h.LastEpoch))
	text(keyLastHash, hex.EncodeToString(h.LastHash))
	// Binary values are base64: some readers (fastavro) take every metadata value for UTF-8.
	text(keyRows, base64.StdEncoding.EncodeToString(encodeRows(h.Rows)))
	for i, chunk := range encodeSkips(h.Skipped, h.Start) {
		text(fmt.Sprintf("%s%06d", keySkips, i), base64.StdEncoding.EncodeToString(chunk))
	}
	for i := range h.Schemas {
		for j, c := range encodeSchema(&h.Schemas[i]) {
			key := fmt.Sprintf("%s%06d", keySchema, i)
			if j > 0 {
				key += fmt.Sprintf(".%06d", j)
			}
			m = append(m, meta{key, c})
		}
	}
	text(keyAvroSchema, RecordSchema)
	text(keyAvroCodec, h.Codec)

	var rest []byte // behind the header's checksum
	for _, e := range m {
		rest = appendMeta(rest, e.key, e.value)
	}
	rest = append(rest, 0) // the map has one block
	sync := syncMarker(h.ClusterID, h.TopicID, h.Partition, h.Start)
	rest = append(rest, sync[:]...)

	b := append([]byte(nil), magic...)
	b = binary.AppendVarint(b, int64(len(m)+3))
	b = appendMeta(b, keyFormat, []byte(strconv.Itoa(h.FormatVersion)))
	sumEntry := len(appendMeta(nil, keyHeaderSum, make([]byte, sumDigits)))
	total := len(b) + len(appendMeta(nil, keyHeaderBytes, make([]byte, headerBytesDigits))) + sumEntry + len(rest)
	if total > MaxHeaderBytes {
		return nil, fmt.Errorf("header of %d bytes is larger than %d: end segments earlier", total, MaxHeaderBytes)
	}
	b = appendMeta(b, keyHeaderBytes, fmt.Appendf(nil, "%0*d", headerBytesDigits, total))
	b = appendMeta(b, keyHeaderSum, fmt.Appendf(nil, "%0*x", sumDigits, xxhash.Sum64(rest)))
	return append(b, rest...), nil
}

func appendMeta(dst []byte, key string, value []byte) []byte {
	dst = appendString(dst, key)
	dst = binary.AppendVarint(dst, int64(len(value)))
	return append(dst, value...)
}

// encodeRows encodes rows as an Avro array of records of five longs.
func encodeRows(rows []Row) []byte {
	var b []byte
	if len(rows) > 0 {
		b = binary.AppendVarint(b, int64(len(rows)))
		for _, r := range rows {
			for _, v := range []int64{r.Start, r.Count, r.Bytes, r.MinTimestamp, r.MaxTimestamp} {
				b = binary.AppendVarint(b, v)
			}
		}
	}
	return append(b, 0)
}

// encodeSkips encodes skipped ranges as Avro arrays of records {gap, length, class}, as many as the length of a value asks for.
// gap counts from the end of the range before, or from start.
func encodeSkips(skips []Skip, start int64) [][]byte {
	const perItem = 10 + 10 + 1              // at most, in bytes
	const budget = maxMetaValue/4*3 - 10 - 1 // of base64's input, without count and end
	var chunks [][]byte
	at := start
	for len(skips) > 0 {
		var items []byte
		n := 0
		for n < len(skips) && len(items)+perItem <= budget {
			s := skips[n]
			items = binary.AppendVarint(items, s.From-at)
			items = binary.AppendVarint(items, s.To-s.From)
			items = binary.AppendVarint(items, int64(classNumber(s.Class)))
			at = s.To
			n++
		}
		chunk := binary.AppendVarint(make([]byte, 0, len(items)+11), int64(n))
		chunk = append(append(chunk, items...), 0)
		chunks = append(chunks, chunk)
		skips = skips[n:]
	}
	return chunks
}

// schemaJSON encodes s without escaping more than JSON asks for.
func schemaJSON(s *Schema) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // strings and integers can always be encoded
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// encodeSchema encodes s as JSON, in pieces that end between UTF-8 characters.
func encodeSchema(s *Schema) [][]byte {
	b := schemaJSON(s)
	var chunks [][]byte
	for len(b) > maxMetaValue {
		n := maxMetaValue
		for !utf8.RuneStart(b[n]) {
			n--
		}
		chunks = append(chunks, b[:n])
		b = b[n:]
	}
	return append(chunks, b)
}

// check says whether h can be a segment's header. Writer and reader both ask it.
func (h *Header) check() error {
	if err := h.Identity().check(); err != nil {
		return err
	}
	switch {
	case h.Start < 0 || h.Next <= h.Start:
		return fmt.Errorf("range [%d,%d) is not a range of offsets", h.Start, h.Next)
	case h.Ordinal < 0:
		return fmt.Errorf("ordinal %d is negative", h.Ordinal)
	case h.Count < 0:
		return fmt.Errorf("count %d is negative", h.Count)
	case h.MinTimestamp > h.MaxTimestamp:
		return fmt.Errorf("minimum timestamp %d is above the maximum %d", h.MinTimestamp, h.MaxTimestamp)
	case h.RunningMaxTimestamp < -1:
		return fmt.Errorf("running maximum timestamp %d is below -1", h.RunningMaxTimestamp)
	}
	last, err := checkSkips(h.Skipped, h.Start, h.Next, h.Count)
	if err != nil {
		return err
	}
	if h.Count == 0 {
		switch {
		case h.MinTimestamp != 0 || h.MaxTimestamp != 0 || h.DatumBytes != 0 || h.MaxBlockBytes != 0 || h.Checksum != 0:
			return errors.New("a segment without records has sizes, timestamps or a checksum")
		case h.LastOffset < -1 || h.LastOffset >= h.Start:
			return fmt.Errorf("last offset %d is not before start %d of a segment without records", h.LastOffset, h.Start)
		}
	} else {
		switch {
		case h.LastOffset != last:
			return fmt.Errorf("last offset is %d, but range and skipped ranges say %d", h.LastOffset, last)
		case h.MaxTimestamp > h.RunningMaxTimestamp:
			return fmt.Errorf("maximum timestamp %d is above the running maximum %d", h.MaxTimestamp, h.RunningMaxTimestamp)
		case h.MaxBlockBytes > MaxBlockBytes || h.MaxBlockBytes > h.DatumBytes || h.MaxBlockBytes < minDatumBytes:
			return fmt.Errorf("largest block of %d bytes, %d bytes in all", h.MaxBlockBytes, h.DatumBytes)
		case h.Count > h.DatumBytes/minDatumBytes:
			return fmt.Errorf("%d records in %d bytes", h.Count, h.DatumBytes)
		}
	}
	if (h.LastOffset >= 0) != (len(h.LastHash) == sha256.Size) || h.LastOffset < 0 && len(h.LastHash) != 0 {
		return fmt.Errorf("last offset %d with a hash of %d bytes", h.LastOffset, len(h.LastHash))
	}
	if h.LastEpoch < record.NoEpoch || h.LastOffset < 0 && h.LastEpoch != record.NoEpoch {
		return fmt.Errorf("last offset %d with leader epoch %d", h.LastOffset, h.LastEpoch)
	}
	if err := checkRows(h.Rows, h.Ordinal, h.Start); err != nil {
		return err
	}
	if !slices.IsSortedFunc(h.Schemas, compareSchemas) {
		return errors.New("schemas are not in order")
	}
	if _, err := codecByName(h.Codec); err != nil {
		return err
	}
	return nil
}

func (id LogIdentity) check() error {
	switch {
	case len(id.ClusterID) > maxTextBytes || !utf8.ValidString(id.ClusterID):
		return fmt.Errorf("cluster id %.100q is too long or not UTF-8", id.ClusterID)
	case len(id.TopicID) > maxTextBytes || !utf8.ValidString(id.TopicID):
		return fmt.Errorf("topic id %.100q is too long or not UTF-8", id.TopicID)
	case !ValidTopic(id.Topic):
		return fmt.Errorf("%.300q is not a topic name", id.Topic)
	case id.Partition < 0:
		return fmt.Errorf("partition %d is negative", id.Partition)
	case id.Isolation != ReadCommitted && id.Isolation != ReadUncommitted:
		return fmt.Errorf("isolation %.100q is neither %s nor %s", id.Isolation, ReadCommitted, ReadUncommitted)
	}
	return nil
}

// The values of LogIdentity.Isolation, Kafka's names.
const (
	ReadCommitted   = "read_committed"
	ReadUncommitted = "read_uncommitted"
)

// compareSchemas orders by (ID, GUID); the JSON only makes the order complete.
func compareSchemas(a, b Schema) int {
	if c := cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.GUID, b.GUID)); c != 0 {
		return c
	}
	return bytes.Compare(schemaJSON(&a), schemaJSON(&b))
}
