package restore

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/replayer/target"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// progressPartitions of a progress topic that is created.
const progressPartitions = 8

// planKafka decides where everything goes and whether it can go there. It is a pure function. Errors are *run.Failure and say what to do.
func planKafka(r *job.Request, parts []archive.PartitionPlan, infos map[string]archive.TopicInfo, cl *cluster, conf *target.Kafka, jobID string,
	now time.Time) (*job.KafkaPlan, error) {
	k := &job.KafkaPlan{ClusterID: cl.id, Progress: conf.Progress, Append: r.IfNotEmpty == job.NotEmptyAppend}
	if err := planProgress(k, cl, jobID); err != nil {
		return nil, err
	}
	bySource := map[string][]archive.PartitionPlan{}
	for _, p := range parts {
		bySource[p.Topic] = append(bySource[p.Topic], p)
	}
	if err := checkMappings(r, bySource, conf.Progress); err != nil {
		return nil, err
	}
	for _, source := range slices.Sorted(maps.Keys(bySource)) {
		t, err := planTopic(r, source, bySource[source], infos, cl)
		if err != nil {
			return nil, err
		}
		for _, p := range bySource[source] {
			part := job.KafkaPart{TopicPartition: p.TopicPartition, To: kafka.TP{Topic: t.Name, Partition: toPartition(r, p.TopicPartition)}}
			if err := checkPart(r, &part, t, cl); err != nil {
				return nil, err
			}
			k.Parts = append(k.Parts, part)
		}
		warnings, err := checkLimits(t, bySource[source], infos, cl, now)
		if err != nil {
			return nil, err
		}
		k.Warnings = append(k.Warnings, warnings...)
		k.Topics = append(k.Topics, *t)
	}
	slices.SortFunc(k.Topics, func(a, b job.KafkaTopic) int { return strings.Compare(a.Name, b.Name) })
	deal(k, parts, conf.Lanes)
	return k, nil
}

// planProgress finds the job's place in the progress topic.
func planProgress(k *job.KafkaPlan, cl *cluster, jobID string) error {
	n := int32(progressPartitions)
	if t, ok := cl.topics[k.Progress]; ok {
		k.ProgressID, n = t.ID, t.Partitions
		if policy := cl.configs[k.Progress]["cleanup.policy"]; policy != "compact" {
			return run.Failf("the progress topic %s of the target has cleanup.policy %q, which would delete progress: set it to compact, or name another topic (targets.<name>.progress.topic)",
				k.Progress, policy)
		}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(jobID)) // never fails
	k.ProgressPartition = int32(h.Sum32() % uint32(n))
	return nil
}

// checkMappings holds the request's mappings against what is planned.
func checkMappings(r *job.Request, bySource map[string][]archive.PartitionPlan, progress string) error {
	into := map[string]string{}
	for _, source := range slices.Sorted(maps.Keys(bySource)) {
		to := mapped(r, source)
		switch {
		case to == progress:
			return run.Failf("topic %s would go into %s, which keeps the progress of restores: map it to another name (topicMapping)", source, to)
		case strings.HasPrefix(to, "__"):
			return run.Failf("topic %s would go into %s, a name of Kafka's own topics: map it to another name (topicMapping)", source, to)
		case into[to] != "":
			return run.Failf("topics %s and %s would both go into %s: map them apart (topicMapping)", into[to], source, to)
		}
		into[to] = source
	}
	for _, source := range slices.Sorted(maps.Keys(r.TopicMapping)) {
		if bySource[source] == nil {
			return run.Failf("topicMapping names %s, which is not among the topics to restore", source)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.PartitionMapping)) {
		source, part, _ := strings.Cut(key, "/")
		if !slices.ContainsFunc(bySource[source], func(p archive.PartitionPlan) bool { return strconv.Itoa(int(p.Partition)) == part }) {
			return run.Failf("partitionMapping names %s, which is not among the partitions to restore", key)
		}
	}
	return nil
}

func isMapped(r *job.Request, tp kafka.TP) (int32, bool) {
	to, ok := r.PartitionMapping[tp.Topic+"/"+strconv.Itoa(int(tp.Partition))]
	return to, ok
}

func toPartition(r *job.Request, tp kafka.TP) int32 {
	if to, ok := isMapped(r, tp); ok {
		return to
	}
	return tp.Partition
}

