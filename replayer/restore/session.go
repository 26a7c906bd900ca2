package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// Steps of a job at the target, in order; docs/restore.md has the table. Tests stop at each.
const (
	stepInit     = "init"     // the lane's producer fences older ones of its transactional id
	stepRead     = "read"     // progress is read
	stepClaim    = "claim"    // the job's epoch is written
	stepProduce  = "produce"  // the records of a transaction are sent and acknowledged
	stepProgress = "progress" // their progress is sent
	stepCommit   = "commit"   // the transaction is committed
	stepVerify   = "verify"   // the target's log is compared
	stepGroups   = "groups"   // positions of one consumer group are set
)

// txID is the transactional id of a lane. The job's random id is part of it, so that a name that is used again has another history.
func txID(j *job.Job, lane int) string {
	return fmt.Sprintf("tapedeck-replay-%s-%s-%d", j.Request.Name, j.ID, lane)
}

// owner is the right to write for a job: every lane's producer has fenced its older ones, and what they committed is known.
type owner struct {
	lanes  []*kafka.Producer
	ledger *ledger
}

func (s *owner) close() {
	for _, p := range s.lanes {
		if p != nil {
			p.Close()
		}
	}
}

// open fences, then reads, then claims. The order is what makes it safe: after a lane's InitTransactions no older producer of it can commit any more, so
// what is read then is all there will ever be but ours. Producers alone do not tell the newer owner from one that wakes up late and fences it in turn;
// the claim does: a replayer that finds a higher epoch stops, and one that is fenced without a higher epoch opens again.
//
// kafka.ErrFenced: another replayer opened meanwhile. run.ErrFenced: it has a higher epoch.
func (d *Target) open(ctx context.Context, j *job.Job, k *job.KafkaPlan) (_ *owner, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.runner.Settings.RetryTimeout)
	defer cancel()
	s := &owner{lanes: make([]*kafka.Producer, k.Lanes), ledger: newLedger()}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	var g errgroup.Group
	for n := range s.lanes {
		g.Go(func() error { return d.initLane(ctx, j, s, n) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := d.step(ctx, "before "+stepRead, -1); err != nil {
		return nil, err
	}
	if err := readLog(ctx, d.client(nil), d.admin, progressTP(k), s.ledger.add); err != nil {
		return nil, fmt.Errorf("read the progress of the job: %w", err)
	}
	if err := d.step(ctx, "after "+stepRead, -1); err != nil {
		return nil, err
	}
	switch have := s.ledger.claims[j.ID]; {
	case have > j.Epoch:
		return nil, fmt.Errorf("the target has epoch %d of the job, this is %d: %w", have, j.Epoch, run.ErrFenced)
	case have < j.Epoch:
		if err := d.claim(ctx, j, k, s.lanes[0]); err != nil {
			return nil, fmt.Errorf("claim the job at the target: %w", err)
		}
	}
	return s, nil
}

func progressTP(k *job.KafkaPlan) kafka.TP {
	return kafka.TP{Topic: k.Progress, Partition: k.ProgressPartition}
}

func (d *Target) initLane(ctx context.Context, j *job.Job, s *owner, n int) (err error) {
	if err := d.step(ctx, "before "+stepInit, n); err != nil {
		return err
	}
	if s.lanes[n], err = kafka.NewProducer(d.producer(ctx, j.Plan.Kafka), txID(j, n), txTimeout); err != nil {
		return d.setting(err)
	}
	s.lanes[n].KeepOffsets()
	if err := s.lanes[n].InitTransactions(ctx); err != nil {
		return err
	}
	return d.step(ctx, "after "+stepInit, n)
}

// batchBytes is librdkafka's default of batch.size.
const batchBytes = 1_000_000

// producer configures a lane's producer. A batch that is larger than the topic allows is refused whatever its records' sizes, so batches stay below the
// smallest limit.
func (d *Target) producer(ctx context.Context, k *job.KafkaPlan) kafka.Client {
	more := map[string]string{}
	size := int64(batchBytes)
	for _, t := range k.Topics {
		config, err := d.admin.TopicConfig(ctx, t.Name)
		if err != nil {
			continue // a refused batch will say it
		}
		if n := limitsOf(config).message; n > 0 {
			size = min(size, max(n*9/10, 1))
		}
	}
	if size < batchBytes {
		more["batch.size"] = strconv.FormatInt(size, 10)
	}
	maps.Copy(more, d.conf.Producer)
	return d.client(more)
}

// claim writes the job's epoch.
func (d *Target) claim(ctx context.Context, j *job.Job, k *job.KafkaPlan, p *kafka.Producer) error {
	if err := d.step(ctx, "before "+stepClaim, 0); err != nil {
		return err
	}
	value, err := json.Marshal(claim{Version: progressVersion, Job: j.Request.Name, JobID: j.ID, Epoch: j.Epoch})
	if err != nil {
		return err
	}
	if err := p.Begin(); err != nil {
		return err
	}
	if err := p.Send(ctx, progressRecord(k, claimKey{j.ID}.Format(), value)); err != nil {
		return err
	}
	if err := p.CommitTx(ctx); err != nil {
		return err
	}
	p.TakeOffsets() // not a record of the job
	return d.step(ctx, "after "+stepClaim, 0)
}

func progressRecord(k *job.KafkaPlan, key string, value []byte) *record.Record {
	return &record.Record{Topic: k.Progress, Partition: k.ProgressPartition, Timestamp: time.Now().UnixMilli(), Key: []byte(key), Value: value}
}

// errKilled ends an execution as a kill would; tests only.
var errKilled = errors.New("killed by a test")

func (d *Target) step(ctx context.Context, step string, lane int) error {
	if d.tune.at == nil {
		return nil
	}
	return d.tune.at(ctx, step, lane)
}
