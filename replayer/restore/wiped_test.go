package restore

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// half runs a job until its second commit, as if it was killed there.
func (g *rig) half(fields string) func() error {
	g.t.Helper()
	var commits atomic.Int64
	d := g.target(small(func(_ context.Context, step string, _ int) error {
		if step == "after "+stepCommit && commits.Add(1) == 2 {
			return errKilled
		}
		return nil
	}))
	j := g.job(fields)
	p := g.prepare(d, j)
	if _, err := d.Start(j, p).Execute(g.ctx()); err == nil {
		g.t.Fatal("not killed")
	}
	return func() error {
		_, err := g.run(g.target(small(nil)), next(j))
		return err
	}
}

// TestWipedTarget: a job that goes on after its topic, or the topic that keeps its progress, was deleted and created again, never ends in success over what is
// left; nor does a name that is used again find the progress of the job before.
func TestWipedTarget(t *testing.T) {
	var all runs
	for name, progress := range map[string]bool{"topic": false, "progress": true} {
		all.add(name, func(t *testing.T) {
			g := newRig(t)
			g.fill("trips", 1, 150, 5)
			to := g.topic(1)
			resume := g.half(value(`"topics":["trips"],"topicMapping":{"trips":%q}`, to))
			wiped, config := to, "delete"
			if progress {
				wiped, config = g.conf.Progress, "compact"
			}
			g.must(g.d.admin.DeleteTopic(g.ctx(), wiped))
			wantFailure(t, resume(), wiped, "is gone", "another name")
			g.must(g.d.admin.CreateTopic(g.ctx(), wiped, 8, 1, map[string]string{"cleanup.policy": config, "retention.ms": "-1"}))
			wantFailure(t, resume(), wiped, "created again", "another name")
		})
	}
	all.add("a name again", func(t *testing.T) {
		g := newRig(t)
		g.fill("trips", 1, 150, 6)
		to := g.topic(1)
		fields := value(`"topics":["trips"],"topicMapping":{"trips":%q}`, to)
		_, err := g.run(g.d, g.job(fields))
		g.must(err)
		_, err = g.run(g.d, g.job(fields)) // the same name, and another job
		wantFailure(t, err, "not empty")
		g.must(g.d.admin.DeleteTopic(g.ctx(), to))
		g.must(g.d.admin.CreateTopic(g.ctx(), to, 1, 1, settings(nil)))
		j := g.job(fields)
		_, err = g.run(g.d, j)
		g.must(err)
		g.check(j, "trips", to, 1)
	})
	all.run(t)
}

// TestForeignRecord: something else writes to the topic while the job does. It is found, unless the request allows for it.
func TestForeignRecord(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		g := newRig(t)
		g.fill("trips", 1, 150, 7)
		to := g.topic(1)
		fields := value(`"topics":["trips"],"topicMapping":{"trips":%q}`, to)
		if allowed {
			fields += `,"ifNotEmpty":"append"`
		}
		other, err := kafka.NewProducer(g.d.client(nil), "", 0)
		g.must(err)
		var commits atomic.Int64
		d := g.target(small(func(ctx context.Context, step string, _ int) error {
			if step != "after "+stepCommit || commits.Add(1) != 2 {
				return nil
			}
			if err := other.Send(ctx, &record.Record{Topic: to, Value: []byte("x"), Timestamp: time.Now().UnixMilli()}); err != nil {
				return err
			}
			return other.Flush(ctx)
		}))
		_, err = g.run(d, g.job(fields))
		other.Close()
		if allowed {
			g.must(err)
			continue
		}
		wantFailure(t, err, to, "not of the job", "something else writes")
	}
}

// TestChangedTimestampsAndProvenance: 0 and what lies beyond 2262 are counted and noted, everything else stays; where each record was is added behind its headers.
func TestChangedTimestampsAndProvenance(t *testing.T) {
	g := newRig(t)
	g.even("trips", 1, 6, 6, 1000)
	tp := kafka.TP{Topic: "trips"}
	rs := g.records("trips", 0)
	more := append([]record.Record(nil), rs[:3]...)
	for i := range more {
		more[i].Offset = int64(6 + i)
	}
	more[0].Timestamp, more[1].Timestamp = 0, lastMs+1000
	more[2].Headers = []record.Header{{Key: "tapedeck.offset", Value: []byte("mine")}}
	g.a.Segment(t, tp, 9, more)
	const whatever = "9223372036854775807" // a broker would refuse a time beyond the next hour
	to := g.topic(1, "message.timestamp.after.max.ms", whatever, "message.timestamp.before.max.ms", whatever)
	out, err := g.run(g.d, g.job(value(`"topics":["trips"],"topicMapping":{"trips":%q},"provenanceHeaders":true`, to)))
	g.must(err)
	if r := out.Restored; r.Parts[0].TimestampsChanged != 2 || len(r.Notes) != 1 {
		t.Errorf("%+v", r)
	}
	got := g.read(kafka.TP{Topic: to})
	if len(got) != 9 || got[6].Timestamp != 1 || got[7].Timestamp != lastMs || got[5].Timestamp != rs[5].Timestamp {
		t.Fatalf("%d records: %+v", len(got), got)
	}
	h := got[8].Headers
	if len(h) != 4 || string(h[0].Value) != "mine" || string(h[1].Value) != "trips" || string(h[2].Value) != "0" || h[3].Key != "tapedeck.offset" || string(h[3].Value) != "8" {
		t.Errorf("headers %+v", h)
	}
}
