// Package bareproduce is the loop that a restore into Kafka is measured against: transactional producers of confluent-kafka-go, tuned, that write
// records from memory to their partitions and commit after so many. It is for benchmarks alone; nothing of the product imports it.
package bareproduce

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"tapedeck.dev/tapedeck/shared/record"
)

// Result of a run.
type Result struct {
	Records int64 `json:"records"`
	Commits int64 `json:"commits"`
	// Seconds from the first producer's start of transactions to the last commit.
	Seconds float64 `json:"seconds"`
}

// Run writes each list of records to topic by a producer of its own, all at the same time, keeping partitions, timestamps and headers. A transaction
// holds so many records, the last of each producer fewer.
func Run(ctx context.Context, bootstrap, topic string, lists [][]record.Record, perTransaction int) (r Result, err error) {
	producers := make([]*kafka.Producer, len(lists))
	defer func() {
		for _, p := range producers {
			if p != nil {
				p.Close()
			}
		}
	}()
	for i := range lists {
		producers[i], err = kafka.NewProducer(&kafka.ConfigMap{
			"bootstrap.servers": bootstrap,
			"transactional.id":  fmt.Sprintf("tapedeck-bench-%s-%d", topic, i),
			"linger.ms":         5,
			// A commit fails where a delivery has: no reports are needed, and they cost.
			"go.delivery.reports":          false,
			"queue.buffering.max.messages": 1_000_000,
			"enable.metrics.push":          false,
		})
		if err != nil {
			return r, fmt.Errorf("make a producer: %w", err)
		}
	}
	began := time.Now()
	errs := make([]error, len(lists))
	commits := make([]int64, len(lists))
	var wg sync.WaitGroup
	for i := range lists {
		wg.Go(func() { commits[i], errs[i] = produce(ctx, producers[i], topic, lists[i], perTransaction) })
	}
	wg.Wait()
	r.Seconds = time.Since(began).Seconds()
	for i, err := range errs {
		if err != nil {
			return r, fmt.Errorf("producer %d: %w", i, err)
		}
		r.Records += int64(len(lists[i]))
		r.Commits += commits[i]
	}
	return r, nil
}

func produce(ctx context.Context, p *kafka.Producer, topic string, records []record.Record, perTransaction int) (commits int64, err error) {
	if err := p.InitTransactions(ctx); err != nil {
		return 0, fmt.Errorf("init transactions: %w", err)
	}
	for len(records) > 0 {
		if err := p.BeginTransaction(); err != nil {
			return commits, fmt.Errorf("begin: %w", err)
		}
		n := min(perTransaction, len(records))
		for i := range records[:n] {
			r := &records[i]
			m := &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: r.Partition}, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)}
			for _, h := range r.Headers {
				m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
			}
			for {
				err := p.Produce(m, nil)
				if err == nil {
					break
				}
				if e, ok := err.(kafka.Error); !ok || e.Code() != kafka.ErrQueueFull {
					return commits, fmt.Errorf("produce: %w", err)
				}
				time.Sleep(time.Millisecond) // the queue has no other sign of room
				if err := ctx.Err(); err != nil {
					return commits, err
				}
			}
		}
		if err := p.CommitTransaction(ctx); err != nil {
			return commits, fmt.Errorf("commit: %w", err)
		}
		commits, records = commits+1, records[n:]
	}
	return commits, nil
}
