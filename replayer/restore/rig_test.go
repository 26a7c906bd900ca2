package restore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/metrics"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/replayer/target"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// rig is an archive and a Kafka to restore into: the embedded broker, or the one at TAPEDECK_TEST_KAFKA.
type rig struct {
	t    *testing.T
	a    *replaytest.Archive
	conf target.Kafka
	fake *kfake.Cluster // nil on a real broker
	log  *zap.Logger
	d    *Target // for the test's own calls
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, a: replaytest.New(), log: zap.NewNop()}
	if os.Getenv("TAPEDECK_TEST_LOG") != "" {
		g.log = zaptest.NewLogger(t)
	}
	g.conf = target.Kafka{Bootstrap: os.Getenv("TAPEDECK_TEST_KAFKA"), Lanes: 3, Progress: unique("progress"), Replication: 1, TxRecords: 37}
	if g.conf.Bootstrap == "" {
		c, err := kfake.NewCluster(kfake.Ports(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		g.fake, g.conf.Bootstrap = c, strings.Join(c.ListenAddrs(), ",")
	}
	g.d = g.target(tuning{records: 37, bytes: 1 << 20, age: time.Minute})
	return g
}

func unique(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:10]) }

// target makes a replayer's end at the rig's Kafka.
func (g *rig) target(tune tuning) *Target {
	g.t.Helper()
	r := &run.Runner{Archive: g.a.Archive, Log: g.log, Metrics: metrics.New(prometheus.NewRegistry()),
		Settings: run.Settings{Parallel: 2, RetryTimeout: 30 * time.Second, HoldBytes: 1, Backoff: run.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}}}
	d, err := New("k", g.conf, r)
	g.must(err)
	g.t.Cleanup(d.Close)
	d.tune = tune
	return d
}

func (g *rig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	g.t.Cleanup(cancel)
	return ctx
}

// topic creates one at the target.
func (g *rig) topic(partitions int32, config ...string) string {
	g.t.Helper()
	name := unique("t")
	g.must(g.d.admin.CreateTopic(g.ctx(), name, partitions, 1, settings(config)))
	return name
}

func settings(config []string) map[string]string {
	m := map[string]string{"retention.ms": "-1"}
	for i := 0; i+1 < len(config); i += 2 {
		m[config[i]] = config[i+1]
	}
	return m
}

// job makes one from a request's further fields.
func (g *rig) job(fields string) *job.Job {
	g.t.Helper()
	r, err := job.ParseRequest([]byte(`{"name":"restore","target":"k",` + fields + `}`))
	g.must(err)
	g.must(r.CheckKafka())
	j := job.New(*r, "me", 1000, time.Now())
	j.ID = rand.Text()
	return &j
}

// prepare plans a job and stores the plan with it.
func (g *rig) prepare(d *Target, j *job.Job) *run.Plan {
	g.t.Helper()
	p, err := d.Prepare(g.ctx(), j)
	g.must(err)
	if j.Plan == nil {
		// As it comes back from the store.
		data, err := json.Marshal(p.Pin())
		g.must(err)
		j.Plan = new(job.Pinned)
		g.must(json.Unmarshal(data, j.Plan))
	}
	return p
}

// run executes a job to its end.
func (g *rig) run(d *Target, j *job.Job) (*job.Outcome, error) {
	g.t.Helper()
	p, err := d.Prepare(g.ctx(), j)
	if err != nil {
		return nil, err
	}
	if j.Plan == nil {
		j.Plan = p.Pin()
	}
	return d.Start(j, p).Execute(g.ctx())
}

// read returns the committed records of a partition.
func (g *rig) read(tp kafka.TP) []record.Record {
	g.t.Helper()
	var out []record.Record
	g.must(readLog(g.ctx(), g.d.client(nil), g.d.admin, tp, func(r *record.Record) error {
		out = append(out, *r)
		return nil
	}))
	return out
}

