package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
)

// planParallel bounds how many partitions are planned at a time.
const planParallel = 8

// Plan is what a job reads and sends: the dry run prints it, the run executes it.
type Plan struct {
	Name         string                  `json:"name"`
	Target       string                  `json:"target"`
	Pipeline     string                  `json:"pipeline,omitempty"` // "" for a target without one
	PipelineHash string                  `json:"pipelineHash,omitempty"`
	Promise      session.Promise         `json:"promise"`
	EndMode      session.EndMode         `json:"endMode"`
	Totals       Totals                  `json:"totals"`
	Gaps         []GapTotal              `json:"gaps,omitempty"` // of all partitions, by class
	Calls        PlannedCalls            `json:"calls"`
	Estimate     *Estimate               `json:"estimate,omitempty"`   // nil: not known
	Looked       bool                    `json:"looked"`               // the planned objects were looked for in the store
	Unreadable   []Unreadable            `json:"unreadable,omitempty"` // of these: known not to be readable now
	Windows      *job.WindowsPlan        `json:"windows,omitempty"`    // for a request with windows
	Partitions   []archive.PartitionPlan `json:"partitions"`           // by topic, partition
	Decisions    *archive.PartitionPlan  `json:"decisions,omitempty"`  // the part of the decision log that goes with the session
	Kafka        *job.KafkaPlan          `json:"kafka,omitempty"`      // for a target Kafka: where the records go
}

// Totals over the partitions. Records and Bytes are those of the whole objects: a range may begin or end inside one.
type Totals struct {
	Partitions int   `json:"partitions"`
	Segments   int   `json:"segments"`
	Records    int64 `json:"records"`
	Bytes      int64 `json:"bytes"`
}

// Sum fills in what follows from the ranges of the plan and its request.
func (p *Plan) Sum(r *job.Request) {
	p.Totals = Totals{Partitions: len(p.Partitions)}
	for _, pp := range p.Partitions {
		p.Totals.Segments += len(pp.Segments)
		for _, s := range pp.Segments {
			p.Totals.Records += s.Count
			p.Totals.Bytes += s.Bytes
		}
	}
	p.sumFigures()
	p.Estimate = p.estimate(r)
}

// Pin keeps what is stored of a plan.
func (p *Plan) Pin() *job.Pinned {
	pin := &job.Pinned{Pipeline: p.Pipeline, PipelineHash: p.PipelineHash, Kafka: p.Kafka, Windows: p.Windows}
	for i := range p.Partitions {
		pin.Ranges = append(pin.Ranges, job.PinRange(&p.Partitions[i]))
	}
	if p.Decisions != nil {
		d := job.PinRange(p.Decisions)
		pin.Decisions = &d
	}
	return pin
}

// MakePlan plans a request from the archive and from what the target's pipeline reads. A *Failure says what is not there; other errors are
// those of the store, and may pass.
func MakePlan(ctx context.Context, arch Source, r *job.Request, pipe *session.Pipeline) (*Plan, error) {
	arch, calls := counted(arch)
	if why := lossy(arch); why != "" && r.Promise == session.Reproduce {
		return nil, failf(`promise "reproduce" cannot be kept: %s; ask for promise "recompute"`, why)
	}
	p := &Plan{Name: r.Name, Target: r.Target, Pipeline: pipe.Name, PipelineHash: pipe.Hash, Promise: r.Promise, EndMode: r.EndMode}
	var partial map[string]bool
	var err error
	if r.Windows != nil {
		p.Partitions, p.Windows, err = planWindows(ctx, arch, r, pipe)
	} else {
		p.Partitions, partial, err = planParts(ctx, arch, r, pipe.Inputs)
	}
	if err != nil {
		return nil, err
	}
	if p.Decisions, err = planDecisions(ctx, arch, r, pipe); err != nil {
		return nil, err
	}
	if r.Promise == session.Reproduce {
		if err := p.addMembers(ctx, arch, partial); err != nil {
			return nil, err
		}
	}
	p.Sum(r)
	if err := p.look(ctx, arch); err != nil {
		return nil, err
	}
	p.Calls.Planning = calls()
	return p, nil
}

