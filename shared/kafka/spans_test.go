package kafka

import (
	"maps"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

// The offsets that a producer keeps are those at which a reader finds the records, over several transactions and an aborted one.
func TestTakeOffsets(t *testing.T) {
	e := newEnv(t)
	topic := e.topic(2)
	p := e.producer(unique("tx"))
	p.KeepOffsets()
	e.must(p.InitTransactions(e.ctx()))
	sent := map[TP][]string{}
	got := map[TP][]int64{}
	for round := range 5 {
		e.must(p.Begin())
		for i := range 20 + 7*round {
			tp := TP{Topic: topic, Partition: int32(i * round % 3 % 2)}
			r := &record.Record{Topic: topic, Partition: tp.Partition, Timestamp: 1_700_000_000_000, Value: []byte{byte(round), byte(i)}}
			e.must(p.Send(e.ctx(), r))
			if round != 2 {
				sent[tp] = append(sent[tp], string(r.Value))
			}
		}
		if round == 2 {
			e.must(p.Flush(e.ctx()))
			e.must(p.AbortTx(e.ctx()))
			continue
		}
		e.must(p.Flush(e.ctx()))
		for tp, spans := range p.TakeOffsets() {
			for _, s := range spans {
				for i := range s.Count {
					got[tp] = append(got[tp], s.First+i)
				}
			}
		}
		e.must(p.CommitTx(e.ctx()))
	}
	if len(p.TakeOffsets()) != 0 {
		t.Error("offsets are taken twice")
	}
	for _, tp := range slices.Collect(maps.Keys(sent)) {
		c := e.consumer("")
		e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
		rs, _ := e.untilEnd(c, tp)
		var offsets []int64
		var values []string
		for _, r := range rs {
			offsets, values = append(offsets, r.Offset), append(values, string(r.Value))
		}
		if !slices.Equal(values, sent[tp]) {
			t.Fatalf("%s: the reader finds %d records, %d were sent", tp, len(values), len(sent[tp]))
		}
		if !slices.Equal(offsets, got[tp]) {
			t.Errorf("%s: the producer says %v, the reader finds %v", tp, got[tp], offsets)
		}
	}
}

func TestSpans(t *testing.T) {
	s := &spans{}
	s.clear()
	topic := "t"
	for _, o := range []int64{5, 6, 7, 9, -1001, -1001, 12, 13} {
		p := part(TP{Topic: topic}, o, -1)
		s.add(p)
	}
	want := []Span{{5, 3}, {9, 1}, {UnknownOffset, 2}, {12, 2}}
	if got := *s.of[TP{Topic: topic}]; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
