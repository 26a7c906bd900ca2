package segment

// buffer is a growing run of bytes in pieces, so that growing neither copies what is there nor doubles it.
type buffer struct {
	full [][]byte
	last []byte
	size int64 // bytes written
	held int64 // bytes of memory
}

const (
	minPiece = 16 << 10
	maxPiece = 1 << 20
)

// write appends a copy of p.
func (b *buffer) write(p []byte) {
	b.size += int64(len(p))
	for len(p) > 0 {
		free := cap(b.last) - len(b.last)
		if free == 0 {
			if b.last != nil {
				b.full = append(b.full, b.last)
			}
			// A piece about as large as what is held wastes half at most, however small the segment.
			free = int(min(max(b.held, minPiece), maxPiece))
			b.last = make([]byte, 0, free)
			b.held += int64(free)
		}
		n := min(free, len(p))
		b.last = append(b.last, p[:n]...)
		p = p[n:]
	}
}

// appendTo appends everything to dst.
func (b *buffer) appendTo(dst []byte) []byte {
	for _, p := range b.full {
		dst = append(dst, p...)
	}
	return append(dst, b.last...)
}
