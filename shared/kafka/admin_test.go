package kafka

import (
	"context"
	"errors"
	"net"
	"regexp"
	"testing"
	"time"
)

func TestAdminTopics(t *testing.T) {
	e := newEnv(t)
	e.must(e.admin.Ping(e.ctx()))
	id, err := e.admin.ClusterID(e.ctx())
	e.must(err)
	if id == "" {
		t.Fatal("no cluster id")
	}

	name := e.topic(3, "retention.ms", "123456789")
	if err := e.admin.CreateTopic(e.ctx(), name, 3, 0, nil); !errors.Is(err, ErrExists) {
		t.Fatalf("second create: %v, want ErrExists", err)
	}
	ts, err := e.admin.Topics(e.ctx(), name, unique("missing"))
	e.must(err)
	got, ok := ts[name]
	if len(ts) != 1 || !ok || got.Partitions != 3 || got.Internal {
		t.Fatalf("topics: %+v", ts)
	}
	if !regexp.MustCompile(`^[A-Za-z0-9_-]{22}$`).MatchString(got.ID) {
		t.Fatalf("topic id %q is not Kafka's base64", got.ID)
	}
	all, err := e.admin.Topics(e.ctx())
	e.must(err)
	if all[name] != got {
		t.Fatalf("listing all: %+v, want %+v", all[name], got)
	}

	cfg, err := e.admin.TopicConfig(e.ctx(), name)
	e.must(err)
	if cfg["retention.ms"] != "123456789" || cfg["cleanup.policy"] != "delete" {
		t.Fatalf("config: %v", cfg)
	}

	e.must(e.admin.CreatePartitions(e.ctx(), name, 5))
	ts, err = e.admin.Topics(e.ctx(), name)
	e.must(err)
	if ts[name].Partitions != 5 {
		t.Fatalf("after growth: %+v", ts[name])
	}

	e.must(e.admin.DeleteTopic(e.ctx(), name))
	if err := e.admin.DeleteTopic(e.ctx(), name); !errors.Is(err, ErrNotFound) {
		t.Fatalf("second delete: %v, want ErrNotFound", err)
	}
	e.must(e.admin.CreateTopic(e.ctx(), name, 1, 0, nil))
	ts, err = e.admin.Topics(e.ctx(), name)
	e.must(err)
	if ts[name].ID == got.ID {
		t.Fatal("the topic that was created again has the same id")
	}
}

func TestAdminOffsets(t *testing.T) {
	e := newEnv(t)
	name := e.topic(2)
	a, b := TP{Topic: name, Partition: 0}, TP{Topic: name, Partition: 1}
	e.fill(a, 0, 100)
	e.must(e.admin.DeleteRecords(e.ctx(), map[TP]int64{a: 40}))
	rs, err := e.admin.Offsets(e.ctx(), []TP{a, b})
	e.must(err)
	if rs[a] != (LogRange{40, 100}) || rs[b] != (LogRange{0, 0}) {
		t.Fatalf("offsets: %v", rs)
	}
	for _, c := range []struct {
		ms   int64
		want int64
	}{{1_700_000_000_060, 60}, {1_700_000_000_099, 99}, {1_700_000_000_100, 100}} {
		got, err := e.admin.OffsetsForTime(e.ctx(), []TP{a, b}, c.ms)
		e.must(err)
		if got[a] != c.want || got[b] != 0 {
			t.Fatalf("offsets for %d: %v, want %d and 0", c.ms, got, c.want)
		}
	}
	if _, err := e.admin.Offsets(e.ctx(), []TP{{Topic: name, Partition: 7}}); !errors.Is(err, ErrNotFound) {
		t.Fatalf("offsets of no partition: %v", err)
	}
	if _, err := e.admin.TopicConfig(e.ctx(), unique("missing")); !errors.Is(err, ErrNotFound) {
		t.Fatalf("config of no topic: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	// A port that nobody listens on.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	a, err := NewAdmin(Client{Bootstrap: addr})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for name, call := range map[string]func(context.Context) error{
		"ping":   a.Ping,
		"topics": func(ctx context.Context) error { _, err := a.Topics(ctx, "x"); return err },
		"all":    func(ctx context.Context) error { _, err := a.Topics(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
		start := time.Now()
		err := call(ctx)
		cancel()
		if !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v, want ErrUnreachable", name, err)
		}
		if d := time.Since(start); d > time.Minute {
			t.Errorf("%s: took %s with a bound of 0.7 s", name, d)
		}
	}
}

func TestOverrides(t *testing.T) {
	base := Client{Bootstrap: "127.0.0.1:1"}
	with := func(k, v string) Client {
		c := base
		c.Overrides = map[string]string{k: v}
		return c
	}
	for k := range refusedConsumer {
		if _, err := NewConsumer(ConsumerConfig{Client: with(k, "x")}); err == nil {
			t.Errorf("consumer override %s was taken", k)
		}
	}
	for k := range refusedProducer {
		if _, err := NewProducer(with(k, "x"), "", 0); err == nil {
			t.Errorf("producer override %s was taken", k)
		}
	}
	for _, k := range []string{"bootstrap.servers", "go.batch.producer", "no.such.setting"} {
		if _, err := NewAdmin(with(k, "x")); err == nil {
			t.Errorf("admin override %s was taken", k)
		}
	}
	m, _, err := ConsumerConfig{Client: with("fetch.min.bytes", "7"), QueuedMaxBytes: 1 << 20}.settings()
	if err != nil || m["fetch.min.bytes"] != "7" || m["queued.max.messages.kbytes"] != 1024 {
		t.Errorf("settings: %v, %v", m, err)
	}
	if _, err := NewConsumer(ConsumerConfig{Client: base, Isolation: "x"}); err == nil {
		t.Error("an unknown isolation was taken")
	}
	if _, err := NewAdmin(Client{}); err == nil {
		t.Error("no bootstrap was taken")
	}
}
