// Package decision is a pipeline's decision log: what a live run decided that is not in its input, written down before it
// counts (docs/processor.md). The package knows bytes only; it takes no clock, logger, context or network.
package decision

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"tapedeck.dev/tapedeck/shared/record"
)

// Version is written into every entry. Parse refuses any other.
const Version = 1

// Kind says which of an Entry's fields count.
type Kind string

// The three kinds of entry.
const (
	KindOrigin        Kind = "origin"
	KindFloor         Kind = "floor"
	KindUnknownSchema Kind = "unknownSchema"
)

// Entry is one of *Origin, Floor, UnknownSchema.
type Entry interface {
	Kind() Kind
	check() error
}

// Origin says where a pipeline's results begin. It is the first entry of a log and the only one of its kind.
type Origin struct {
	PipelineHash string                 `json:"pipelineHash"`
	Topics       map[string]OriginTopic `json:"topics"`
}

// OriginTopic is one input topic.
type OriginTopic struct {
	ID    string          `json:"id"`    // Kafka's topic id
	Start map[int32]int64 `json:"start"` // first offset read, per partition
}

// Floor says that from Offset on the partition's watermark is at least W (event time in ms; engine.NoTime for none).
type Floor struct {
	record.TopicPartition
	Offset int64 `json:"offset"`
	W      int64 `json:"w"`
}

// UnknownSchema says that the registry knew no schema ID when the record at Offset was read: it is poison.
type UnknownSchema struct {
	record.TopicPartition
	Offset int64 `json:"offset"`
	ID     int   `json:"id"`
}

// Kind of the entry.
func (*Origin) Kind() Kind { return KindOrigin }

// Kind of the entry.
func (Floor) Kind() Kind { return KindFloor }

// Kind of the entry.
func (UnknownSchema) Kind() Kind { return KindUnknownSchema }

func (o *Origin) check() error {
	if o.PipelineHash == "" {
		return errors.New("pipelineHash is missing")
	}
	if len(o.Topics) == 0 {
		return errors.New("topics is empty")
	}
	for name, t := range o.Topics {
		if name == "" || t.ID == "" {
			return fmt.Errorf("topic %q has no name or no id", name)
		}
		if len(t.Start) == 0 {
			return fmt.Errorf("topic %s has no partitions", name)
		}
		for p, off := range t.Start {
			if p < 0 || off < 0 {
				return fmt.Errorf("topic %s: partition %d starts at %d", name, p, off)
			}
		}
	}
	return nil
}

func (f Floor) check() error { return checkPlace(f.TopicPartition, f.Offset) }

func (u UnknownSchema) check() error {
	if u.ID < 0 {
		return fmt.Errorf("id is %d", u.ID)
	}
	return checkPlace(u.TopicPartition, u.Offset)
}

func checkPlace(tp record.TopicPartition, offset int64) error {
	if tp.Topic == "" || tp.Partition < 0 || offset < 0 {
		return fmt.Errorf("bad place %s@%d", tp, offset)
	}
	return nil
}

type head struct {
	V    int  `json:"v"`
	Kind Kind `json:"kind"`
}

// Format returns the entry's canonical bytes: the same entry, the same bytes.
func Format(e Entry) []byte {
	h := head{Version, e.Kind()}
	var v any
	switch e := e.(type) {
	case *Origin:
		v = struct {
			head
			*Origin
		}{h, e}
	case Floor:
		v = struct {
			head
			Floor
		}{h, e}
	case UnknownSchema:
		v = struct {
			head
			UnknownSchema
		}{h, e}
	default:
		panic(fmt.Sprintf("decision: unknown entry %T", e))
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("decision: %v", err)) // plain data always encodes
	}
	return b
}

// Parse is the inverse of Format. It is strict: another version, an unknown or a missing field, a field of another kind of
// entry, or anything after the value is an error.
func Parse(b []byte) (Entry, error) {
	var h head
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, fmt.Errorf("parse decision: %w", err)
	}
	if h.V != Version {
		return nil, fmt.Errorf("parse decision: version %d; this build reads version %d", h.V, Version)
	}
	var e Entry
	var err error
	switch h.Kind {
	case KindOrigin:
		v := struct {
			head
			*Origin
		}{Origin: &Origin{}}
		err = strict(b, &v, "v", "kind", "pipelineHash", "topics")
		e = v.Origin
	case KindFloor:
		var v struct {
			head
			Floor
		}
		err = strict(b, &v, "v", "kind", "topic", "partition", "offset", "w")
		e = v.Floor
	case KindUnknownSchema:
		var v struct {
			head
			UnknownSchema
		}
		err = strict(b, &v, "v", "kind", "topic", "partition", "offset", "id")
		e = v.UnknownSchema
	default:
		return nil, fmt.Errorf("parse decision: unknown kind %q", h.Kind)
	}
	if err == nil {
		err = e.check()
	}
	if err != nil {
		return nil, fmt.Errorf("parse decision of kind %s: %w", h.Kind, err)
	}
	return e, nil
}

// strict decodes b into v and requires exactly these fields, once each, with values.
func strict(b []byte, v any, fields ...string) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the value")
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	for _, f := range fields {
		// encoding/json matches names without regard to case; the exact name must be there.
		if raw, ok := m[f]; !ok || string(raw) == "null" {
			return fmt.Errorf("%s is missing", f)
		}
	}
	if len(m) != len(fields) {
		return fmt.Errorf("%d fields, not %d", len(m), len(fields))
	}
	return nil
}
