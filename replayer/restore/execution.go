package restore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/pace"
	"tapedeck.dev/tapedeck/replayer/registry"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// execution is one run of a restore, under one epoch.
type execution struct {
	d    *Target
	job  *job.Job
	k    *job.KafkaPlan
	keep *job.Keeper
	ids  *registry.Rewriter // nil: no record gets other schema ids

	pacer  *pace.Pacer // nil: as fast as possible
	bounds pace.Bounds // of what goes at once
	log    *zap.Logger

	mu    sync.Mutex
	parts []*part // by source topic, partition
	moved time.Time
}

// part is one partition. Its plan does not change; the rest is guarded by the execution's lock.
type part struct {
	rng  job.Range
	segs []archive.PlannedSegment
	to   kafka.TP
	toID string
	lane int
	from int64 // target's log end when the job was planned

	state    state     // committed
	verified int64     // the archive's proof covers [From, verified): a segment's border, or Until
	proof    job.Proof // of the archive's records
}

func (p *part) done() bool { return p.state.Next >= p.rng.Until }

// base is what every progress record of the partition says.
func (x *execution) base(p *part) mark {
	return mark{Version: progressVersion, Job: x.job.Request.Name, JobID: x.job.ID, Epoch: x.job.Epoch, Source: p.rng.TopicPartition,
		SourceID: p.rng.TopicID, SourceFrom: p.rng.ClusterID, Target: p.to, TargetID: p.toID}
}

func newExecution(d *Target, j *job.Job, plan *run.Plan) *execution {
	x := &execution{d: d, job: j, k: j.Plan.Kafka, keep: j.Request.Filter.Keeper(), moved: time.Now(),
		log: d.log.With(zap.String("job", j.Request.Name), zap.Int64("epoch", j.Epoch))}
	limits := j.Request.Limits()
	x.pacer, x.bounds = pace.New(limits), limits.Bounds()
	x.ids = registry.NewRewriter(d.runner.Archive, x.k.Registry)
	ids := map[string]string{}
	for _, t := range x.k.Topics {
		ids[t.Name] = t.ID
	}
	stored := map[kafka.TP]job.Progress{}
	for _, p := range j.Progress {
		stored[p.TopicPartition] = p
	}
	places := map[kafka.TP]job.KafkaPart{}
	for _, p := range x.k.Parts {
		places[p.TopicPartition] = p
	}
	for i := range plan.Partitions {
		pp := &plan.Partitions[i]
		place := places[pp.TopicPartition]
		p := &part{rng: job.PinRange(pp), segs: pp.Segments, to: place.To, toID: ids[place.To.Topic], lane: place.Lane, from: place.Begin,
			verified: pp.From, proof: job.EmptyProof()}
		p.state, _ = newLedger().of(partID{}, pp.From) // nothing is wrong with no progress
		if s, ok := stored[pp.TopicPartition]; ok && p.border(s.Verified) {
			p.verified, p.proof = s.Verified, s.Proof
		}
		x.parts = append(x.parts, p)
	}
	return x
}

// border reports whether a stored proof can end at this offset.
func (p *part) border(offset int64) bool {
	if offset == p.rng.From || offset == p.rng.Until {
		return true
	}
	for _, s := range p.segs {
		if s.Next == offset && offset < p.rng.Until {
			return true
		}
	}
	return false
}

// Progress is how far it is: committed at the target, and proved from the archive.
func (x *execution) Progress() []job.Progress {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]job.Progress, 0, len(x.parts))
	for _, p := range x.parts {
		g := job.Progress{TopicPartition: p.rng.TopicPartition, Expected: p.state.Next, Verified: p.verified, Proof: p.proof}
		for _, s := range p.segs {
			if s.Next > p.state.Next && !p.done() {
				break
			}
			g.Segments++
			g.Records += s.Count
			g.Bytes += s.Bytes
		}
		out = append(out, g)
	}
	return out
}

