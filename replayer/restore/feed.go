package restore

import (
	"context"
	"errors"
	"io"

	"tapedeck.dev/tapedeck/replayer/pace"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// feed is a loaded segment on its way to the target, part by part.
type feed struct {
	*work
	end     int64 // the partition's position when all of it is committed
	rd      *segment.Reader
	rewrite func(*record.Record) (bool, error) // nil: nothing changes
	i       int                                // the next part
}

// feed opens a loaded segment. It has no parts where there is nothing to send.
func (l *lane) feed(ctx context.Context, w *work) (*feed, error) {
	f := &feed{work: w, end: min(w.next, w.part.rng.Until)}
	if w.seg == nil || l.at(w.part).next >= f.end {
		f.work = &work{part: w.part, next: w.next}
		return f, nil
	}
	var err error
	if f.rd, err = segment.NewReader(w.seg.Name, w.seg.Body); err != nil {
		return nil, &run.Failure{Err: err}
	}
	f.rewrite, err = l.x.rewriter(ctx, w.seg.Name, f.rd.Header())
	return f, err
}

func (f *feed) done() bool { return f.seg == nil || f.i == len(f.seg.Parts) }

// unit is the next part, as the pace counts it; without records where all of it is sent.
func (l *lane) unit(f *feed) pace.Unit {
	p, t := f.seg.Parts[f.i], l.at(f.part)
	if p.Records == 0 || p.Next <= t.next {
		return pace.Unit{Timestamp: -1}
	}
	return pace.Unit{Records: p.Records, Bytes: p.Bytes, Timestamp: max(t.reached, p.MaxTs)}
}

// segment sends what a loaded segment holds beyond what is committed, and moves the partition's position to its end.
func (l *lane) segment(ctx context.Context, w *work) error {
	f, err := l.feed(ctx, w)
	if err != nil {
		return err
	}
	for !f.done() {
		if err := l.part(ctx, f); err != nil {
			return err
		}
	}
	l.ended(f)
	return nil
}

// ended moves the partition's position to the segment's end.
func (l *lane) ended(f *feed) {
	t := l.at(f.part)
	t.next = max(t.next, f.end)
}

// part sends the next part when it may go, without what is committed of it.
func (l *lane) part(ctx context.Context, f *feed) error {
	if u := l.unit(f); u.Records > 0 {
		if err := l.await(ctx, u); err != nil {
			return err
		}
	}
	p, t := f.part, l.at(f.part)
	var rec record.Record
	for n := f.seg.Parts[f.i].Records; n > 0; {
		if err := f.rd.Next(&rec); errors.Is(err, io.EOF) {
			return run.Failf("segment %s has fewer records than when it was read", f.seg.Name)
		} else if err != nil {
			return &run.Failure{Err: err}
		}
		if !p.rng.Holds(&rec) {
			continue // in the object, and not in the range
		}
		n--
		if rec.Offset < t.next {
			continue
		}
		if f.rewrite != nil {
			changed, err := f.rewrite(&rec)
			if err != nil {
				return final(err)
			}
			if changed {
				t.rewritten++
			}
		}
		if err := l.send(ctx, p, t, &rec, f.rd); err != nil {
			return err
		}
		if l.full() {
			if err := l.commit(ctx); err != nil {
				return err
			}
			t = l.at(p)
		}
	}
	f.i++
	return nil
}
