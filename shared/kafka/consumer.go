package kafka

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"go.uber.org/zap"
)

// ConsumerConfig configures a Consumer.
type ConsumerConfig struct {
	Client
	// GroupID is "" for a consumer without a group (Start only; a private id is made up for librdkafka). With a group and without Subscribe
	// it reads without being a member, and may store positions while the group has no member (else ErrFenced).
	GroupID         string
	Isolation       string        // read_committed (default) or read_uncommitted
	SessionTimeout  time.Duration // 0: librdkafka's default
	QueuedMaxBytes  int           // bound on librdkafka's prefetch per consumer, in bytes; 0: 64 MiB
	MaxBatchRecords int           // per Batch; 0: 1000
	MaxPollBytes    int           // bound on what one Poll returns, in bytes, give or take a record; 0: 32 MiB
	// ShareMemory saves a copy of every record: the bytes of records lie in memory that hundreds of them share. Only for a user that
	// keeps no part of a record beyond the handling of its Batch.
	ShareMemory bool

	oneByOne bool // poll by the Go client's own Poll, for tests
}

// Consumer fetches. Poll, Start, Stop, Pause, Resume and Subscribe are called from one goroutine; Commit, Committed,
// GroupMetadata and Watermarks may be called from others. Close comes last.
//
// A partition is handed to librdkafka only at Start, with the position. So nothing is fetched before, and no committed
// position or reset policy is ever asked. Stop and Pause are librdkafka's pause: it drops what was prefetched and, by a version
// that it raises before the call returns, whatever is still on its way. Start after Stop, and Resume, are a seek to the exact
// position followed by librdkafka's resume.
type Consumer struct {
	c        *kafka.Consumer
	admin    *kafka.AdminClient // on the same connections
	log      *zap.Logger
	logs     <-chan struct{}
	tokens   *refresher
	group    string // "" without a group
	maxBatch int
	maxBytes int // of one Poll

	shareMemory bool

	parts map[TP]*partition
	last  *partition // of the last record, which is likely that of the next
	out   *collector // being filled; nil outside Poll
	bulk  *bulk      // nil: events are polled one by one
	polls int64      // of librdkafka's queue, many events each
	left  []Event    // arose outside Poll, handed over by the next

	topics []string // subscribed to

	assignments atomic.Int64

	ops sync.WaitGroup // Commit, Committed and Watermarks under way

	mu         sync.Mutex
	closed     bool
	subscribed bool
	owned      map[TP]bool // in a group: what it gave us
}

// partition is what the consumer knows of one partition. next is the heart of it: the offset of the next record to be handed
// over, whatever librdkafka has prefetched.
type partition struct {
	tp    TP
	next  int64
	epoch int32 // of the record before next

	active bool // between Start and Stop
	paused bool // by Pause

	assigned  bool // librdkafka has it
	libPaused bool // librdkafka holds it back; the flag outlives an assignment

	stale       int64 // the poll whose further events of the partition are to be dropped
	unvalidated bool  // the leader has not been asked yet whether the log still has the record before next

	failures int       // refused positions in a row (recover.go)
	retryAt  time.Time // when to ask again; zero: nothing to do
	reason   error     // of the last failure
}

// NewConsumer makes a consumer; it does not wait for a broker (see Admin.Ping). Auto-commit is off, auto.offset.reset=error,
// enable.partition.eof=true, cooperative-sticky.
func NewConsumer(cfg ConsumerConfig) (*Consumer, error) {
	m, tokens, err := cfg.settings()
	if err != nil {
		return nil, fmt.Errorf("configure kafka consumer: %w", err)
	}
	kc, err := kafka.NewConsumer(&m)
	if err != nil {
		return nil, wrap(err, "configure kafka consumer")
	}
	admin, err := kafka.NewAdminClientFromConsumer(kc)
	if err != nil {
		return nil, errors.Join(wrap(err, "configure kafka consumer"), kc.Close())
	}
	c := &Consumer{
		c: kc, admin: admin, log: cfg.logger(), group: cfg.GroupID, maxBatch: cfg.MaxBatchRecords,
		parts: map[TP]*partition{}, owned: map[TP]bool{}, shareMemory: cfg.ShareMemory,
	}
	if !cfg.oneByOne {
		c.bulk = newBulk(kc)
	}
	if c.maxBatch <= 0 {
		c.maxBatch = 1000
	}
	if c.maxBytes = cfg.MaxPollBytes; c.maxBytes <= 0 {
		c.maxBytes = pollBytes
	}
	c.logs = forwardLogs(kc.Logs(), c.log)
	c.tokens = startRefresher(kc, tokens, c.log, nil)
	return c, nil
}

