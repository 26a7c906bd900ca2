package archiver

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/service"
)

// DefaultListen is where the archiver serves HTTP: Connect's 8083 stays free for a parallel run.
const DefaultListen = "127.0.0.1:8183"

// Keys are the archiver's settings.
func Keys() []service.Key {
	keys := append(service.CommonKeys(DefaultListen, service.KafkaKeys("consumer"), service.StoreKeys(), service.RegistryKeys(), groupKeys()),
		service.Key{Name: "bootstrap.servers", Required: true, Doc: "Kafka brokers to ask first, host:port, comma separated", Example: "127.0.0.1:9092"},
		service.Key{Name: "store", Required: true, Doc: "the archive: s3://bucket/prefix?endpoint=…&region=…&path-style=true or file:///directory",
			Example: "s3://tapedeck/archive?region=eu-central-1"},
		service.Key{Name: "topics", Kind: service.List, Doc: "topics to archive, by name", Example: "trips, orders"},
		service.Key{Name: "topics.regex", Check: checkRegex,
			Doc: "topics to archive whose full name matches (RE2); internal topics and targets of replays are matched by name only"},
		service.Key{Name: "topics.exclude", Check: checkRegex, Doc: "of the topics that topics.regex finds, leave out those whose full name matches (RE2)"},
		service.Key{Name: "topics.refresh.ms", Kind: service.Int, Default: "2000", Check: atLeast(100), Doc: "how often to look for new topics and partitions, in ms, ≥ 100"},
		service.Key{Name: "group.id", Default: "tapedeck-archiver", Doc: "consumer group; archivers of one group share the partitions", Example: "tapedeck-archiver"},
		service.Key{Name: "tasks.max", Kind: service.Int, Default: "1", Check: atLeast(1),
			Doc: "consumers of this process, each a member of the group with a core of its own to keep busy, ≥ 1; memory.max.bytes and the process's limits per second are shared out among them"},
		service.Key{Name: "session.timeout.ms", Kind: service.Int, Default: "10000", Check: atLeast(0),
			Doc: "how long the group waits for a silent archiver before another takes over, in ms; within the broker's group.min/max.session.timeout.ms; 0: librdkafka's default (45 s)"},
		service.Key{Name: "client.rack", Doc: "rack or zone of this archiver: brokers that know it let it fetch from a replica nearby; empty: from the leaders"},
		service.Key{Name: "flush.size", Kind: service.Int, Default: "100000", Check: atLeast(1), Doc: "records per segment, ≥ 1", Example: "100000"},
		service.Key{Name: "segment.bytes", Kind: service.Bytes, Default: "64MiB", Check: bytesAtLeast(1), Doc: "encoded records per segment, uncompressed, in bytes"},
		service.Key{Name: "rotate.interval.ms", Kind: service.Int, Default: "-1", Check: atLeast(-1),
			Doc: "span of record timestamps per segment, in ms; -1 or 0: any"},
		service.Key{Name: "rotate.age.ms", Kind: service.Int, Default: "60000", Check: atLeast(-1),
			Doc: "how long after its first record a segment is written at the latest, in ms; -1 or 0: never, which needs rotate.schedule.interval.ms", Example: "60000"},
		service.Key{Name: "rotate.schedule.interval.ms", Kind: service.Int, Default: "-1", Check: atLeast(-1),
			Doc: "end all segments at each multiple of this since midnight in timezone, by the wall clock, in ms; -1 or 0: never"},
		service.Key{Name: "timezone", Default: "UTC", Check: checkZone, Doc: "time zone of rotate.schedule.interval.ms, by its IANA name"},
		service.Key{Name: "codec", Default: "zstandard", OneOf: []string{"zstandard", "snappy", "deflate", "null"}, Doc: "compression of segments"},
		service.Key{Name: "isolation.level", Default: "read_committed", OneOf: []string{"read_committed", "read_uncommitted"},
			Doc: "what of transactions is archived; cannot change in an archive"},
		service.Key{Name: "gap.policy", Default: "stop", OneOf: []string{"stop", "record"},
			Doc: "when Kafka removed records that were not archived: stop the partition, or record the range as lost and go on"},
		service.Key{Name: "topic.recreated", Default: "stop", OneOf: []string{"stop", "incarnation"},
			Doc: "when a topic was deleted and created again: stop its partitions, or archive the new log as <topic>~2, ~3, …"},
		service.Key{Name: "start", Default: "earliest", Check: checkStart,
			Doc: "where a partition without an archive begins: " + startForms + "; what is below is recorded as not archived. Of partitions that appear later nothing is left out"},
		service.Key{Name: "start.offsets", Kind: service.List, Doc: "with start=offsets: topic:partition:offset, comma separated or a list; a partition that is not named begins at earliest"},
		service.Key{Name: "events.topic", Doc: "topic that is told of every segment, one JSON record each; it must exist and is not archived; empty: none"},
		service.Key{Name: "metrics.partitions.max", Kind: service.Int, Default: "1000", Check: atLeast(0),
			Doc: "how many partitions of a process have metrics of their own, ≥ 0; the others count in tapedeck_archiver_staleness_seconds only"},
		service.Key{Name: "memory.max.bytes", Kind: service.Bytes, Check: bytesAtLeast(minMemory),
			Doc: "bound on the memory of the process, in bytes, ≥ 64MiB: near it fetching waits and segments end early; default: three quarters of the container's limit, 512MiB where there is none"},
		service.Key{Name: "records.per.second.max", Kind: service.Int, Default: "0", Check: atLeast(0), Doc: "records that the process fetches per second, on average; 0: no limit"},
		service.Key{Name: "bytes.per.second.max", Kind: service.Bytes, Default: "0", Doc: "bytes of records that the process fetches per second, on average; 0: no limit"},
		service.Key{Name: "partition.records.per.second.max", Kind: service.Int, Default: "0", Check: atLeast(0), Doc: "records fetched of one partition per second, on average; 0: no limit"},
		service.Key{Name: "partition.bytes.per.second.max", Kind: service.Bytes, Default: "0", Doc: "bytes of records fetched of one partition per second, on average; 0: no limit"},
	)
	return append(keys, overridesKey(keys))
}

