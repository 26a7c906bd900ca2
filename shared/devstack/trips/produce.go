package trips

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
)

// ProduceOptions say where trips go.
type ProduceOptions struct {
	Bootstrap   string
	RegistryURL string
	Topic       string // made if it is not there, with record timestamps kept as they are and nothing deleted by age
	Partitions  int32  // of the topic; 0: as it is, 4 for a new one
	Source      Source
	Rate        float64 // records per second; 0: as fast as it goes
	// FlushAhead ends each partition with one more record whose event time lies this much after the newest, of user
	// "flush-<partition>". Event-time windows close only when every partition has passed them; without these records the last
	// windows stay open for ever. 0: none.
	FlushAhead time.Duration
	Log        *zap.Logger // nil: silent
}

// Summary tells what was produced.
type Summary struct {
	Topic       string  `json:"topic"`
	SchemaID    int     `json:"schemaId"`
	Records     int64   `json:"records"` // flush records included
	ByPartition []int64 `json:"byPartition"`
	Flushes     int64   `json:"flushes"`
	FirstMs     int64   `json:"minEventTime"` // of the trips, flush records not included
	LastMs      int64   `json:"maxEventTime"`
}

// Produce registers the schema under <topic>-value, makes the topic if needed, and sends every trip of the source in Confluent's wire
// format: key = user id, partition = PartitionOf(user), timestamp = arrival. It returns when all are acknowledged.
func Produce(ctx context.Context, o ProduceOptions) (s Summary, err error) {
	reg, err := schema.NewRegistry(schema.Config{URL: o.RegistryURL})
	if err != nil {
		return s, err
	}
	id, err := reg.Register(ctx, o.Topic+"-value", Schema, "AVRO")
	if err != nil {
		return s, fmt.Errorf("register the schema of trips: %w", err)
	}
	client := kafka.Client{Bootstrap: o.Bootstrap, ClientID: "tapedeck-trips", Log: o.Log}
	partitions, err := EnsureTopic(ctx, client, o.Topic, o.Partitions)
	if err != nil {
		return s, err
	}
	p, err := kafka.NewProducer(client, "", 0)
	if err != nil {
		return s, err
	}
	defer p.Close()

	s = Summary{Topic: o.Topic, SchemaID: id, ByPartition: make([]int64, partitions), FirstMs: math.MaxInt64, LastMs: math.MinInt64}
	send := func(t Trip, partition int32) error {
		value, err := t.AppendAvro(schema.AppendWire(nil, id))
		if err != nil {
			return err
		}
		r := record.Record{Topic: o.Topic, Partition: partition, Timestamp: t.ArrivalMs, Key: []byte(t.UserID), Value: value}
		if err := p.Send(ctx, &r); err != nil {
			return err
		}
		s.Records++
		s.ByPartition[partition]++
		return nil
	}
	pace := pacer{rate: o.Rate, start: time.Now()}
	var arrival int64
	for t, err := range o.Source {
		if err == nil {
			err = pace.wait(ctx, s.Records)
		}
		if err == nil {
			err = send(t, PartitionOf(t.UserID, partitions))
		}
		if err != nil {
			return s, err
		}
		s.FirstMs, s.LastMs = min(s.FirstMs, t.PickupMs), max(s.LastMs, t.PickupMs)
		arrival = max(arrival, t.ArrivalMs)
	}
	if s.Records == 0 {
		return s, errors.New("produce trips: the source has none")
	}
	if o.FlushAhead > 0 {
		at := s.LastMs + o.FlushAhead.Milliseconds()
		for partition := range partitions {
			t := Trip{UserID: fmt.Sprintf("flush-%d", partition), PickupMs: at, ArrivalMs: max(arrival, at), PickupZone: "none", DropoffZone: "none"}
			if err := send(t, partition); err != nil {
				return s, err
			}
			s.Flushes++
		}
	}
	return s, p.Flush(ctx)
}

// setupBound bounds the wait for Kafka before the first record.
const setupBound = 20 * time.Second

// EnsureTopic makes the topic if it is not there (want ≤ 0: 4 partitions) and returns its number of partitions. A topic with another
// number than asked for is an error.
func EnsureTopic(ctx context.Context, client kafka.Client, topic string, want int32) (int32, error) {
	a, err := kafka.NewAdmin(client)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	ctx, cancel := context.WithTimeout(ctx, setupBound)
	defer cancel()
	if err := a.Ping(ctx); err != nil {
		return 0, err
	}
	n := want
	if n <= 0 {
		n = 4
	}
	// The trips' timestamps are not today's: kept by age they would be deleted at once.
	err = a.CreateTopic(ctx, topic, n, 0, map[string]string{"retention.ms": "-1"})
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, kafka.ErrExists) {
		return 0, err
	}
	ts, err := a.Topics(ctx, topic)
	if err != nil {
		return 0, err
	}
	have := ts[topic].Partitions
	if want > 0 && have != want {
		return 0, fmt.Errorf("topic %s has %d partitions, not %d", topic, have, want)
	}
	return have, nil
}

// pacer spreads records evenly over time.
type pacer struct {
	rate  float64
	start time.Time
}

func (p pacer) wait(ctx context.Context, sent int64) error {
	if p.rate <= 0 {
		return ctx.Err()
	}
	d := time.Until(p.start.Add(time.Duration(float64(sent) / p.rate * float64(time.Second))))
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
