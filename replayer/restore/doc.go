// Package restore is a replay's target Kafka: it writes archived records into topics, each once, by transactions that carry their own progress.
// docs/restore.md has the table of steps and crash points.
package restore