// same holds what a partition of the target has against archived records: everything but place, type of timestamp and epoch. It returns what it has.
func (g *rig) same(to kafka.TP, want []record.Record) []record.Record {
	g.t.Helper()
	got := g.read(to)
	if len(got) != len(want) {
		g.t.Fatalf("%s has %d records, want %d", to, len(got), len(want))
	}
	for i := range got {
		a, b := got[i], want[i]
		if (a.Key == nil) != (b.Key == nil) || (a.Value == nil) != (b.Value == nil) || string(a.Key) != string(b.Key) || string(a.Value) != string(b.Value) ||
			a.Timestamp != b.Timestamp || len(a.Headers) != len(b.Headers) || len(a.Headers) > 0 && !reflect.DeepEqual(a.Headers, b.Headers) {
			g.t.Fatalf("%s, record %d (offset %d):\n%+v\narchived at %d:\n%+v", to, i, a.Offset, a, b.Offset, b)
		}
	}
	return got
}

// check holds every partition of the target, and the job's offset map, against the archive.
func (g *rig) check(j *job.Job, topic, to string, partitions int32) {
	g.t.Helper()
	es, err := Entries(g.ctx(), g.d.Client(), g.conf.Progress, "")
	g.must(err)
	for p := range partitions {
		source := kafka.TP{Topic: topic, Partition: p}
		want := g.records(topic, p)
		got := g.same(kafka.TP{Topic: to, Partition: p}, want)
		at := map[int64]int64{}
		for _, e := range es {
			if e.JobID == j.ID && e.Source == source {
				for _, r := range e.Runs {
					for i := range r.Len {
						at[r.Old+i] = r.New + i
					}
				}
			}
		}
		if len(at) != len(want) {
			g.t.Fatalf("%s: the offset map has %d records, want %d", source, len(at), len(want))
		}
		for i, w := range want {
			if at[w.Offset] != got[i].Offset {
				g.t.Fatalf("%s@%d is at %d, and the offset map says %d", source, w.Offset, got[i].Offset, at[w.Offset])
			}
		}
	}
}

// fill archives a topic with everything that is awkward: gaps, nulls, empties, headers, timestamps out of order.
func (g *rig) fill(topic string, partitions int32, n int, seed uint64) {
	g.t.Helper()
	rng := mrand.New(mrand.NewPCG(seed, 7))
	for p := range partitions {
		tp := kafka.TP{Topic: topic, Partition: p}
		offset := int64(0)
		for left := n; left > 0; {
			size := min(left, 1+rng.IntN(20))
			left -= size
			var rs []record.Record
			for range size {
				offset += int64(rng.IntN(8) / 7 * rng.IntN(4)) // compacted here and there
				r := replaytest.Record(tp, offset, 1_700_000_000_000+offset*1000+int64(rng.IntN(3000)))
				awkward(&r, rng.IntN(12))
				rs = append(rs, r)
				offset++
			}
			offset += int64(rng.IntN(3) / 2) // a marker
			g.a.Segment(g.t, tp, offset, rs)
		}
	}
}

func awkward(r *record.Record, kind int) {
	switch kind {
	case 0:
		r.Value = nil
	case 1:
		r.Key = nil
	case 2:
		r.Key, r.Value = nil, nil
	case 3:
		r.Value = []byte{}
	case 4:
		r.Key = []byte{}
	case 5:
		r.Headers = []record.Header{{Key: "a", Value: []byte("1")}, {Key: "x-id", Value: []byte("2")}, {Key: "a", Value: []byte("3")}, {Key: "b"}, {Key: "c", Value: []byte{}}}
	case 6:
		r.Headers = []record.Header{{Key: "", Value: []byte{0, 255}}}
	}
}

func (g *rig) records(topic string, p int32) []record.Record {
	return g.a.Records[kafka.TP{Topic: topic, Partition: p}]
}

func wantFailure(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %q", words)
		return
	}
	var failure *run.Failure
	if !errors.As(err, &failure) {
		t.Errorf("%v is not final", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want %q", err, w)
		}
	}
}

func value(format string, args ...any) string { return fmt.Sprintf(format, args...) }