// PlanParts plans the partitions of a request, by topic and partition, whatever the target: those of the request's topics, or of inputs where it names
// none. Errors as of MakePlan.
func PlanParts(ctx context.Context, arch Source, r *job.Request, inputs []string) ([]archive.PartitionPlan, error) {
	parts, _, err := planParts(ctx, arch, r, inputs)
	return parts, err
}

// planParts tells besides of which topics not every partition was asked for.
func planParts(ctx context.Context, arch Source, r *job.Request, inputs []string) ([]archive.PartitionPlan, map[string]bool, error) {
	if err := checkTimes(arch, r); err != nil {
		return nil, nil, err
	}
	chosen, err := choose(ctx, arch, r, inputs)
	if err != nil {
		return nil, nil, err
	}
	tps := chosen.tps
	parts := make([]archive.PartitionPlan, len(tps))
	empty := make([]error, len(tps))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(planParallel)
	for i, tp := range tps {
		g.Go(func() error {
			pp, err := planPartition(gctx, arch, r, tp, false)
			if errors.Is(err, archive.ErrEmptyRange) {
				// It takes part all the same: a pipeline that merges partitions waits for each of them, so that one which brings nothing is
				// something else than one which is not there.
				empty[i] = err
				pp, err = planPartition(gctx, arch, r, tp, true)
			}
			if err != nil {
				return wrapDefinite(err)
			}
			parts[i] = *pp
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	if !slices.Contains(empty, nil) {
		return nil, nil, failf("there is nothing to replay: no partition has a record in the window; the first of %d: %w", len(empty), empty[0])
	}
	if err := checkLost(r, parts); err != nil {
		return nil, nil, err
	}
	return parts, chosen.partial, nil
}

func wrapDefinite(err error) error {
	if definite(err) {
		return &Failure{err}
	}
	return err
}

// chainOf returns the name of the chains that a request's topic means. A topic that was created again is archived as several logs, and which one is
// meant must be said.
func chainOf(ctx context.Context, arch Source, name string) (string, error) {
	base, n := segment.SplitTopic(name)
	if base != name {
		return segment.Incarnation(base, n), nil
	}
	later, err := arch.Incarnations(ctx, base)
	if err != nil {
		return "", wrapDefinite(err)
	}
	if len(later) == 0 {
		return name, nil
	}
	names := []string{name + "~1"}
	for _, n := range later {
		names = append(names, segment.Incarnation(base, n))
	}
	return "", failf("topic %s was deleted and created again, and the archive holds its logs %s: name one of them in topics (~1 is the first)", name, strings.Join(names, ", "))
}

// inKafka is a chain's name with the topic's name in Kafka: bounds, the session and the records know no other.
func inKafka(tp record.TopicPartition) record.TopicPartition {
	tp.Topic, _ = segment.SplitTopic(tp.Topic)
	return tp
}

func byTP(a, b record.TopicPartition) int {
	if a.Less(b) {
		return -1
	}
	return 1 // no two are equal
}

// missingTopic tells a wrong name from a wrong place.
func missingTopic(ctx context.Context, arch Source, topic string) error {
	all, err := arch.List(ctx)
	if err != nil {
		return wrapDefinite(err)
	}
	if len(all) == 0 {
		return failf("the archive has no topic %s: %s holds no topics at all; check the store's address, its prefix and topics.dir", topic, arch.Where())
	}
	var names []string
	for _, tp := range all {
		if len(names) == 0 || names[len(names)-1] != tp.Topic {
			names = append(names, tp.Topic)
		}
	}
	return failf("the archive has no topic %s: %s holds %s", topic, arch.Where(), shortList(names))
}

func planPartition(ctx context.Context, arch Source, r *job.Request, tp record.TopicPartition, allowEmpty bool) (*archive.PartitionPlan, error) {
	from, until := r.EndsOf(inKafka(tp))
	return arch.Plan(ctx, archive.Request{TP: tp, From: archive.Bound(from), Until: archive.Bound(until), AllowEmpty: allowEmpty,
		PassUnreadable: r.OnUnreadable == job.UnreadableSkip})
}

func checkLost(r *job.Request, parts []archive.PartitionPlan) error {
	if r.OnLost == job.LostAllow {
		return nil
	}
	for _, p := range parts {
		for _, g := range p.Gaps {
			switch g.Class {
			case segment.Lost:
				return failf("offsets [%d, %d) of %s are lost: Kafka had deleted them before they were archived; "+
					`replay a range without them, or allow it with onLost "allow"`, g.From, g.To, p.TopicPartition)
			case archive.Unknown:
				return failf("no object of the archive holds offsets [%d, %d) of %s, and nothing says why (control markers, compaction, records that the sink left out, or an object "+
					`that is gone); replay a range without them, or allow it with onLost "allow"`, g.From, g.To, p.TopicPartition)
			}
		}
	}
	return nil
}

// Replan finds the segments of a stored plan again. The archive never changes, so they are the same as at first; what no longer fits is a
// *Failure.
func Replan(ctx context.Context, arch Source, r *job.Request, pin *job.Pinned) (*Plan, error) {
	p := &Plan{Name: r.Name, Target: r.Target, Pipeline: pin.Pipeline, PipelineHash: pin.PipelineHash, Kafka: pin.Kafka, Windows: pin.Windows, Promise: r.Promise, EndMode: r.EndMode,
		Partitions: make([]archive.PartitionPlan, len(pin.Ranges))}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(planParallel)
	for i := range pin.Ranges {
		g.Go(func() error {
			pp, err := replanRange(gctx, arch, r, &pin.Ranges[i])
			if err == nil {
				p.Partitions[i] = *pp
			}
			return err
		})
	}
	if pin.Decisions != nil {
		g.Go(func() (err error) {
			p.Decisions, err = replanRange(gctx, arch, r, pin.Decisions)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	p.Sum(r)
	return p, nil
}

func replanRange(ctx context.Context, arch Source, r *job.Request, rng *job.Range) (*archive.PartitionPlan, error) {
	pp := &archive.PartitionPlan{TopicPartition: rng.TopicPartition, Incarnation: rng.Incarnation, TopicID: rng.TopicID, ClusterID: rng.ClusterID, Isolation: rng.Isolation,
		From: rng.From, Until: rng.Until, Before: rng.Before, Gaps: rng.Gaps}
	if rng.From < rng.Until {
		chain := record.TopicPartition{Topic: segment.Incarnation(rng.Topic, rng.Incarnation), Partition: rng.Partition}
		now, err := arch.Plan(ctx, archive.Request{TP: chain,
			From:  archive.Bound{Kind: archive.AtOffset, Value: rng.From},
			Until: archive.Bound{Kind: archive.AtOffset, Value: rng.Until}, AllowEmpty: true,
			PassUnreadable: r.OnUnreadable == job.UnreadableSkip})
		if err != nil {
			return nil, wrapDefinite(fmt.Errorf("find the segments of the stored plan: %w", err))
		}
		if now.TopicID != rng.TopicID || now.ClusterID != rng.ClusterID || now.Isolation != rng.Isolation {
			return nil, failf("%s was planned as topic id %s of cluster %s; the archive holds topic id %s of cluster %s now",
				rng.TopicPartition, rng.TopicID, rng.ClusterID, now.TopicID, now.ClusterID)
		}
		pp.Segments, pp.Fidelity = now.Segments, now.Fidelity
	}
	pp.FromTimestamp, pp.UntilTimestamp = rng.FromTimestamp, rng.UntilTimestamp
	return pp, nil
}
