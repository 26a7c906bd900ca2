package restore

import (
	"maps"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/target"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// now of the plans here; the archived records are a day old.
var planNow = time.UnixMilli(1_700_000_000_000)

const day = 24 * 60 * 60 * 1000

// planScene is two archived partitions of trips, and a target of one broker that has a topic "there" of two partitions.
type planScene struct {
	parts []archive.PartitionPlan
	infos map[string]archive.TopicInfo
	cl    cluster
}

func newPlanScene() *planScene {
	s := &planScene{infos: map[string]archive.TopicInfo{"trips": {Topic: "trips", Partitions: 2, ReplicationFactor: 1,
		Config: map[string]string{"retention.ms": "-1", "confluent.tier.enable": "true", "remote.storage.enable": "true"}}}}
	for p := range int32(2) {
		s.parts = append(s.parts, archive.PartitionPlan{TopicPartition: kafka.TP{Topic: "trips", Partition: p}, TopicID: "old", FromTimestamp: -1, UntilTimestamp: -1, Until: 10,
			Segments: []archive.PlannedSegment{{Next: 10, Count: 10, Bytes: 1000, MinTimestamp: planNow.UnixMilli() - day, MaxTimestamp: planNow.UnixMilli() - 1}}})
	}
	s.cl = cluster{id: "c", brokers: 1, topics: map[string]kafka.Topic{"there": {ID: "new", Partitions: 2}},
		configs: map[string]map[string]string{"there": {"retention.ms": "-1"}}, holds: map[kafka.TP]bool{}, logs: map[kafka.TP]kafka.LogRange{}}
	return s
}

func (s *planScene) plan(t *testing.T, fields string) (*job.KafkaPlan, error) {
	t.Helper()
	r, err := job.ParseRequest([]byte(`{"name":"a","target":"k","topics":["trips"],` + fields + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return planKafka(r, s.parts, s.infos, &s.cl, &target.Kafka{Progress: "progress", Lanes: 4}, "id", planNow)
}

const (
	intoThere = `"topicMapping":{"trips":"there"}`
	created   = `"createTopics":true`
)

// TestWhatATargetCannotTake: each is found while planning, and the message says what to do.
func TestWhatATargetCannotTake(t *testing.T) {
	set := func(key, value string) func(*planScene) {
		return func(s *planScene) { s.cl.configs["there"][key] = value }
	}
	archived := func(key, value string) func(*planScene) {
		return func(s *planScene) { s.infos["trips"].Config[key] = value }
	}
	replicas := func(n int) func(*planScene) {
		return func(s *planScene) {
			i := s.infos["trips"]
			i.ReplicationFactor = n
			s.infos["trips"] = i
		}
	}
	wider := func(s *planScene) { s.cl.topics["there"] = kafka.Topic{ID: "new", Partitions: 3} }
	for name, c := range map[string]struct {
		change func(*planScene)
		fields string
		want   []string
	}{
		"missing topic":          {nil, `"ifNotEmpty":"append"`, []string{"does not exist", `"createTopics": true`}},
		"no archived config":     {func(s *planScene) { s.infos = nil }, created, []string{"does not hold the configuration"}},
		"more replicas":          {replicas(3), created, []string{"replication factor 3", "1 brokers", `"replicationFactor"`}},
		"more replicas, asked":   {nil, created + `,"replicationFactor":2`, []string{"replication factor 2", "1 brokers"}},
		"min ISR":                {archived("min.insync.replicas", "2"), created, []string{"min.insync.replicas 2", "nothing could be written"}},
		"partition counts":       {wider, intoThere, []string{"3 partitions", "had 2", "partitionMapping"}},
		"half a mapping":         {wider, intoThere + `,"partitionMapping":{"trips/0":2}`, []string{"trips/1 is not in it"}},
		"mapped beyond":          {nil, intoThere + `,"partitionMapping":{"trips/0":7}`, []string{"partition 7", "which has 2"}},
		"mapping of nothing":     {nil, `"topicMapping":{"trips":"there","x":"y"}`, []string{"x", "not among the topics"}},
		"partition of nothing":   {nil, intoThere + `,"partitionMapping":{"trips/9":0}`, []string{"trips/9", "not among"}},
		"into the progress":      {nil, `"topicMapping":{"trips":"progress"}`, []string{"keeps the progress"}},
		"into an internal topic": {nil, `"topicMapping":{"trips":"__consumer_offsets"}`, []string{"Kafka's own"}},
		"into itself":            {func(s *planScene) { s.cl.topics["there"] = kafka.Topic{ID: "old", Partitions: 2} }, intoThere, []string{"the very topic"}},
		"not empty":              {func(s *planScene) { s.cl.holds[kafka.TP{Topic: "there", Partition: 1}] = true }, intoThere, []string{"not empty", `"ifNotEmpty": "append"`}},
		"progress that is lost":  {func(s *planScene) { s.cl.topics["progress"] = kafka.Topic{ID: "p", Partitions: 1} }, intoThere, []string{"cleanup.policy", "compact"}},
		"append time":            {set("message.timestamp.type", "LogAppendTime"), intoThere, []string{"LogAppendTime", "CreateTime"}},
		"too old":                {set("message.timestamp.before.max.ms", "1000"), intoThere, []string{"message.timestamp.before.max.ms is 1000", "rejected"}},
		"too old, older broker":  {set("message.timestamp.difference.max.ms", "1000"), intoThere, []string{"message.timestamp.difference.max.ms is 1000"}},
		"retention":              {set("retention.ms", "1000"), intoThere, []string{"retention.ms is 1000", "deleted", "retention.ms=-1"}},
		"retention in bytes":     {set("retention.bytes", "999"), intoThere, []string{"retention.bytes is 999", "deleted"}},
		"too far in the future": {func(s *planScene) {
			s.parts[0].Segments[0].MaxTimestamp += 5000
			set("message.timestamp.after.max.ms", "100")(s)
		}, intoThere, []string{"after.max.ms", "future"}},
		"two topics into one": {func(s *planScene) { s.parts[1].Topic = "users" }, `"topicMapping":{"trips":"there","users":"there"}`, []string{"both go into there"}},
	} {
		s := newPlanScene()
		if c.change != nil {
			c.change(s)
		}
		_, err := s.plan(t, c.fields)
		t.Run(name, func(t *testing.T) { wantFailure(t, err, c.want...) })
	}
}

// TestCreatedTopics are as archived, but for what is about other brokers and what would not keep the records.
func TestCreatedTopics(t *testing.T) {
	s := newPlanScene()
	maps.Copy(s.infos["trips"].Config, map[string]string{"retention.ms": "1000", "max.message.bytes": "2000000", "min.insync.replicas": "1"})
	k, err := s.plan(t, created)
	if err != nil {
		t.Fatal(err)
	}
	got := k.Topics[0]
	want := map[string]string{"retention.ms": "-1", "max.message.bytes": "2000000", "min.insync.replicas": "1"}
	if !got.Create || got.Name != "trips" || got.Partitions != 2 || got.Replication != 1 || !maps.Equal(got.Config, want) {
		t.Errorf("created: %+v", got)
	}
	if len(k.Warnings) != 1 || !strings.Contains(k.Warnings[0], "retention.ms=-1") {
		t.Errorf("warnings: %q", k.Warnings)
	}
	s.cl.brokers = 5
	if k, err = s.plan(t, created+`,"replicationFactor":4`); err != nil || k.Topics[0].Replication != 4 {
		t.Errorf("replicationFactor: %+v, %v", k, err)
	}
}

// TestPartitionsDealt: mapped partitions go where the mapping says, and partitions of one target partition share a lane, whoever plans.
func TestPartitionsDealt(t *testing.T) {
	s := newPlanScene()
	s.cl.logs[kafka.TP{Topic: "there", Partition: 1}] = kafka.LogRange{Start: 3, End: 7}
	k, err := s.plan(t, intoThere+`,"partitionMapping":{"trips/0":1,"trips/1":1}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range k.Parts {
		if p.To != (kafka.TP{Topic: "there", Partition: 1}) || p.Lane != 0 || p.Begin != 7 {
			t.Errorf("%+v", p)
		}
	}
	if k.Lanes != 1 {
		t.Errorf("%d lanes", k.Lanes)
	}
	if k, err = s.plan(t, intoThere); err != nil || k.Lanes != 2 || k.Parts[0].Lane == k.Parts[1].Lane {
		t.Errorf("%+v, %v", k, err)
	}
}
