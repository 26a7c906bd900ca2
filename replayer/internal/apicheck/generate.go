package apicheck

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Generator makes up values that a schema allows, and spoils them.
type Generator struct {
	doc *Doc
	rng *rand.Rand
}

// Generator of values of d's schemas; the same seed makes the same values.
func (d *Doc) Generator(seed uint64) *Generator {
	return &Generator{doc: d, rng: rand.New(rand.NewPCG(seed, 7))}
}

// Valid makes a value of a schema of the document's components, with the given properties as they are.
func (g *Generator) Valid(schema string, fixed map[string]any) map[string]any {
	v, _ := g.value(g.doc.Components.Schemas[schema].Value, 0).(map[string]any)
	for name, x := range fixed {
		v[name] = x
	}
	return v
}

func (g *Generator) value(s *openapi3.Schema, depth int) any {
	if len(s.OneOf) > 0 && s.Type == nil {
		if s.Nullable && g.rng.IntN(4) == 0 {
			return nil
		}
		return g.value(s.OneOf[g.rng.IntN(len(s.OneOf))].Value, depth)
	}
	if len(s.Enum) > 0 {
		return s.Enum[g.rng.IntN(len(s.Enum))]
	}
	switch {
	case s.Type.Is("object"):
		return g.object(s, depth)
	case s.Type.Is("array"):
		low, high := int(s.MinItems), 2
		if s.MaxItems != nil {
			high = min(high, int(*s.MaxItems))
		}
		out := []any{}
		for range low + g.rng.IntN(max(high-low, 0)+1) {
			out = append(out, g.value(s.Items.Value, depth+1))
		}
		return out
	case s.Type.Is("boolean"):
		return g.rng.IntN(2) == 0
	case s.Type.Is("integer"):
		return float64(g.whole(s))
	case s.Type.Is("number"):
		low, high := bounds(s)
		return []float64{low, high, low + (high-low)*g.rng.Float64()}[g.rng.IntN(3)]
	case s.Type.Is("string"):
		return g.text(s)
	}
	return nil
}

func (g *Generator) object(s *openapi3.Schema, depth int) any {
	out := map[string]any{}
	required := append([]string(nil), s.Required...)
	if len(s.OneOf) > 0 { // of required properties
		required = append(required, s.OneOf[g.rng.IntN(len(s.OneOf))].Value.Required...)
	}
	choice := map[string]bool{} // that only another alternative has
	for _, alt := range s.OneOf {
		for _, name := range alt.Value.Required {
			choice[name] = true
		}
	}
	for _, name := range required {
		out[name] = g.value(s.Properties[name].Value, depth+1)
	}
	for _, name := range names(s) {
		p := s.Properties[name]
		if _, there := out[name]; !there && !choice[name] && g.rng.IntN(4) == 0 {
			out[name] = g.value(p.Value, depth+1)
		}
	}
	if uint64(len(out)) < s.MinProps {
		for _, name := range names(s) {
			if out[name] = g.value(s.Properties[name].Value, depth+1); uint64(len(out)) >= s.MinProps {
				break
			}
		}
	}
	if extra := s.AdditionalProperties.Schema; extra != nil {
		for range g.rng.IntN(2) {
			out[fmt.Sprintf("k%d", g.rng.IntN(3))] = g.value(extra.Value, depth+1)
		}
	}
	return out
}

// names of the properties, sorted: the same seed must make the same values.
func names(s *openapi3.Schema) []string {
	return slices.Sorted(maps.Keys(s.Properties))
}

func bounds(s *openapi3.Schema) (low, high float64) {
	low, high = -1e6, 1e6
	if s.Min != nil {
		low = *s.Min
	}
	if s.Max != nil {
		high = *s.Max
	}
	return low, high
}

// whole prefers the bounds.
func (g *Generator) whole(s *openapi3.Schema) int64 {
	low, high := int64(-1)<<53, int64(1)<<53
	if s.Format == "int32" {
		low, high = math.MinInt32, math.MaxInt32
	}
	if s.Min != nil {
		low = int64(*s.Min)
	}
	if s.Max != nil {
		high = int64(*s.Max)
	}
	switch g.rng.IntN(4) {
	case 0:
		return low
	case 1:
		return high
	}
	return min(high, low+g.rng.Int64N(100))
}

