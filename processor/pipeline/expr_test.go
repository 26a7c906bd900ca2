package pipeline

import (
	"testing"

	"tapedeck.dev/tapedeck/processor/value"
)

// eval compiles text over a JSON source and evaluates it on the given fields.
func eval(t *testing.T, text string, fields map[string]any) (value.Value, error) {
	t.Helper()
	s := &Source{Format: JSON}
	x, err := s.newScope(nil).compile(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	row := make([]value.Value, s.Slots)
	for _, f := range s.Fields {
		v, err := value.FromAny(fields[f.Name])
		if err != nil {
			t.Fatal(err)
		}
		row[f.Slot] = v
	}
	return x.Eval(row, NewScratch())
}

func TestEval(t *testing.T) {
	fields := map[string]any{"i": int64(7), "big": int64(9007199254740993), "f": 0.5, "s": "Straße", "n": nil, "b": true,
		"o": map[string]any{"x": int64(3), "list": []any{int64(1), "two"}}}
	for text, want := range map[string]string{
		"i": "7", "big": "9007199254740993", "i + 1": "8", "big + 1": "9007199254740994", "i / 2": "3.5", "i % 4": "3", "f * i": "3.5",
		"upper(s)": `"STRAßE"`, "s contains 'aß'": "true", "n ?? 5": "5", "n == nil": "true", "b ? 'y' : 'n'": `"y"`, "missing": "null",
		"o.x": "3", "o?.x": "3", "n?.x": "null", "o.list[1]": `"two"`, "len(o.list)": "2", "int(3.9)": "3", "int('42')": "42", "int(-3.9)": "-3",
		"let y = i * 2; y + 1": "15", "all(o.list, # != 3)": "true", "i in [1, 7]": "true", "string(f)": `"0.5"`, "s matches '^Str'": "true",
		"round(2.5)": "3", "floor(-0.5)": "-1", "abs(-2)": "2", "max(i, 3)": "7", "float('1e3')": "1000",
	} {
		v, err := eval(t, text, fields)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if b, _ := v.AppendJSON(nil); string(b) != want {
			t.Errorf("%s = %s, want %s", text, b, want)
		}
	}
	for _, text := range []string{"n + 1", "s * 2", "o.list[5]", "int('x')", "int(1e300)", "int(0/0)", "1..100000000", "n.x", "i > s", "i % 0"} {
		if v, err := eval(t, text, fields); err == nil {
			t.Errorf("%s = %v, want an error", text, v.Any())
		}
	}
}

// One Scratch serves many expressions; nothing of one evaluation is seen by the next.
func TestScratchIsShared(t *testing.T) {
	s := &Source{Format: JSON}
	sc := s.newScope(nil)
	a, err := sc.compile("x + 1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := sc.compile("(y ?? 0) + (x ?? 10)")
	if err != nil {
		t.Fatal(err)
	}
	scratch := NewScratch()
	for range 3 {
		if v, err := a.Eval([]value.Value{value.OfInt(1), {}}, scratch); err != nil || v.Int() != 2 {
			t.Fatalf("%v, %v", v.Any(), err)
		}
		if _, err := a.Eval([]value.Value{value.OfString("no number"), {}}, scratch); err == nil {
			t.Fatal("a string plus 1 must fail")
		}
		if v, err := b.Eval([]value.Value{{}, value.OfInt(5)}, scratch); err != nil || v.Int() != 15 {
			t.Fatalf("%v, %v", v.Any(), err)
		}
	}
}
