// Package kafka is the only importer of confluent-kafka-go. It hands over records in batches per partition, so that a
// faster fetch path can take its place without a change above it.
package kafka

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/record"
)

// TP names one log.
type TP = record.TopicPartition

// Errors that this package's errors wrap.
var (
	ErrUnreachable  = errors.New("kafka is unreachable")      // no broker answered within the bound
	ErrFenced       = errors.New("fenced by a newer process") // producer fenced, or the group moved on: stop using this object
	ErrAbortable    = errors.New("transaction must be aborted")
	ErrNotFound     = errors.New("no such topic or partition")
	ErrExists       = errors.New("topic exists")
	ErrUnauthorized = errors.New("not authorized")
)

// Client is what every connection needs.
type Client struct {
	Bootstrap string // host:port,…
	ClientID  string
	Overrides map[string]string // passed to librdkafka as they are (consumer.override.* or producer.override.*, security.*, sasl.*)
	Log       *zap.Logger
}

// Position is a place to fetch from.
type Position struct {
	TP
	Offset      int64 // absolute, ≥ 0
	LeaderEpoch int32 // of the record before Offset, record.NoEpoch where unknown: lets the broker detect truncation
}

// Event is one of Batch, EndOfPartition, Assigned, Revoked, OutOfRange, PartitionError, GroupError.
type Event interface{ isEvent() }

// Batch holds consecutive records of one partition in offset order, at least one.
type Batch struct {
	TP
	Records []record.Record
}

// EndOfPartition: everything below Offset has been handed over (past markers).
type EndOfPartition struct {
	TP
	Offset int64
}

// Assigned: the group gave these partitions to this consumer; nothing is fetched until Start.
type Assigned struct{ Partitions []TP }

// Revoked: these partitions are no longer this consumer's; fetching has stopped, and no batch of them follows. Lost is true where the
// group went on without us (another member may own them already).
type Revoked struct {
	Partitions []TP
	Lost       bool
}

// OutOfRange: the broker holds no record at the position asked for; it was asked again before this is reported. Fetching of the partition stopped.
type OutOfRange struct {
	TP
	Offset           int64
	LogStart, LogEnd int64
}

// PartitionError: fetching of the partition stopped with Err (topic deleted, not authorized, truncated, …).
type PartitionError struct {
	TP
	Err error
}

// GroupError: the consumer as a whole is in trouble; it goes on trying.
type GroupError struct{ Err error }

func (Batch) isEvent()          {}
func (EndOfPartition) isEvent() {}
func (Assigned) isEvent()       {}
func (Revoked) isEvent()        {}
func (OutOfRange) isEvent()     {}
func (PartitionError) isEvent() {}
func (GroupError) isEvent()     {}

// ConsumerConfig configures a Consumer.
type ConsumerConfig struct {
	Client
	GroupID         string        // "" for a consumer without a group (Assign only; a private id is made up for librdkafka)
	Isolation       string        // read_committed (default) or read_uncommitted
	SessionTimeout  time.Duration // 0: librdkafka's default
	QueuedMaxBytes  int           // bound on librdkafka's prefetch per consumer, in bytes; 0: 64 MiB
	MaxBatchRecords int           // per Batch; 0: 1000
}

// CommitOffset is a committed position with its metadata.
type CommitOffset struct {
	Offset      int64 // −1: none committed
	LeaderEpoch int32
	Metadata    string // < 4,096 bytes
}

// Consumer fetches. Poll, Start, Stop, Subscribe and Assign are called from one goroutine; Commit, Committed, GroupMetadata and
// Watermarks may be called from others.
type Consumer struct{}

// NewConsumer makes a consumer; it does not wait for a broker (see Admin.Ping). Auto-commit is off, auto.offset.reset=error,
// enable.partition.eof=true, cooperative-sticky.
func NewConsumer(cfg ConsumerConfig) (*Consumer, error) { panic("stub") }

// Subscribe joins the group for exactly these topics; call again to change them.
func (c *Consumer) Subscribe(topics []string) error { panic("stub") }

// Start begins (or begins again) to fetch a partition at a position. In a group it must be assigned.
func (c *Consumer) Start(p Position) error { panic("stub") }

// Stop ends fetching of a partition and drops what was prefetched; no Batch of it follows. It stays assigned in the group.
func (c *Consumer) Stop(tp TP) error { panic("stub") }

// Pause and Resume hold back and go on at the next record not yet handed over. Pausing what is paused (or resuming what is
// not) does nothing.
func (c *Consumer) Pause(tps ...TP) error  { panic("stub") }
func (c *Consumer) Resume(tps ...TP) error { panic("stub") }

// Poll waits up to max for events and returns them in order; none is not an error. It must be called at least every
// max.poll.interval.ms, or the group goes on without us.
func (c *Consumer) Poll(ctx context.Context, max time.Duration) ([]Event, error) { panic("stub") }

// Commit stores positions for the group, synchronously. ErrFenced where the partition is no longer ours.
func (c *Consumer) Commit(ctx context.Context, offs map[TP]CommitOffset) error { panic("stub") }

