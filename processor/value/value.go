// Package value holds the scalar values that flow from a decoded record to keys and aggregates, and their canonical JSON.
package value

import (
	"encoding/json"
	"fmt"
	"math"
)

// Kind says what a Value is.
type Kind uint8

// The kinds. Other is anything that can be neither key nor aggregate argument (arrays, maps, bytes), kept for expressions.
const (
	Null Kind = iota
	Bool
	Int
	Float
	String
	Other
)

// Value is one value. The zero Value is null.
type Value struct {
	kind  Kind
	num   uint64 // Bool: 0 or 1; Int: two's complement; Float: IEEE 754 bits
	str   string
	other any
}

// OfBool returns a Bool.
func OfBool(b bool) Value {
	if b {
		return Value{kind: Bool, num: 1}
	}
	return Value{kind: Bool}
}

// OfInt returns an Int.
func OfInt(i int64) Value { return Value{kind: Int, num: uint64(i)} }

// OfFloat returns a Float. Negative zero becomes zero and every NaN the same NaN, so that equal values have equal bytes.
func OfFloat(f float64) Value {
	if f == 0 {
		f = 0
	} else if f != f {
		f = math.NaN()
	}
	return Value{kind: Float, num: math.Float64bits(f)}
}

// OfString returns a String.
func OfString(s string) Value { return Value{kind: String, str: s} }

// FromAny converts what a decoder or an expression gives. Integers of every width become Int, float32 and float64 Float; an unsigned
// integer or a JSON number that does not fit is an error. What is no scalar becomes Other, its JSON numbers converted as well.
func FromAny(x any) (Value, error) {
	switch t := x.(type) {
	case nil:
		return Value{}, nil
	case bool:
		return OfBool(t), nil
	case int:
		return OfInt(int64(t)), nil
	case int8:
		return OfInt(int64(t)), nil
	case int16:
		return OfInt(int64(t)), nil
	case int32:
		return OfInt(int64(t)), nil
	case int64:
		return OfInt(t), nil
	case uint:
		return ofUint(uint64(t))
	case uint8:
		return OfInt(int64(t)), nil
	case uint16:
		return OfInt(int64(t)), nil
	case uint32:
		return OfInt(int64(t)), nil
	case uint64:
		return ofUint(t)
	case float32:
		return OfFloat(float64(t)), nil
	case float64:
		return OfFloat(t), nil
	case string:
		return OfString(t), nil
	case json.Number:
		return ParseNumber(string(t))
	}
	o, err := plain(x)
	return Value{kind: Other, other: o}, err
}

func ofUint(u uint64) (Value, error) {
	if u > math.MaxInt64 {
		return Value{}, fmt.Errorf("integer %d does not fit 64 bits with sign", u)
	}
	return OfInt(int64(u)), nil
}

// plain converts the numbers inside arrays and objects to int64 and float64, so that expressions meet two number types only.
func plain(x any) (any, error) {
	switch t := x.(type) {
	case []any:
		out := make([]any, len(t))
		for i, e := range t {
			v, err := FromAny(e)
			if err != nil {
				return nil, err
			}
			out[i] = v.Any()
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(t))
		for k, e := range t {
			v, err := FromAny(e)
			if err != nil {
				return nil, err
			}
			out[k] = v.Any()
		}
		return out, nil
	}
	return x, nil
}

// Kind returns v's kind.
func (v Value) Kind() Kind { return v.kind }

// IsNull reports whether v is null.
func (v Value) IsNull() bool { return v.kind == Null }

// IsNumber reports whether v is an Int or a Float.
func (v Value) IsNumber() bool { return v.kind == Int || v.kind == Float }

// Bool returns a Bool's value.
func (v Value) Bool() bool { return v.num == 1 }

// Int returns an Int's value.
func (v Value) Int() int64 { return int64(v.num) }

// Float returns a Float's value.
func (v Value) Float() float64 { return math.Float64frombits(v.num) }

// Str returns a String's value.
func (v Value) Str() string { return v.str }

// Any returns v as expressions take it: nil, bool, int64, float64, string, or what FromAny was given.
func (v Value) Any() any {
	switch v.kind {
	case Bool:
		return v.Bool()
	case Int:
		return v.Int()
	case Float:
		return v.Float()
	case String:
		return v.str
	case Other:
		return v.other
	}
	return nil
}
