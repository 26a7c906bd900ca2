// Package schema is the only importer of srclient: the Confluent wire format and a cached registry client.
package schema

import (
	"encoding/binary"
	"math"
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
