package pipeline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/processor/agg"
)

const fares = `name: fares
keyed: merged
sources:
  - topic: trips
    format: avro
    schema: |
      {"type": "record", "name": "Trip", "fields": [
        {"name": "pickup_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": ["null", "double"], "default": null},
        {"name": "fee", "type": "float"},
        {"name": "user_id", "type": "long"},
        {"name": "paid", "type": "boolean"},
        {"name": "zone", "type": "string"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "unused", "type": "bytes"}]}
    eventTime: {field: pickup_ms, unit: ms}
    delay: 10s
    maxFuture: 1h
    where: price > 0 && paid
    compute: {net: fee * 0.5, twice: net * 2}
groupBy: [user_id, {area: upper(zone)}]
window: {tumbling: {size: 10s}}
aggregates:
  sum_price: sum(price)
  trips: count()
  priced: count(price)
  max_net: max(twice)
output: {topic: fares-out, partitions: 4, format: json}
`

func parse(t *testing.T, text string) *Pipeline {
	t.Helper()
	p, err := Parse("fares.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParse(t *testing.T) {
	p := parse(t, fares)
	if p.Name != "fares" || p.Keyed || p.DecisionsTopic() != "fares.decisions" || p.Window.SizeMs != 10_000 || p.Output != (Output{"fares-out", 4}) {
		t.Errorf("%+v", p)
	}
	s := p.Source[0]
	if s.Topic != "trips" || s.Format != Avro || s.DelayMs != 10_000 || s.MaxFutureMs != 3_600_000 || s.EventTime.Record || s.EventTime.Unit != Millis {
		t.Errorf("%+v", s)
	}
	// Only what is used has a place in a row.
	want := map[string]Field{"pickup_ms": {Type: IntField}, "price": {Type: FloatField, Nullable: true}, "paid": {Type: BoolField},
		"fee": {Type: FloatField}, "user_id": {Type: IntField}, "zone": {Type: StringField}}
	for _, f := range s.Fields {
		w, ok := want[f.Name]
		if !ok || w.Type != f.Type || w.Nullable != f.Nullable {
			t.Errorf("field %+v, want %+v", f, w)
		}
		delete(want, f.Name)
	}
	if len(want) > 0 {
		t.Errorf("fields missing: %v", want)
	}
	slots := map[int]bool{}
	for _, f := range s.Fields {
		slots[f.Slot] = true
	}
	for _, c := range s.Compute {
		slots[c.Slot] = true
	}
	if len(slots) != s.Slots || s.Slots != 8 {
		t.Errorf("%d slots for %d values", s.Slots, len(slots))
	}
	if len(p.GroupBy) != 2 || p.GroupBy[0].Name != "user_id" || p.GroupBy[1].Name != "area" {
		t.Errorf("group keys %+v", p.GroupBy)
	}
	if len(p.Aggregates) != 4 || p.Aggregates[1].Arg != nil || p.Aggregates[2].Func != agg.Count || p.Aggregates[2].Arg == nil || p.Aggregates[3].Func != agg.Max {
		t.Errorf("aggregates %+v", p.Aggregates)
	}
}

func TestParseDefaultsAndVariants(t *testing.T) {
	p := parse(t, `
name: j
keyed: partition
sources:
  - {topic: t, format: json, eventTime: record, delay: 0}
window: {tumbling: {size: 1h30m}}
aggregates: {n: count()}
output: {topic: o}
`)
	s := p.Source[0]
	if !p.Keyed || !s.EventTime.Record || s.MaxFutureMs != -1 || s.DelayMs != 0 || p.Window.SizeMs != 5_400_000 || p.Output.Partitions != 0 || s.Slots != 0 {
		t.Errorf("%+v %+v", p, s)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "trip.avsc"), []byte(`{"type":"record","name":"T","fields":[{"name":"t","type":"long"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	text := `
name: f
sources:
  - {topic: t, format: avro, schemaFile: trip.avsc, eventTime: {field: t, unit: us}, delay: 1s}
window: {tumbling: {size: 1s}}
aggregates: {n: count()}
output: {topic: o, partitions: 1}
`
	q, err := Parse(filepath.Join(dir, "f.yaml"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	inline := parse(t, strings.Replace(text, "schemaFile: trip.avsc", `schema: '{"fields": [{"type": "long", "name": "t"}], "name": "T", "type": "record"}'`, 1))
	if q.Hash != inline.Hash {
		t.Error("the hash depends on where the schema stands")
	}
	if _, err := Parse(filepath.Join(dir, "f.yaml"), []byte(strings.Replace(text, "trip.avsc", "other.avsc", 1))); err == nil || !strings.Contains(err.Error(), "other.avsc") {
		t.Errorf("missing schema file: %v", err)
	}
}

// Each error says where, and what to write instead. The line is the one where the change was made; checked on the changed text.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"window: {tumbling", "wnidow: {tumbling", `fares.yaml:23:1: unknown setting "wnidow"; did you mean "window"?`},
		{"    delay: 10s", "    dealy: 10s", `fares.yaml:18:5: unknown setting "dealy"; did you mean "delay"?`},
		{"{size: 10s}", "{sizes: 10s}", `fares.yaml:23:21: unknown setting "sizes"; did you mean "size"?`},
		{"keyed: merged", "keyed: megred", `fares.yaml:2:8: keyed cannot be "megred"; did you mean "merged"?`},
		{"keyed: merged", "colour: red", `fares.yaml:2:1: unknown setting "colour"; a pipeline takes name, keyed, sources`},
		{"keyed: merged", "name: other", `fares.yaml:2:1: mapping key "name" already defined`},
		{"keyed: merged", "joins: []", `fares.yaml:2:1: joins: joins are not in this version`},
		{"{tumbling: {size: 10s}}", "{sliding: {size: 10s}}", `fares.yaml:23:10: sliding: sliding windows are not in this version`},
		{"{tumbling: {size: 10s}}", "{session: {gap: 10s}}", `fares.yaml:23:10: session: session windows are not in this version`},
		{"{tumbling: {size: 10s}}", "{}", `window is empty`},
		{"{tumbling: {size: 10s}}", "{tumbling: {}}", `tumbling needs a size`},
		{"{tumbling: {size: 10s}}", "10s", `window must be a mapping of settings, not a single value`},
		{"size: 10s", "size: 0s", `fares.yaml:23:27: size: 0s is too short; the least is 1ms`},
		{"size: 10s", "size: 10 s", `"10 s" is no duration; write it like 10s, 1h30m or 250ms`},
		{"size: 10s", "size: 1500us", `not a whole number of milliseconds`},
		{"delay: 10s", "delay: -1s", `fares.yaml:18:12: delay: -1s is too short; the least is 0s`},
		{"    delay: 10s\n", "", `fares.yaml:4:5: setting "delay" is missing`},
		{"    eventTime: {field: pickup_ms, unit: ms}\n", "", `setting "eventTime" is missing`},
		{"unit: ms", "unit: m", `unit cannot be "m"`},
		{"field: pickup_ms", "field: pickup", `fares.yaml:17:24: eventTime: the schema has no field "pickup"; did you mean "pickup_ms"?`},
		{"field: pickup_ms", "field: zone", `field "zone" is no number`},
		{"eventTime: {field: pickup_ms, unit: ms}", "eventTime: pickup_ms", "eventTime is `record`"},
		{"eventTime: {field: pickup_ms, unit: ms}", "eventTime: {field: pickup_ms}", "eventTime needs both field and unit"},
		{"where: price > 0 && paid", "where: prcie > 0", `fares.yaml:20:12: where: unknown name "prcie"; did you mean "price"?`},
		{"where: price > 0 && paid", "where: fee", `where must be true or false, not float64`},
		{"where: price > 0 && paid", "where: zone > 1", `fares.yaml:20:12: where: invalid operation: > (mismatched types string and int)`},
		{"where: price > 0 && paid", "where: net > 1", `unknown name "net"`}, // where comes before compute
		{"where: price > 0 && paid", "where: now().Unix() > 5", `function now is not allowed`},
		{"where: price > 0 && paid", `where: "keys({'a': 1})[0] == zone"`, `function keys is not allowed`},
		{"where: price > 0 && paid", "where: fee ** 2 > 1", `operator ** is not allowed`},
		{"where: price > 0 && paid", "where: $env.fee > 1", `$env is not allowed`},
		{"where: price > 0 && paid", "where: price >", `where: unexpected token EOF`},
		{"where: price > 0 && paid", "where: ''", `where is empty`},
		{"where: price > 0 && paid", "where: [a]", `where must be text, not a list`},
		{"compute: {net: fee * 0.5,", "compute: {zone: fee * 0.5,", `"zone" is a field already`},
		{"compute: {net: fee * 0.5,", "compute: {a-b: fee * 0.5,", `"a-b" is no name`},
		{"[user_id, {area", "[usr_id, {area", `fares.yaml:22:11: groupBy: unknown name "usr_id"; did you mean "user_id"?`},
		{"{area: upper(zone)}", "upper(zone)", "groupBy: give the expression a name, as in `- zone: upper(zone)`"},
		{"{area: upper(zone)}", "{list: '[1, 2]'}", `groupBy: a key must be a number`},
		{"{area: upper(zone)}", "user_id", `the name "user_id" is used twice`},
		{"{area: upper(zone)}", "{window_end: zone}", `the name "window_end" is taken`},
		{"  trips: count()", "  user_id: count()", `fares.yaml:26:3: aggregates: the name "user_id" is used twice in the output`},
		{"sum(price)", "avg(price)", `fares.yaml:25:14: sum_price: avg is not in this version`},
		{"sum(price)", "smu(price)", `sum_price: unknown aggregate "smu"; did you mean "sum"?`},
		{"sum(price)", "sum()", `sum needs an argument: sum(x)`},
		{"sum(price)", "sum(price) + 1", `an aggregate is one call`},
		{"sum(price)", "sum(price) + sum(price)", `unexpected token`},
		{"sum(price)", "sum(zone)", `sum needs a number, not string`},
		{"sum(price)", "price", `an aggregate is one call`},
		{"partitions: 4", "partitions: 0", `fares.yaml:29:40: partitions: "0" is not a whole number from 1 to 100000`},
		{"partitions: 4, ", "", `output needs partitions`},
		{"topic: fares-out", "topic: trips", `output topic "trips" is the source's topic`},
		{"topic: fares-out, ", "", `output needs a topic`},
		{"format: json}", "format: avro}", `avro output is not in this version`},
		{"format: avro", "format: avor", `format cannot be "avor"; did you mean "avro"?`},
		{"format: avro", "format: protobuf", `protobuf is not in this version`},
		{"format: avro", "format: json", `schema: a source of format json has no schema`},
		{"name: fares", "name: fa/res", `fares.yaml:1:7: name: "fa/res" may hold only letters`},
		{"name: fares", "name: " + strings.Repeat("x", 240), `name is longer than 239 characters`},
		{"name: fares", "name:", `name must be text, not nothing`},
		{"name: fares", "name: &a fares", `fares.yaml:1:7: anchors, aliases, merge keys and tags are not supported`},
		{"window: {tumbling: {size: 10s}}", "window: !!map {tumbling: {size: 10s}}", `anchors, aliases, merge keys and tags are not supported`},
		{"window: {tumbling: {size: 10s}}", "window: {<<: {tumbling: {size: 10s}}}", `anchors, aliases, merge keys and tags are not supported`},
		{"name: fares\n", "", `setting "name" is missing`},
		{`"type": "record"`, `"type": "recrod"`, `fares.yaml:6:13: schema: `},
		{`"type": "float"`, `"type": "floot"`, `schema: `},
		{"  - topic: trips\n", "  - topic: other\n    format: json\n  - topic: trips\n", `several sources are not in this version`},
		{"output: {", "output: {{", `fares.yaml:`},
	} {
		text := strings.Replace(fares, c.old, c.new, 1)
		if text == fares {
			t.Fatalf("%q is not in the example", c.old)
		}
		_, err := Parse("fares.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q:\n got %v\nwant …%s", c.new, c.old, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"": "must hold one pipeline", "a: 1\n---\nb: 2\n": "must hold one pipeline", "- a": "must be a mapping", "name: [": "x.yaml:1:",
		"sources: []": "sources is empty", "sources: 5": "sources must be a list",
	} {
		if _, err := Parse("x.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want …%s", text, err, want)
		}
	}
}

// One run tells every mistake, in the order of the file, and none that only follows from another.
func TestParseTellsAll(t *testing.T) {
	text := strings.NewReplacer("keyed:", "kyed:", "delay: 10s", "delay: ten", "partitions: 4", "partitions: four").Replace(fares)
	_, err := Parse("fares.yaml", []byte(text))
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{`fares.yaml:2:1: unknown setting "kyed"; did you mean "keyed"?`, `fares.yaml:18:12: delay: "ten" is no duration`, `fares.yaml:29:40: partitions: "four" is not`}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d errors:\n%v", len(lines), err)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("line %d: %s, want %s…", i, lines[i], want[i])
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fares))
	f.Add([]byte("name: &a [*a]"))
	f.Add([]byte("sources: [{schema: {a: b}}]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse("f.yaml", b)
		if (p == nil) == (err == nil) {
			t.Fatalf("pipeline %v, error %v", p, err)
		}
	})
}

func TestIdleness(t *testing.T) {
	text := strings.Replace(fares, "    maxFuture: 1h\n", "    maxFuture: 1h\n    idleness: {after: 1m30s}\n", 1)
	if got := parse(t, text).Source[0].IdleAfterMs; got != 90_000 {
		t.Errorf("idle after %d ms", got)
	}
	if got := parse(t, fares).Source[0].IdleAfterMs; got != 0 {
		t.Errorf("idle after %d ms by default", got)
	}
	for _, c := range []struct{ old, new, want string }{
		{"{after: 1m30s}", "{after: 99ms}", "too short; the least is 100ms"},
		{"{after: 1m30s}", "{}", "idleness needs `after`"},
		{"{after: 1m30s}", "{afetr: 1s}", `did you mean "after"`},
		{"{after: 1m30s}", "{after: soon}", "is no duration"},
		{"keyed: merged", "keyed: partition", "idleness: with `keyed: partition` each partition closes alone"},
	} {
		if _, err := Parse("x.yaml", []byte(strings.Replace(text, c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.new, err, c.want)
		}
	}
}
