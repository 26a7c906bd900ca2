// Package pipeline reads and checks pipeline files (docs/pipeline.md). A checked pipeline is data: compiled expressions, pinned reader
// schemas, and a hash of everything that reaches an output byte.
package pipeline

import (
	"github.com/twmb/avro"

	"tapedeck.dev/tapedeck/processor/agg"
)

// Pipeline is one checked pipeline. It is not changed after Parse and may be shared by goroutines.
type Pipeline struct {
	Name       string
	Keyed      bool // keyed: partition; false: merged
	Source     []Source
	GroupBy    []Named // group keys; empty: all records form one group
	Window     Window
	Aggregates []Aggregate // at least one
	Output     Output
	// Hash identifies everything that reaches an output byte (SHA-256 of the canonical form, hex).
	Hash string
}

// Format is the encoding of a source's values.
type Format string

// The formats of sources.
const (
	Avro Format = "avro" // Confluent wire format: magic byte 0, schema id, datum
	JSON Format = "json" // one JSON object
)

// Source is one input topic.
type Source struct {
	Topic       string
	Format      Format
	Reader      *avro.Schema // avro: the pinned reader schema, a record
	Fields      []Field      // the top-level fields that the pipeline uses
	EventTime   EventTime
	DelayMs     int64
	MaxFutureMs int64      // −1: off
	IdleAfterMs int64      // on a live run's clock; 0: an idle partition holds the watermark back. Not in the hash: it reaches outputs through floors alone
	Where       *Expr      // over Fields alone; nil: every record
	Compute     []Computed // in order; each may use the ones before
	Slots       int        // length of a row: one value per field and computed field
}

// FieldType says how a field's values are held.
type FieldType uint8

// The types of fields.
const (
	AnyField FieldType = iota // json, and avro's composite types
	BoolField
	IntField // avro int, long
	FloatField
	StringField // avro string, enum
)

// Field is one top-level field of a source's values.
type Field struct {
	Name     string
	Slot     int // its place in a row
	Type     FieldType
	Nullable bool // may be null; always so where Type is AnyField
}

// EventTime says where a record's event time is.
type EventTime struct {
	Record bool // the record timestamp
	Slot   int  // else the field in this slot
	Unit   Unit
}

// Unit of an event-time field.
type Unit string

// Units.
const (
	Seconds Unit = "s"
	Millis  Unit = "ms"
	Micros  Unit = "us"
	Nanos   Unit = "ns"
)

// Computed is a field made by an expression.
type Computed struct {
	Name string
	Slot int // its place in a row
	Expr *Expr
}

// Named is a named expression.
type Named struct {
	Name string
	Expr *Expr
}

// Window is a tumbling window of SizeMs: [k·SizeMs, (k+1)·SizeMs) for every integer k, in event time since the Unix epoch.
type Window struct {
	SizeMs int64 // > 0
}

// Aggregate is one aggregate of the output.
type Aggregate struct {
	Name string
	Func agg.Func
	Arg  *Expr // nil: count()
}

// Output says where results go.
type Output struct {
	Topic      string
	Partitions int32 // merged: N of murmur2(key) mod N; keyed: that of the source (0 until known)
}

// DecisionsTopic is "<name>.decisions".
func (p *Pipeline) DecisionsTopic() string { return p.Name + ".decisions" }