func checkRegex(s string) error {
	if _, err := regexp.Compile(s); err != nil {
		return fmt.Errorf("want an RE2 expression: %w", err)
	}
	return nil
}

func atLeast(bound int64) func(string) error {
	return func(s string) error {
		if n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64); err == nil && n < bound {
			return fmt.Errorf("want at least %d", bound)
		}
		return nil
	}
}

func bytesAtLeast(bound int64) func(string) error {
	return func(s string) error {
		if n, err := service.ParseBytes(s); err == nil && n < bound {
			return fmt.Errorf("want at least %d bytes", bound)
		}
		return nil
	}
}

// Settings are the archiver's own, resolved.
type Settings struct {
	Topics         Selection
	Refresh        time.Duration
	Groups         GroupSelection
	Group          string
	Session        time.Duration // 0: librdkafka's default
	Partition      partition.Config
	Start          Start
	Schedule       time.Duration  // rotate.schedule.interval.ms; 0: off
	Zone           *time.Location // of Schedule; nil: UTC
	Overrides      []Override
	Limit          Limit // of the process
	PartitionLimit Limit // of each partition
	MaxMemory      int64 // of the process, in bytes
	Tasks          int   // members of the group in this process; 0: 1
	Isolation      string
	Bootstrap      string
	Consumer       map[string]string // passed to librdkafka
	Admin          map[string]string
	MinRetry       time.Duration // of a create; 0: 200 ms
	MaxRetry       time.Duration // 0: 10 s
	Events         string        // topic that is told of segments; "": none
	MaxLabelled    int           // partitions with series of their own
	LevelsEvery    time.Duration // how often compatibility levels are asked for; 0: registryRefresh
	StrangerAfter  time.Duration // see strangerAfter, its default
	StalledAfter   time.Duration // see stalledAfter, its default
	ShutdownIn     time.Duration // creates in flight may finish for so long; 0: 8 s
}