// leastMessage is the size in bytes below which messages count as this large in the bound of the queue.
const leastMessage = 256

// settings returns librdkafka's configuration, and where its access tokens come from.
func (cfg ConsumerConfig) settings() (kafka.ConfigMap, tokenSource, error) {
	m, err := cfg.config()
	if err != nil {
		return nil, nil, err
	}
	group := cfg.GroupID
	if group == "" {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, nil, err
		}
		group = "tapedeck-private-" + hex.EncodeToString(b[:])
	}
	isolation := cfg.Isolation
	switch isolation {
	case "":
		isolation = "read_committed"
	case "read_committed", "read_uncommitted":
	default:
		return nil, nil, fmt.Errorf("isolation %q is neither read_committed nor read_uncommitted", isolation)
	}
	queued := cfg.QueuedMaxBytes
	if queued <= 0 {
		queued = 64 << 20
	}
	for k, v := range map[string]any{
		"group.id":                        group,
		"enable.auto.commit":              false,
		"enable.auto.offset.store":        false,
		"auto.offset.reset":               "error",
		"enable.partition.eof":            true,
		"isolation.level":                 isolation,
		"partition.assignment.strategy":   "cooperative-sticky",
		"go.application.rebalance.enable": true,
		"check.crcs":                      true,
		"allow.auto.create.topics":        false,
		// The default of 1000 ms stalls a consumer with a backlog for a second each time the queue is full.
		"fetch.queue.backoff.ms": 1,
		// librdkafka counts the bytes of records, and allocates some hundred more for each: of small ones their number is what fills memory.
		"queued.min.messages":        min(1_000_000, max(1000, queued/leastMessage)),
		"queued.max.messages.kbytes": max(1, queued/1024),
		// How long a broker waits for new records, and so how late an end of partition and a seek at the end of the log are seen.
		"fetch.wait.max.ms": 100,
		// After an error of a partition, a refused position included.
		"fetch.error.backoff.ms": 100,
		// How soon new partitions of a topic are seen. Also a change of the subscription that falls into a reconnect waits for this;
		// the default is five minutes.
		"topic.metadata.refresh.interval.ms": 10_000,
		// How long a topic must be missing from the brokers' answers before it counts as deleted.
		"topic.metadata.propagation.max.ms": 5000,
		// One answer may hold this much beyond the queue's bound.
		"fetch.max.bytes": 16 << 20,
	} {
		m[k] = v
	}
	if cfg.SessionTimeout > 0 {
		ms := int(cfg.SessionTimeout.Milliseconds())
		m["session.timeout.ms"] = ms
		m["heartbeat.interval.ms"] = max(1, min(3000, ms/3))
	}
	tokens, err := cfg.override(m, refusedConsumer)
	return m, tokens, err
}

// Subscribe joins the group for exactly these topics; call again to change them.
func (c *Consumer) Subscribe(topics []string) error {
	if c.group == "" {
		return errors.New("subscribe: this consumer has no group")
	}
	c.topics = slices.Clone(topics)
	c.mu.Lock()
	c.subscribed = true
	c.mu.Unlock()
	var err error
	if len(topics) == 0 {
		err = c.c.Unsubscribe()
	} else {
		err = c.c.SubscribeTopics(topics, c.rebalance)
	}
	return wrap(err, "subscribe group %s to %d topics", c.group, len(topics))
}

// begin registers a call that may run beside Poll, so that Close waits for it.
func (c *Consumer) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.ops.Add(1)
	return nil
}

// Close waits for calls under way and leaves the group.
func (c *Consumer) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	c.ops.Wait()
	c.tokens.close()
	err := c.c.Close()
	<-c.logs
	return wrap(err, "close kafka consumer")
}

// emit adds an event to what Poll returns; outside Poll it is kept for the next.
func (c *Consumer) emit(e Event) {
	if c.out != nil {
		c.out.add(e)
		return
	}
	c.left = append(c.left, e)
}
