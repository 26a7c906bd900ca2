package sessions

import (
	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/session"
)

func checkWindows(req session.Request) error {
	w := req.Windows
	switch {
	case w == nil:
	case req.Promise != session.Recompute:
		return malformed("windows go with the promise recompute alone")
	case w.From >= w.Until || w.From < -engine.MaxTime || w.Until > engine.MaxTime:
		return malformed("windows [%d, %d): want from < until, in ms", w.From, w.Until)
	}
	return nil
}

// checkRecompute refuses a start in the middle after which a window that will be emitted could be incomplete. engine.Only says why the rest is right.
func checkRecompute(req session.Request, p *pipeline.Pipeline, log *decision.Log) error {
	members := log.Members()
	for _, r := range req.Ranges {
		if start, ok := members[r.TopicPartition]; r.From == 0 || ok && r.From == start {
			continue
		}
		if req.Windows == nil {
			return refused("recompute of %s from %d: a start in the middle needs windows; start at 0 or where the live run did", r.TopicPartition, r.From)
		}
		if r.Before == nil {
			return refused("recompute of %s from %d: before is missing, the greatest record timestamp below that offset", r.TopicPartition, r.From)
		}
		if *r.Before < 0 {
			continue // nothing is before it
		}
		after := *r.Before
		for _, s := range p.Source {
			if s.Topic != r.Topic || s.EventTime.Record {
				continue
			}
			if s.MaxFutureMs < 0 {
				return refused("recompute of %s from %d: without maxFuture a record before that offset may have any event time; start at 0, or set maxFuture of source %s",
					r.TopicPartition, r.From, s.Topic)
			}
			after += s.MaxFutureMs
		}
		if after >= req.Windows.From {
			return refused("recompute of %s from %d: records before that offset may have event times up to %d, and windows begin at %d: some could be incomplete",
				r.TopicPartition, r.From, after, req.Windows.From)
		}
	}
	return nil
}

// reached is what Status tells of a partition's watermark.
func (s *open) reached(tp kafka.TP) *int64 {
	if s.req.Windows == nil {
		return nil
	}
	w := s.eng.Reached(tp)
	if w == engine.NoTime {
		return nil
	}
	return &w
}
