package devstack_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"

	"tapedeck.dev/tapedeck/shared/devstack"
	"tapedeck.dev/tapedeck/shared/devstack/trips"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// The whole stack as clients see it: trips go in through the registry and come out of Kafka, each once, in its partition, with
// their arrival as timestamp; the store at StoreURL takes and gives; and a second stack can follow the first.
func TestStack(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	for round := range 2 {
		s, err := devstack.Start(ctx, devstack.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		useStore(ctx, t, s)
		useKafka(ctx, t, s)
		if err := s.Close(); err != nil {
			t.Fatalf("round %d: close: %v", round, err)
		}
		if err := s.Close(); err != nil {
			t.Fatalf("round %d: second close: %v", round, err)
		}
		if c, err := net.DialTimeout("tcp", s.Bootstrap, time.Second); err == nil {
			_ = c.Close()
			t.Fatal("the broker still listens after Close")
		}
	}
}

func useStore(ctx context.Context, t *testing.T, s *devstack.Stack) {
	t.Helper()
	for _, v := range s.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	st, err := storeurl.Open(ctx, s.StoreURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := st.Create(ctx, "a/b", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	if err := st.Create(ctx, "a/b", []byte("other")); !errors.Is(err, store.ErrExists) {
		t.Fatalf("a second create: %v, want ErrExists", err)
	}
	if got, err := st.Get(ctx, "a/b"); err != nil || string(got) != "kept" {
		t.Fatalf("get: %q, %v", got, err)
	}
}

func useKafka(ctx context.Context, t *testing.T, s *devstack.Stack) {
	t.Helper()
	const n, partitions = 2000, 4
	gen := trips.GenerateOptions{Seed: 3, Count: n}
	sum, err := trips.Produce(ctx, trips.ProduceOptions{Bootstrap: s.Bootstrap, RegistryURL: s.RegistryURL, Topic: "trips",
		Partitions: partitions, Source: trips.Generate(gen), FlushAhead: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if sum.Records != n+partitions || sum.Flushes != partitions || len(sum.ByPartition) != partitions {
		t.Fatalf("summary: %+v", sum)
	}
	reg, err := schema.NewRegistry(schema.Config{URL: s.RegistryURL})
	if err != nil {
		t.Fatal(err)
	}
	sch, err := reg.ByID(ctx, sum.SchemaID)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := avro.Parse(sch.Text)
	if err != nil {
		t.Fatal(err)
	}

	got := readAll(ctx, t, s.Bootstrap, "trips", partitions)
	// What must be there, per partition in order.
	want := make([][]trips.Trip, partitions)
	for trip, err := range trips.Generate(gen) {
		if err != nil {
			t.Fatal(err)
		}
		p := trips.PartitionOf(trip.UserID, partitions)
		want[p] = append(want[p], trip)
	}
	for p := range int32(partitions) {
		rs := got[p]
		if len(rs) != len(want[p])+1 || int64(len(rs)) != sum.ByPartition[p] {
			t.Fatalf("partition %d: %d records, want %d and one to close windows", p, len(rs), len(want[p]))
		}
		for i, r := range rs {
			id, payload, ok := schema.WireID(r.Value)
			if !ok || id != sum.SchemaID {
				t.Fatalf("record %d-%d is not in the wire format of schema %d", p, i, sum.SchemaID)
			}
			var trip trips.Trip
			if _, err := writer.Decode(payload, &trip); err != nil {
				t.Fatal(err)
			}
			trip.ArrivalMs = r.Timestamp
			if string(r.Key) != trip.UserID {
				t.Fatalf("record %d-%d of %s has the key %s", p, i, trip.UserID, r.Key)
			}
			if i < len(want[p]) {
				if trip != want[p][i] {
					t.Fatalf("record %d-%d: %+v, want %+v", p, i, trip, want[p][i])
				}
			} else if trip.PickupMs != sum.LastMs+60_000 || trip.ArrivalMs < trip.PickupMs {
				t.Fatalf("the closing record: %+v, newest trip %d", trip, sum.LastMs)
			}
		}
	}
	if _, err := trips.Produce(ctx, trips.ProduceOptions{Bootstrap: s.Bootstrap, RegistryURL: s.RegistryURL, Topic: "trips",
		Partitions: partitions + 1, Source: trips.Generate(gen)}); err == nil {
		t.Fatal("another number of partitions was taken for an existing topic")
	}
}

func readAll(ctx context.Context, t *testing.T, bootstrap, topic string, partitions int32) [][]record.Record {
	t.Helper()
	c, err := kafka.NewConsumer(kafka.ConsumerConfig{Client: kafka.Client{Bootstrap: bootstrap}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	for p := range partitions {
		if err := c.Start(kafka.Position{TP: kafka.TP{Topic: topic, Partition: p}, LeaderEpoch: record.NoEpoch}); err != nil {
			t.Fatal(err)
		}
	}
	out := make([][]record.Record, partitions)
	ended := map[int32]bool{}
	for len(ended) < int(partitions) {
		evs, err := c.Poll(ctx, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range evs {
			switch ev := ev.(type) {
			case kafka.Batch:
				out[ev.Partition] = append(out[ev.Partition], ev.Records...)
			case kafka.EndOfPartition:
				ended[ev.Partition] = true
			default:
				t.Fatalf("%#v", ev)
			}
		}
	}
	return out
}

// A stack on chosen ports, and a port that is taken.
func TestPorts(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if s, err := devstack.Start(ctx, devstack.Options{RegistryPort: port}); err == nil {
		_ = s.Close()
		t.Fatal("a taken port was taken again")
	} else if !strings.Contains(err.Error(), "schema registry on port") {
		t.Fatalf("the error does not name what could not start: %v", err)
	}
	_ = l.Close()
	s, err := devstack.Start(ctx, devstack.Options{RegistryPort: port})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, p, _ := net.SplitHostPort(strings.TrimPrefix(s.RegistryURL, "http://")); p != portOf(l) {
		t.Fatalf("registry at %s, asked for port %d", s.RegistryURL, port)
	}
}

func portOf(l net.Listener) string {
	_, p, _ := net.SplitHostPort(l.Addr().String())
	return p
}
