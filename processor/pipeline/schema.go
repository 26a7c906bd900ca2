package pipeline

import (
	"fmt"

	"github.com/expr-lang/expr/types"
	"github.com/twmb/avro"

	"tapedeck.dev/tapedeck/shared/service"
)

// RawLogicalTypes makes twmb/avro give the values of logical types as they are stored: times and dates as int or long, in their own unit.
func RawLogicalTypes() []avro.SchemaOpt {
	var opts []avro.SchemaOpt
	for _, l := range []string{"date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
		"local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"} {
		opts = append(opts, avro.WithCustomType(avro.CustomType{LogicalType: l}))
	}
	return opts
}

// avroFields reads the top-level fields of a reader schema.
func avroFields(text string) (*avro.Schema, map[string]Field, error) {
	s, err := avro.Parse(text, RawLogicalTypes()...)
	if err != nil {
		return nil, nil, err
	}
	root := s.Root()
	if root.Type != "record" {
		return nil, nil, fmt.Errorf("the schema must be a record, not %s", root.Type)
	}
	fields := map[string]Field{}
	for i := range root.Fields {
		f := Field{Name: root.Fields[i].Name}
		t := &root.Fields[i].Type
		f.Type, f.Nullable = fieldType(t)
		if t.Type == "union" && len(t.Branches) == 2 {
			for b := range t.Branches {
				if other := &t.Branches[1-b]; t.Branches[b].Type == "null" && other.Type != "null" {
					f.Type, _ = fieldType(other)
					f.Nullable = true
				}
			}
		}
		fields[f.Name] = f
	}
	return s, fields, nil
}

func fieldType(n *avro.SchemaNode) (_ FieldType, nullable bool) {
	switch n.Type {
	case "boolean":
		return BoolField, false
	case "int", "long":
		return IntField, false
	case "float", "double":
		return FloatField, false
	case "string":
		if n.LogicalType == "" {
			return StringField, false
		}
	case "enum":
		return StringField, false
	}
	return AnyField, true
}

// exprType is what the expression compiler may know of f. A value that may be null has no type, so that null is met when it is there.
func (f Field) exprType() types.Type {
	if f.Nullable {
		return types.Any
	}
	switch f.Type {
	case BoolField:
		return types.Bool
	case IntField:
		return types.Int64
	case FloatField:
		return types.Float64
	case StringField:
		return types.String
	}
	return types.Any
}

// newScope makes the scope of s. fields is nil for json.
func (s *Source) newScope(fields map[string]Field) *scope {
	sc := &scope{open: fields == nil, slots: map[string]int{}, types: map[string]types.Type{}}
	for name, f := range fields {
		sc.types[name] = f.exprType()
	}
	sc.add = func(name string) bool {
		f, known := fields[name]
		if !known && !sc.open {
			return false
		}
		if !known {
			f = Field{Name: name, Nullable: true}
			sc.types[name] = types.Any
		}
		f.Slot = s.Slots
		s.Slots++
		sc.slots[name] = f.Slot
		s.Fields = append(s.Fields, f)
		return true
	}
	return sc
}

// unknownField words the error about a field that the schema does not have.
func (s *scope) unknownField(name string) string {
	if near := service.Nearest(name, s.names()); near != "" {
		return fmt.Sprintf("the schema has no field %q; did you mean %q?", name, near)
	}
	return fmt.Sprintf("the schema has no field %q", name)
}
