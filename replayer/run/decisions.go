package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/pace"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
)

// The decision log is small (a line per partition that appeared late, or per closing made by a clock), so it travels in the session
// request; these bound a log that is not.
const (
	maxDecisions     = 1 << 20
	maxDecisionBytes = 64 << 20
)

// planDecisions plans the whole decision log as archived now. Its end is part of the stored plan, so that every opening of the session has
// the same body.
func planDecisions(ctx context.Context, arch Source, r *job.Request, pipe *session.Pipeline) (*archive.PartitionPlan, error) {
	if pipe.DecisionsTopic == "" || lossy(arch) != "" {
		return nil, nil
	}
	chain, err := chainOf(ctx, arch, pipe.DecisionsTopic)
	var which *Failure
	switch {
	case errors.As(err, &which) && r.Promise != session.Reproduce:
		return nil, nil // as where it is not archived: nobody can say which of the logs goes with these records
	case err != nil:
		return nil, fmt.Errorf("decision log: %w", err)
	}
	p, err := arch.Plan(ctx, archive.Request{TP: record.TopicPartition{Topic: chain},
		From: archive.Bound{Kind: archive.Earliest}, Until: archive.Bound{Kind: archive.End}})
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, archive.ErrNotArchived) || errors.Is(err, archive.ErrEmptyRange):
		if r.Promise == session.Reproduce {
			return nil, failf("the decision log of pipeline %s is not in the archive, and without it the live result cannot be reproduced: "+
				`archive the topic %s too, or ask for promise "recompute": %w`, pipe.Name, pipe.DecisionsTopic, err)
		}
		return nil, nil
	}
	return nil, wrapDefinite(fmt.Errorf("plan the decision log: %w", err))
}

// readDecisions returns the values of the planned part of the decision log, in offset order.
func readDecisions(ctx context.Context, arch Source, p *archive.PartitionPlan) ([]json.RawMessage, error) {
	if p == nil {
		return nil, nil
	}
	rng := job.PinRange(p)
	var out []json.RawMessage
	total := 0
	for i, ps := range p.Segments {
		l, err := load(ctx, arch, &rng, nil, i, ps, pace.Bounds{})
		if err != nil {
			return nil, err
		}
		rd, err := segment.NewReader(ps.Key, l.body)
		if err != nil {
			return nil, &Failure{damaged(ps.Key, err)}
		}
		var rec record.Record
		for {
			if err := rd.Next(&rec); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, &Failure{damaged(ps.Key, err)}
			}
			if !rng.Holds(&rec) {
				continue
			}
			if !json.Valid(rec.Value) {
				return nil, failf("decision log %s, offset %d in %s: the value is not JSON", rng.TopicPartition, rec.Offset, ps.Key)
			}
			out = append(out, json.RawMessage(rec.Value))
			if total += len(rec.Value); total > maxDecisionBytes || len(out) > maxDecisions {
				return nil, failf("decision log %s is larger than %d entries or %d bytes", rng.TopicPartition, maxDecisions, maxDecisionBytes)
			}
		}
	}
	return out, nil
}