// Execute restores what is planned, and compares. There is one way to recover from whatever goes wrong, a kill included: everything is let go, and a new
// session is opened, which reads what was committed.
func (x *execution) Execute(ctx context.Context) (*job.Outcome, error) {
	x.touch()
	for n := 1; ; n++ {
		began := time.Now()
		out, err := x.attempt(ctx)
		err = x.d.definite(err)
		var failure *run.Failure
		switch {
		case err == nil:
			return out, nil
		case errors.Is(err, errKilled):
			return nil, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.As(err, &failure), errors.Is(err, run.ErrFenced):
			return nil, err
		}
		still := x.still()
		if still > x.d.runner.Settings.RetryTimeout {
			return nil, run.Failf("nothing has gone forward for %s (target.retry.timeout): %w", still.Round(time.Millisecond), err)
		}
		if still < time.Since(began) {
			n = 1 // it went forward in this attempt
		}
		x.d.runner.Metrics.Retries.WithLabelValues("restore").Inc()
		x.log.Warn("begin again from what is committed", zap.Int("attempt", n), zap.Error(err))
		wait := n
		if errors.Is(err, kafka.ErrFenced) {
			// Somebody else opens the job. If it is newer, it needs a moment to say so; were we back at once, we would fence it in turn.
			wait += 4
		}
		if err := x.d.runner.Settings.Backoff.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func (x *execution) touch() {
	x.mu.Lock()
	x.moved = time.Now()
	x.mu.Unlock()
}

// still is how long nothing has gone forward.
func (x *execution) still() time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Since(x.moved)
}

func (x *execution) attempt(ctx context.Context) (*job.Outcome, error) {
	if err := x.d.identify(ctx, x.k); err != nil {
		return nil, err
	}
	if err := x.d.mark(ctx, x.k); err != nil {
		return nil, err
	}
	s, err := x.d.open(ctx, x.job, x.k)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := x.resume(s.ledger); err != nil {
		return nil, err
	}
	x.beginPace()
	g, gctx := errgroup.WithContext(ctx)
	for n := range s.lanes {
		g.Go(func() error {
			if err := x.lane(gctx, s.lanes[n], n); err != nil {
				return fmt.Errorf("lane %d: %w", n, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out, err := x.verify(ctx)
	if err != nil {
		return nil, err
	}
	return out, x.finishExtras(ctx, out)
}

// resume takes what is committed.
func (x *execution) resume(l *ledger) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.parts {
		s, err := l.of(partID{x.job.ID, p.rng.TopicPartition}, p.rng.From)
		if err != nil {
			return &run.Failure{Err: err}
		}
		if s.chunk >= 0 && (s.entry.Target != p.to || s.entry.TargetID != p.toID || s.entry.SourceID != p.rng.TopicID) {
			return run.Failf("the progress of %s is of %s (topic id %s) into %s (topic id %s), and planned is topic id %s into %s (topic id %s)", p.rng.TopicPartition,
				s.entry.Source, s.entry.SourceID, s.entry.Target, s.entry.TargetID, p.rng.TopicID, p.to, p.toID)
		}
		if s.Next > p.state.Next {
			x.moved = time.Now()
		}
		p.state = s
	}
	return nil
}

// Cancel makes sure that nothing of the job is written any more, and tells what has been.
func (d *Target) Cancel(ctx context.Context, j *job.Job) (*job.Outcome, error) {
	if _, err := run.Retry(ctx, d.runner, "cancel", func(ctx context.Context) (struct{}, error) { return struct{}{}, d.putBack(ctx, j) }); err != nil {
		return nil, err
	}
	if j.Plan == nil || j.Plan.Kafka == nil {
		return nil, nil // it never got so far
	}
	k := j.Plan.Kafka
	return run.Retry(ctx, d.runner, "cancel", func(ctx context.Context) (*job.Outcome, error) {
		s, err := d.open(ctx, j, k)
		if err != nil {
			return nil, d.definite(err)
		}
		defer s.close()
		out := &job.Outcome{Restored: &job.Restored{ClusterID: k.ClusterID}}
		var total int64
		for _, p := range k.Parts {
			st, err := s.ledger.of(partID{j.ID, p.TopicPartition}, 0)
			if err != nil {
				return nil, &run.Failure{Err: err}
			}
			total += st.Proof.Count
			out.Restored.Parts = append(out.Restored.Parts, restored(&p, &st))
		}
		out.Restored.Notes = append(out.Restored.Notes, fmt.Sprintf("cancelled: %d records had been committed, and stay in the target", total))
		return out, nil
	})
}

// restored tells what a partition of the target got.
func restored(p *job.KafkaPart, s *state) job.RestoredPart {
	r := job.RestoredPart{TopicPartition: p.TopicPartition, To: p.To, TopicID: s.entry.TargetID, First: -1, Last: -1, Records: s.Proof.Count,
		Begin: p.Begin, TimestampsChanged: s.Changed, Rewritten: s.Rewritten}
	if runs := s.entry.Runs; len(runs) > 0 {
		last := runs[len(runs)-1]
		r.First, r.Last = runs[0].New, last.New+last.Len-1
	}
	return r
}
