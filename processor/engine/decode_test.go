package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/avro"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// registry answers by id, and per range where an id changes its meaning.
type registry struct {
	schemas map[int]segment.Schema
	from    map[int64]map[int]segment.Schema // from this offset on
	down    error
}

func (r *registry) Writer(_ TP, offset int64, id int) (segment.Schema, bool, error) {
	if r.down != nil {
		return segment.Schema{}, false, r.down
	}
	for at, m := range r.from {
		if s, ok := m[id]; ok && offset >= at {
			return s, true, nil
		}
	}
	s, ok := r.schemas[id]
	return s, ok, nil
}

func avroSchema(text string) segment.Schema { return segment.Schema{Type: "AVRO", Text: text} }

// run feeds values to one partition of topic in, each at its own offset, and returns what comes out, drained.
func run(t testing.TB, pipelineText string, s Schemas, values ...[]byte) []Output {
	t.Helper()
	e, err := New(mustParse(t, pipelineText), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	tp := TP{Topic: "in", Partition: 0}
	e.AddPartition(tp, fresh())
	var recs []record.Record
	for i, v := range values {
		recs = append(recs, record.Record{Topic: "in", Offset: int64(i), Timestamp: 1000, Key: []byte("k"), Value: v})
	}
	if _, err := e.Feed(tp, recs); err != nil {
		t.Fatal(err)
	}
	return e.Drain()
}

func texts(out []Output) []string {
	var s []string
	for _, o := range out {
		if o.Kind == Result {
			s = append(s, string(o.Record.Value))
		} else {
			s = append(s, fmt.Sprintf("%s@%s: %s", o.Kind, header(o, HeaderOffset), header(o, HeaderReason)))
		}
	}
	return s
}

func expect(t *testing.T, out []Output, want ...string) {
	t.Helper()
	if got := texts(out); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const evolvingPipeline = `
name: evolving
sources:
  - topic: in
    format: avro
    schema: |
      {"type":"record","name":"Trip","fields":[
        {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
        {"name":"who","type":"string"},
        {"name":"price","type":["null","double"],"default":null},
        {"name":"kind","type":{"type":"enum","name":"Kind","symbols":["A","B"]},"default":"A"},
        {"name":"seats","type":"long","default":7},
        {"name":"unused","type":["null","string","long"],"default":null},
        {"name":"inner","type":["null",{"type":"record","name":"Inner","fields":[{"name":"when","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"n","type":"int"}]}],"default":null}]}
    eventTime: {field: at, unit: ms}
    delay: 0s
groupBy: [who, kind]
window: {tumbling: {size: 1s}}
aggregates: {price: sum(price), seats: sum(seats), n: count(), prices: count(price), last: max(inner?.when), inner: sum(inner?.n)}
output: {topic: out, partitions: 1}
`

// Data of several writers in one topic: older with other types, newer with more fields, one whose id later means another schema.
func TestAvroResolution(t *testing.T) {
	old := `{"type":"record","name":"Trip","fields":[{"name":"who","type":"string"},{"name":"at","type":"long"},{"name":"price","type":"double"},{"name":"seats","type":"int"}]}`
	newer := `{"type":"record","name":"Trip","fields":[{"name":"extra","type":{"type":"array","items":"string"}},{"name":"at","type":"long"},{"name":"who","type":"string"},
		{"name":"kind","type":{"type":"enum","name":"Kind","symbols":["B","A"]}},{"name":"price","type":["null","double"]},
		{"name":"inner","type":["null",{"type":"record","name":"Inner","fields":[{"name":"n","type":"int"},{"name":"when","type":{"type":"long","logicalType":"timestamp-millis"}}]}]}]}`
	bad := `{"type":"record","name":"Trip","fields":[{"name":"at","type":"string"},{"name":"who","type":"string"}]}`
	enc := func(text string, id int, v map[string]any) []byte { return wire(t, avro.MustParse(text), id, v) }
	a := enc(old, 1, map[string]any{"who": "ann", "at": int64(100), "price": 1.5, "seats": int32(2)})
	b := enc(newer, 2, map[string]any{"extra": []string{"x", "y"}, "at": int64(200), "who": "ann", "kind": "A", "price": nil,
		"inner": map[string]any{"n": int32(3), "when": int64(777)}})
	c := enc(newer, 2, map[string]any{"extra": []string{}, "at": int64(300), "who": "bob", "kind": "B", "price": 2.5, "inner": nil})
	d := enc(newer, 1, map[string]any{"extra": []string{}, "at": int64(400), "who": "bob", "kind": "B", "price": .25, "inner": nil})
	reg := &registry{schemas: map[int]segment.Schema{1: avroSchema(old), 2: avroSchema(newer), 3: avroSchema(bad), 4: avroSchema("no schema"),
		5: {Type: "JSON", Text: "{}"}}, from: map[int64]map[int]segment.Schema{3: {1: avroSchema(newer)}}}
	out := run(t, evolvingPipeline, reg, a, b, c, d, // offset 3 on: id 1 means the newer schema
		[]byte{0, 0, 0, 0, 3, 2, 'x', 2, 'y'}, []byte{0, 0, 0, 0, 4, 2}, []byte{0, 0, 0, 0, 5, 2}, []byte{0, 0, 0, 0, 9, 2}, nil, []byte{}, []byte{0, 0, 0, 0}, []byte{1, 0, 0, 0, 1, 2},
		b[:len(b)-1], append(slices.Clone(b), 0))
	expect(t, out,
		`{"window_start":0,"window_end":1000,"who":"ann","kind":"A","price":1.5,"seats":9,"n":2,"prices":1,"last":777,"inner":3}`,
		`{"window_start":0,"window_end":1000,"who":"bob","kind":"B","price":2.75,"seats":14,"n":2,"prices":2,"last":null,"inner":null}`,
		"poison@4: schema id 3 cannot be read as the pipeline's schema", "poison@5: schema id 4 cannot be read as the pipeline's schema",
		"poison@6: schema id 5 cannot be read as the pipeline's schema", "poison@7: unknown schema id 9",
		"poison@8: value is null", "poison@9: value is not in the schema registry's wire format", "poison@10: value is not in the schema registry's wire format",
		"poison@11: value is not in the schema registry's wire format", "poison@12: value does not decode with schema id 2", "poison@13: value does not decode with schema id 2")
}

func TestAvroReferences(t *testing.T) {
	text := `
name: refs
sources:
  - topic: in
    format: avro
    schema: '{"type":"record","name":"Trip","fields":[{"name":"at","type":"long"},{"name":"city","type":{"type":"record","name":"City","fields":[{"name":"name","type":"string"}]}}]}'
    eventTime: {field: at, unit: ms}
    delay: 0s
groupBy: [{city: city.name}]
window: {tumbling: {size: 1s}}
aggregates: {n: count()}
output: {topic: out, partitions: 1}
`
	city := `{"type":"record","name":"City","fields":[{"name":"name","type":"Name"}]}`
	name := `{"type":"fixed","name":"Name","size":3}`
	nameString := `{"type":"record","name":"Other","fields":[{"name":"n","type":"int"}]}`
	trip := `{"type":"record","name":"Trip","fields":[{"name":"at","type":"long"},{"name":"city","type":"City"}]}`
	plainCity := `{"type":"record","name":"City","fields":[{"name":"pad","type":["null","Other"]},{"name":"name","type":"string"}]}`
	reg := &registry{schemas: map[int]segment.Schema{
		// In an order in which the first needs the second.
		1: {Type: "AVRO", Text: trip, References: []segment.Reference{{Name: "City", Text: plainCity}, {Name: "Other", Text: nameString}}},
		2: {Type: "AVRO", Text: trip, References: []segment.Reference{{Name: "City", Text: city}, {Name: "Name", Text: name}}}, // fixed is no string
		3: {Type: "AVRO", Text: trip, References: []segment.Reference{{Name: "City", Text: plainCity}}},                        // one is missing
	}}
	out := run(t, text, reg, []byte{0, 0, 0, 0, 1, 2, 0, 4, 'R', 'o'}, []byte{0, 0, 0, 0, 2, 2, 'O', 's', 'l'}, []byte{0, 0, 0, 0, 3, 2, 0, 2, 'x'})
	expect(t, out, `{"window_start":0,"window_end":1000,"city":"Ro","n":1}`,
		"poison@1: schema id 2 cannot be read as the pipeline's schema", "poison@2: schema id 3 cannot be read as the pipeline's schema")
}

// While the registry is down Feed takes what it can and stops before the record that needs it, with nothing lost.
func TestRegistryDown(t *testing.T) {
	down := errors.New("registry is down")
	text := `{"type":"record","name":"Trip","fields":[{"name":"at","type":"long"},{"name":"who","type":"string"}]}`
	reg := &registry{schemas: map[int]segment.Schema{1: avroSchema(text)}}
	e, err := New(mustParse(t, evolvingPipeline), reg, nil)
	if err != nil {
		t.Fatal(err)
	}
	tp := TP{Topic: "in"}
	e.AddPartition(tp, fresh())
	recs := []record.Record{{Topic: "in", Offset: 0}, {Topic: "in", Offset: 5, Value: []byte{0, 0, 0, 0, 1, 2, 2, 'x'}}}
	reg.down = down
	n, err := e.Feed(tp, recs)
	if n != 1 || !errors.Is(err, down) || !errors.Is(err, ErrNotReady) || e.Position(tp) != 5 {
		t.Fatalf("took %d to position %d: %v", n, e.Position(tp), err)
	}
	reg.down = nil
	if n, err := e.Feed(tp, recs[n:]); n != 1 || err != nil {
		t.Fatalf("took %d: %v", n, err)
	}
	expect(t, e.Drain(), `{"window_start":0,"window_end":1000,"who":"x","kind":"A","price":null,"seats":7,"n":1,"prices":0,"last":null,"inner":null}`, "poison@0: value is null")
}

const jsonPipeline = `
name: j
sources:
  - topic: in
    format: json
    eventTime: {field: t, unit: %s}
    delay: 0s
    where: flag
    compute: {double: v * 2}
groupBy: [k]
window: {tumbling: {size: 1s}}
aggregates: {total: sum(v), double: max(double)}
output: {topic: out, partitions: 1}
`

func TestJSONValues(t *testing.T) {
	out := run(t, fmt.Sprintf(jsonPipeline, "ms"), nil,
		[]byte(`{"t":1,"flag":true,"v":9007199254740993,"k":"a","other":1e999}`),
		[]byte(` {"t":1.4,"flag":true,"v":2,"k":null,"flags":[]} `),
		[]byte(`{"t":2,"flag":true,"v":0.5,"k":1}`),
		[]byte(`{"t":2,"flag":true,"v":0.25,"k":1.0}`), // the same key as 1
		[]byte(`{"t":2,"flag":false,"v":"x"}`),
		[]byte(`{"t":2}`), // flag is null: not true
		[]byte(`{"t":3,"flag":true,"v":1}`),
		// poison from here on
		[]byte(`{"t":2,"flag":1,"v":1}`),
		[]byte(`{"t":2,"flag":true,"v":"x"}`),
		[]byte(`{"t":2,"flag":true,"v":1,"k":[1]}`),
		[]byte(`{"t":2,"flag":true,"v":9223372036854775808}`),
		[]byte(`{"flag":true,"v":1}`), []byte(`{"t":null}`), []byte(`{"t":"5"}`), []byte(`{"t":9007199254740993}`), []byte(`{"t":-1e300}`),
		[]byte(`[1]`), []byte(`null`), []byte(`{"t":1} x`), []byte(`{"t":1`), []byte{0xff}, []byte{}, nil)
	expect(t, out,
		`{"window_start":0,"window_end":1000,"k":"a","total":9007199254740993,"double":18014398509481986}`,
		`{"window_start":0,"window_end":1000,"k":1,"total":0.75,"double":1}`,
		`{"window_start":0,"window_end":1000,"k":null,"total":3,"double":4}`,
		"poison@7: where is not true or false", "poison@8: expression of computed field double failed",
		"poison@9: group key k is not a number, a string, true or false", "poison@10: field v has a number that does not fit",
		"poison@11: event time is missing", "poison@12: event time is missing", "poison@13: event time is not a number",
		"poison@14: event time is out of range", "poison@15: event time is out of range",
		"poison@16: value is not a JSON object", "poison@17: value is not a JSON object", "poison@18: value is not a JSON object", "poison@19: value is not a JSON object",
		"poison@20: value is not a JSON object", "poison@21: value is not a JSON object", "poison@22: value is null")
}

func TestEventTimeUnits(t *testing.T) {
	for _, c := range []struct {
		unit, t string
		start   int64
	}{
		{"s", "5", 5000}, {"s", "1.001", 1000}, {"s", "0.9996", 1000}, {"s", "-1", -1000}, {"ms", "-1", -1000}, {"ms", "999", 0}, {"ms", "1000", 1000},
		{"us", "1999999", 1000}, {"us", "-1", -1000}, {"ns", "999999999", 0}, {"ns", "1e9", 1000}, {"ns", "-1", -1000}, {"us", "2.5e6", 2000},
	} {
		out := run(t, fmt.Sprintf(jsonPipeline, c.unit), nil, fmt.Appendf(nil, `{"t":%s,"flag":true,"v":1,"k":0}`, c.t))
		expect(t, out, fmt.Sprintf(`{"window_start":%d,"window_end":%d,"k":0,"total":1,"double":2}`, c.start, c.start+1000))
		// The output's timestamp is the last millisecond of the window, and at least 1.
		if got, want := out[0].Record.Timestamp, max(c.start+999, 1); got != want {
			t.Errorf("%s %s: timestamp %d, want %d", c.t, c.unit, got, want)
		}
	}
}

// Whatever the bytes, Feed takes the record, and it is a result or poison.
func FuzzFeed(f *testing.F) {
	f.Add([]byte(`{"t":1,"flag":true,"v":2,"k":"x"}`), int64(5))
	f.Add([]byte{0, 0, 0, 0, 1, 2, 2, 'x'}, int64(-1))
	f.Add([]byte{0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, int64(1<<62))
	nested := `{"type":"record","name":"Trip","fields":[{"name":"at","type":"long"},{"name":"who","type":"string"},
		{"name":"list","type":{"type":"array","items":"null"}},{"name":"map","type":{"type":"map","values":"Trip"}}]}`
	reg := &registry{schemas: map[int]segment.Schema{1: avroSchema(`{"type":"record","name":"Trip","fields":[{"name":"at","type":"long"},{"name":"who","type":"string"}]}`),
		2: avroSchema(nested)}}
	pipelines := []string{fmt.Sprintf(jsonPipeline, "s"), fmt.Sprintf(jsonPipeline, "ns"), evolvingPipeline, strings.Replace(evolvingPipeline, "{field: at, unit: ms}", "record", 1)}
	f.Fuzz(func(t *testing.T, v []byte, timestamp int64) {
		for _, text := range pipelines {
			e, err := New(mustParse(t, text), reg, nil)
			if err != nil {
				t.Fatal(err)
			}
			tp := TP{Topic: "in"}
			e.AddPartition(tp, fresh())
			if n, err := e.Feed(tp, []record.Record{{Topic: "in", Timestamp: timestamp, Value: v}}); n != 1 || err != nil {
				t.Fatalf("took %d: %v", n, err)
			}
			out := e.Drain()
			if len(out) > 1 {
				t.Fatalf("%d outputs of one record", len(out))
			}
			for _, o := range out {
				if o.Record.Timestamp < 1 || o.Record.Timestamp > MaxTime {
					t.Fatalf("timestamp %d cannot be sent", o.Record.Timestamp)
				}
			}
		}
	})
}
