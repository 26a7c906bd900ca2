package restore

import (
	"context"
	"sync"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// sending is one record on its way, and how long the execution was under way then.
type sending struct {
	tp                kafka.TP
	offset, timestamp int64
	after             time.Duration
}

// watch runs a job and returns what was sent, in that order; a commit is a sending of offset −1.
func (g *rig) watch(tune tuning, fields string) []sending {
	g.t.Helper()
	var mu sync.Mutex
	var sent []sending
	begun := time.Now()
	note := func(tp kafka.TP, offset, timestamp int64) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, sending{tp, offset, timestamp, time.Since(begun)})
	}
	tune.sending = note
	tune.at = func(_ context.Context, step string, _ int) error {
		if step == "after "+stepCommit {
			note(kafka.TP{}, -1, -1)
		}
		return nil
	}
	d := g.target(tune)
	j := g.job(fields)
	p := g.prepare(d, j)
	begun = time.Now()
	_, err := d.Start(j, p).Execute(g.ctx())
	g.must(err)
	return sent
}

// even archives n records per partition, step ms apart, the partitions a little shifted, in segments of size records.
func (g *rig) even(topic string, partitions int32, n, size int, step int64) {
	g.t.Helper()
	for p := range partitions {
		tp := kafka.TP{Topic: topic, Partition: p}
		for from := 0; from < n; from += size {
			var rs []record.Record
			for i := from; i < min(from+size, n); i++ {
				rs = append(rs, replaytest.Record(tp, int64(i), 1_700_000_000_000+int64(i)*step+int64(p)))
			}
			g.a.Segment(g.t, tp, int64(from+len(rs)), rs)
		}
	}
}

// TestSpeedOfARestore: no record goes before its time, and within a lane each goes in the order of times, though segments are long and what may be held is
// so little that they are read again and again. A transaction does not stay open over a wait.
func TestSpeedOfARestore(t *testing.T) {
	g := newRig(t)
	g.conf.Lanes = 1
	const n, step, speed = 40, 100, 4
	g.even("trips", 3, n, 25, step)
	to := g.topic(3)
	sent := g.watch(tuning{records: 1000, bytes: 1 << 20, age: 20 * time.Millisecond}, value(`"topics":["trips"],"topicMapping":{"trips":%q},"speed":%d`, to, speed))
	reached := map[kafka.TP]int64{}
	commits, count := 0, 0
	const part = step * 2 // what goes at once spans at most 250 ms × speed; here two records' distance and more
	for _, s := range sent {
		if s.offset < 0 {
			commits++
			continue
		}
		count++
		if due := time.Duration(s.timestamp-1_700_000_000_000) * time.Millisecond / speed; s.after < due {
			t.Errorf("%v@%d went after %v, due after %v", s.tp, s.offset, s.after, due)
		}
		reached[s.tp] = s.timestamp
		for tp, at := range reached {
			if ahead := s.timestamp - at; len(reached) == 3 && ahead > 250*speed+part {
				t.Errorf("%v@%d is %d ms ahead of %v", s.tp, s.offset, ahead, tp)
			}
		}
	}
	if count != 3*n || commits < 4 {
		t.Errorf("%d records in %d transactions", count, commits)
	}
	for p := range int32(3) {
		g.same(kafka.TP{Topic: to, Partition: p}, g.records("trips", p))
	}
}

// TestRatesOfARestore: over all lanes together, in any span from the beginning, no more goes than the rate and what goes at once.
func TestRatesOfARestore(t *testing.T) {
	for _, c := range []struct {
		name, field string
		rate        int64
	}{{"records", "recordsPerSecond", 200}, {"bytes", "bytesPerSecond", 6000}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			g.conf.Lanes = 3
			g.even("trips", 3, 80, 40, 10)
			to := g.topic(3)
			var size int64
			for p := range int32(3) {
				for _, key := range g.a.Keys(kafka.TP{Topic: "trips", Partition: p}) {
					data, err := g.a.Mem.Get(g.ctx(), key)
					g.must(err)
					size += int64(len(data))
				}
			}
			cost := int64(1)
			if c.field == "bytesPerSecond" {
				cost = size / 240
			}
			sent := g.watch(tuning{records: 1000, bytes: 1 << 20, age: time.Minute}, value(`"topics":["trips"],"topicMapping":{"trips":%q},%q:%d`, to, c.field, c.rate))
			count := int64(0)
			for _, s := range sent {
				if s.offset < 0 {
					continue
				}
				count++
				// A part of each lane may just have begun; bytes are those of compressed objects, shared out over records of nearly one size.
				if most := int64(s.after.Seconds()*float64(c.rate)*1.1) + c.rate; count*cost > most {
					t.Fatalf("%d records, cost %d each, after %v: more than %d", count, cost, s.after, most)
				}
			}
			if count != 240 {
				t.Errorf("%d records", count)
			}
		})
	}
}
