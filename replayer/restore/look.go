package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/store"
)

// reachBound is how long one look at the target waits for a broker.
const reachBound = 15 * time.Second

// cluster is what planning needs to know of the target; it is gathered first, and then everything is decided without a further call.
type cluster struct {
	id      string
	brokers int
	topics  map[string]kafka.Topic       // those asked for that are there
	configs map[string]map[string]string // of these
	logs    map[kafka.TP]kafka.LogRange  // of the partitions of these
	holds   map[kafka.TP]bool            // the log holds a committed record
}

// plan plans a request from the archive and from what the target is now.
func (d *Target) plan(ctx context.Context, r *job.Request, jobID string) (*run.Plan, error) {
	parts, err := run.PlanParts(ctx, d.runner.Source(), r, nil)
	if err != nil {
		return nil, err
	}
	infos, err := d.infos(ctx, parts)
	if err != nil {
		return nil, err
	}
	p := &run.Plan{Name: r.Name, Target: r.Target, Promise: r.Promise, EndMode: r.EndMode, Partitions: parts}
	p.Sum(r)
	var empty []kafka.TP // must be
	for i := range parts {
		if r.IfNotEmpty != job.NotEmptyAppend {
			empty = append(empty, kafka.TP{Topic: mapped(r, parts[i].Topic), Partition: toPartition(r, parts[i].TopicPartition)})
		}
	}
	cl, err := d.look(ctx, names(r, parts, d.conf.Progress), empty)
	if err != nil {
		return p, d.definite(err)
	}
	if p.Kafka, err = planKafka(r, parts, infos, cl, &d.conf, jobID, time.Now()); err != nil {
		return p, err
	}
	return p, d.planExtras(ctx, r, p)
}

// names are the topics at the target that the request is about.
func names(r *job.Request, parts []archive.PartitionPlan, progress string) []string {
	out := []string{progress}
	seen := map[string]bool{progress: true}
	for i := range parts {
		if name := mapped(r, parts[i].Topic); !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	return out
}

// mapped is the name at the target of an archived topic.
func mapped(r *job.Request, topic string) string {
	if to, ok := r.TopicMapping[topic]; ok {
		return to
	}
	return topic
}

// infos are the archived configurations of the planned topics, by topic; those that are not archived are missing.
func (d *Target) infos(ctx context.Context, parts []archive.PartitionPlan) (map[string]archive.TopicInfo, error) {
	out := map[string]archive.TopicInfo{}
	for i := range parts {
		name := parts[i].Topic
		if _, ok := out[name]; ok {
			continue
		}
		info, err := d.runner.Archive.Topic(ctx, name, parts[i].TopicID)
		switch {
		case err == nil:
			out[name] = info
		case errors.Is(err, archive.ErrForeign):
			return nil, run.Failf("%w", err)
		case !errors.Is(err, store.ErrNotFound):
			return nil, err
		}
	}
	return out, nil
}

// look asks the target; of the partitions in empty also whether they are.
func (d *Target) look(ctx context.Context, topics []string, empty []kafka.TP) (*cluster, error) {
	bound, cancel := context.WithTimeout(ctx, reachBound)
	defer cancel()
	if err := d.admin.Ping(bound); err != nil {
		return nil, fmt.Errorf("target %s (targets.%s.bootstrap.servers): %w", d.name, d.name, err)
	}
	cl := &cluster{configs: map[string]map[string]string{}, holds: map[kafka.TP]bool{}}
	var err error
	if cl.id, err = d.admin.ClusterID(ctx); err != nil {
		return nil, err
	}
	if cl.brokers, err = d.admin.Brokers(ctx); err != nil {
		return nil, err
	}
	if cl.topics, err = d.admin.Topics(ctx, topics...); err != nil {
		return nil, err
	}
	var tps []kafka.TP
	for name, t := range cl.topics {
		if cl.configs[name], err = d.admin.TopicConfig(ctx, name); err != nil {
			return nil, err
		}
		for p := range t.Partitions {
			if name != d.conf.Progress {
				tps = append(tps, kafka.TP{Topic: name, Partition: p})
			}
		}
	}
	if cl.logs, err = d.admin.Offsets(ctx, tps); err != nil {
		return nil, err
	}
	for _, tp := range empty {
		r := cl.logs[tp]
		// Offsets alone do not say it: a log may hold nothing but markers and what was aborted, as after a restore that was cancelled.
		_, err := scan(ctx, d.client(nil), tp, r.Start, r.End, func(*record.Record) (bool, error) {
			cl.holds[tp] = true
			return false, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return cl, nil
}