// Committed reads the group's stored positions; a partition without one has Offset −1. It waits for pending transactions (stable offsets).
func (c *Consumer) Committed(ctx context.Context, tps []TP) (map[TP]CommitOffset, error) {
	panic("stub")
}

// Watermarks asks the broker for log start and log end (the high watermark) of tp.
func (c *Consumer) Watermarks(ctx context.Context, tp TP) (logStart, logEnd int64, err error) {
	panic("stub")
}

// GroupMetadata is the opaque member and generation that fences SendOffsets.
type GroupMetadata struct{ _ any }

// GroupMetadata returns the current membership.
func (c *Consumer) GroupMetadata() (*GroupMetadata, error) { panic("stub") }

// Close leaves the group.
func (c *Consumer) Close() error { panic("stub") }

// Admin reads and changes topics. Safe for concurrent use.
type Admin struct{}

// NewAdmin makes an Admin.
func NewAdmin(cfg Client) (*Admin, error) { panic("stub") }

// Ping waits until a broker answers, at most until ctx ends: ErrUnreachable.
func (a *Admin) Ping(ctx context.Context) error { panic("stub") }

// ClusterID returns the cluster's id.
func (a *Admin) ClusterID(ctx context.Context) (string, error) { panic("stub") }

// Topic describes one topic.
type Topic struct {
	Name       string
	ID         string // base64 uuid of 22 characters as Kafka prints it
	Partitions int32
	Internal   bool
}

// Topics describes topics by name; all where names is empty. A named topic that is not there is left out of the answer.
func (a *Admin) Topics(ctx context.Context, names ...string) (map[string]Topic, error) { panic("stub") }

// TopicConfig returns a topic's configuration (non-default and default values).
func (a *Admin) TopicConfig(ctx context.Context, topic string) (map[string]string, error) {
	panic("stub")
}

// CreateTopic creates a topic and waits until its leaders answer. ErrExists. replication ≤ 0: the broker's default.
func (a *Admin) CreateTopic(ctx context.Context, name string, partitions int32, replication int, config map[string]string) error {
	panic("stub")
}

// CreatePartitions grows a topic to n partitions.
func (a *Admin) CreatePartitions(ctx context.Context, topic string, n int32) error { panic("stub") }

// DeleteTopic deletes a topic.
func (a *Admin) DeleteTopic(ctx context.Context, name string) error { panic("stub") }

// DeleteRecords deletes every record below the given offsets.
func (a *Admin) DeleteRecords(ctx context.Context, before map[TP]int64) error { panic("stub") }

// Offsets returns log start and log end (high watermark) per partition.
func (a *Admin) Offsets(ctx context.Context, tps []TP) (map[TP]LogRange, error) { panic("stub") }

// LogRange is [Start, End).
type LogRange struct{ Start, End int64 }

// OffsetsForTime returns per partition the first offset whose timestamp is ≥ ms, or the log end.
func (a *Admin) OffsetsForTime(ctx context.Context, tps []TP, ms int64) (map[TP]int64, error) {
	panic("stub")
}

// CommittedOffsets reads a group's stored positions without joining it (only partitions that have one).
func (a *Admin) CommittedOffsets(ctx context.Context, group string, tps []TP) (map[TP]CommitOffset, error) {
	panic("stub")
}

// Close frees connections.
func (a *Admin) Close() { panic("stub") }

// Producer produces to exact partitions, keeping order per partition (idempotent). Timestamps are as given.
type Producer struct{}

// NewProducer makes a producer; txID "" means without transactions.
func NewProducer(cfg Client, txID string, txTimeout time.Duration) (*Producer, error) { panic("stub") }

// Send queues r to its Topic and Partition with its Key, Value, Headers and Timestamp (Offset is ignored). It blocks while the queue is
// full. A delivery error is returned by the next Send, Flush or Commit.
func (p *Producer) Send(ctx context.Context, r *record.Record) error { panic("stub") }

// Flush waits until all that was sent is acknowledged.
func (p *Producer) Flush(ctx context.Context) error { panic("stub") }

// InitTransactions fences older producers of the same id. Retries inside until ctx ends.
func (p *Producer) InitTransactions(ctx context.Context) error { panic("stub") }

// Begin starts a transaction.
func (p *Producer) Begin() error { panic("stub") }

// SendOffsets adds positions of a consumer group to the transaction. With gm from GroupMetadata an older generation is ErrFenced;
// gm nil commits for the group id given without membership (safe only where the transactional id fences).
func (p *Producer) SendOffsets(ctx context.Context, group string, gm *GroupMetadata, offs map[TP]CommitOffset) error {
	panic("stub")
}

// CommitTx commits, retrying what can be retried until ctx ends. ErrAbortable: call AbortTx. ErrFenced: stop.
func (p *Producer) CommitTx(ctx context.Context) error { panic("stub") }

// AbortTx aborts the transaction.
func (p *Producer) AbortTx(ctx context.Context) error { panic("stub") }

// Close ends the producer without waiting for unsent records (an open transaction is left to be fenced or timed out).
func (p *Producer) Close() { panic("stub") }
