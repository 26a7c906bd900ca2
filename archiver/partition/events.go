package partition

import (
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Event is what happens to a partition.
type Event interface{ isEvent() }

// Recovered is what the recover worker found.
type Recovered struct {
	Identity  segment.LogIdentity // of the log in Kafka, read before anything is fetched
	Tail      *archive.Tail       // nil: no chain
	Committed kafka.CommitOffset
	Log       kafka.LogRange
	Begin     Begin // where Tail is nil
	// Incarnation of the topic, ≥ 1; 0 is 1. Committed is a position in it.
	Incarnation int
}

// RecoveryRefused: recovery found what repeating does not cure.
type RecoveryRefused struct {
	Reason Reason
	Err    error
}

// Records are consecutive records of the partition, fetched.
type Records struct{ Records []record.Record }

// End: everything below Offset has been fetched.
type End struct{ Offset int64 }

// OutOfRange: the broker holds nothing at the position; fetching has stopped.
type OutOfRange struct{ LogStart, LogEnd int64 }

// FetchFailed: fetching has stopped with Err.
type FetchFailed struct{ Err error }

// PutDone: the segment of the last Put is in the store, or another's under its name.
type PutDone struct {
	Adopted bool
	Tail    archive.Tail
}

// PutFailed: the put met what repeating does not cure.
type PutFailed struct {
	Reason Reason
	Err    error
}

// TopicID is the id that the topic has in Kafka now.
type TopicID struct{ ID string }

// LogRange is the log's range in Kafka now.
type LogRange struct{ Start, End int64 }

// Tick: time has passed.
type Tick struct{}

// Boundary: a boundary of rotate.schedule.interval.ms has passed on the wall clock. Where the boundaries lie is the owner's to know.
type Boundary struct{}

// Squeeze asks for memory: the open segment is to end now.
type Squeeze struct{}

func (Recovered) isEvent()       {}
func (RecoveryRefused) isEvent() {}
func (Records) isEvent()         {}
func (End) isEvent()             {}
func (OutOfRange) isEvent()      {}
func (FetchFailed) isEvent()     {}
func (PutDone) isEvent()         {}
func (PutFailed) isEvent()       {}
func (TopicID) isEvent()         {}
func (LogRange) isEvent()        {}
func (Tick) isEvent()            {}
func (Boundary) isEvent()        {}
func (Squeeze) isEvent()         {}

// Action is what the owner of a partition carries out.
type Action interface{ isAction() }

// Recover starts the recover worker, after a pause; its answer is Recovered or RecoveryRefused.
type Recover struct{ After time.Duration }

// Fetch starts to fetch, or starts again, at a position.
type Fetch struct {
	Offset int64
	Epoch  int32
}

// StopFetch ends fetching; the partition stays assigned.
type StopFetch struct{}

// Put starts the put worker; its answer is PutDone or PutFailed.
type Put struct{ Segment *Sealed }

// Commit stores a position in the group.
type Commit struct {
	Offset   int64
	Metadata string
}

// Abandon: the answer of the worker that runs, if one does, is not wanted any more; end it.
type Abandon struct{}

// Note is a line for the log.
type Note struct {
	Level string // info, warn or error
	Text  string
	Err   error // nil: none
}

// LostRange: offsets [From, To) are recorded as lost.
type LostRange struct{ From, To int64 }

func (Recover) isAction()   {}
func (Fetch) isAction()     {}
func (StopFetch) isAction() {}
func (Put) isAction()       {}
func (Commit) isAction()    {}
func (Abandon) isAction()   {}
func (Note) isAction()      {}
func (LostRange) isAction() {}
