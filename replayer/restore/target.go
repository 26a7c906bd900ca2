package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/replayer/target"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/schema"
)

// Limits of one transaction. Its timeout at the brokers is far above the time that one is kept open, so that none is ended behind our back.
const (
	txBytes   = 32 << 20
	txAge     = 5 * time.Second
	txTimeout = time.Minute
	// ahead is how many loaded segments wait per lane.
	ahead = 2
)

// tuning holds what tests change.
type tuning struct {
	records, bytes int
	age            time.Duration
	// at is called before and after each step of a lane (−1: of the job); an error ends the execution as a kill would: nothing is closed or aborted properly.
	at func(ctx context.Context, step string, lane int) error
	// sending is called before each record is sent, with its place in the archive; nil: nothing is.
	sending func(tp kafka.TP, offset, timestamp int64)
}

// Target is a Kafka cluster as a destination of jobs.
type Target struct {
	name   string
	conf   target.Kafka
	runner *run.Runner
	admin  *kafka.Admin
	// registry is the target's schema registry; nil: it has none.
	registry *schema.Registry
	log      *zap.Logger
	tune     tuning
}

// New makes a destination of a target of type kafka; it does not wait for a broker.
func New(name string, conf target.Kafka, r *run.Runner) (*Target, error) {
	d := &Target{name: name, conf: conf, runner: r, log: r.Log.With(zap.String("target", name)),
		tune: tuning{records: conf.TxRecords, bytes: txBytes, age: txAge}}
	if d.tune.records <= 0 {
		d.tune.records = target.DefaultTxRecords
	}
	if conf.Registry.URL != "" {
		reg, err := schema.NewRegistry(conf.Registry)
		if err != nil {
			return nil, fmt.Errorf("targets.%s.%w", name, err)
		}
		d.registry = reg
	}
	admin, err := kafka.NewAdmin(d.client(nil))
	if err != nil {
		return nil, d.setting(err)
	}
	d.admin = admin
	return d, nil
}

// Close frees connections.
func (d *Target) Close() { d.admin.Close() }

// client configures a connection.
func (d *Target) client(more map[string]string) kafka.Client {
	over := maps.Clone(d.conf.Overrides)
	if over == nil {
		over = map[string]string{}
	}
	maps.Copy(over, more)
	return kafka.Client{Bootstrap: d.conf.Bootstrap, ClientID: "tapedeck-replayer", Overrides: over, Log: d.log.Named("kafka")}
}

// Client is the configuration of a connection to this target.
func (d *Target) Client() kafka.Client { return d.client(nil) }

// Progress is the name of the topic that keeps the progress.
func (d *Target) Progress() string { return d.conf.Progress }

// setting puts the target's name before that of a setting.
func (d *Target) setting(err error) error { return fmt.Errorf("targets.%s: %w", d.name, err) }

// Accepts reports why a request makes no sense for a Kafka, whatever the archive holds; nil where it does.
func (d *Target) Accepts(r *job.Request) error {
	if err := r.CheckKafka(); err != nil {
		return err
	}
	return d.acceptsExtras(r)
}

// DryRun plans a request. Nothing is repeated, nothing is changed.
func (d *Target) DryRun(ctx context.Context, r *job.Request) (*run.Plan, error) {
	return d.plan(ctx, r, "")
}

// Prepare plans a job, creates what is missing at the target, and marks the topics as targets of a replay; or it finds the segments of the stored plan
// again. It repeats what may pass.
func (d *Target) Prepare(ctx context.Context, j *job.Job) (*run.Plan, error) {
	if j.Plan != nil {
		if j.Plan.Kafka == nil {
			return nil, run.Failf("the job was planned for a target of another type than kafka, which targets.%s is now: configure it as it was, or start a job with another name", d.name)
		}
		return run.Retry(ctx, d.runner, "store", func(ctx context.Context) (*run.Plan, error) {
			return run.Replan(ctx, d.runner.Source(), &j.Request, j.Plan)
		})
	}
	return run.Retry(ctx, d.runner, "plan", func(ctx context.Context) (*run.Plan, error) {
		p, err := d.plan(ctx, &j.Request, j.ID)
		if err != nil {
			return nil, err
		}
		if err := d.ensure(ctx, p.Kafka); err != nil {
			return nil, err
		}
		return p, d.restoreSchemas(ctx, j, p)
	})
}

// Start prepares an execution of j, which has been planned as plan, under j's epoch.
func (d *Target) Start(j *job.Job, plan *run.Plan) run.Execution { return newExecution(d, j, plan) }

// definite turns an error of Kafka that will be the same the next time into a *run.Failure.
func (d *Target) definite(err error) error {
	var setting *kafka.SettingError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kafka.ErrUnauthorized):
		return run.Failf("target %s does not allow it; grant what docs/restore.md lists (Permissions): %w", d.name, err)
	case errors.Is(err, kafka.ErrCannotProduce):
		return run.Failf("target %s can never take a record of the job: %w", d.name, err)
	case errors.As(err, &setting) && setting.Final:
		return run.Failf("targets.%s.%w", d.name, err)
	}
	return err
}
