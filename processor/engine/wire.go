package engine

import "encoding/binary"

// wireID reads the Confluent wire format: magic byte 0, then the schema id as 4 bytes big-endian, then the datum.
func wireID(b []byte) (id int, payload []byte, ok bool) {
	if len(b) < 5 || b[0] != 0 {
		return 0, nil, false
	}
	return int(int32(binary.BigEndian.Uint32(b[1:5]))), b[5:], true
}
