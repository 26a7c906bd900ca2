package connect

import (
	"cmp"
	"slices"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/segment"
)

// object is one object of values with what belongs to it.
type object struct {
	Name
	key           string
	size          int64
	keys, headers string // objects of the same range, "" for none
	contents             // set by counting
}

func (o *object) next() int64 { return o.Start + o.count }

// piece is the part of an object that is taken: offsets [start, next).
type piece struct {
	*object
	start, next int64
}

// overlap: two objects hold offsets [from, to), as far as names and counts tell; those of first are taken.
type overlap struct {
	first, second *object
	from, to      int64
}

// tile chooses, for each offset, the object that it is taken from: the first in the order of start, then of count (the largest first), then of key.
// Offsets are start + row, so an object covers [start, start + count). Objects without records, or of which others cover everything, give no piece.
// The order in which a store lists them does not matter. Pure.
func tile(objects []*object) (pieces []piece, overlaps []overlap) {
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(a, b *object) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), -cmp.Compare(a.count, b.count), cmp.Compare(a.key, b.key))
	})
	covered := int64(-1) // pieces end here
	for _, o := range objects {
		if o.count == 0 {
			continue
		}
		if o.Start < covered {
			for i := len(pieces) - 1; i >= 0 && pieces[i].next > o.Start; i-- {
				if p := pieces[i]; max(p.start, o.Start) < min(p.next, o.next()) {
					overlaps = append(overlaps, overlap{p.object, o, max(p.start, o.Start), min(p.next, o.next())})
				}
			}
		}
		if from := max(o.Start, covered); from < o.next() {
			pieces = append(pieces, piece{o, from, o.next()})
			covered = o.next()
		}
	}
	return pieces, overlaps
}

// holes are the offsets of [from, until) that no piece holds.
func holes(pieces []piece, from, until int64) []segment.Skip {
	gaps := []segment.Skip{}
	at := from
	for _, p := range pieces {
		if p.start >= until {
			break
		}
		if p.start > at {
			gaps = append(gaps, segment.Skip{From: at, To: p.start, Class: archive.Unknown})
		}
		at = max(at, p.next)
	}
	if at < until {
		gaps = append(gaps, segment.Skip{From: at, To: until, Class: archive.Unknown})
	}
	return gaps
}
