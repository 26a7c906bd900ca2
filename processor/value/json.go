package value

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendJSON appends v's canonical JSON: integers in full, floats in the shortest form that reads back as the same float64, NaN and the
// infinities as the strings "NaN", "Infinity", "-Infinity". An Other value has none; ok is then false.
func (v Value) AppendJSON(dst []byte) (_ []byte, ok bool) {
	switch v.kind {
	case Null:
		return append(dst, "null"...), true
	case Bool:
		return strconv.AppendBool(dst, v.Bool()), true
	case Int:
		return strconv.AppendInt(dst, v.Int(), 10), true
	case Float:
		return appendFloat(dst, v.Float()), true
	case String:
		return AppendString(dst, v.str), true
	}
	return dst, false
}

// appendFloat writes what ECMAScript's Number::toString writes (and RFC 8785 asks for): plain digits from 1e-6 up to below 1e21.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	a := math.Abs(f)
	if a == 0 || a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	n := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// strconv pads the exponent to two digits: e-07 becomes e-7.
	if e := len(dst) - 2; e > n && dst[e] == '0' && (dst[e-1] == '-' || dst[e-1] == '+') {
		dst[e] = dst[e+1]
		dst = dst[:e+1]
	}
	return dst
}

const hex = "0123456789abcdef"

// AppendString appends s as a JSON string. Only what JSON demands is escaped; bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, s[from:i]...)
				dst = append(dst, "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// ParseNumber reads a JSON number: without fraction and exponent it is an Int and must fit 64 bits, else it is a Float and must be finite.
func ParseNumber(s string) (Value, error) {
	if !strings.ContainsAny(s, ".eE") {
		i, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return Value{}, fmt.Errorf("integer %s does not fit 64 bits", s)
		}
		return OfInt(i), nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return Value{}, fmt.Errorf("number %s is out of range", s)
	}
	return OfFloat(f), nil
}
