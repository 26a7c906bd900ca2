// Package session holds the wire types of the receiver protocol, by which a replayer hands archived segments to a processor
// (or to any other receiver). docs/receiver-protocol.md describes the calls:
//
//	PUT    /sessions/{name}                                     open (Request) → Status
//	POST   /sessions/check                                      would this Request be opened? → 204 (optional for a receiver)
//	PUT    /sessions/{name}/segments/{topic}/{partition}/{start}?epoch=N   one segment object as the body → Ack
//	GET    /sessions/{name}                                     → Status
//	POST   /sessions/{name}/finish?epoch=N                      every range delivered: apply the end mode → Status
//	DELETE /sessions/{name}?epoch=N                             cancel
package session

import (
	"encoding/json"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Promise is what the replay is to be.
type Promise string

// The two promises (docs/semantics.md).
const (
	Reproduce Promise = "reproduce"
	Recompute Promise = "recompute"
)

// EndMode says what happens at the end of the ranges.
type EndMode string

// End modes.
const (
	Hold  EndMode = "hold"  // emit exactly what a live run had emitted at these positions
	Drain EndMode = "drain" // close every window
)

// SchemaSource says where writer schemas come from that no decision calls unknown.
type SchemaSource string

// Sources of writer schemas. A registry may have been rebuilt since, so that an id means something else there, or exists now and
// did not when the live run asked: only what the segments hold is what the records were written with.
const (
	FromSegment  SchemaSource = "segment"  // from the segment alone; an id that it lacks fails the session
	FromRegistry SchemaSource = "registry" // from the segment, and what it lacks from the registry as it is now
)

// Range is one partition's part of the replay: offsets [From, Until).
type Range struct {
	record.TopicPartition
	TopicID   string         `json:"topicId"`
	Isolation string         `json:"isolation"`
	From      int64          `json:"from"`
	Until     int64          `json:"until"`
	Gaps      []segment.Skip `json:"gaps,omitempty"` // lost and not-archived ranges inside
	// Before is the greatest record timestamp below From, ms, −1 where there is none. It is given for a start in the middle alone (with Windows), and
	// only where it bounds every record below From: one without a timestamp has none.
	Before *int64 `json:"before,omitempty"`
}

// Windows asks for the results of the windows within [From, Until), event time in ms, and no others.
type Windows struct {
	From  int64 `json:"from"`
	Until int64 `json:"until"`
}

// Request opens a session, or takes it over: the same body with a higher epoch.
type Request struct {
	Pipeline string `json:"pipeline"`
	// PipelineHash is the hash of the pipeline that the sender planned with; a receiver with another refuses (409). Empty: not checked.
	PipelineHash string `json:"pipelineHash,omitempty"`
	// Sender is whose session it is: any text that no other sender has, told back by Status.Sender. Two senders that chose one name
	// cannot take each other's session, even where they ask for the same. Empty: nobody's in particular.
	Sender  string  `json:"sender,omitempty"`
	Epoch   int64   `json:"epoch"` // a receiver refuses calls of a lower one (409)
	Promise Promise `json:"promise"`
	EndMode EndMode `json:"endMode"`
	// Schemas is FromSegment or FromRegistry; empty: see SchemaSource.
	Schemas SchemaSource `json:"schemas,omitempty"`
	// Windows (recompute only) lets ranges begin in the middle. nil: every window.
	Windows   *Windows          `json:"windows,omitempty"`
	Ranges    []Range           `json:"ranges"`
	Decisions []json.RawMessage `json:"decisions,omitempty"` // values of the decision log, in offset order
}

// SchemaSource is Schemas, or its default: what the segments hold to reproduce, the registry too to recompute.
func (r *Request) SchemaSource() SchemaSource {
	switch {
	case r.Schemas != "":
		return r.Schemas
	case r.Promise == Recompute:
		return FromRegistry
	}
	return FromSegment
}

// State of a session.
type State string

// States of a session.
const (
	Open      State = "OPEN"
	Finished  State = "FINISHED"
	Cancelled State = "CANCELLED"
	Failed    State = "FAILED"
)

// Progress of one partition. Count, First, Last and Checksum speak of the records taken inside the range, each once.
type Progress struct {
	record.TopicPartition
	Expected int64  `json:"expected"` // next offset wanted; Until when done. May go back after the receiver's restart
	Count    int64  `json:"count"`
	First    int64  `json:"first"`    // −1 for none
	Last     int64  `json:"last"`     // −1 for none
	Checksum string `json:"checksum"` // 16 hex digits: sum of segment.Checksum modulo 2^64
	// Watermark is the event time in ms below which the partition brings nothing more; in sessions with Windows alone, and there once it is known.
	Watermark *int64 `json:"watermark,omitempty"`
}

// Ack answers a segment (200), a refused skip (409) or a limit reached (503, with Needs).
type Ack struct {
	Expected int64                  `json:"expected"`
	Needs    *record.TopicPartition `json:"needs,omitempty"` // 503: send this partition's next segment first
	Message  string                 `json:"message,omitempty"`
}

// Status of a session.
type Status struct {
	Name     string            `json:"name"`
	Pipeline string            `json:"pipeline"`
	Sender   string            `json:"sender,omitempty"` // as in the Request
	Epoch    int64             `json:"epoch"`
	State    State             `json:"state"`
	Error    string            `json:"error,omitempty"`
	Progress []Progress        `json:"progress"` // by topic, partition
	Outputs  map[string]string `json:"outputs"`  // role (results, late, future, poison) → topic
	Emitted  int64             `json:"emitted"`
	Late     int64             `json:"late"`
	Future   int64             `json:"future"`
	Poison   int64             `json:"poison"`
	// DecisionsCompared says that the decisions of the request were held against the live decision log when the session was opened
	// (reproduce). False: there was none, it could not be read, or it begins otherwise; then nothing but the request says what was decided.
	DecisionsCompared bool `json:"decisionsCompared"`
}

// Pipeline is what GET /pipelines/{name} tells a replayer (the processor's answer holds more).
type Pipeline struct {
	Name           string   `json:"name"`
	Hash           string   `json:"hash"`
	Inputs         []string `json:"inputs"` // topics
	DecisionsTopic string   `json:"decisionsTopic"`
	// WindowMs is the size of its tumbling windows, and Sources says how each input tells time: what a replay of some windows is planned by. Optional.
	WindowMs int64    `json:"windowMs,omitempty"`
	Sources  []Source `json:"sources,omitempty"`
}

// Source is how a pipeline reads one of its inputs.
type Source struct {
	Topic       string `json:"topic"`
	EventTime   string `json:"eventTime"` // EventTimeRecord or EventTimeField
	DelayMs     int64  `json:"delayMs"`
	MaxFutureMs int64  `json:"maxFutureMs"` // −1: off
}

// Where an event time is.
const (
	EventTimeRecord = "record" // the record's timestamp
	EventTimeField  = "field"
)
