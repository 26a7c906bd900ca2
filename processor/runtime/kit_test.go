package runtime_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"tapedeck.dev/tapedeck/internal/waiting"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/sink"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// env is a broker with an admin client.
type env struct {
	t      testing.TB
	client kafka.Client
	admin  *kafka.Admin
	log    *zap.Logger
}

func TestMain(m *testing.M) {
	if os.Getenv("TAPEDECK_TEST_KAFKA") != "" {
		os.Exit(m.Run()) // one broker for all
	}
	os.Exit(waiting.Run(m, "8"))
}

// newEnv starts a broker that ends with the test. TAPEDECK_TEST_LOG shows logs; TAPEDECK_TEST_KAFKA uses a real broker.
func newEnv(t testing.TB) *env {
	t.Helper()
	bootstrap := os.Getenv("TAPEDECK_TEST_KAFKA")
	if bootstrap == "" {
		e, _ := newFake(t)
		return e
	}
	return connect(t, bootstrap, testLog(t))
}

// newFake starts a broker in this process that ends with the test, for tests that look into it or change how it answers.
func newFake(t testing.TB, opts ...kfake.Opt) (*env, *kfake.Cluster) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.Ports(0), kfake.GroupMinSessionTimeout(time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return connect(t, strings.Join(c.ListenAddrs(), ","), testLog(t)), c
}

func testLog(t testing.TB) *zap.Logger {
	if os.Getenv("TAPEDECK_TEST_LOG") != "" {
		return zaptest.NewLogger(t)
	}
	return zap.NewNop()
}

func connect(t testing.TB, bootstrap string, log *zap.Logger) *env {
	t.Helper()
	e := &env{t: t, client: kafka.Client{Bootstrap: bootstrap, ClientID: "test", Log: log}, log: log}
	a, err := kafka.NewAdmin(e.client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	e.admin = a
	return e
}

// ctx ends with the test, or after ten minutes: it is for a slow machine under the race detector, and decides nothing.
func (e *env) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	e.t.Cleanup(cancel)
	return ctx
}

// unique makes names that no other test has used on a broker that is shared.
func unique(prefix string) string { return fmt.Sprintf("%s-%08x", prefix, rand.Uint32()) }

// topic creates an input topic.
func (e *env) topic(name string, partitions int32) {
	e.t.Helper()
	if err := e.admin.CreateTopic(e.ctx(), name, partitions, 0, nil); err != nil {
		e.t.Fatal(err)
	}
}

// produce writes records in the order given, without transactions.
func (e *env) produce(recs ...record.Record) {
	e.t.Helper()
	p, err := kafka.NewProducer(e.client, "", 0)
	if err != nil {
		e.t.Fatal(err)
	}
	defer p.Close()
	for i := range recs {
		if err := p.Send(e.ctx(), &recs[i]); err != nil {
			e.t.Fatal(err)
		}
	}
	if err := p.Flush(e.ctx()); err != nil {
		e.t.Fatal(err)
	}
}

// read returns the committed records of every partition of a topic.
func (e *env) read(topic string) map[int32][]record.Record {
	e.t.Helper()
	topics, err := e.admin.Topics(e.ctx(), topic)
	if err != nil {
		e.t.Fatal(err)
	}
	out := map[int32][]record.Record{}
	for p := range topics[topic].Partitions {
		recs, err := sink.ReadLog(e.ctx(), e.client, e.admin, kafka.TP{Topic: topic, Partition: p})
		if err != nil {
			e.t.Fatal(err)
		}
		out[p] = recs
	}
	return out
}

// lines is what a reader sees of a topic, one line a record, without offsets: output partition, then key, value, headers, timestamp.
func (e *env) lines(topic string) []string {
	e.t.Helper()
	var ls []string
	parts := e.read(topic)
	for p := range int32(len(parts)) {
		for _, r := range parts[p] {
			ls = append(ls, line(r))
		}
	}
	return ls
}

func line(r record.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d %s %s", r.Partition, r.Timestamp, bytesOf(r.Key), bytesOf(r.Value))
	for _, h := range r.Headers {
		fmt.Fprintf(&b, " %s=%s", h.Key, bytesOf(h.Value))
	}
	return b.String()
}

func bytesOf(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}

// outputs is what a reader sees of all output topics of a pipeline, by role. suffix is ".replay.<session>" or "".
func (e *env) outputs(p *pipeline.Pipeline, suffix string) map[string][]string {
	e.t.Helper()
	m := map[string][]string{}
	for role, s := range sink.Outputs(p, nil) {
		m[role] = e.lines(s.Name + suffix)
	}
	return m
}

// Diff says where two outputs differ; "" where they do not.
func diff(want, got map[string][]string) string {
	roles := make([]string, 0, len(want))
	for r := range want {
		roles = append(roles, r)
	}
	sort.Strings(roles)
	for _, role := range roles {
		w, g := want[role], got[role]
		for i := range max(len(w), len(g)) {
			a, b := "(nothing)", "(nothing)"
			if i < len(w) {
				a = w[i]
			}
			if i < len(g) {
				b = g[i]
			}
			if a != b {
				return fmt.Sprintf("%s: record %d of %d and %d\nwant %s\n got %s", role, i, len(w), len(g), a, b)
			}
		}
	}
	return ""
}

// until waits for a condition.
func (e *env) until(what string, f func() bool) {
	e.t.Helper()
	deadline := time.Now().Add(4 * time.Minute)
	for !f() {
		if time.Now().After(deadline) {
			e.t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// parse reads a pipeline.
func parse(t testing.TB, text string) *pipeline.Pipeline {
	t.Helper()
	p, err := pipeline.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Fares is a pipeline over JSON trips with late, future and poison records.
func fares(t testing.TB, name, topic string, keyed bool) *pipeline.Pipeline {
	t.Helper()
	output := fmt.Sprintf("output: {topic: %s-out, partitions: 3}", name)
	if keyed {
		output = fmt.Sprintf("keyed: partition\noutput: {topic: %s-out}", name)
	}
	return parse(t, fmt.Sprintf(`
name: %s
sources:
  - topic: %s
    format: json
    eventTime: {field: t, unit: ms}
    delay: 2s
    maxFuture: 1h
groupBy: [user]
window: {tumbling: {size: 1s}}
aggregates: {total: sum(price), n: count()}
%s
`, name, topic, output))
}

// base is the event time of the first trip, ms.
const base = 1_700_000_000_000

// Trips makes n seeded trips in each partition: out of order, some late, some future, some poison.
func trips(seed uint64, topic string, partitions int32, n int) []record.Record {
	r := rand.New(rand.NewPCG(seed, 7))
	var out []record.Record
	clock := make([]int64, partitions)
	for i := range n {
		for p := range partitions {
			clock[p] += r.Int64N(300)
			t := base + clock[p] - r.Int64N(600)
			rec := record.Record{Topic: topic, Partition: p, Timestamp: base + clock[p], Key: fmt.Appendf(nil, "k%d", i)}
			switch r.IntN(25) {
			case 0:
				t -= 5000 // late
			case 1:
				t += 2 * 3600 * 1000 // future
			case 2:
				rec.Value = []byte("not json")
			case 3:
				rec.Headers = []record.Header{{Key: "a"}, {Key: "a", Value: []byte{}}}
				t -= 5000
			}
			if rec.Value == nil {
				rec.Value = fmt.Appendf(nil, `{"t":%d,"user":"u%d","price":%d}`, t, r.IntN(6), r.IntN(100))
			}
			out = append(out, rec)
		}
	}
	return out
}
