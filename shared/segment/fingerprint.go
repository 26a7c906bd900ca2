package segment

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Fingerprint tells texts of one id apart: 32 hexadecimal digits, from a SHA-256 over type, text and references. Id, subject and version are not in
// it: the same text under another name reads the same bytes.
func (s *Schema) Fingerprint() string {
	h := sha256.New()
	text := func(v string) {
		h.Write(binary.AppendUvarint(nil, uint64(len(v))))
		h.Write([]byte(v))
	}
	text(s.Type)
	text(s.Text)
	for _, r := range s.References {
		text(r.Name)
		text(r.Text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
