package archiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// patience bounds every wait for something that must happen. It is for a slow machine under the race detector: nothing is decided by it.
const patience = 4 * time.Minute

// env is a broker of its own and an empty store.
type env struct {
	t         *testing.T
	fake      *kfake.Cluster
	bootstrap string
	admin     *kafka.Admin
	store     *mem.Store
	arc       *archive.Archive
}

func newEnv(t *testing.T) *env {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(0), kfake.ClusterID("test-cluster"), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	e := &env{t: t, fake: c, bootstrap: strings.Join(c.ListenAddrs(), ","), store: mem.New()}
	if e.admin, err = kafka.NewAdmin(e.client()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.admin.Close)
	e.arc = archive.Open(e.store, "topics")
	return e
}

func (e *env) client() kafka.Client {
	return kafka.Client{Bootstrap: e.bootstrap, ClientID: "test", Log: testLog(e.t)}
}

func testLog(t *testing.T) *zap.Logger {
	if os.Getenv("TAPEDECK_TEST_LOG") == "" {
		return zap.NewNop()
	}
	return zaptest.NewLogger(t)
}

func (e *env) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	e.t.Cleanup(cancel)
	return ctx
}

func (e *env) topic(name string, partitions int32) {
	e.t.Helper()
	if err := e.admin.CreateTopic(e.ctx(), name, partitions, 1, nil); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) producer(txID string) *kafka.Producer {
	e.t.Helper()
	p, err := kafka.NewProducer(e.client(), txID, 0)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(p.Close)
	if txID != "" {
		if err := p.InitTransactions(e.ctx()); err != nil {
			e.t.Fatal(err)
		}
	}
	return p
}

// send produces records to topic-p; topic and partition are filled in, and a timestamp where there is none.
func (e *env) send(p *kafka.Producer, topic string, part int32, recs ...record.Record) {
	e.t.Helper()
	for i := range recs {
		r := &recs[i]
		r.Topic, r.Partition = topic, part
		if r.Timestamp == 0 {
			r.Timestamp = 1_700_000_000_000 + int64(i)
		}
		if err := p.Send(e.ctx(), r); err != nil {
			e.t.Fatal(err)
		}
	}
	if err := p.Flush(e.ctx()); err != nil {
		e.t.Fatal(err)
	}
}

// numbered makes n records with values v<from>, v<from+1>, …
func numbered(from, n int) []record.Record {
	out := make([]record.Record, n)
	for i := range out {
		out[i].Key = fmt.Appendf(nil, "k%d", from+i)
		out[i].Value = fmt.Appendf(nil, "v%d", from+i)
	}
	return out
}

func (e *env) fill(topic string, part int32, from, n int) {
	e.t.Helper()
	p := e.producer("")
	defer p.Close()
	e.send(p, topic, part, numbered(from, n)...)
}

// heldBack are requests that the broker does not answer before they are released; others go on.
type heldBack struct {
	e       *env
	came    chan struct{} // closed by the first
	release func()
}

func (e *env) holdBack(key kmsg.Key) *heldBack {
	e.t.Helper()
	released, came := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(came) })
	h := &heldBack{e: e, came: came, release: sync.OnceFunc(func() { close(released) })}
	e.t.Cleanup(h.release)
	e.fake.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		first()
		e.fake.SleepControl(func() { <-released })
		return nil, nil, false
	})
	return h
}

// await waits for the first of them.
func (h *heldBack) await() {
	h.e.t.Helper()
	h.e.awaitClosed("a request that is held back", h.came)
}

// settings are quick and never rotate unless told.
func (e *env) settings(topics ...string) Settings {
	return Settings{
		Topics: Selection{Names: topics}, Refresh: 200 * time.Millisecond, Group: "g", Bootstrap: e.bootstrap,
		Partition: partition.Config{RotateAge: time.Hour, Codec: "zstandard", Gap: partition.GapStop},
		MaxMemory: 256 << 20, MaxLabelled: 1000, Isolation: "read_committed",
		Consumer: map[string]string{"session.timeout.ms": "20000", "heartbeat.interval.ms": "300", "max.poll.interval.ms": "60000"},
		MinRetry: 5 * time.Millisecond, MaxRetry: 50 * time.Millisecond, ShutdownIn: 30 * time.Second,
	}
}

