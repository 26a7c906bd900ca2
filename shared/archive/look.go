package archive

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/shared/store"
)

// Why a planned segment will not be readable as planned.
const (
	DoubtGone = "gone" // no object of its name
	DoubtSize = "size" // of another size than the one recorded when it was written: damaged, or another object
	DoubtCold = "cold" // in a storage class from which it must be restored first
)

// Doubt is a planned segment that a look at the store finds unreadable.
type Doubt struct {
	Key   string `json:"key"`
	Start int64  `json:"start"`
	Next  int64  `json:"next"`
	Why   string `json:"why"`             // Doubt…
	Class string `json:"class,omitempty"` // the storage class, with DoubtCold
}

// coldChecks bounds how many objects of cold classes are asked for one by one; what comes after is believed to be cold.
const coldChecks = 1000

// Look compares a plan's segments with a listing of the store. It tells what a listing can: objects that are gone, of another size, or in a cold storage class
// (those are tried, since one may have been restored for some days). Damage inside an object of the right size is found when it is read.
//
// Calls: one LIST per 1,000 segments, and one GET of a byte for each of the first 1,000 objects in a cold class.
func (a *Archive) Look(ctx context.Context, p *PartitionPlan) ([]Doubt, error) {
	if len(p.Segments) == 0 {
		return nil, nil
	}
	tp := p.chain()
	there := make(map[int64]found, len(p.Segments))
	for from, end := p.Segments[0].Start, p.Segments[len(p.Segments)-1].Next; ; {
		page, more, err := a.segmentsFrom(ctx, tp, from, len(p.Segments))
		if err != nil {
			return nil, fmt.Errorf("look at the segments of %s: %w", tp, err)
		}
		for _, f := range page {
			there[f.start] = f
		}
		if len(page) == 0 || !more || page[len(page)-1].start >= end {
			break
		}
		from = page[len(page)-1].start + 1
	}
	doubts := make([]*Doubt, len(p.Segments))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	cold := 0
	for i, s := range p.Segments {
		f, ok := there[s.Start]
		d := &Doubt{Key: s.Key, Start: s.Start, Next: s.Next}
		switch {
		case !ok:
			d.Why = DoubtGone
		case f.size != s.Bytes:
			d.Why = DoubtSize
		case store.ColdClass(f.class):
			d.Why, d.Class = DoubtCold, f.class
			if cold++; cold > coldChecks {
				break
			}
			g.Go(func() error {
				_, _, err := a.st.GetRange(gctx, s.Key, 0, 1)
				switch {
				case err == nil: // restored for now
				case errors.Is(err, store.ErrCold):
					doubts[i] = d
				default:
					return fmt.Errorf("look at %s: %w", s.Key, err)
				}
				return nil
			})
			continue
		default:
			continue
		}
		doubts[i] = d
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []Doubt
	for _, d := range doubts {
		if d != nil {
			out = append(out, *d)
		}
	}
	return out, nil
}
