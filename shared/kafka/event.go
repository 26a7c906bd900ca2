package kafka

import "tapedeck.dev/tapedeck/shared/record"

// Event is one of Batch, EndOfPartition, Assigned, Revoked, OutOfRange, PartitionError, GroupError.
type Event interface{ isEvent() }

// Batch holds consecutive records of one partition in offset order, at least one. Offsets may jump where the log holds no
// data (markers, aborted transactions, compaction).
type Batch struct {
	TP
	Records []record.Record
}

// EndOfPartition: everything below Offset has been handed over (past markers).
type EndOfPartition struct {
	TP
	Offset int64
}

// Assigned: the group gave these partitions to this consumer; nothing is fetched until Start.
type Assigned struct{ Partitions []TP }

// Revoked: these partitions are no longer this consumer's; fetching has stopped, and no batch of them follows. Lost is true where the
// group went on without us (another member may own them already).
type Revoked struct {
	Partitions []TP
	Lost       bool
}

// OutOfRange: the broker holds no record at the position asked for; it was asked again before this is reported. Fetching of
// the partition stopped. Offset < LogStart: the records were deleted. Offset > LogEnd: the log is shorter than it was.
type OutOfRange struct {
	TP
	Offset           int64
	LogStart, LogEnd int64
}

// PartitionError: fetching of the partition stopped with Err (topic deleted, not authorized, truncated, …).
type PartitionError struct {
	TP
	Err error
}

// GroupError: the consumer as a whole is in trouble; it goes on trying, unless Err is ErrFatal.
type GroupError struct{ Err error }

func (Batch) isEvent()          {}
func (EndOfPartition) isEvent() {}
func (Assigned) isEvent()       {}
func (Revoked) isEvent()        {}
func (OutOfRange) isEvent()     {}
func (PartitionError) isEvent() {}
func (GroupError) isEvent()     {}
