// Package barepoll is the poll loop that everything built on confluent-kafka-go is measured against: one consumer, tuned, that reads
// every record and counts it. It is for benchmarks alone; nothing of the product imports it.
package barepoll

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// Result of a run.
type Result struct {
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"` // of keys and values
	// Seconds from the assignment of the partitions to the last record.
	Seconds float64 `json:"seconds"`
}

// Run reads a topic from its start with a group of its own until want records were read.
func Run(ctx context.Context, bootstrap, topic string, want int64) (r Result, err error) {
	c, err := kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers":  bootstrap,
		"group.id":           fmt.Sprintf("tapedeck-bench-loop-%d", time.Now().UnixNano()),
		"auto.offset.reset":  "earliest",
		"enable.auto.commit": false,
		// What makes the loop fast: with the default backoff of 1000 ms it stalls for a second whenever the queue is full.
		"fetch.queue.backoff.ms":          1,
		"queued.min.messages":             1_000_000,
		"enable.metrics.push":             false,
		"go.application.rebalance.enable": true,
	})
	if err != nil {
		return r, fmt.Errorf("make the consumer: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var assigned, last time.Time
	if err := c.SubscribeTopics([]string{topic}, func(c *kafka.Consumer, ev kafka.Event) error {
		if e, ok := ev.(kafka.AssignedPartitions); ok {
			assigned = time.Now()
			return c.Assign(e.Partitions)
		}
		return nil
	}); err != nil {
		return r, fmt.Errorf("subscribe to %s: %w", topic, err)
	}
	for r.Records < want {
		switch e := c.Poll(100).(type) {
		case *kafka.Message:
			if err := e.TopicPartition.Error; err != nil {
				return r, fmt.Errorf("read %s: %w", e.TopicPartition, err)
			}
			r.Records++
			r.Bytes += int64(len(e.Key) + len(e.Value))
		case kafka.Error:
			if e.IsFatal() {
				return r, fmt.Errorf("read %s: %w", topic, e)
			}
		case nil:
			if err := ctx.Err(); err != nil {
				return r, fmt.Errorf("read %s: %d of %d records: %w", topic, r.Records, want, err)
			}
		}
	}
	last = time.Now()
	r.Seconds = last.Sub(assigned).Seconds()
	return r, nil
}