// running is an archiver that runs.
type running struct {
	*Archiver
	e    *env
	reg  *prometheus.Registry
	stop func() error // ends it as SIGTERM does, once
}

func (e *env) start(s Settings, parts ...func(*Parts)) *running {
	e.t.Helper()
	reg := prometheus.NewRegistry()
	p := Parts{Store: e.store, TopicsDir: "topics", Log: testLog(e.t), Metrics: reg}
	for _, f := range parts {
		f(&p)
	}
	a, err := New(s, p)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Archive(ctx) }()
	r := &running{Archiver: a, e: e, reg: reg, stop: sync.OnceValue(func() error { cancel(); return <-done })}
	e.t.Cleanup(func() {
		if err := r.stop(); err != nil {
			e.t.Errorf("archiver ended with %v", err)
		}
	})
	return r
}

func (r *running) end() {
	r.e.t.Helper()
	if err := r.stop(); err != nil {
		r.e.t.Fatalf("archiver ended with %v", err)
	}
}

// await polls until f holds.
func (e *env) await(what string, f func() bool) {
	e.t.Helper()
	e.awaitOr(what, func() string { return "" }, f)
}

func (e *env) awaitOr(what string, state func() string, f func() bool) {
	e.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if f() {
			return
		}
	}
	e.t.Fatalf("did not happen: %s\n%s", what, state())
}

func (e *env) awaitClosed(what string, c <-chan struct{}) {
	e.t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		e.t.Fatalf("did not happen: %s", what)
	}
}

// awaitArchived waits until the archive's chain ends at next.
func (e *env) awaitArchived(topic string, part int32, next int64) {
	e.t.Helper()
	var last int64
	e.awaitOr(fmt.Sprintf("%s-%d archived to %d", topic, part, next), func() string { return fmt.Sprintf("archived to %d", last) }, func() bool {
		hs := e.headers(topic, part)
		if len(hs) == 0 {
			return false
		}
		last = hs[len(hs)-1].Next
		return last >= next
	})
	if last != next {
		e.t.Fatalf("%s-%d archived to %d, want %d", topic, part, last, next)
	}
}

// state returns the status of a partition of r, nil where it has none.
func (r *running) state(topic string, part int32) *PartitionStatus {
	for _, p := range r.Status().Partitions {
		if p.Topic == topic && p.Partition == part {
			return &p
		}
	}
	return nil
}

// published holds once the status shows what the poll loop knew when this was called.
func (r *running) published() func() bool {
	since := time.Now()
	return func() bool { return r.loop.Load().condition().turned.After(since) }
}

func (r *running) awaitStopped(topic string, part int32, why partition.Reason) *PartitionStatus {
	r.e.t.Helper()
	var s *PartitionStatus
	r.e.awaitOr(fmt.Sprintf("%s-%d stopped: %s", topic, part, why), func() string { return fmt.Sprintf("%+v", s) }, func() bool {
		s = r.state(topic, part)
		return s != nil && s.State == partition.Stopped
	})
	if s.Reason != why {
		r.e.t.Fatalf("%s-%d stopped for %s (%s), want %s", topic, part, s.Reason, s.Error, why)
	}
	return s
}

