package main

import (
	"fmt"
	"strconv"

	"tapedeck.dev/tapedeck/shared/service"
)

// defaultListen is the processor's port of the three (8183 archiver, 8184 replayer, 8185 processor).
const defaultListen = "127.0.0.1:8185"

func keys() []service.Key {
	return append(service.CommonKeys(defaultListen, service.KafkaKeys("consumer", "producer"), service.RegistryKeys()),
		service.Key{Name: "bootstrap.servers", Kind: service.String, Required: true, Doc: "Kafka brokers to ask first, host:port, comma separated", Example: "127.0.0.1:9092"},
		service.Key{Name: "pipelines", Kind: service.List, Required: true, Doc: "pipeline files (YAML), one pipeline each; `processor validate FILE` checks one", Example: "fares.yaml"},
		service.Key{Name: "group.prefix", Kind: service.String, Default: "tapedeck", Doc: "consumer groups and transactional ids are named <group.prefix>.<pipeline>; two processors that must not share work need two prefixes and two sets of pipeline names"},
		service.Key{Name: "instance.id", Kind: service.String, Doc: "names this process in the transactional ids of keyed pipelines; unique in the group, the same after a restart; empty: host name and port of rest.listen"},
		service.Key{Name: "start", Kind: service.String, Default: "earliest", OneOf: []string{"earliest", "latest"}, Doc: "where a pipeline that has never run begins: the log start or the log end of its inputs"},
		service.Key{Name: "commit.interval.ms", Kind: service.Int, Default: "1000", Check: atLeast(1), Doc: "how often results and positions are committed, ms ≥ 1; does not change what is written, only how soon"},
		service.Key{Name: "commit.records", Kind: service.Int, Default: "100000", Check: atLeast(1), Doc: "commit after so many input records even if the interval has not passed, ≥ 1"},
		service.Key{Name: "metadata.interval.ms", Kind: service.Int, Default: "5000", Check: atLeast(100), Doc: "how often new partitions and log ends of the inputs are looked for, ms ≥ 100"},
		service.Key{Name: "transaction.max.records", Kind: service.Int, Default: "100000", Check: atLeast(1), Doc: "outputs in one transaction, about, ≥ 1; a closing that has more goes out in several, and a kill between them leaves no seam"},
		service.Key{Name: "transaction.max.bytes", Kind: service.Bytes, Default: "64MiB", Check: bytesAtLeast(1 << 10), Doc: "the same in bytes; what the largest transaction takes in memory, and in transaction.timeout.ms"},
		service.Key{Name: "transaction.timeout.ms", Kind: service.Int, Default: "30000", Check: atLeast(1000), Doc: "after it the broker aborts the transaction of a process that died, ms ≥ 1000; others may have to wait so long"},
		service.Key{Name: "session.timeout.ms", Kind: service.Int, Default: "10000", Check: atLeast(0), Doc: "how long the group waits for a silent process before another takes over, ms; within the broker's group.min/max.session.timeout.ms; 0: librdkafka's default (45 s)"},
		service.Key{Name: "replication.factor", Kind: service.Int, Default: "0", Check: atLeast(0), Doc: "of the topics that the processor creates; 0: the broker's default"},
		service.Key{Name: "state.max.bytes", Kind: service.Bytes, Default: "512MiB", Check: bytesAtLeast(1 << 20), Doc: "open windows of one pipeline in this process, about (its memory: plan for twice as much); above half of it partitions that are ahead of the one that holds the watermark back wait for it, and where that is not enough the pipeline is FAILED; at least 1MiB"},
		service.Key{Name: "session.max.bytes", Kind: service.Bytes, Default: "256MiB", Doc: "open windows of one replay session, about; above half of it the partition that holds the watermark back goes first, and where that is not enough the session is FAILED"},
		service.Key{Name: "session.max.segment.bytes", Kind: service.Bytes, Default: "1GiB", Doc: "largest segment object that a replay session takes"},
		service.Key{Name: "session.max.upload.bytes", Kind: service.Bytes, Default: "1GiB", Doc: "all segments being received at one time, in memory, and up to a quarter as much for their records while they are fed; at least session.max.segment.bytes"},
	)
}

func bytesAtLeast(n int64) func(string) error {
	return func(s string) error {
		v, err := service.ParseBytes(s)
		if err != nil {
			return err
		}
		if v < n {
			return fmt.Errorf("%d bytes is below %d", v, n)
		}
		return nil
	}
}

func atLeast(n int64) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return err
		}
		if v < n {
			return fmt.Errorf("%d is below %d", v, n)
		}
		return nil
	}
}
