package connect_test

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"

	"tapedeck.dev/tapedeck/replayer/connect"
	"tapedeck.dev/tapedeck/replayer/connect/connecttest"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// everything has what values can hold, with Connect's properties.
const everything = `{"type":"record","name":"All","namespace":"a.b","connect.name":"a.b.All","fields":[
	{"name":"when","type":{"type":"long","connect.version":1,"connect.name":"org.apache.kafka.connect.data.Timestamp","logicalType":"timestamp-millis"}},
	{"name":"micros","type":{"type":"long","logicalType":"timestamp-micros"}},
	{"name":"day","type":{"type":"int","logicalType":"date"}},
	{"name":"fare","type":{"type":"bytes","scale":2,"precision":9,"connect.parameters":{"scale":"2"},"connect.name":"org.apache.kafka.connect.data.Decimal","logicalType":"decimal"}},
	{"name":"maybe","type":["null",{"type":"record","name":"In","fields":[{"name":"x","type":["null","double"],"default":null},{"name":"small","type":{"type":"int","connect.type":"int16"}}]}],"default":null},
	{"name":"either","type":["string","long",{"type":"array","items":["null","string"]}]},
	{"name":"list","type":{"type":"array","items":"In"}},
	{"name":"map","type":{"type":"map","values":["null","boolean"]}},
	{"name":"kind","type":{"type":"enum","name":"Kind","symbols":["A","B"]}},
	{"name":"mac","type":{"type":"fixed","name":"Mac","size":6}},
	{"name":"f","type":"float"}]}`

func someOfEverything(i int) map[string]any {
	v := map[string]any{
		"when": time.UnixMilli(1_780_000_000_000 + int64(i)), "micros": time.UnixMicro(1_780_000_000_123_456), "day": time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC),
		"fare": big.NewRat(int64(1000+i), 100), "maybe": nil, "either": "text", "list": []any{}, "map": map[string]any{}, "kind": "B", "mac": []byte{1, 2, 3, 4, 5, 6}, "f": float32(1.5),
	}
	if i%2 == 1 {
		v["maybe"] = map[string]any{"x": nil, "small": int32(-3)}
		v["either"] = []any{nil, "", "ä"}
		v["list"] = []any{map[string]any{"x": 0.25, "small": int32(0)}, map[string]any{"x": nil, "small": int32(9)}}
		v["map"] = map[string]any{"k": true}
	}
	return v
}

// The bytes of a value in a container are those of the wire format: nothing is encoded again.
func TestValuesKeepTheirBytes(t *testing.T) {
	s := avro.MustParse(everything)
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		st := mem.New()
		var rows []connecttest.Row
		for i := range 10 {
			rows = append(rows, connecttest.Row{Value: someOfEverything(i)})
		}
		connecttest.Write(t, st, connecttest.Object{Topic: "trips", Schema: everything, Codec: codec, Rows: rows})
		src := open(t, st, connect.Config{Schemas: newRegistry("trips-value", everything)})
		recs := read(t, src, plan(t, src, trips, earliest, end))
		if len(recs) != 10 {
			t.Fatalf("%s: %d records", codec, len(recs))
		}
		for i, r := range recs {
			want, err := s.Encode(someOfEverything(i))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(r.Value, append([]byte{0, 0, 0, 0, 7}, want...)) || r.Key != nil || len(r.Headers) != 0 || r.Timestamp != -1 || r.TimestampType != -1 {
				t.Errorf("%s: record %d is %+v, want the value %x", codec, i, r, want)
			}
		}
	}
}

