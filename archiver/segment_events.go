package archiver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/murmur2"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

const (
	maxEvents       = 10_000           // that wait; beyond it the oldest are dropped and counted
	eventsBound     = 20 * time.Second // for one round of sending
	eventsRetry     = 2 * time.Second
	eventsTellAgain = time.Minute
)

// SegmentEvent is the value of a record on events.topic. It says what the segment's header says and nothing else, so that every process that tells
// of a segment tells the same.
type SegmentEvent struct {
	Version      int    `json:"version"` // 1
	ClusterID    string `json:"clusterId"`
	Topic        string `json:"topic"`
	TopicID      string `json:"topicId"`
	Partition    int32  `json:"partition"`
	URL          string `json:"url"`
	Start        int64  `json:"start"` // [start, next)
	Next         int64  `json:"next"`
	Count        int64  `json:"count"`        // records
	Bytes        int64  `json:"bytes"`        // of the object
	MinTimestamp *int64 `json:"minTimestamp"` // ms; null without records
	MaxTimestamp *int64 `json:"maxTimestamp"`
}

// emitter tells of segments on a topic, beside the poll loop, which never waits for it. Nil: it is off.
type emitter struct {
	topic     string
	base      string // address of the store without its options
	topicsDir string
	admin     *kafka.Admin
	client    kafka.Client
	log       *zap.Logger
	m         *metrics

	wake chan struct{}
	told time.Time

	mu      sync.Mutex
	pending []record.Record
}

func newEmitter(topic, store, topicsDir string, admin *kafka.Admin, client kafka.Client, log *zap.Logger, m *metrics) *emitter {
	if topic == "" {
		return nil
	}
	base, _, _ := strings.Cut(store, "?")
	return &emitter{topic: topic, base: strings.TrimSuffix(base, "/") + "/", topicsDir: topicsDir, admin: admin, client: client, log: log, m: m, wake: make(chan struct{}, 1)}
}

// on tells of what a worker has found: a segment that is confirmed or adopted, or the tail at a partition's start, whose event a process
// that ended before may owe.
func (e *emitter) on(a *assigned, ev partition.Event) {
	if e == nil {
		return
	}
	switch ev := ev.(type) {
	case partition.PutDone:
		e.add(a.p.Status().Incarnation, ev.Tail.Header, ev.Tail.Size)
	case partition.Recovered:
		if ev.Tail != nil && a.p.State() != partition.Stopped {
			e.add(a.p.Status().Incarnation, ev.Tail.Header, ev.Tail.Size)
		}
	}
}

func (e *emitter) add(incarnation int, h *segment.Header, size int64) {
	name := segment.Name{TopicsDir: e.topicsDir, Topic: segment.Incarnation(h.Topic, incarnation), Partition: h.Partition, Start: h.Start}
	ev := SegmentEvent{Version: 1, ClusterID: h.ClusterID, Topic: h.Topic, TopicID: h.TopicID, Partition: h.Partition, URL: e.base + name.Format(),
		Start: h.Start, Next: h.Next, Count: h.Count, Bytes: size}
	if h.Count > 0 {
		ev.MinTimestamp, ev.MaxTimestamp = &h.MinTimestamp, &h.MaxTimestamp
	}
	value, err := json.Marshal(ev)
	if err != nil {
		e.log.Error("encode a segment's event", zap.Error(err))
		return
	}
	e.mu.Lock()
	if len(e.pending) == maxEvents {
		e.pending = e.pending[1:]
		e.m.events.WithLabelValues("dropped").Inc()
	}
	e.pending = append(e.pending, record.Record{Topic: e.topic, Key: []byte(h.TP().String()), Value: value})
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *emitter) run(ctx context.Context) {
	if e == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		}
		for e.flush(ctx) != nil {
			if pause(ctx, eventsRetry) != nil {
				return
			}
		}
	}
}

// flush sends what waits. What was not acknowledged waits on, and may be there twice then.
func (e *emitter) flush(ctx context.Context) error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	recs := e.pending
	e.pending = nil
	e.mu.Unlock()
	if len(recs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, eventsBound)
	defer cancel()
	err := e.send(ctx, recs)
	if err == nil {
		e.m.events.WithLabelValues("sent").Add(float64(len(recs)))
		return nil
	}
	e.m.events.WithLabelValues("failed").Inc()
	e.mu.Lock()
	e.pending = append(recs, e.pending...)
	if over := len(e.pending) - maxEvents; over > 0 {
		e.pending = e.pending[over:]
		e.m.events.WithLabelValues("dropped").Add(float64(over))
	}
	e.mu.Unlock()
	if time.Since(e.told) > eventsTellAgain {
		e.told = time.Now()
		e.log.Warn("events of segments are not taken by Kafka; trying again, the archive goes on", zap.String("events.topic", e.topic), zap.Error(err))
	}
	return err
}

// send makes a producer for one round: an error of a producer stays, and rounds are rare (one per segment).
func (e *emitter) send(ctx context.Context, recs []record.Record) error {
	topics, err := e.admin.Topics(ctx, e.topic)
	if err != nil {
		return err
	}
	n := topics[e.topic].Partitions
	if n == 0 {
		return errors.New("events.topic is not in Kafka: create it")
	}
	p, err := kafka.NewProducer(e.client, "", 0)
	if err != nil {
		return err
	}
	defer p.Close()
	for i := range recs {
		r := recs[i]
		r.Partition = murmur2.Partition(r.Key, n) // as Kafka's own clients place a key
		r.Timestamp = time.Now().UnixMilli()
		if err := p.Send(ctx, &r); err != nil {
			return fmt.Errorf("send an event: %w", err)
		}
	}
	return p.Flush(ctx)
}
