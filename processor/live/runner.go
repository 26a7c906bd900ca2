package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/schemas"
	"tapedeck.dev/tapedeck/processor/sink"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// Config of a Runner. Zero durations and counts mean the defaults named.
type Config struct {
	Pipeline         *pipeline.Pipeline
	Consumer         kafka.Client // with consumer.override.*
	Producer         kafka.Client // with producer.override.*
	Admin            *kafka.Admin
	Lookup           schemas.Lookup // in the schema registry; nil: none is configured
	GroupPrefix      string         // group and transactional ids begin with it; "tapedeck"
	InstanceID       string         // keyed pipelines: unique among the processes of the group, the same after a restart
	CommitInterval   time.Duration  // 1 s
	CommitRecords    int            // 100,000
	TxRecords        int            // 100,000: outputs in one transaction, about; larger closings go out in several
	TxBytes          int64          // 64 MiB: the same in bytes
	MaxStateBytes    int64          // 512 MiB: open windows of this process, about
	MetadataInterval time.Duration  // 5 s: how often new partitions and log ends are looked for
	KeepInterval     time.Duration  // 1 h: how old a stored position may become before it is stored again; far below the broker's offsets.retention
	TxTimeout        time.Duration  // 30 s: after it the broker aborts a transaction whose process died
	SessionTimeout   time.Duration  // of the group; 0: librdkafka's default
	StartLatest      bool           // a fresh pipeline begins at the log end
	Replication      int            // of topics that the processor creates; ≤ 0: the broker's default
	Log              *zap.Logger
}

func (c *Config) group() string { return c.GroupPrefix + "." + c.Pipeline.Name }

func (c *Config) transactionalID() string {
	if c.Pipeline.Keyed {
		return c.group() + "." + c.InstanceID
	}
	return c.group()
}

func (c *Config) inputs() []string {
	names := make([]string, len(c.Pipeline.Source))
	for i, s := range c.Pipeline.Source {
		names[i] = s.Topic
	}
	return names
}

// Waits between attempts after an error that time may heal.
const (
	backoffMin = 200 * time.Millisecond
	backoffMax = 15 * time.Second
	pollMax    = 50 * time.Millisecond
)

// Runner runs one pipeline live, for as long as its context lasts.
type Runner struct {
	cfg   Config
	board board
}

// NewRunner makes a Runner; it connects to nothing.
func NewRunner(cfg Config) (*Runner, error) {
	if cfg.Pipeline.Keyed && len(cfg.Pipeline.Source) != 1 {
		return nil, fmt.Errorf("pipeline %s: keyed pipelines of several sources are not in this version", cfg.Pipeline.Name)
	}
	if cfg.Pipeline.Keyed && cfg.InstanceID == "" {
		return nil, fmt.Errorf("pipeline %s is keyed: set instance.id", cfg.Pipeline.Name)
	}
	if cfg.GroupPrefix == "" {
		cfg.GroupPrefix = "tapedeck"
	}
	setDefault(&cfg.CommitInterval, time.Second)
	setDefault(&cfg.MetadataInterval, 5*time.Second)
	setDefault(&cfg.KeepInterval, time.Hour)
	setDefault(&cfg.TxTimeout, 30*time.Second)
	if cfg.CommitRecords <= 0 {
		cfg.CommitRecords = 100_000
	}
	if cfg.MaxStateBytes <= 0 {
		cfg.MaxStateBytes = 512 << 20
	}
	if cfg.TxRecords <= 0 {
		cfg.TxRecords = 100_000
	}
	if cfg.TxBytes <= 0 {
		cfg.TxBytes = 64 << 20
	}
	r := &Runner{cfg: cfg}
	r.board.st.State = Starting
	r.board.alive(time.Now())
	return r, nil
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d <= 0 {
		*d = v
	}
}

// Status returns what the pipeline does now.
func (r *Runner) Status() Status {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	st := r.board.st
	st.Partitions = append([]PartitionStatus{}, st.Partitions...)
	return st
}

// Beat returns when the loop last came round.
func (r *Runner) Beat() time.Time {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	return r.board.beat
}

// Run runs the pipeline until ctx ends; it returns nil then. It commits nothing on the way out: what is not committed is
// computed again. A state of affairs that only a person can put right leaves the pipeline FAILED, with the process up to tell it.
func (r *Runner) Run(ctx context.Context) error {
	log := r.cfg.Log.With(zap.String("pipeline", r.cfg.Pipeline.Name))
	wait := backoffMin
	for ctx.Err() == nil {
		r.board.setState(Starting, nil)
		commits := r.Status().Commits
		err := r.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if r.failed(err, log) {
			r.idle(ctx)
			return nil
		}
		if r.Status().Commits > commits {
			wait = backoffMin
		}
		log.Warn("pipeline starts again from what is committed", zap.Error(err), zap.Duration("after", wait))
		r.retrying(err)
		sleep(ctx, wait)
		wait = min(2*wait, backoffMax)
	}
	return nil
}

// failed reports whether err is one that only a person heals, and says so where it is.
func (r *Runner) failed(err error, log *zap.Logger) bool {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	log.Error("pipeline failed", zap.Error(err))
	r.board.setState(Failed, err)
	return true
}

func (r *Runner) retrying(err error) {
	r.board.setState(Retrying, err)
	r.board.update(func(st *Status) { st.Restarts++ })
	r.board.alive(time.Now())
}

// idle keeps the beat until ctx ends: a failed pipeline is not a dead process.
func (r *Runner) idle(ctx context.Context) {
	for ctx.Err() == nil {
		r.board.alive(time.Now())
		sleep(ctx, time.Second)
	}
}

func (r *Runner) once(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	decisions := sink.Spec{Name: r.cfg.Pipeline.DecisionsTopic(), Partitions: 1}
	if _, err := sink.Ensure(bounded, r.cfg.Admin, []sink.Spec{decisions}, r.cfg.Replication); err != nil {
		return refuseUnfit(err)
	}
	if _, err := inputTopics(bounded, &r.cfg); err != nil {
		return err
	}
	if r.cfg.Pipeline.Keyed {
		return r.runKeyed(ctx)
	}
	return r.runMerged(ctx)
}

func (r *Runner) consumer(group string) (*kafka.Consumer, error) {
	c, err := kafka.NewConsumer(kafka.ConsumerConfig{
		Client: r.cfg.Consumer, GroupID: group, Isolation: Isolation, SessionTimeout: r.cfg.SessionTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("make consumer of pipeline %s: %w", r.cfg.Pipeline.Name, err)
	}
	return c, nil
}

// Isolation is what a live run reads with; a replay that reproduces it must have read the same.
const Isolation = "read_committed"

func (r *Runner) pollWait() time.Duration { return min(pollMax, r.cfg.CommitInterval) }

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
