// Package kafka is the only importer of confluent-kafka-go. It hands over records in batches per partition, so that a
// faster fetch path can take its place without a change above it.
//
// A Consumer never decides where to read: it fetches a partition only between Start and Stop, from exactly the position it
// was given, and it reports what stands in the way (a position that no longer exists, a truncated log, a deleted topic)
// instead of choosing another position.
package kafka

import (
	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/record"
)

// TP names one log.
type TP = record.TopicPartition

// Client is what every connection needs.
type Client struct {
	Bootstrap string // host:port,…
	ClientID  string
	// Overrides are passed to librdkafka as they are (consumer.override.* or producer.override.*, security.*, sasl.*), after
	// everything that this package sets. Keys on which this package's promises rest are refused.
	Overrides map[string]string
	Log       *zap.Logger // nil: silent
}

// Position is a place to fetch from.
type Position struct {
	TP
	Offset      int64 // absolute, ≥ 0
	LeaderEpoch int32 // of the record before Offset, record.NoEpoch where unknown: lets the broker detect truncation
}

// CommitOffset is a committed position with its metadata.
type CommitOffset struct {
	Offset      int64 // −1: none committed
	LeaderEpoch int32
	Metadata    string // < 4,096 bytes
}

// LogRange is [Start, End).
type LogRange struct{ Start, End int64 }
