package restore

import (
	"context"
	"errors"
	"fmt"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// ensure creates what the plan lacks at the target, completes the plan with the ids, and marks every topic as the target of a replay, so that an archiver
// does not archive the archive. It can be repeated.
func (d *Target) ensure(ctx context.Context, k *job.KafkaPlan) error {
	if k.ProgressID == "" {
		err := d.admin.CreateTopic(ctx, k.Progress, progressPartitions, d.conf.Replication, map[string]string{"cleanup.policy": "compact"})
		if err != nil && !errors.Is(err, kafka.ErrExists) {
			return d.definite(fmt.Errorf("create the progress topic %s at target %s: %w", k.Progress, d.name, err))
		}
	}
	for _, t := range k.Topics {
		if !t.Create {
			continue
		}
		err := d.admin.CreateTopic(ctx, t.Name, t.Partitions, t.Replication, t.Config)
		if errors.Is(err, kafka.ErrExists) {
			// Since the plan was made: is it what we would have created? The next try plans with it.
			return fmt.Errorf("topic %s has come into being meanwhile: %w", t.Name, err)
		}
		if err != nil {
			return d.definite(fmt.Errorf("create topic %s at target %s: %w", t.Name, d.name, err))
		}
	}
	wanted := []string{k.Progress}
	for _, t := range k.Topics {
		wanted = append(wanted, t.Name)
	}
	have, err := d.admin.Topics(ctx, wanted...)
	if err != nil {
		return d.definite(err)
	}
	if have[k.Progress].Partitions <= k.ProgressPartition {
		return fmt.Errorf("the progress topic %s is not there yet with partition %d", k.Progress, k.ProgressPartition)
	}
	k.ProgressID = have[k.Progress].ID
	for i := range k.Topics {
		t := &k.Topics[i]
		if have[t.Name].Partitions < t.Partitions || t.ID != "" && have[t.Name].ID != t.ID {
			return fmt.Errorf("topic %s is not what was planned with", t.Name)
		}
		t.ID = have[t.Name].ID
	}
	return d.mark(ctx, k)
}

// mark tells archivers.
func (d *Target) mark(ctx context.Context, k *job.KafkaPlan) error {
	ids := map[string]string{k.ProgressID: k.Progress}
	for _, t := range k.Topics {
		ids[t.ID] = t.Name
	}
	for id, name := range ids {
		if id == "" {
			continue // a broker without topic ids: an archiver could not look either
		}
		if err := d.runner.Archive.MarkReplayTarget(ctx, archive.ReplayTarget{ClusterID: k.ClusterID, Topic: name, TopicID: id}); err != nil {
			return err
		}
	}
	return nil
}

// identify makes sure that the target is what was planned with. A topic that was deleted and created again has none of what the job wrote.
func (d *Target) identify(ctx context.Context, k *job.KafkaPlan) error {
	bound, cancel := context.WithTimeout(ctx, reachBound)
	defer cancel()
	if err := d.admin.Ping(bound); err != nil {
		return fmt.Errorf("target %s (targets.%s.bootstrap.servers): %w", d.name, d.name, err)
	}
	id, err := d.admin.ClusterID(ctx)
	if err != nil {
		return err
	}
	if id != k.ClusterID {
		return run.Failf("targets.%s is cluster %s now, and the job was planned for %s: configure it as it was, or start a job with another name", d.name, id, k.ClusterID)
	}
	wanted := []string{k.Progress}
	for _, t := range k.Topics {
		wanted = append(wanted, t.Name)
	}
	have, err := d.admin.Topics(ctx, wanted...)
	if err != nil {
		return err
	}
	changed := func(name, id string) error {
		if t, ok := have[name]; !ok {
			return run.Failf("topic %s of target %s is gone since the job was planned: start a job with another name", name, d.name)
		} else if t.ID != id {
			return run.Failf("topic %s of target %s was deleted and created again since the job was planned (topic id %s, now %s): start a job with another name", name, d.name, id, t.ID)
		}
		return nil
	}
	if err := changed(k.Progress, k.ProgressID); err != nil {
		return err
	}
	for _, t := range k.Topics {
		if err := changed(t.Name, t.ID); err != nil {
			return err
		}
	}
	return nil
}
