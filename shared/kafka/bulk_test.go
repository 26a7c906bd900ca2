package kafka

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

// On Linux the handles of the Go client must be found: where a new version of it hides them, fetching falls back to a third of the speed,
// and this says so.
func TestEventsAreFetchedInBulk(t *testing.T) {
	e := newEnv(t)
	if c := e.consumer(""); runtime.GOOS == "linux" && c.bulk == nil {
		t.Error("the Go client's fields are not where they were: events are polled one by one")
	}
}

// A position that is validated only when its first record has come: the rest of what was polled with that record is dropped too, and all
// comes again. Taken, it would be a hole that looks like offsets without data.
func TestWhatWasPolledBeforeAValidationIsDropped(t *testing.T) {
	e := newEnv(t)
	const n = 3000
	tp := TP{Topic: e.topic(1)}
	e.fill(tp, 0, n)
	c := e.consumer("")
	e.must(c.Start(Position{TP: tp, Offset: 10, LeaderEpoch: 0}))
	c.parts[tp].unvalidated = true // as where librdkafka could not seek yet
	out, _ := e.untilEnd(c, tp)
	wantOffsets(t, out, 10, n)
}

// Records of several topics and partitions, many to a piece of memory: none shares a byte with another one, and each is of its log.
func TestRecordsOfManyLogs(t *testing.T) {
	for _, share := range []bool{false, true} {
		t.Run(fmt.Sprintf("share=%v", share), func(t *testing.T) {
			e := newEnv(t)
			const n = 4000
			var tps []TP
			for range 3 {
				topic := e.topic(2)
				tps = append(tps, TP{Topic: topic}, TP{Topic: topic, Partition: 1})
			}
			p := e.producer("")
			for i := range n {
				for _, tp := range tps {
					e.must(p.Send(e.ctx(), &record.Record{Topic: tp.Topic, Partition: tp.Partition, Timestamp: 1_700_000_000_000 + int64(i),
						Key: fmt.Append(nil, tp), Value: fmt.Appendf(nil, "%s %d", tp, i), Headers: []record.Header{{Key: "n", Value: fmt.Append(nil, i)}}}))
				}
			}
			e.must(p.Flush(e.ctx()))
			c := e.consumer("", func(c *ConsumerConfig) { c.ShareMemory = share })
			for _, tp := range tps {
				e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
			}
			got, ends := map[TP][]record.Record{}, 0
			e.until(c, "all ends", func(ev Event) bool {
				switch ev := ev.(type) {
				case Batch:
					for i := range ev.Records {
						// Writing to one must not reach another: whoever appends to a value gets memory of its own.
						r := &ev.Records[i]
						_ = append(r.Key, "overwritten"...)
						_ = append(r.Value, "overwritten"...)
					}
					got[ev.TP] = append(got[ev.TP], ev.Records...)
				case EndOfPartition:
					if ev.Offset == n {
						ends++
					}
				}
				return ends == len(tps)
			})
			for _, tp := range tps {
				wantOffsets(t, got[tp], 0, n)
				if i := slices.IndexFunc(got[tp], func(r record.Record) bool {
					return r.TP() != tp || string(r.Key) != tp.String() || string(r.Value) != fmt.Sprintf("%s %d", tp, r.Offset) ||
						len(r.Headers) != 1 || string(r.Headers[0].Value) != fmt.Sprint(r.Offset)
				}); i >= 0 {
					t.Errorf("%s: record %d is %+v", tp, i, got[tp][i])
				}
			}
		})
	}
}
