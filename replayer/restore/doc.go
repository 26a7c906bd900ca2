// Package restore is a replay's target Kafka: it writes archived records into topics, each once, by transactions that carry their own progress.
// docs/replayer.md ("Restore into Kafka") has the table of steps and crash points.
package restore
