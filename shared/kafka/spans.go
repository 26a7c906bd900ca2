package kafka

import "github.com/confluentinc/confluent-kafka-go/v2/kafka"

// Span is Count consecutive offsets from First.
type Span struct{ First, Count int64 }

// UnknownOffset is First of a Span whose records are safe, but the broker did not say where: it answered that it had them already.
const UnknownOffset = -1

// spans keeps which offsets records got, as runs: a few per partition and transaction, however many records.
type spans struct {
	of   map[TP]*[]Span
	tp   TP // of last
	last *[]Span
}

func (s *spans) add(p kafka.TopicPartition) {
	if s.last == nil || s.tp.Partition != p.Partition || s.tp.Topic != *p.Topic {
		s.tp = tpOf(p)
		if s.last = s.of[s.tp]; s.last == nil {
			s.last = new([]Span)
			s.of[s.tp] = s.last
		}
	}
	offset, list := int64(p.Offset), *s.last
	if offset < 0 {
		offset = UnknownOffset
	}
	if n := len(list); n > 0 {
		l := &list[n-1]
		if offset == UnknownOffset && l.First == UnknownOffset || l.First != UnknownOffset && offset == l.First+l.Count {
			l.Count++
			return
		}
	}
	*s.last = append(list, Span{offset, 1})
}

func (s *spans) clear() { s.of, s.last = map[TP]*[]Span{}, nil }

// KeepOffsets makes the producer keep the offsets that its records get. Call it before the first Send.
func (p *Producer) KeepOffsets() {
	p.mu.Lock()
	p.spans = &spans{}
	p.spans.clear()
	p.mu.Unlock()
}

// TakeOffsets returns, per partition, the offsets of what has been acknowledged since the last call, in the order in which it was sent, and
// forgets them. After a Flush without an error these are all records that were sent. An abort forgets them too.
func (p *Producer) TakeOffsets() map[TP][]Span {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spans == nil {
		return nil
	}
	out := make(map[TP][]Span, len(p.spans.of))
	for tp, list := range p.spans.of {
		out[tp] = *list
	}
	p.spans.clear()
	return out
}