// metric is the sum of a counter or gauge over its labels.
func (r *running) metric(name string) float64 {
	r.e.t.Helper()
	fams, err := r.reg.Gather()
	if err != nil {
		r.e.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range fams {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// objects are the segments of a partition, in order.
func (e *env) objects(topic string, part int32) []string {
	prefix := segment.PartitionPrefix("topics", topic, part)
	var keys []string
	for _, k := range e.store.Keys() {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	return keys
}

func (e *env) headers(topic string, part int32) []*segment.Header {
	e.t.Helper()
	var hs []*segment.Header
	for _, k := range e.objects(topic, part) {
		hs = append(hs, e.reader(k).Header())
	}
	return hs
}

func (e *env) reader(key string) *segment.Reader {
	e.t.Helper()
	data, err := e.store.Get(e.ctx(), key)
	if err != nil {
		e.t.Fatal(err)
	}
	r, err := segment.NewReader(key, data)
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

// archived returns all records of a partition in the archive.
func (e *env) archived(topic string, part int32) []record.Record {
	e.t.Helper()
	var out []record.Record
	for _, k := range e.objects(topic, part) {
		r := e.reader(k)
		for {
			var rec record.Record
			if err := r.Next(&rec); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				e.t.Fatal(err)
			}
			out = append(out, rec)
		}
	}
	return out
}

// log returns what a plain consumer sees of a partition, from its log start to its end.
func (e *env) log(topic string, part int32) []record.Record {
	e.t.Helper()
	tp := kafka.TP{Topic: topic, Partition: part}
	c, err := kafka.NewConsumer(kafka.ConsumerConfig{Client: e.client()})
	if err != nil {
		e.t.Fatal(err)
	}
	defer c.Close()
	start, end, err := c.Watermarks(e.ctx(), tp)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := c.Start(kafka.Position{TP: tp, Offset: start, LeaderEpoch: record.NoEpoch}); err != nil {
		e.t.Fatal(err)
	}
	var out []record.Record
	for ctx := e.ctx(); ; {
		evs, err := c.Poll(ctx, 100*time.Millisecond)
		if err != nil {
			e.t.Fatal(err)
		}
		for _, ev := range evs {
			switch ev := ev.(type) {
			case kafka.Batch:
				out = append(out, ev.Records...)
			case kafka.EndOfPartition:
				if ev.Offset >= end {
					return out
				}
			case kafka.PartitionError:
				e.t.Fatal(ev.Err)
			}
		}
	}
}

// checkEqual demands that the archive holds exactly these records.
func (e *env) checkEqual(topic string, part int32, want []record.Record) {
	e.t.Helper()
	got := e.archived(topic, part)
	if len(got) != len(want) {
		e.t.Fatalf("%s-%d: %d records in the archive, want %d", topic, part, len(got), len(want))
	}
	for i := range got {
		if !record.Equal(&got[i], &want[i]) {
			e.t.Fatalf("%s-%d: record %d differs:\n%+v\n%+v", topic, part, i, got[i], want[i])
		}
	}
}

// checkClean demands that verify finds nothing.
func (e *env) checkClean() {
	e.t.Helper()
	if f := e.findings(); len(f) > 0 {
		e.t.Fatalf("verify: %+v", f)
	}
}

func (e *env) findings() []archive.Finding {
	e.t.Helper()
	r, err := e.arc.Verify(e.ctx())
	if err != nil {
		e.t.Fatal(err)
	}
	return r.Findings
}

// committed is the group's position of a partition.
func (e *env) committed(topic string, part int32) kafka.CommitOffset {
	e.t.Helper()
	tp := kafka.TP{Topic: topic, Partition: part}
	offs, err := e.admin.CommittedOffsets(e.ctx(), "g", []kafka.TP{tp})
	if err != nil {
		e.t.Fatal(err)
	}
	o, ok := offs[tp]
	if !ok {
		return kafka.CommitOffset{Offset: -1}
	}
	return o
}

// starts are the first offsets of a partition's segments.
func (e *env) starts(topic string, part int32) []int64 {
	out := []int64{}
	for _, h := range e.headers(topic, part) {
		out = append(out, h.Start)
	}
	return out
}

// failing answers creates of segments with err until it is switched off.
func failing(err error) mem.Before {
	return func(_ context.Context, op, key string) error {
		if op == store.OpCreate && strings.HasPrefix(key, "topics/") {
			return err
		}
		return nil
	}
}