func (g *Generator) text(s *openapi3.Schema) string {
	switch {
	case s.Pattern != "":
		re, err := syntax.Parse(s.Pattern, syntax.Perl)
		if err != nil {
			panic(err)
		}
		return g.match(re)
	case s.Format == "byte":
		if s.MinLength > 0 {
			return []string{"YQ==", "/wA="}[g.rng.IntN(2)]
		}
		return []string{"", "YQ==", "/wA="}[g.rng.IntN(3)]
	case s.Format == "date-time":
		return []string{"2026-03-01T14:00:00Z", "1970-01-01T00:00:00.001+02:00"}[g.rng.IntN(2)]
	}
	words := []string{"", "a", "ä\u0000\"", strings.Repeat("x", 300)}
	w := words[g.rng.IntN(len(words))]
	for uint64(len(w)) < s.MinLength {
		w += "y"
	}
	if s.MaxLength != nil && uint64(len(w)) > *s.MaxLength {
		w = w[:*s.MaxLength]
	}
	return w
}

// match makes a text that an expression matches.
func (g *Generator) match(re *syntax.Regexp) string {
	var b strings.Builder
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		i := g.rng.IntN(len(re.Rune)/2) * 2
		b.WriteRune(re.Rune[i] + rune(g.rng.IntN(int(re.Rune[i+1]-re.Rune[i])+1)))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('.')
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			b.WriteString(g.match(sub))
		}
	case syntax.OpAlternate:
		b.WriteString(g.match(re.Sub[g.rng.IntN(len(re.Sub))]))
	case syntax.OpCapture:
		b.WriteString(g.match(re.Sub[0]))
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		low, high := 0, 3
		switch re.Op {
		case syntax.OpPlus:
			low = 1
		case syntax.OpQuest:
			high = 1
		case syntax.OpRepeat:
			low, high = re.Min, re.Max
			if high < 0 {
				high = low + 3
			}
		}
		n := low + g.rng.IntN(high-low+1)
		if g.rng.IntN(8) == 0 {
			n = high
		}
		for range n {
			b.WriteString(g.match(re.Sub[0]))
		}
	}
	return b.String()
}

// Spoil changes one place of a value of the schema so that it is not allowed any more, and says how.
func (g *Generator) Spoil(schema string, v map[string]any) (how string, ok bool) {
	for range 30 {
		c := clone(v)
		how := g.spoil(g.doc.Components.Schemas[schema].Value, c, "")
		if how != "" && !g.doc.Allows(schema, c) {
			for name := range v {
				delete(v, name)
			}
			for name, x := range c {
				v[name] = x
			}
			return how, true
		}
	}
	return "", false
}

// spoil goes down to a random place.
func (g *Generator) spoil(s *openapi3.Schema, v any, path string) string {
	m, ok := v.(map[string]any)
	if !ok {
		return ""
	}
	props := s.Properties
	for _, alt := range s.OneOf {
		if alt.Value.VisitJSON(v) == nil && alt.Value.Properties != nil {
			props = alt.Value.Properties
		}
	}
	there := sorted(m)
	switch g.rng.IntN(4) {
	case 0:
		m["unknownField"] = 1.0
		return "unknown field at " + path
	case 1:
		if len(s.Required) > 0 {
			name := s.Required[g.rng.IntN(len(s.Required))]
			delete(m, name)
			return "without " + path + "." + name
		}
		return ""
	}
	if len(there) == 0 {
		return ""
	}
	name := there[g.rng.IntN(len(there))]
	if p := props[name]; p != nil {
		if _, object := m[name].(map[string]any); object && g.rng.IntN(2) == 0 {
			return g.spoil(p.Value, m[name], path+"."+name)
		}
		if list, array := m[name].([]any); array && len(list) > 0 && g.rng.IntN(2) == 0 {
			list[g.rng.IntN(len(list))] = g.wrong()
			return "wrong item in " + path + "." + name
		}
		if p.Value.Min != nil && g.rng.IntN(2) == 0 {
			m[name] = *p.Value.Min - 1
			return "too small at " + path + "." + name
		}
		if p.Value.Max != nil && g.rng.IntN(2) == 0 {
			m[name] = *p.Value.Max * 2
			return "too large at " + path + "." + name
		}
	}
	m[name] = g.wrong()
	return "wrong value at " + path + "." + name
}

// wrong is a value of any type, which most places do not allow.
func (g *Generator) wrong() any {
	values := []any{nil, "no such word", "", true, -7.0, 1.5, 1e300, []any{}, []any{[]any{}}, map[string]any{}, map[string]any{"x": 1.0}}
	return values[g.rng.IntN(len(values))]
}

func clone(v map[string]any) map[string]any {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return out
}
