package restore

import (
	"context"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/run"
)

// work is one planned segment, loaded; seg is nil where none of it has to be sent.
type work struct {
	part *part
	next int64 // first offset after it
	seg  *run.Segment
}

// load reads the segments of a lane and hands them over: in order per partition, and among partitions that which is furthest behind in record time, so
// that a merging reader of the target has little to wait for. It joins the archive's proof. What is committed and proved already is not read again.
func (x *execution) load(ctx context.Context, lane int, out chan<- *work) error {
	type reader struct {
		p    *part
		i    int
		last int64 // largest timestamp so far
	}
	var readers []*reader
	for _, p := range x.parts {
		if p.lane != lane {
			continue
		}
		r := &reader{p: p, i: x.unread(p), last: -1}
		if r.i < len(p.segs) {
			readers = append(readers, r)
		}
	}
	for len(readers) > 0 {
		at := 0
		for i, r := range readers {
			if r.last < readers[at].last {
				at = i
			}
		}
		r := readers[at]
		w, err := x.loadOne(ctx, r.p, r.i)
		if err != nil {
			return err
		}
		if w.seg != nil {
			r.last = max(r.last, w.seg.MaxTs)
		}
		select {
		case out <- w:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if r.i++; r.i == len(r.p.segs) {
			readers = append(readers[:at], readers[at+1:]...)
		}
	}
	return nil
}

// unread is the index of the first segment of p that is not both committed and proved.
func (x *execution) unread(p *part) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	need, i := min(p.verified, p.state.Next), 0
	for i < len(p.segs) && min(p.segs[i].Next, p.rng.Until) <= need {
		i++
	}
	return i
}

func (x *execution) loadOne(ctx context.Context, p *part, i int) (*work, error) {
	ps := p.segs[i]
	w, proof := &work{part: p, next: ps.Next}, job.EmptyProof()
	if ps.Count > 0 && !ps.Outside {
		seg, err := x.d.runner.LoadSegment(ctx, &p.rng, x.keep, i, ps, x.bounds)
		if err != nil {
			return nil, err
		}
		x.d.runner.Metrics.Records.Add(float64(seg.Proof.Count))
		w.seg, proof = seg, seg.Proof
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	end := min(ps.Next, p.rng.Until)
	if p.verified >= end {
		return w, nil // proved before
	}
	if err := p.proof.Join(proof); err != nil {
		return nil, &run.Failure{Err: err}
	}
	p.verified = end
	return w, nil
}
