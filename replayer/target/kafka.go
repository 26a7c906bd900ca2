package target

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/service"
)

// TypeKafka is a Kafka cluster to restore into.
const TypeKafka = "kafka"

// DefaultProgressTopic keeps the progress of restores at the target.
const DefaultProgressTopic = "tapedeck.replays"

// Bounds of lanes.
const (
	DefaultLanes = 4
	maxLanes     = 64
)

// Bounds of TxRecords.
const (
	DefaultTxRecords = 100_000
	maxTxRecords     = 1_000_000
)

// Kafka is a target of type kafka.
type Kafka struct {
	Bootstrap   string // host:port,…
	Lanes       int    // transactional producers per job at most, 1 to 64; a job has no more than partitions
	Progress    string // topic at the target that keeps the progress; created where it is missing
	Replication int    // replicas of that topic when it is created; 0: the brokers' default
	// TxRecords bounds the records of one transaction, 1 to 1,000,000: how soon readers see them, and how much is sent again after a kill.
	TxRecords int
	// Overrides are passed to librdkafka: security.protocol, sasl.*, ssl.*.
	Overrides map[string]string
	// Producer are passed to librdkafka for producers besides: producer.override.*, without the prefix.
	Producer map[string]string
	// Registry is the target's schema registry; its URL is "" where there is none.
	Registry schema.Config
}

// kafkaFields of a target; those that end in a dot are families.
var (
	kafkaFields = []string{"type", "bootstrap.servers", "lanes", "progress.topic", "progress.replication.factor", "transaction.records",
		"security.protocol",
		"schema.registry.url", "schema.registry.basic.auth.user.info", "schema.registry.bearer.auth.token", "schema.registry.ssl.ca.location",
		"schema.registry.ssl.certificate.location", "schema.registry.ssl.key.location"}
	kafkaFamilies = []string{"sasl.", "ssl.", "producer.override."}
)

func parseKafka(name string, m map[string]string) (Config, error) {
	k := &Kafka{Bootstrap: strings.TrimSpace(m["bootstrap.servers"]), Lanes: DefaultLanes, Progress: m["progress.topic"], TxRecords: DefaultTxRecords,
		Overrides: map[string]string{}, Producer: map[string]string{}}
	for _, field := range slices.Sorted(maps.Keys(m)) {
		value := m[field]
		if rest, ok := strings.CutPrefix(field, "producer.override."); ok {
			k.Producer[rest] = value
			continue
		}
		if field == "security.protocol" || strings.HasPrefix(field, "sasl.") || strings.HasPrefix(field, "ssl.") {
			k.Overrides[field] = value
			continue
		}
		if slices.Contains(kafkaFields, field) {
			continue
		}
		if near := service.Nearest(field, kafkaFields); near != "" {
			return Config{}, fmt.Errorf("targets.%s.%s is unknown for type kafka; did you mean targets.%s.%s?", name, field, name, near)
		}
		return Config{}, fmt.Errorf("targets.%s.%s is unknown for type kafka; known: %s, %s*", name, field, strings.Join(kafkaFields, ", "),
			strings.Join(kafkaFamilies, "*, "))
	}
	k.Registry = schema.Config{URL: m["schema.registry.url"], Token: m["schema.registry.bearer.auth.token"], CAFile: m["schema.registry.ssl.ca.location"],
		CertFile: m["schema.registry.ssl.certificate.location"], KeyFile: m["schema.registry.ssl.key.location"]}
	k.Registry.User, k.Registry.Password, _ = strings.Cut(m["schema.registry.basic.auth.user.info"], ":")
	if k.Bootstrap == "" {
		return Config{}, fmt.Errorf("targets.%s.bootstrap.servers is missing: give host:port of the target's brokers", name)
	}
	if k.Progress == "" {
		k.Progress = DefaultProgressTopic
	}
	number := func(field string, into *int, low, high int) error {
		s, ok := m[field]
		if !ok {
			return nil
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return fmt.Errorf("targets.%s.%s is %q: give %d to %d", name, field, s, low, high)
		}
		*into = n
		return nil
	}
	if err := number("lanes", &k.Lanes, 1, maxLanes); err != nil {
		return Config{}, err
	}
	if err := number("progress.replication.factor", &k.Replication, 1, 32767); err != nil {
		return Config{}, err
	}
	if err := number("transaction.records", &k.TxRecords, 1, maxTxRecords); err != nil {
		return Config{}, err
	}
	return Config{Name: name, Type: TypeKafka, Kafka: k}, nil
}
