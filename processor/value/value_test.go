package value

import (
	"encoding/json"
	"math"
	"math/rand"
	"strconv"
	"testing"
)

func TestJSON(t *testing.T) {
	for _, c := range []struct {
		v    Value
		want string
	}{
		{Value{}, "null"}, {OfBool(true), "true"}, {OfBool(false), "false"},
		{OfInt(math.MinInt64), "-9223372036854775808"}, {OfInt(9007199254740993), "9007199254740993"},
		{OfFloat(0.1), "0.1"}, {OfFloat(1), "1"}, {OfFloat(math.Copysign(0, -1)), "0"}, {OfFloat(1e21), "1e+21"}, {OfFloat(123456789012345680000), "123456789012345680000"},
		{OfFloat(1e-7), "1e-7"}, {OfFloat(0.000001), "0.000001"}, {OfFloat(-1.5e-300), "-1.5e-300"}, {OfFloat(5e-324), "5e-324"},
		{OfFloat(math.NaN()), `"NaN"`}, {OfFloat(math.Inf(1)), `"Infinity"`}, {OfFloat(math.Inf(-1)), `"-Infinity"`},
		{OfString(""), `""`}, {OfString("a\"b\\c\n\t\r\b\f\x01é€😀<&>\u2028"), "\"a\\\"b\\\\c\\n\\t\\r\\b\\f\\u0001é€😀<&>\u2028\""},
		{OfString("bad\xff\xc3"), "\"bad\uFFFD\uFFFD\""},
	} {
		b, ok := c.v.AppendJSON(nil)
		if string(b) != c.want || !ok {
			t.Errorf("JSON of %v = %s, want %s", c.v.Any(), b, c.want)
		}
		if !json.Valid(b) {
			t.Errorf("%s is no JSON", b)
		}
	}
	if _, ok := mustFrom(t, []any{1}).AppendJSON(nil); ok {
		t.Error("an array has no canonical JSON here")
	}
}

// Floats are written so that they read back as the same value, as ECMAScript does (encoding/json claims the same form).
func TestFloatRoundTrip(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 50000 {
		f := math.Float64frombits(r.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		b, _ := OfFloat(f).AppendJSON(nil)
		back, err := strconv.ParseFloat(string(b), 64)
		if err != nil || back != f {
			t.Fatalf("%g is written %s", f, b)
		}
		if want, _ := json.Marshal(f); string(want) != string(b) {
			t.Fatalf("%g is written %s, by encoding/json %s", f, b, want)
		}
	}
}

func mustFrom(t *testing.T, x any) Value {
	t.Helper()
	v, err := FromAny(x)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestFromAny(t *testing.T) {
	for _, c := range []struct {
		x    any
		kind Kind
		want string
	}{
		{nil, Null, "null"}, {true, Bool, "true"}, {int32(-5), Int, "-5"}, {uint8(5), Int, "5"}, {7, Int, "7"}, {uint64(1 << 62), Int, "4611686018427387904"},
		{float32(0.5), Float, "0.5"}, {"s", String, `"s"`}, {json.Number("12"), Int, "12"}, {json.Number("1.0"), Float, "1"}, {json.Number("1e2"), Float, "100"},
		{json.Number("-0"), Int, "0"}, {json.Number("9223372036854775807"), Int, "9223372036854775807"},
	} {
		v := mustFrom(t, c.x)
		if b, _ := v.AppendJSON(nil); string(b) != c.want || v.Kind() != c.kind {
			t.Errorf("FromAny(%T %v) = %s of kind %d, want %s of kind %d", c.x, c.x, b, v.Kind(), c.want, c.kind)
		}
	}
	for _, x := range []any{uint64(math.MaxUint64), json.Number("9223372036854775808"), json.Number("1e400"), []any{json.Number("1e999")},
		map[string]any{"a": json.Number("99999999999999999999")}} {
		if v, err := FromAny(x); err == nil {
			t.Errorf("FromAny(%v) = %v, want an error", x, v.Any())
		}
	}
	nested := mustFrom(t, map[string]any{"a": []any{json.Number("1"), float32(2.5)}})
	a := nested.Any().(map[string]any)["a"].([]any)
	if a[0] != int64(1) || a[1] != 2.5 || nested.Kind() != Other {
		t.Errorf("numbers inside are %T and %T", a[0], a[1])
	}
}

func FuzzString(f *testing.F) {
	f.Add("a\"\\\x00é\xff")
	f.Fuzz(func(t *testing.T, s string) {
		b, _ := OfString(s).AppendJSON(nil)
		var back string
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("%q is written %s: %v", s, b, err)
		}
		// What is not UTF-8 is replaced by both; the rest must come back.
		want, _ := json.Marshal(s)
		var same string
		if json.Unmarshal(want, &same); same != back {
			t.Fatalf("%q comes back as %q", s, back)
		}
	})
}
