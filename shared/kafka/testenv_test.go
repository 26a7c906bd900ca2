package kafka

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"tapedeck.dev/tapedeck/shared/record"
)

// env is the broker under test: an in-process fake, or the one at TAPEDECK_TEST_KAFKA.
type env struct {
	t         *testing.T
	bootstrap string
	fake      *kfake.Cluster // nil on a real broker
	admin     *Admin
}

func newEnv(t *testing.T, opts ...kfake.Opt) *env {
	t.Helper()
	e := &env{t: t, bootstrap: os.Getenv("TAPEDECK_TEST_KAFKA")}
	if e.bootstrap == "" {
		opts = append([]kfake.Opt{kfake.Ports(0), kfake.GroupMinSessionTimeout(time.Second)}, opts...)
		c, err := kfake.NewCluster(opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		e.fake, e.bootstrap = c, strings.Join(c.ListenAddrs(), ",")
	}
	a, err := NewAdmin(e.client())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	e.admin = a
	return e
}

// onFake skips a test that needs faults which only the fake can be told to make.
func onFake(t *testing.T, opts ...kfake.Opt) *env {
	t.Helper()
	if os.Getenv("TAPEDECK_TEST_KAFKA") != "" {
		t.Skip("needs a broker that can be told to misbehave")
	}
	return newEnv(t, opts...)
}

func (e *env) client() Client {
	return Client{Bootstrap: e.bootstrap, ClientID: "test", Log: testLog(e.t)}
}

// offerEpochs makes the fake broker offer the version of OffsetForLeaderEpoch that librdkafka speaks (2; the fake itself
// begins at 3), so that librdkafka asks. The test must answer.
func (e *env) offerEpochs() {
	e.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(e.bootstrap))
	e.must(err)
	defer cl.Close()
	offered, err := kmsg.NewPtrApiVersionsRequest().RequestWith(e.ctx(), cl)
	e.must(err)
	for i := range offered.ApiKeys {
		if offered.ApiKeys[i].ApiKey == int16(kmsg.OffsetForLeaderEpoch) {
			offered.ApiKeys[i].MinVersion = 2
		}
	}
	e.fake.ControlKey(int16(kmsg.ApiVersions), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		if kreq.GetVersion() > offered.GetVersion() {
			return nil, nil, false // the fake says that it does not know the version
		}
		resp := kreq.ResponseKind().(*kmsg.ApiVersionsResponse)
		resp.ApiKeys = offered.ApiKeys
		return resp, nil, true
	})
}

func testLog(t *testing.T) *zap.Logger {
	if os.Getenv("TAPEDECK_TEST_LOG") == "" {
		return zap.NewNop()
	}
	return zaptest.NewLogger(t)
}

func (e *env) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	e.t.Cleanup(cancel)
	return ctx
}

func unique(prefix string) string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return prefix + "-" + hex.EncodeToString(b[:])
}

func (e *env) topic(partitions int32, config ...string) string {
	e.t.Helper()
	name := unique("t")
	// The records' timestamps are old: by age they would be deleted at once.
	m := map[string]string{"retention.ms": "-1"}
	for i := 0; i+1 < len(config); i += 2 {
		m[config[i]] = config[i+1]
	}
	if err := e.admin.CreateTopic(e.ctx(), name, partitions, 0, m); err != nil {
		e.t.Fatal(err)
	}
	return name
}

func (e *env) producer(txID string) *Producer {
	e.t.Helper()
	p, err := NewProducer(e.client(), txID, 0)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(p.Close)
	return p
}

// fill produces n records to a partition, values counting from the log end given.
func (e *env) fill(tp TP, from, n int) {
	e.t.Helper()
	p := e.producer("")
	defer p.Close()
	for i := range n {
		r := &record.Record{Topic: tp.Topic, Partition: tp.Partition, Timestamp: 1_700_000_000_000 + int64(from+i), Value: fmt.Appendf(nil, "v%d", from+i)}
		if err := p.Send(e.ctx(), r); err != nil {
			e.t.Fatal(err)
		}
	}
	if err := p.Flush(e.ctx()); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) consumer(group string, change ...func(*ConsumerConfig)) *Consumer {
	e.t.Helper()
	cfg := ConsumerConfig{Client: e.client(), GroupID: group}
	if d := os.Getenv("TAPEDECK_TEST_DEBUG"); d != "" {
		cfg.Overrides = map[string]string{"debug": d}
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := NewConsumer(cfg)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			e.t.Error(err)
		}
	})
	return c
}

// until polls until f, called with each event, returns true.
func (e *env) until(c *Consumer, what string, f func(Event) bool) {
	e.t.Helper()
	deadline := time.Now().Add(4 * time.Minute)
	for time.Now().Before(deadline) {
		evs, err := c.Poll(context.Background(), 100*time.Millisecond)
		if err != nil {
			e.t.Fatal(err)
		}
		done := false
		for _, ev := range evs {
			done = f(ev) || done
		}
		if done {
			return
		}
	}
	e.t.Fatalf("waited in vain for %s", what)
}

// untilEnd collects the records of a partition up to its end and returns them with the end.
func (e *env) untilEnd(c *Consumer, tp TP) (rs []record.Record, end int64) {
	e.t.Helper()
	e.until(c, "the end of "+tp.String(), func(ev Event) bool {
		switch ev := ev.(type) {
		case Batch:
			if ev.TP == tp {
				rs = append(rs, ev.Records...)
			}
		case EndOfPartition:
			end = ev.Offset
			return ev.TP == tp
		case PartitionError, OutOfRange, GroupError:
			e.t.Fatalf("%#v", ev)
		}
		return false
	})
	return rs, end
}

func (e *env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// wantOffsets checks that rs are exactly the offsets [from, to).
func wantOffsets(t *testing.T, rs []record.Record, from, to int64) {
	t.Helper()
	if int64(len(rs)) != to-from {
		t.Fatalf("got %d records, want %d: [%d, %d)", len(rs), to-from, from, to)
	}
	for i, r := range rs {
		if r.Offset != from+int64(i) {
			t.Fatalf("record %d has offset %d, want %d", i, r.Offset, from+int64(i))
		}
	}
}

// errText spells out what %#v hides.
func errText(ev Event) string {
	switch ev := ev.(type) {
	case GroupError:
		return ": " + ev.Err.Error()
	case PartitionError:
		return ": " + ev.Err.Error()
	}
	return ""
}