func TestSchemaIsFoundByWhatItEncodes(t *testing.T) {
	const other = `{"type":"record","name":"Trip","namespace":"nyc","fields":[{"name":"id","type":"long"}]}`
	const withDefault = `{"type":"record","name":"Trip","namespace":"nyc","fields":[{"name":"id","type":"long","default":-1},{"name":"note","type":["null","string"],"default":null}]}`
	second := strings.Replace(tripSchema, `"connect.version":1`, `"connect.version":3`, 1)
	none := strings.Replace(tripSchema, `"connect.version":1,`, ``, 1)
	for _, c := range []struct {
		name    string
		schema  string
		reg     *registry
		cfg     connect.Config
		id      int
		refused string
	}{
		{name: "documentation and Connect's properties do not matter", schema: tripSchema, reg: newRegistry("trips-value", other, "trips-value", registered), id: 8},
		{name: "Connect's version chooses among equals", schema: second, reg: newRegistry("trips-value", registered, "trips-value", other, "trips-value", withDefault), id: 9},
		{name: "else the first", schema: none, reg: newRegistry("trips-value", other, "trips-value", registered, "trips-value", withDefault), id: 8},
		{name: "another subject", schema: tripSchema, reg: newRegistry("trips-value", other, "nyc.Trip", registered), cfg: connect.Config{ValueSubject: "{record}"}, id: 8},
		{name: "topic and record", schema: tripSchema, reg: newRegistry("trips-nyc.Trip", registered), cfg: connect.Config{ValueSubject: "{topic}-{record}"}, id: 7},
		{name: "not there", schema: tripSchema, reg: newRegistry("trips-value", other), refused: "none of the 1 versions of subject trips-value"},
		{name: "no such subject", schema: tripSchema, reg: newRegistry(), refused: "none of the 0 versions of subject trips-value"},
		{name: "registered", schema: tripSchema, reg: newRegistry("trips-value", other), cfg: connect.Config{Values: connect.Register}, id: 8},
		{name: "registered only where it is not there", schema: tripSchema, reg: newRegistry("trips-value", registered), cfg: connect.Config{Values: connect.Register}, id: 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := mem.New()
			write(t, st, 0, 3, func(o *connecttest.Object) { o.Schema = c.schema })
			write(t, st, 3, 3, func(o *connecttest.Object) { o.Schema = c.schema })
			c.cfg.Schemas = c.reg
			s := open(t, st, c.cfg)
			p := plan(t, s, trips, earliest, end)
			before := len(c.reg.subjects["trips-value"])
			if c.refused != "" {
				_, err := s.Segment(ctx, p.Segments[0])
				refusedWith(t, err, c.refused, p.Segments[0].Key, "connect.values")
				if after := len(c.reg.subjects["trips-value"]); after != before {
					t.Error("a schema was registered without leave")
				}
				return
			}
			for _, r := range read(t, s, p) {
				if want := bytesOf(t, c.id, registered, trip(r.Offset).Value); !bytes.Equal(r.Value, want) {
					t.Fatalf("value %x, want %x", r.Value, want)
				}
			}
			if c.reg.asked != 1 {
				t.Errorf("the registry was asked %d times", c.reg.asked)
			}
			body, err := s.Segment(ctx, p.Segments[0])
			if err != nil {
				t.Fatal(err)
			}
			rd, err := segment.NewReader("x", body)
			if err != nil {
				t.Fatal(err)
			}
			if h := rd.Header(); len(h.Schemas) != 1 || h.Schemas[0].ID != c.id || h.Schemas[0].Text == "" {
				t.Errorf("the segment holds the schemas %+v", h.Schemas)
			}
		})
	}
}

func TestSchemaWithReferences(t *testing.T) {
	const in = `{"type":"record","name":"In","namespace":"a","fields":[{"name":"x","type":"int"}]}`
	const out = `{"type":"record","name":"Out","namespace":"a","fields":[{"name":"in","type":"a.In"}]}`
	whole := strings.Replace(out, `"a.In"`, in, 1)
	reg := newRegistry("trips-value", out)
	reg.subjects["trips-value"][0].References = []segment.Reference{{Name: "a.In", Subject: "in", Version: 1, Text: in}}
	st := mem.New()
	write(t, st, 0, 1, func(o *connecttest.Object) {
		o.Schema, o.Rows[0].Value = whole, map[string]any{"in": map[string]any{"x": 5}}
	})
	s := open(t, st, connect.Config{Schemas: reg})
	if recs := read(t, s, plan(t, s, trips, earliest, end)); len(recs) != 1 || !bytes.Equal(recs[0].Value, []byte{0, 0, 0, 0, 7, 10}) {
		t.Errorf("%+v", recs)
	}
}

// The sink begins another object where the schema changes.
func TestSchemaChangesInTheMiddle(t *testing.T) {
	const second = `{"type":"record","name":"Trip","namespace":"nyc","fields":[{"name":"id","type":"long"},{"name":"note","type":["null","string"]},{"name":"fare","type":"double"}]}`
	st := mem.New()
	write(t, st, 0, 3)
	write(t, st, 3, 2, func(o *connecttest.Object) {
		o.Schema = second
		for i := range o.Rows {
			o.Rows[i].Value = map[string]any{"id": int64(3 + i), "note": nil, "fare": 2.5}
		}
	})
	s := open(t, st, connect.Config{Schemas: newRegistry("trips-value", registered, "trips-value", second)})
	recs := read(t, s, plan(t, s, trips, earliest, end))
	offsets(t, recs[:3], 0, 1, 2)
	for i, r := range recs[3:] {
		if want := bytesOf(t, 8, second, map[string]any{"id": int64(3 + i), "note": nil, "fare": 2.5}); r.Offset != int64(3+i) || !bytes.Equal(r.Value, want) {
			t.Errorf("%+v, want %x", r, want)
		}
	}
}

