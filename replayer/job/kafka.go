package job

import "tapedeck.dev/tapedeck/shared/record"

// KafkaPlan is the part of a plan that says where a restore into Kafka writes. It is fixed when the job is planned, so that every replayer that
// ever works on the job does the same.
type KafkaPlan struct {
	ClusterID string `json:"clusterId"` // of the target
	// Progress is the topic at the target that keeps the progress, with its id ("" in a dry run where it is not there yet), and in it the job's partition.
	Progress          string `json:"progress"`
	ProgressID        string `json:"progressId,omitempty"`
	ProgressPartition int32  `json:"progressPartition"`

	Append   bool         `json:"append,omitempty"` // the target may hold other records
	Lanes    int          `json:"lanes"`            // transactional producers of the job, ≥ 1
	Topics   []KafkaTopic `json:"topics"`           // of the target, by name
	Parts    []KafkaPart  `json:"parts"`            // by source topic, partition; one of each Range
	Warnings []string     `json:"warnings,omitempty"`
	// Registry is what becomes of the schemas; nil: not asked for.
	Registry *RegistryPlan `json:"registry,omitempty"`
	// Groups are the consumer groups that are restored with the topics; nil: none.
	Groups *GroupsPlan `json:"groups,omitempty"`
}

// KafkaTopic is a topic that is restored into.
type KafkaTopic struct {
	Name   string `json:"name"`
	Source string `json:"source"` // the archived topic
	// ID is its topic id when the job was planned, "" where it was not there yet (the job creates it).
	ID          string            `json:"id,omitempty"`
	Partitions  int32             `json:"partitions"`
	Create      bool              `json:"create,omitempty"`
	Replication int               `json:"replication,omitempty"` // of a topic to create; 0: the brokers' default
	Config      map[string]string `json:"config,omitempty"`      // of a topic to create
}

// KafkaPart is where one partition goes, and on which lane.
type KafkaPart struct {
	record.TopicPartition                       // source, as in the Range
	To                    record.TopicPartition `json:"to"`
	Lane                  int                   `json:"lane"` // 0 ≤ Lane < Lanes
	// Begin is the target's log end when the job was planned; 0 for a topic to create. No record of the job lies below it.
	Begin int64 `json:"begin"`
}

// Restored is the outcome of a restore into Kafka.
type Restored struct {
	ClusterID string         `json:"clusterId"`
	Parts     []RestoredPart `json:"parts"` // by source topic, partition
	Notes     []string       `json:"notes,omitempty"`
	// Groups are the restored consumer groups, by name.
	Groups []RestoredGroup `json:"groups,omitempty"`
}

// RestoredPart is what one partition of the target got.
type RestoredPart struct {
	record.TopicPartition                       // source
	To                    record.TopicPartition `json:"to"`
	TopicID               string                `json:"topicId,omitempty"` // of the target
	First                 int64                 `json:"first"`             // offset at the target of the first record, −1 for none
	Last                  int64                 `json:"last"`              // −1 for none
	Records               int64                 `json:"records"`
	// Begin is where the target's log ended when the job was planned. Everything of the job is at or behind it.
	Begin int64 `json:"begin"`
	// TimestampsChanged counts the records whose timestamp the producer could not keep.
	TimestampsChanged int64 `json:"timestampsChanged,omitempty"`
	// Rewritten counts the records whose schema ids are not those of the archive; the proof's checksum is of the records as archived.
	Rewritten int64 `json:"rewritten,omitempty"`
}
