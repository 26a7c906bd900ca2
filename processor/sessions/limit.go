package sessions

import (
	"context"
	"fmt"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/session"
)

// session.max.bytes, by what is asked for when the state is above half of it (below, everything is taken):
//
//	the next batch is of                                             above 1/2             above all of it
//	a partition ahead of another that is not delivered in full       503: send that first  503
//	one that is back at its stored position while others are not     503: send those first 503
//	one below its stored position                                    taken                 taken: what was stored fitted
//	the partition that holds the watermark back, or any other once
//	the one that holds it back is delivered in full                  taken                 FAILED
//
// With end mode hold, windows that can never close any more once a partition is delivered in full are dropped, so that the last line is rare.

// room says why the next batch of tp cannot be taken; nil where it can.
func (s *open) room(ctx context.Context, tp kafka.TP) error {
	limit := s.cfg.MaxStateBytes
	full := func() bool { return s.stateBytes() > limit/2 }
	if !full() {
		return nil
	}
	caughtUp := s.caughtUp()
	if s.fed > 0 && caughtUp {
		// Windows that may close, close first.
		if err := s.commit(ctx, false, nil); err != nil {
			return err
		}
		if !full() {
			return nil
		}
	}
	if first := s.first(tp, caughtUp); first != tp {
		e := later("session %s holds %d bytes of open windows (session.max.bytes is %d); send the next segment of %s first, which holds the others back",
			s.name, s.stateBytes(), limit, first)
		e.Ack = &session.Ack{Expected: s.eng.Position(tp), Needs: &first, Message: e.Reason}
		return e
	}
	if !caughtUp || s.stateBytes() <= limit {
		return nil
	}
	return s.fail(ctx, fmt.Sprintf("open windows hold %d bytes, session.max.bytes is %d, and no other partition's segments would close any: "+
		"raise session.max.bytes (the process needs about twice as much memory), then replay under another name", s.stateBytes(), limit))
}

// first is the partition to go on with instead of tp, tp itself for none.
func (s *open) first(tp kafka.TP, caughtUp bool) kafka.TP {
	at := func(tp kafka.TP) int64 { return s.eng.Position(tp) }
	if !caughtUp {
		if at(tp) < s.parts[tp].goal {
			return tp
		}
		for _, r := range s.req.Ranges {
			if at(r.TopicPartition) < s.parts[r.TopicPartition].goal {
				return r.TopicPartition
			}
		}
	}
	if s.p.Keyed {
		return tp
	}
	_, by := s.eng.Watermark(tp)
	if p, ok := s.parts[by]; ok && at(by) < p.rng.Until {
		return by
	}
	return tp
}

func (s *open) stateBytes() int64 {
	st := s.eng.Stats()
	return st.StateBytes + st.SideBytes
}

// delivered drops what can never be emitted once tp is at the end of its range.
func (s *open) delivered(tp kafka.TP) {
	if s.req.EndMode == session.Hold && s.eng.Position(tp) >= s.parts[tp].rng.Until {
		s.eng.NoMore(tp)
	}
}