func TestEncodings(t *testing.T) {
	const optional = `["null","string"]`
	const number = `"long"`
	row := map[string]any{"id": int64(5), "note": nil}
	plain := bytesOf(t, 0, registered, row)[5:]
	for _, c := range []struct {
		how     connect.Encoding
		schema  string
		value   any
		want    []byte // nil for a null
		refused string
	}{
		{how: connect.Plain, schema: tripSchema, value: row, want: plain},
		{how: connect.JSON, schema: tripSchema, value: row, want: []byte(`{"id":5,"note":null}`)},
		{how: connect.Raw, schema: `"string"`, value: "ä", want: []byte("ä")},
		{how: connect.Raw, schema: `"bytes"`, value: []byte{0, 255}, want: []byte{0, 255}},
		{how: connect.Raw, schema: `"string"`, value: "", want: []byte{}},
		{how: connect.Raw, schema: optional, value: "x", want: []byte("x")},
		{how: connect.Raw, schema: optional, value: nil},
		{how: connect.Plain, schema: optional, value: nil},
		{how: connect.Raw, schema: tripSchema, value: row, refused: "connect.values is raw"},
		{how: connect.Auto, schema: `"string"`, value: "x", want: []byte("x")},
		{how: connect.Auto, schema: tripSchema, value: row, want: append([]byte{0, 0, 0, 0, 7}, plain...)},
		{how: connect.Auto, schema: number, value: int64(3), want: []byte{0, 0, 0, 0, 8, 6}},
		{how: connect.Registry, schema: number, value: int64(3), want: []byte{0, 0, 0, 0, 8, 6}},
		{how: connect.Registry, schema: `"string"`, value: "x", refused: "none of the 2 versions"},
	} {
		st := mem.New()
		write(t, st, 0, 1, func(o *connecttest.Object) { o.Schema, o.Rows[0].Value = c.schema, c.value })
		s := open(t, st, connect.Config{Values: c.how, Schemas: newRegistry("trips-value", registered, "trips-value", number)})
		p := plan(t, s, trips, earliest, end)
		if c.refused != "" {
			_, err := s.Segment(ctx, p.Segments[0])
			refusedWith(t, err, c.refused)
			continue
		}
		recs := read(t, s, p)
		if len(recs) != 1 || !bytes.Equal(recs[0].Value, c.want) || (recs[0].Value == nil) != (c.want == nil) {
			t.Errorf("%s of %s: %q, want %q", c.how, c.schema, recs[0].Value, c.want)
		}
	}
}

