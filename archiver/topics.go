package archiver

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// topicConfigEvery is how often configurations are asked for. Changes of the number of partitions are seen by the watcher.
const topicConfigEvery = 30 * time.Second

// topicKeeper keeps configuration and number of partitions of the topics in the archive. A topic is kept by the process that owns its partition 0, so
// that many archivers do not ask the store for it; where two believe that they do, the sequence in the archive takes it once.
type topicKeeper struct {
	admin     *kafka.Admin
	arc       *archive.Archive
	clusterID string
	owned     *atomic.Pointer[[]kafka.TP]
	log       *zap.Logger
	m         *metrics
	every     time.Duration // of looking whether there is something new
	partition atomic.Pointer[map[string]int32]

	kept   map[string]kept // by topic
	asked  time.Time
	warned string
}

// kept is what was last found to be in the archive.
type kept struct {
	partitions int32
	info       archive.TopicInfo
}

// see takes what the watcher found.
func (k *topicKeeper) see(topics map[string]kafka.Topic) {
	if k == nil {
		return
	}
	n := make(map[string]int32, len(topics))
	for name, t := range topics {
		n[name] = t.Partitions
	}
	k.partition.Store(&n)
}

func (k *topicKeeper) run(ctx context.Context) {
	for pause(ctx, k.every) == nil {
		k.look(ctx, time.Now())
	}
}

// look keeps what is new: topics of which this process has become the owner, topics that have grown, and every so often all, for their configurations.
func (k *topicKeeper) look(ctx context.Context, now time.Time) {
	all := now.Sub(k.asked) >= topicConfigEvery
	counts := k.partition.Load()
	var mine, ask []string
	if tps := k.owned.Load(); tps != nil {
		for _, tp := range *tps {
			if tp.Partition != 0 {
				continue
			}
			mine = append(mine, tp.Topic)
			have, known := k.kept[tp.Topic]
			if all || !known || counts != nil && (*counts)[tp.Topic] != have.partitions {
				ask = append(ask, tp.Topic)
			}
		}
	}
	if k.kept == nil {
		k.kept = map[string]kept{}
	}
	for topic := range k.kept {
		if !slices.Contains(mine, topic) {
			delete(k.kept, topic) // another may keep it, and it may come back
		}
	}
	if len(ask) == 0 {
		return
	}
	slices.Sort(ask)
	if all {
		k.asked = now
	}
	if err := k.keep(ctx, ask); err != nil && ctx.Err() == nil {
		k.m.topicsNotKept.Inc()
		if text := err.Error(); text != k.warned { // the same every 30 s would fill the log
			k.log.Warn("keep the configuration of topics in the archive; trying again (the archiver needs DescribeConfigs on the topics)", zap.Error(err))
			k.warned = text
		}
		return
	}
	k.warned = ""
}

func (k *topicKeeper) keep(ctx context.Context, topics []string) error {
	found, err := k.admin.TopicDetails(ctx, topics...)
	if err != nil {
		return err
	}
	for _, name := range topics {
		d, ok := found[name]
		if !ok || d.ID == "" || d.Partitions == 0 {
			continue
		}
		t := archive.TopicInfo{ClusterID: k.clusterID, Topic: name, TopicID: d.ID, Partitions: d.Partitions, ReplicationFactor: d.Replication, Config: d.Config}
		if have, known := k.kept[name]; known && have.info.Equal(t) {
			continue
		}
		written, err := k.arc.KeepTopic(ctx, t)
		if err != nil {
			return err
		}
		k.kept[name] = kept{d.Partitions, t}
		if written {
			k.log.Info("kept the configuration of a topic in the archive", zap.String("topic", name), zap.Int32("partitions", d.Partitions),
				zap.Int("replicationFactor", d.Replication), zap.Any("config", d.Config))
		}
	}
	return nil
}
