// Package schema is the only importer of srclient: the Confluent wire format and a cached registry client.
package schema

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strconv"

	"tapedeck.dev/tapedeck/shared/record"
)

// wireBytes is the length of the wire format's prefix: magic byte and id.
const wireBytes = 5

// WireID reads the Confluent wire format: magic byte 0, then the schema id as 4 bytes big-endian, then the payload.
// ok is false where b does not start so: nil, short, another magic, or an id above 2^31−1, which is negative to the registry
// and never given. Bytes of another format may look like this by accident; only the registry knows.
func WireID(b []byte) (id int, payload []byte, ok bool) {
	if len(b) < wireBytes || b[0] != 0 {
		return 0, nil, false
	}
	n := binary.BigEndian.Uint32(b[1:wireBytes])
	if n > math.MaxInt32 {
		return 0, nil, false
	}
	return int(n), b[wireBytes:], true
}

// AppendWire appends magic byte and id (0 to 2^31−1) to dst; the payload follows.
func AppendWire(dst []byte, id int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0), uint32(id))
}

// Headers in which Confluent's serializers may put what names the schema, in place of the prefix of key or value.
const (
	KeyHeader   = "__key_schema_id"
	ValueHeader = "__value_schema_id"
)

const guidBytes = 16

// HeaderRef reads the value of a KeyHeader or ValueHeader. Confluent's format is a magic byte: 1, then a GUID as 16 bytes; or 0, then an id as 4
// bytes big-endian. Other writers put the plain id there: as decimal text (which goes first where both are possible), or as 4 or 8 bytes
// big-endian. ok is false for anything else.
func HeaderRef(b []byte) (ref Ref, ok bool) {
	switch {
	case len(b) == 1+guidBytes && b[0] == 1:
		return ByGUID(formatGUID(b[1:])), true
	case len(b) == wireBytes && b[0] == 0:
		id, _, ok := WireID(b)
		return Ref{ID: id}, ok
	}
	if id, ok := decimalID(b); ok {
		return Ref{ID: id}, true
	}
	var n uint64
	switch len(b) {
	case 4:
		n = uint64(binary.BigEndian.Uint32(b))
	case 8:
		n = binary.BigEndian.Uint64(b)
	default:
		return Ref{}, false
	}
	return Ref{ID: int(n)}, n <= math.MaxInt32
}

func decimalID(b []byte) (int, bool) {
	if len(b) == 0 || len(b) > 10 {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, n <= math.MaxInt32
}

// formatGUID writes 16 bytes as 8-4-4-4-12 lower-case hexadecimal digits.
func formatGUID(b []byte) string {
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// GlueFrame reads the frame of AWS Glue's serializers: magic byte 3, a compression byte (0 none, 5 zlib), the schema version's UUID as 16 bytes. What it
// names is in no Confluent registry, so it is only recognised and left as it is.
func GlueFrame(b []byte) (version string, ok bool) {
	if len(b) < 2+guidBytes || b[0] != 3 || b[1] != 0 && b[1] != 5 {
		return "", false
	}
	return formatGUID(b[2 : 2+guidBytes]), true
}

// Rewrite replaces the ids that r's key and value name, by the rules of Seen.Add: in the header that names it (in the form that it has there), or else in
// the prefix. to tells what an id becomes; ok false: it stays. r's own bytes are not touched, it gets copies. It reports whether anything changed.
func Rewrite(r *record.Record, to func(id int) (int, bool)) bool {
	changed := false
	for _, d := range []struct {
		bytes  *[]byte
		header string
	}{{&r.Key, KeyHeader}, {&r.Value, ValueHeader}} {
		if *d.bytes == nil {
			continue
		}
		if at, ref, ok := headerOf(r, d.header); ok {
			if id, ok := to(ref.ID); ok && ref.GUID == "" && id != ref.ID {
				r.Headers = slices.Clone(r.Headers)
				r.Headers[at].Value = headerWith(r.Headers[at].Value, id)
				changed = true
			}
			continue
		}
		old, payload, ok := WireID(*d.bytes)
		if !ok {
			continue
		}
		if id, ok := to(old); ok && id != old {
			*d.bytes = append(AppendWire(make([]byte, 0, wireBytes+len(payload)), id), payload...)
			changed = true
		}
	}
	return changed
}

// headerOf finds what the last header of a name says, where it can be read.
func headerOf(r *record.Record, name string) (at int, ref Ref, ok bool) {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == name {
			ref, ok := HeaderRef(r.Headers[i].Value)
			return i, ref, ok
		}
	}
	return -1, Ref{}, false
}

// headerWith writes id in the form of old, which HeaderRef can read.
func headerWith(old []byte, id int) []byte {
	switch _, text := decimalID(old); {
	case text:
		return strconv.AppendInt(nil, int64(id), 10)
	case len(old) == wireBytes:
		return AppendWire(nil, id)
	case len(old) == 4:
		return binary.BigEndian.AppendUint32(nil, uint32(id))
	}
	return binary.BigEndian.AppendUint64(nil, uint64(id))
}