func TestKeysAndHeaders(t *testing.T) {
	const keySchema = `{"type":"record","name":"Key","fields":[{"name":"k","type":"int"}]}`
	headers := []record.Header{{Key: "trace", Value: []byte("ä1")}, {Key: "trace", Value: []byte("")}, {Key: "b", Value: []byte("x")}}
	for _, c := range []struct {
		keys, headers string
		schema        string
		key           any
		cfg           connect.Config
		want          []byte
	}{
		{".avro", "", `"string"`, "k1", connect.Config{}, []byte("k1")},
		{".avro", ".avro", `"bytes"`, []byte{1, 0}, connect.Config{}, []byte{1, 0}},
		{".avro", ".json", keySchema, map[string]any{"k": 4}, connect.Config{Schemas: newRegistry("trips-value", registered, "trips-key", keySchema)}, []byte{0, 0, 0, 0, 8, 8}},
		{".avro", ".json", keySchema, map[string]any{"k": 4}, connect.Config{Keys: connect.Plain}, []byte{8}},
		{".avro", "", keySchema, map[string]any{"k": 4}, connect.Config{Keys: connect.JSON}, []byte(`{"k":4}`)},
		{".json", ".avro", "", "k1", connect.Config{}, []byte("k1")},
		{".json", "", "", map[string]any{"k": 4}, connect.Config{}, []byte(`{"k":4}`)},
		{".json", "", "", 17, connect.Config{}, []byte("17")},
		{".bin", ".json", "", "k1", connect.Config{}, []byte("k1")},
		{"", ".avro", "", nil, connect.Config{}, nil},
	} {
		t.Run(c.keys+c.headers, func(t *testing.T) {
			st := mem.New()
			side := func(o *connecttest.Object) {
				o.KeyFormat, o.HeaderFormat, o.KeySchema = c.keys, c.headers, c.schema
				for i := range o.Rows {
					o.Rows[i].Key = c.key
					o.Rows[i].Headers = headers[:1+(int(o.Start)+i)%3]
				}
			}
			key := write(t, st, 0, 5, side)
			write(t, st, 5, 3) // the sink was set up to store them later, or no longer
			s := open(t, st, c.cfg)
			p := plan(t, s, trips, earliest, end)
			recs := read(t, s, p)
			offsets(t, recs, span(0, 8)...)
			for i, r := range recs[:5] {
				if !bytes.Equal(r.Key, c.want) || (r.Key == nil) != (c.want == nil) {
					t.Errorf("key %q, want %q", r.Key, c.want)
				}
				want := record.Record{}
				if c.headers != "" {
					want.Headers = headers[:1+i%3]
				}
				if !record.Equal(&record.Record{Headers: r.Headers}, &want) {
					t.Errorf("headers %v, want %v", r.Headers, want.Headers)
				}
			}
			for _, r := range recs[5:] {
				if r.Key != nil || len(r.Headers) != 0 {
					t.Errorf("%+v has key or headers", r)
				}
			}
			said := strings.Join(p.Fidelity, "\n")
			for part, stored := range map[string]bool{"keys: not stored": c.keys == "", "headers: not stored": c.headers == "",
				"1 of 2 objects have none, and their records' keys are null": c.keys != "", "headers: the sink stores every value as text": c.headers != ""} {
				if strings.Contains(said, part) != stored {
					t.Errorf("%q is said: %t; %s", part, !stored, said)
				}
			}
			if base := strings.TrimSuffix(key, ".avro"); p.Segments[0].Keys != "" && p.Segments[0].Keys != base+".keys"+c.keys {
				t.Errorf("%+v", p.Segments[0])
			}
		})
	}
}

func TestSidesThatDoNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		keys  string
		key   any
		count int
	}{"too few": {".avro", "k", 4}, "too many": {".avro", "k", 6}, "a newline inside": {".bin", "k\n", 5}, "too few lines": {".json", "k", 4}, "too many lines": {".json", "k", 6}} {
		t.Run(name, func(t *testing.T) {
			st := mem.New()
			values := write(t, st, 0, 5)
			var rows []connecttest.Row
			for range c.count {
				rows = append(rows, connecttest.Row{Key: c.key})
			}
			connecttest.Write(t, st, connecttest.Object{Topic: "trips", NoValues: true, KeyFormat: c.keys, KeySchema: `"string"`, Rows: rows})
			s := open(t, st, connect.Config{})
			p := plan(t, s, trips, earliest, end)
			_, err := s.Segment(ctx, p.Segments[0])
			refusedWith(t, err, values, p.Segments[0].Keys, "same number of records")
		})
	}
	st := mem.New()
	write(t, st, 0, 5, func(o *connecttest.Object) { o.KeyFormat = ".json" })
	connecttest.Write(t, st, connecttest.Object{Topic: "trips", NoValues: true, KeyFormat: ".bin", Rows: []connecttest.Row{{Key: "k"}}})
	_, err := open(t, st, connect.Config{}).Plan(ctx, archive.Request{TP: trips, From: earliest, Until: end})
	refusedWith(t, err, ".keys.json", ".keys.bin", "two formats")

	st = mem.New()
	write(t, st, 0, 5, func(o *connecttest.Object) { o.KeyFormat = ".parquet" })
	s := open(t, st, connect.Config{})
	_, err = s.Segment(ctx, plan(t, s, trips, earliest, end).Segments[0])
	refusedWith(t, err, ".keys.parquet", "are not read")
}