// Selection says which topics are archived.
type Selection struct {
	Names   []string
	Pattern *regexp.Regexp // of the full name; nil: none
	Exclude *regexp.Regexp
}

// fullMatch compiles an expression that must match the whole of a name.
func fullMatch(expr string) *regexp.Regexp {
	if expr == "" {
		return nil
	}
	return regexp.MustCompile(`\A(?:` + expr + `)\z`)
}

// ReadSettings reads a configuration of Keys.
func ReadSettings(c *service.Config) (Settings, error) {
	ms := func(name string) time.Duration { return time.Duration(c.Int(name)) * time.Millisecond }
	s := Settings{
		Topics:  Selection{Names: c.List("topics"), Pattern: fullMatch(c.String("topics.regex")), Exclude: fullMatch(c.String("topics.exclude"))},
		Refresh: ms("topics.refresh.ms"),
		Group:   c.String("group.id"),
		Session: ms("session.timeout.ms"),
		Partition: partition.Config{
			RotateAge: max(0, ms("rotate.age.ms")), Codec: c.String("codec"),
			Gap:       partition.GapPolicy(c.String("gap.policy")),
			Recreated: partition.RecreatedPolicy(c.String("topic.recreated")),
			SchemaIDs: c.String("schema.registry.url") != "",
		},
		Schedule:    max(0, ms("rotate.schedule.interval.ms")),
		MaxMemory:   cmp.Or(c.Int("memory.max.bytes"), memoryBound()),
		Tasks:       int(c.Int("tasks.max")),
		Events:      c.String("events.topic"),
		MaxLabelled: int(c.Int("metrics.partitions.max")),
		Isolation:   c.String("isolation.level"),
		Bootstrap:   c.String("bootstrap.servers"),
		Consumer:    c.ClientOverrides("consumer"),
		Admin:       c.ClientOverrides(""),
	}
	s.Limit = Limit{Records: c.Int("records.per.second.max"), Bytes: c.Int("bytes.per.second.max")}
	s.PartitionLimit = Limit{Records: c.Int("partition.records.per.second.max"), Bytes: c.Int("partition.bytes.per.second.max")}
	if rack := c.String("client.rack"); rack != "" && s.Consumer["client.rack"] == "" {
		s.Consumer["client.rack"] = rack
	}
	zone, err := loadZone(c.String("timezone"))
	if err != nil {
		return s, fmt.Errorf("timezone: %w", err)
	}
	s.Zone = zone
	if s.Groups, err = readGroups(c); err != nil {
		return s, err
	}
	s.Partition.Rule.FlushSize = c.Int("flush.size")
	s.Partition.Rule.SegmentBytes = c.Int("segment.bytes")
	s.Partition.Rule.RotateIntervalMs = max(0, c.Int("rotate.interval.ms"))
	switch {
	case len(s.Topics.Names) == 0 && s.Topics.Pattern == nil:
		return s, errors.New("nothing to archive: set topics or topics.regex")
	case s.Topics.Exclude != nil && s.Topics.Pattern == nil:
		return s, errors.New("topics.exclude has no meaning without topics.regex")
	case s.Events != "" && (slices.Contains(s.Topics.Names, s.Events) || s.Topics.Matches(kafka.Topic{Name: s.Events})):
		return s, fmt.Errorf("events.topic: %s would be archived itself, and each of its segments be told of there: leave it out with topics.exclude", s.Events)
	case s.Group == "":
		return s, errors.New("group.id must not be empty")
	}
	if err := checkFlushed(s.Partition, s.Schedule); err != nil {
		return s, err
	}
	if err := s.readOverrides(c); err != nil {
		return s, err
	}
	slices.Sort(s.Topics.Names)
	s.Topics.Names = slices.Compact(s.Topics.Names)
	s.Start, err = readStart(c.String("start"), c.List("start.offsets"), s.Group, s.Topics)
	return s, err
}