// planTopic decides whether a topic is there, is to be created, or is missing.
func planTopic(r *job.Request, source string, parts []archive.PartitionPlan, infos map[string]archive.TopicInfo, cl *cluster) (*job.KafkaTopic, error) {
	t := &job.KafkaTopic{Name: mapped(r, source), Source: source}
	info, known := infos[source]
	if have, ok := cl.topics[t.Name]; ok {
		t.ID, t.Partitions = have.ID, have.Partitions
		for _, p := range parts {
			if have.ID != "" && have.ID == p.TopicID {
				return nil, run.Failf("topic %s of the target is the very topic that was archived, and a topic is not restored into itself: records would lie behind those that they came from; map it to another name (topicMapping)", t.Name)
			}
		}
		if known && info.Partitions != t.Partitions {
			for _, p := range parts {
				if _, ok := isMapped(r, p.TopicPartition); !ok {
					return nil, run.Failf("topic %s has %d partitions at the target, and the archived %s had %d: say where each goes (partitionMapping; %s/%d is not in it), or restore into a topic of as many",
						t.Name, t.Partitions, source, info.Partitions, source, p.Partition)
				}
			}
		}
		return t, nil
	}
	if !r.CreateTopics {
		return nil, run.Failf(`topic %s does not exist at the target: create it, or have it created from the archived configuration ("createTopics": true), or map %s to another name (topicMapping)`,
			t.Name, source)
	}
	if !known {
		return nil, run.Failf("topic %s cannot be created: the archive does not hold the configuration of %s (topic id %s); create it at the target yourself", t.Name, source, parts[0].TopicID)
	}
	t.Create, t.Partitions, t.Replication = true, info.Partitions, info.ReplicationFactor
	if r.ReplicationFactor > 0 {
		t.Replication = r.ReplicationFactor
	}
	if t.Replication > cl.brokers {
		return nil, run.Failf(`topic %s cannot be created with replication factor %d: the target has %d brokers; give "replicationFactor"`, t.Name, t.Replication, cl.brokers)
	}
	t.Config = map[string]string{}
	for key, value := range info.Config {
		if !droppedConfig(key) {
			t.Config[key] = value
		}
	}
	if s, ok := t.Config["min.insync.replicas"]; ok {
		if n, err := strconv.Atoi(s); err == nil && n > t.Replication {
			return nil, run.Failf("topic %s cannot be created with replication factor %d: its archived configuration has min.insync.replicas %d, so nothing could be written to it; "+
				`give a larger "replicationFactor", or create the topic yourself`, t.Name, t.Replication, n)
		}
	}
	return t, nil
}

// droppedConfig: settings that are about the archived cluster's brokers and storage, or that newer brokers refuse, not about the topic's records.
func droppedConfig(key string) bool {
	return strings.HasSuffix(key, ".replication.throttled.replicas") || strings.HasPrefix(key, "remote.") || strings.HasPrefix(key, "local.retention.") ||
		strings.HasPrefix(key, "confluent.") || key == "message.format.version" || key == "message.downconversion.enable"
}

// checkPart holds one partition against the target's log.
func checkPart(r *job.Request, p *job.KafkaPart, t *job.KafkaTopic, cl *cluster) error {
	if p.To.Partition >= t.Partitions {
		return run.Failf("%s would go into partition %d of %s, which has %d: say where it goes (partitionMapping)", p.TopicPartition, p.To.Partition, t.Name, t.Partitions)
	}
	if t.Create {
		return nil
	}
	log := cl.logs[p.To]
	p.Begin = log.End
	if cl.holds[p.To] && r.IfNotEmpty != job.NotEmptyAppend {
		return run.Failf(`%s of the target is not empty: its log is [%d, %d); restore into an empty topic (topicMapping), or behind what is there ("ifNotEmpty": "append")`,
			p.To, log.Start, log.End)
	}
	return nil
}

// deal gives each partition of the target to a lane, the largest first to the lane that has least. It depends on the plan alone, so that whoever works on
// the job knows the lanes.
func deal(k *job.KafkaPlan, parts []archive.PartitionPlan, lanes int) {
	bytes := map[kafka.TP]int64{}
	for i, p := range parts {
		to := toOf(k, p.TopicPartition)
		bytes[to]++
		for _, s := range parts[i].Segments {
			bytes[to] += s.Bytes
		}
	}
	tps := slices.SortedFunc(maps.Keys(bytes), func(a, b kafka.TP) int {
		if bytes[a] != bytes[b] {
			return int(max(-1, min(1, bytes[b]-bytes[a])))
		}
		if a.Less(b) {
			return -1
		}
		return 1
	})
	k.Lanes = max(1, min(lanes, len(tps)))
	load := make([]int64, k.Lanes)
	lane := map[kafka.TP]int{}
	for _, tp := range tps {
		least := 0
		for i := range load {
			if load[i] < load[least] {
				least = i
			}
		}
		lane[tp] = least
		load[least] += bytes[tp]
	}
	for i := range k.Parts {
		k.Parts[i].Lane = lane[k.Parts[i].To]
	}
}

func toOf(k *job.KafkaPlan, source kafka.TP) kafka.TP {
	for i := range k.Parts {
		if k.Parts[i].TopicPartition == source {
			return k.Parts[i].To
		}
	}
	panic(fmt.Sprintf("no place for %s", source)) // every partition of the plan has one
}