func TestTimestampsFromAField(t *testing.T) {
	at := time.Date(2026, 5, 1, 13, 0, 0, int(7*time.Millisecond), time.UTC)
	for _, c := range []struct {
		schema string // of the field
		value  any
		want   int64 // −2: refused
	}{
		{`{"type":"long","logicalType":"timestamp-millis"}`, at, at.UnixMilli()},
		{`{"type":"long","logicalType":"timestamp-micros"}`, at, at.UnixMilli()},
		{`"long"`, int64(1234), 1234},
		{`"int"`, int32(1234), 1234},
		{`"string"`, "2026-05-01T13:00:00.007Z", at.UnixMilli()},
		{`["null","long"]`, nil, -1},
		{`["null","long"]`, int64(9), 9},
		{`"string"`, "yesterday", -2},
		{`"double"`, 1.5, -2},
		{`"boolean"`, true, -2},
	} {
		for _, path := range []string{"at", "in.at"} {
			schema := fmt.Sprintf(`{"type":"record","name":"T","fields":[{"name":"at","type":%s}]}`, c.schema)
			value := map[string]any{"at": c.value}
			if path == "in.at" {
				schema = fmt.Sprintf(`{"type":"record","name":"O","fields":[{"name":"in","type":["null",%s]}]}`, schema)
				value = map[string]any{"in": value}
			}
			st := mem.New()
			key := write(t, st, 0, 1, func(o *connecttest.Object) { o.Schema, o.Rows[0].Value = schema, value })
			s := open(t, st, connect.Config{Values: connect.Plain, TimestampField: path})
			if c.want == -2 {
				_, err := s.Plan(ctx, archive.Request{TP: trips, From: earliest, Until: end})
				refusedWith(t, err, "connect.timestamp.field "+path, key)
				continue
			}
			p := plan(t, s, trips, earliest, end)
			if ps := p.Segments[0]; ps.MinTimestamp != c.want || ps.MaxTimestamp != c.want {
				t.Errorf("%s of %s is planned as %+v", path, c.schema, ps)
			}
			kind := record.CreateTime
			if c.want == -1 {
				kind = -1
			}
			if recs := read(t, s, p); len(recs) != 1 || recs[0].Timestamp != c.want || recs[0].TimestampType != kind {
				t.Errorf("%s of %s: %+v, want %d", path, c.schema, recs, c.want)
			}
		}
	}
	st := mem.New()
	write(t, st, 0, 1)
	s := open(t, st, connect.Config{TimestampField: "when"})
	_, err := s.Plan(ctx, archive.Request{TP: trips, From: earliest, Until: end})
	refusedWith(t, err, `no field "when"`)
}

func TestTimeBounds(t *testing.T) {
	st := mem.New()
	write(t, st, 0, 5)
	write(t, st, 5, 5)
	since := archive.Request{TP: trips, From: archive.Bound{Kind: archive.AtTimestamp, Value: 3}, Until: archive.Bound{Kind: archive.AtTimestamp, Value: 7}}
	if _, err := open(t, st, connect.Config{}).Plan(ctx, since); err == nil || !strings.Contains(err.Error(), "connect.timestamp.field") {
		t.Errorf("without timestamps: %v", err)
	}
	p, err := open(t, st, connect.Config{TimestampField: "id"}).Plan(ctx, since)
	if err != nil || p.From != 0 || p.Until != 10 || p.FromTimestamp != 3 || p.UntilTimestamp != 7 || len(p.Segments) != 2 {
		t.Fatalf("%+v, %v", p, err)
	}
	if one, two := p.Segments[0], p.Segments[1]; one.MinTimestamp != 0 || one.MaxTimestamp != 4 || two.MinTimestamp != 5 || two.MaxTimestamp != 9 {
		t.Errorf("timestamps of the objects: %+v", p.Segments)
	}
	// Without a field for them there are none, not those of 1970.
	for _, ps := range plan(t, open(t, st, connect.Config{}), trips, earliest, end).Segments {
		if ps.MinTimestamp != -1 || ps.MaxTimestamp != -1 {
			t.Errorf("%+v", ps)
		}
	}
}

func TestRegistryThatDoesNotAnswerIsNotDefinite(t *testing.T) {
	st := mem.New()
	write(t, st, 0, 1)
	s := open(t, st, connect.Config{Schemas: silent{}})
	_, err := s.Segment(ctx, plan(t, s, trips, earliest, end).Segments[0])
	if err == nil || !strings.Contains(err.Error(), "silence") {
		t.Fatal(err)
	}
	if d, ok := err.(interface{ Definite() bool }); ok && d.Definite() {
		t.Errorf("%v would fail the job at once", err)
	}
}

type silent struct{}

func (silent) Versions(context.Context, string) ([]segment.Schema, error) {
	return nil, fmt.Errorf("silence")
}
func (silent) Register(context.Context, string, string, string) (int, error) { return 0, nil }
