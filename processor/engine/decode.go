package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/twmb/avro"

	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/value"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
)

// decoder fills a row with the fields that the pipeline uses. It returns why the record is poison, "" where it is not; an error means that the
// answer is not known yet.
type decoder interface {
	decode(schemas Schemas, tp TP, r *record.Record, row []value.Value) (poison string, err error)
}

func newDecoder(s *pipeline.Source) (decoder, error) {
	switch s.Format {
	case pipeline.Avro:
		return newAvroDecoder(s), nil
	case pipeline.JSON:
		return &jsonDecoder{fields: s.Fields}, nil
	}
	return nil, fmt.Errorf("unknown format %q", s.Format)
}

// avroDecoder decodes into one struct, made for the used fields: what the pipeline does not use is skipped, not decoded.
type avroDecoder struct {
	reader *avro.Schema
	fields []pipeline.Field
	target any    // pointer to the struct
	cells  []any  // pointer to each of its fields
	known  []plan // one per writer schema
	last   *plan  // of the last record
	opts   []avro.SchemaOpt
}

// plan is how to read what one writer schema wrote. Schemas are told apart by their text: an id may mean another schema in another
// range of the log, after a registry was rebuilt.
type plan struct {
	writer   segment.Schema
	resolved *avro.Schema // nil: not readable as the reader schema
}

func newAvroDecoder(s *pipeline.Source) *avroDecoder {
	var fields []reflect.StructField
	for i, f := range s.Fields {
		fields = append(fields, reflect.StructField{Name: "F" + strconv.Itoa(i), Type: goType(f), Tag: reflect.StructTag(`avro:"` + f.Name + `"`)})
	}
	target := reflect.New(reflect.StructOf(fields))
	d := &avroDecoder{reader: s.Reader, fields: s.Fields, target: target.Interface(), opts: pipeline.RawLogicalTypes()}
	for i := range s.Fields {
		d.cells = append(d.cells, target.Elem().Field(i).Addr().Interface())
	}
	return d
}

func goType(f pipeline.Field) reflect.Type {
	var t reflect.Type
	switch f.Type {
	case pipeline.BoolField:
		t = reflect.TypeFor[bool]()
	case pipeline.IntField:
		t = reflect.TypeFor[int64]()
	case pipeline.FloatField:
		t = reflect.TypeFor[float64]()
	case pipeline.StringField:
		t = reflect.TypeFor[string]()
	default:
		return reflect.TypeFor[any]()
	}
	if f.Nullable {
		return reflect.PointerTo(t)
	}
	return t
}

func (d *avroDecoder) decode(schemas Schemas, tp TP, r *record.Record, row []value.Value) (string, error) {
	if r.Value == nil {
		return "value is null", nil
	}
	id, payload, ok := schema.WireID(r.Value)
	if !ok {
		return "value is not in the schema registry's wire format", nil
	}
	writer, known, err := schemas.Writer(tp, r.Offset, id)
	if err != nil {
		return "", fmt.Errorf("schema id %d: %w: %w", id, ErrNotReady, err)
	}
	if !known {
		return "unknown schema id " + strconv.Itoa(id), nil
	}
	plan := d.plan(&writer)
	if plan.resolved == nil {
		return "schema id " + strconv.Itoa(id) + " cannot be read as the pipeline's schema", nil
	}
	if !d.datum(plan.resolved, payload) {
		return "value does not decode with schema id " + strconv.Itoa(id), nil
	}
	for i, f := range d.fields {
		v, err := cellValue(d.cells[i])
		if err != nil {
			return "field " + f.Name + " has a number that does not fit", nil
		}
		row[f.Slot] = v
	}
	return "", nil
}

// datum decodes payload, which must be one whole datum, into the target. A panic of the library on hostile bytes counts as "does not decode":
// one record must never stop a pipeline for good.
func (d *avroDecoder) datum(s *avro.Schema, payload []byte) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	rest, err := s.Decode(payload, d.target, avro.SkipUnknown(), avro.AliasInput())
	return err == nil && len(rest) == 0
}

func cellValue(cell any) (value.Value, error) {
	switch c := cell.(type) {
	case *int64:
		return value.OfInt(*c), nil
	case *float64:
		return value.OfFloat(*c), nil
	case *string:
		return value.OfString(*c), nil
	case *bool:
		return value.OfBool(*c), nil
	case **int64:
		if *c != nil {
			return value.OfInt(**c), nil
		}
	case **float64:
		if *c != nil {
			return value.OfFloat(**c), nil
		}
	case **string:
		if *c != nil {
			return value.OfString(**c), nil
		}
	case **bool:
		if *c != nil {
			return value.OfBool(**c), nil
		}
	case *any:
		return value.FromAny(*c)
	}
	return value.Value{}, nil
}

// plan returns how to read w's data. The few that a topic has are searched one after the other: texts of one registry answer share their
// memory, so that comparing them costs nothing.
func (d *avroDecoder) plan(w *segment.Schema) *plan {
	if d.last != nil && sameSchema(&d.last.writer, w) {
		return d.last
	}
	for i := range d.known {
		if sameSchema(&d.known[i].writer, w) {
			d.last = &d.known[i]
			return d.last
		}
	}
	d.known = append(d.known, plan{writer: *w, resolved: d.resolve(w)})
	d.last = &d.known[len(d.known)-1]
	return d.last
}

func sameSchema(a, b *segment.Schema) bool {
	return a.Text == b.Text && a.Type == b.Type && slices.EqualFunc(a.References, b.References,
		func(x, y segment.Reference) bool { return x.Name == y.Name && x.Text == y.Text })
}

// resolve returns nil where w's data cannot be read with the reader schema. That is a function of the two texts.
func (d *avroDecoder) resolve(w *segment.Schema) *avro.Schema {
	if w.Type != "" && w.Type != "AVRO" {
		return nil
	}
	var cache avro.SchemaCache
	// References stand in any order: those that need others are tried again until a round brings nothing.
	for left := w.References; len(left) > 0; {
		var again []segment.Reference
		for _, ref := range left {
			if _, err := cache.Parse(ref.Text, d.opts...); err != nil {
				again = append(again, ref)
			}
		}
		if len(again) == len(left) {
			return nil
		}
		left = again
	}
	writer, err := cache.Parse(w.Text, d.opts...)
	if err != nil {
		return nil
	}
	resolved, err := avro.Resolve(writer, d.reader)
	if err != nil {
		return nil
	}
	return resolved
}

// jsonDecoder decodes objects. Members that the pipeline does not use are checked for syntax only.
type jsonDecoder struct{ fields []pipeline.Field }

func (d *jsonDecoder) decode(_ Schemas, _ TP, r *record.Record, row []value.Value) (string, error) {
	if r.Value == nil {
		return "value is null", nil
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(r.Value, &object) != nil || object == nil {
		return "value is not a JSON object", nil
	}
	for _, f := range d.fields {
		raw, ok := object[f.Name]
		if !ok {
			row[f.Slot] = value.Value{}
			continue
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		var x any
		if dec.Decode(&x) != nil {
			return "value is not a JSON object", nil
		}
		v, err := value.FromAny(x)
		if err != nil {
			return "field " + f.Name + " has a number that does not fit", nil
		}
		row[f.Slot] = v
	}
	return "", nil
}
