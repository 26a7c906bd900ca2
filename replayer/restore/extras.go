package restore

import (
	"context"
	"errors"
	"fmt"

	"tapedeck.dev/tapedeck/replayer/groups"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/offsetmap"
	"tapedeck.dev/tapedeck/replayer/registry"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
)

// What a restore brings back beside records: the schemas that they name (before the first record, while the job is planned, so that the ids in the records
// are known and kept with the plan) and the positions of consumer groups (after the last record, when the offset map is whole). Both may be repeated: a
// replayer that dies at any point leaves what the next one does again to the same end.
//
//	STARTING  plan (groups chosen, no members; schemas decided) → topics created → schemas registered, modes put back, levels set → plan stored with the ids
//	RUNNING   records (ids rewritten by the stored plan) → proof → modes put back again, schemas and levels looked at → positions of groups → COMPLETED

// final makes what will be the same the next time a *run.Failure.
func final(err error) error {
	if errors.Is(err, registry.ErrRefused) || errors.Is(err, schema.ErrRefused) || errors.Is(err, groups.ErrRefused) {
		return &run.Failure{Err: err}
	}
	return err
}

// acceptsExtras reports why a request cannot be met by this target, whatever the archive holds.
func (d *Target) acceptsExtras(r *job.Request) error {
	if d.runner.Foreign != nil {
		switch {
		case r.Groups != nil:
			return fmt.Errorf("groups: %s holds no positions of consumer groups", d.runner.Foreign.Where())
		case r.Registry != "":
			return fmt.Errorf("registry %q: %s holds no writer schemas", r.Registry, d.runner.Foreign.Where())
		}
	}
	if r.Registry != "" && d.registry == nil {
		return fmt.Errorf("registry %q: target %s has no schema registry; configure targets.%s.schema.registry.url", r.Registry, d.name, d.name)
	}
	return nil
}

func (d *Target) restorer(r *job.Request, jobID string) *registry.Restorer {
	return &registry.Restorer{Registry: d.registry, URL: d.conf.Registry.URL, SameIDs: r.Registry == job.RegistrySameIDs,
		Modes: registry.Modes{Store: d.runner.Archive.Store(), JobID: jobID}}
}

// planExtras adds to a plan what else is restored. It changes nothing.
func (d *Target) planExtras(ctx context.Context, r *job.Request, p *run.Plan) error {
	if r.Groups != nil {
		plan, err := groups.Plan(ctx, d.runner.Archive, r.Groups, logsOf(p))
		if err == nil {
			err = groups.Busy(ctx, d.admin, plan)
		}
		if err != nil {
			return final(err)
		}
		p.Kafka.Groups = plan
	}
	if r.Registry != "" {
		restorer, wants, err := d.schemas(ctx, r, "", p)
		if err == nil {
			p.Kafka.Registry, err = restorer.Plan(ctx, wants)
		}
		if err != nil {
			return final(err)
		}
	}
	return nil
}

// restoreSchemas registers what the plan decided, and puts the ids that came out into it.
func (d *Target) restoreSchemas(ctx context.Context, j *job.Job, p *run.Plan) error {
	if j.Request.Registry == "" {
		return nil
	}
	restorer, wants, err := d.schemas(ctx, &j.Request, j.ID, p)
	if err == nil {
		p.Kafka.Registry, err = restorer.Restore(ctx, wants)
	}
	return final(err)
}

// schemas is what the archive holds of a registry, for the segments of a plan, and who restores it.
func (d *Target) schemas(ctx context.Context, r *job.Request, jobID string, p *run.Plan) (*registry.Restorer, []registry.Want, error) {
	wants, err := registry.Collect(ctx, d.runner.Archive, p.Partitions, skips(r))
	if err != nil {
		return nil, nil, err
	}
	restorer := d.restorer(r, jobID)
	restorer.Levels, err = registry.ArchivedLevels(ctx, d.runner.Archive)
	return restorer, wants, err
}

// putBack gives the subjects of the registry the modes that they had before the job.
func (d *Target) putBack(ctx context.Context, j *job.Job) error {
	if j.Request.Registry == "" || d.registry == nil {
		return nil
	}
	return final(d.restorer(&j.Request, j.ID).PutBack(ctx))
}

// rewriter is what writes the target's ids into the records of a segment; nil: none changes.
func (x *execution) rewriter(ctx context.Context, key string, h *segment.Header) (func(*record.Record) (bool, error), error) {
	if x.ids == nil {
		return nil, nil
	}
	f, err := x.ids.Segment(ctx, key, h)
	return f, final(err)
}

// finishExtras is what follows when all records are there and proved.
func (x *execution) finishExtras(ctx context.Context, out *job.Outcome) error {
	if r := x.k.Registry; r != nil {
		if err := x.d.putBack(ctx, x.job); err != nil {
			return err
		}
		notes, err := x.d.restorer(&x.job.Request, x.job.ID).Verify(ctx, r)
		if err != nil {
			return final(err)
		}
		out.Restored.Notes = append(append(out.Restored.Notes, r.Notes...), notes...)
	}
	if x.k.Groups == nil {
		return nil
	}
	entries, err := Entries(ctx, x.d.client(nil), x.k.Progress, "")
	if err != nil {
		return err
	}
	maps, err := x.maps(entries)
	if err != nil {
		return err
	}
	var logs []groups.Log
	for _, p := range x.parts {
		logs = append(logs, groups.Log{Source: p.rng.TopicPartition, TopicID: p.rng.TopicID, ClusterID: p.rng.ClusterID, Target: p.to})
	}
	between := func() error { return x.d.step(ctx, "before "+stepGroups, -1) }
	if out.Restored.Groups, err = groups.Restore(ctx, x.d.runner.Archive, x.d.admin, x.k.Groups, logs, maps, between); err != nil {
		return final(err)
	}
	out.Restored.Notes = append(out.Restored.Notes, x.k.Groups.Notes...)
	return nil
}

// maps translates positions of each partition, over everything that was ever restored of it into its topic.
func (x *execution) maps(entries []offsetmap.Entry) (map[kafka.TP]*groups.Map, error) {
	out := make(map[kafka.TP]*groups.Map, len(x.parts))
	for _, p := range x.parts {
		m, _, err := offsetmap.Of(entries, p.rng.TopicID, p.rng.TopicPartition, p.toID)
		if err != nil {
			return nil, &run.Failure{Err: err}
		}
		from := p.rng.From
		if runs := m.Runs(); len(runs) > 0 {
			from = min(from, runs[0].Old)
		}
		out[p.rng.TopicPartition] = groups.NewMap(m, from, p.from)
	}
	return out, nil
}

// logsOf are the partitions of a plan, as far as groups are concerned.
func logsOf(p *run.Plan) []groups.Log {
	var out []groups.Log
	for i := range p.Partitions {
		pp := &p.Partitions[i]
		out = append(out, groups.Log{Source: pp.TopicPartition, TopicID: pp.TopicID, ClusterID: pp.ClusterID, Target: toOf(p.Kafka, pp.TopicPartition)})
	}
	return out
}

// skips reports whether objects that cannot be read are passed over.
func skips(r *job.Request) bool { return r.OnUnreadable == job.UnreadableSkip }
