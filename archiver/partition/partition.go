// Package partition is the state machine of one partition that is archived, as a pure function of its events: it takes no clock,
// context, logger, Kafka or store. docs/archiver.md holds the table of its states.
package partition

import (
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
)

// State of a partition.
type State string

// States. A revoked partition is simply forgotten by its owner.
const (
	Recovering State = "RECOVERING"
	Checking   State = "CHECKING"
	Fetching   State = "FETCHING"
	Finished   State = "FINISHED" // archived to the end that was set (EndAt)
	Stopped    State = "STOPPED"
)

// Reason says why a partition is STOPPED.
type Reason string

// Reasons.
const (
	OtherLog    Reason = "other-log"    // the archive holds another log under this name, or the topic was created again
	NoTail      Reason = "no-tail"      // the group is ahead of an empty chain
	Diverged    Reason = "diverged"     // Kafka's log is not the one that was archived
	Gap         Reason = "gap"          // retention removed what was not archived, and gap.policy is stop
	BrokenChain Reason = "broken-chain" // the store holds foreign objects or a chain with a hole
	Refused     Reason = "refused"      // the store refuses the object, or it cannot be encoded
	Gone        Reason = "gone"         // the topic or the partition is not there any more
	BadStart    Reason = "start"        // where the new chain is to begin cannot be found
)

// GapPolicy says what to do where Kafka has lost what was not archived.
type GapPolicy string

// Gap policies.
const (
	GapStop   GapPolicy = "stop"
	GapRecord GapPolicy = "record"
)

// RecreatedPolicy says what to do with a topic that was deleted and created again.
type RecreatedPolicy string

// Policies for topics that were created again.
const (
	RecreatedStop        RecreatedPolicy = "stop"
	RecreatedIncarnation RecreatedPolicy = "incarnation" // archive the new log as <topic>~2, ~3, …
)

// Config is the same for all partitions.
type Config struct {
	Rule      segment.CutRule
	RotateAge time.Duration // since the first thing in the open segment; 0: off
	Codec     string
	Gap       GapPolicy
	Recreated RecreatedPolicy // "" is stop
	SchemaIDs bool            // collect the schema ids seen in keys and values
}

// Bounds.
const (
	maxSealed       = 1 // sealed segments beyond the one being put before the partition is held
	beyondEndTries  = 3 // tail beyond the log's end: tries before that is a truncation
	beyondEndPause  = 2 * time.Second
	afterErrorPause = time.Second // doubled each time
	maxErrorPause   = 30 * time.Second
)

// Sealed is a segment that waits for its put: an open one whose end is decided.
type Sealed struct {
	Writer         *segment.Writer
	ID             segment.LogIdentity
	Next           int64
	Incarnation    int          // of the topic
	Schemas        []schema.Ref // that keys and values name, ascending
	Chain          segment.Chain
	Start          int64
	Records        int64
	Cause          Cause
	firstTimestamp int64 // of its first record, in ms
	// MemBytes and DatumBytes are of Writer when it was sealed: it is not asked again while a worker closes it.
	MemBytes, DatumBytes int64
}

// Cause says why a segment was sealed: the setting that ended it.
type Cause string

// Causes.
const (
	CauseRecords  Cause = "flush.size"
	CauseBytes    Cause = "segment.bytes"
	CauseInterval Cause = "rotate.interval.ms"
	CauseAge      Cause = "rotate.age.ms"
	CauseSchedule Cause = "rotate.schedule.interval.ms"
	CauseMemory   Cause = "memory.max.bytes"
	CauseGap      Cause = "gap.policy" // the partition stops behind it
	CauseStart    Cause = "start"      // it says where the chain's records begin
	CauseEnd      Cause = "end"        // the end that was set (EndAt)
)

// causeOf names what a cutter answered.
func causeOf(by segment.CutBy) Cause {
	switch by {
	case segment.CutByBytes:
		return CauseBytes
	case segment.CutByInterval:
		return CauseInterval
	}
	return CauseRecords
}

// Partition is the state machine. Not safe for concurrent use.
type Partition struct {
	tp  kafka.TP
	cfg Config

	state   State
	reason  Reason
	lastErr string

	id          segment.LogIdentity
	incarnation int // of the topic, ≥ 1
	haveTail    bool
	tail        archive.Tail  // newest confirmed segment, where haveTail
	chain       segment.Chain // for the next put
	confirmed   int64         // next of the newest confirmed segment
	lastEpoch   int32         // of the last record taken, or of the archive's
	checked     bool          // CHECKING: the last record was met

	open     *open
	sealed   []*Sealed // [0] is being put while putting
	putting  bool
	position int64
	seam     *Seam // of the chain, where this instance began it

	bounded bool // end is set
	end     int64
	short   int  // looks in a row at a log that ends before end
	owed    bool // the group is behind the chain that was recovered: a commit was lost
	settle  bool // the chain is begun, and not written: its first segment ends as soon as it holds anything

	tries     int // recoveries in a row that found the tail beyond the log's end
	truncated int // fetches in a row that found the log truncated
	failures  int // fetches in a row that failed

	logStart, logEnd int64 // as last seen; −1 unknown
	segments         int64 // confirmed by this instance
	records          int64
	lostOffsets      int64 // offsets recorded as lost
	firstNext        int64 // next of the chain when it was first recovered; −1: not yet
}

// open is the segment that records go to.
type open struct {
	start          int64
	since          time.Duration // when it first held something
	holding        bool          // it holds something: position > start
	writer         *segment.Writer
	cutter         *segment.Cutter
	ids            schema.Seen
	records        int64
	firstTimestamp int64 // of the first record, in ms
}

// New returns a partition that was just assigned, and what to do first.
func New(tp kafka.TP, cfg Config) (*Partition, []Action) {
	p := &Partition{tp: tp, cfg: cfg, state: Recovering, lastEpoch: record.NoEpoch, logStart: -1, logEnd: -1, firstNext: -1}
	return p, []Action{Recover{}}
}

// On takes an event at now, a monotonic time since any fixed moment, and returns what to do, in this order.
func (p *Partition) On(now time.Duration, ev Event) []Action {
	acts := append(p.on(now, ev), p.settleStart()...)
	acts = append(acts, p.commitOwed()...)
	return append(acts, p.finishAtEnd()...)
}

func (p *Partition) on(now time.Duration, ev Event) []Action {
	switch e := ev.(type) {
	case Recovered:
		if p.state == Recovering {
			return p.recovered(now, e)
		}
	case RecoveryRefused:
		if p.state == Recovering {
			return p.stop(e.Reason, e.Err)
		}
	case Records:
		return p.onRecords(now, e.Records)
	case End:
		return p.onEnd(now, e.Offset)
	case OutOfRange:
		return p.onOutOfRange(now, e)
	case FetchFailed:
		if p.state == Checking || p.state == Fetching {
			return p.fetchFailed(e.Err)
		}
	case PutDone:
		return p.onPutDone(now, e)
	case PutFailed:
		if p.putting {
			return p.refused(e.Reason, e.Err)
		}
	case TopicID:
		return p.onTopicID(e.ID)
	case EndAt:
		p.bounded, p.end = true, e.Offset
	case LogRange:
		p.logStart, p.logEnd = e.Start, e.End
		return p.endInLog()
	case Tick:
		return p.onTick(now)
	case Boundary:
		return p.sealHeld(CauseSchedule)
	case Squeeze:
		return p.sealHeld(CauseMemory)
	}
	return nil
}

// TP names the partition.
func (p *Partition) TP() kafka.TP { return p.tp }

// State returns the state.
func (p *Partition) State() State { return p.state }

// Held reports whether fetching is to wait for the store.
func (p *Partition) Held() bool { return len(p.sealed) > maxSealed }

// Putting reports whether a put is under way.
func (p *Partition) Putting() bool { return p.putting }

// OpenBytes is the memory of the open segment.
func (p *Partition) OpenBytes() int64 {
	if p.open == nil || p.open.writer == nil {
		return 0
	}
	return p.open.writer.MemBytes()
}

// SealedBytes is the memory of the sealed segments. Making an object needs as much again for a moment.
func (p *Partition) SealedBytes() int64 {
	var n int64
	for _, s := range p.sealed {
		n += s.MemBytes
	}
	return n
}

// OpenStart is the first offset of the open segment, OpenRecords what it holds; −1 and 0: there is none.
func (p *Partition) OpenStart() (start, records int64) {
	if p.open == nil {
		return -1, 0
	}
	return p.open.start, p.open.records
}

// Position is the next offset to fetch.
func (p *Partition) Position() int64 { return p.position }

// Behind is how many offsets are still to be fetched; −1: not known.
func (p *Partition) Behind() int64 {
	if p.logEnd < 0 {
		return -1
	}
	return max(0, p.logEnd-p.position)
}

// Rule is the one that cuts its segments.
func (p *Partition) Rule() segment.CutRule { return p.cfg.Rule }

// Status is a partition's state for people and metrics.
type Status struct {
	kafka.TP
	State       State  `json:"state"`
	Reason      Reason `json:"reason,omitempty"`
	Error       string `json:"lastError,omitempty"`
	TopicID     string `json:"topicId,omitempty"`
	Incarnation int    `json:"incarnation"`    // of the topic; 0: not known yet
	Archived    int64  `json:"archived"`       // next offset of the newest confirmed segment
	Position    int64  `json:"position"`       // next offset to fetch
	LogStart    int64  `json:"logStart"`       // −1: not known
	LogEnd      int64  `json:"logEnd"`         // −1: not known
	Lag         int64  `json:"lag"`            // log end − archived; −1: not known
	Seam        *Seam  `json:"seam,omitempty"` // where the chain's records begin, where this process began the chain

	OpenStart   int64 `json:"openStart"`   // first offset of the open segment; −1: none
	OpenRecords int64 `json:"openRecords"` // buffered in the open segment
	Sealed      int   `json:"sealed"`      // segments that wait for their put, the one being put included
	Putting     bool  `json:"putting"`
	Held        bool  `json:"held"`
	Segments    int64 `json:"segmentsWritten"` // since this assignment
	Records     int64 `json:"recordsWritten"`
	Lost        int64 `json:"lostOffsets"` // recorded as lost since this assignment
	Begin       int64 `json:"begin"`       // archived, when this assignment began; −1: not known
	Detail
}

// Status returns a copy.
func (p *Partition) Status() Status {
	s := Status{TP: p.tp, State: p.state, Reason: p.reason, Error: p.lastErr, TopicID: p.id.TopicID, Incarnation: p.incarnation, Archived: p.confirmed, Position: p.position,
		LogStart: p.logStart, LogEnd: p.logEnd, Lag: -1, Seam: p.seam, OpenStart: -1, Sealed: len(p.sealed), Putting: p.putting, Held: p.Held(),
		Segments: p.segments, Records: p.records, Lost: p.lostOffsets, Begin: p.firstNext, Detail: p.detail()}
	if p.logEnd >= 0 && p.state != Recovering {
		s.Lag = max(0, p.logEnd-p.confirmed)
	}
	if p.open != nil {
		s.OpenStart, s.OpenRecords = p.open.start, p.open.records
	}
	return s
}
