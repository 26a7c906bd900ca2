package connect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/avro"

	"tapedeck.dev/tapedeck/replayer/connect"
	"tapedeck.dev/tapedeck/replayer/connect/connecttest"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

const tripSchema = `{"type":"record","name":"Trip","namespace":"nyc","fields":[
	{"name":"id","type":"long"},
	{"name":"note","type":["null","string"],"default":null}],
	"connect.version":1,"connect.name":"nyc.Trip"}`

// registered is tripSchema as a producer registers it: without Connect's properties, with documentation.
const registered = `{"type":"record","name":"Trip","namespace":"nyc","doc":"a trip","fields":[
	{"name":"id","type":"long","doc":"of the trip"},
	{"name":"note","type":["null","string"]}]}`

// registry is a schema registry in memory.
type registry struct {
	subjects map[string][]segment.Schema
	next     int
	asked    int
}

func newRegistry(schemas ...string) *registry {
	r := &registry{subjects: map[string][]segment.Schema{}, next: 7}
	for i := 0; i < len(schemas); i += 2 {
		if _, err := r.Register(context.Background(), schemas[i], schemas[i+1], "AVRO"); err != nil {
			panic(err)
		}
	}
	return r
}

func (r *registry) Versions(_ context.Context, subject string) ([]segment.Schema, error) {
	r.asked++
	return r.subjects[subject], nil
}

func (r *registry) Register(_ context.Context, subject, text, typ string) (int, error) {
	id := r.next
	r.next++
	r.subjects[subject] = append(r.subjects[subject], segment.Schema{ID: id, Type: typ, Text: text, Subject: subject, Version: len(r.subjects[subject]) + 1})
	return id, nil
}

func open(t testing.TB, st *mem.Store, cfg connect.Config) *connect.Source {
	t.Helper()
	cfg.TopicsDir = "topics"
	if cfg.Schemas == nil {
		cfg.Schemas = newRegistry("trips-value", registered)
	}
	s, err := connect.New(st, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	trips    = record.TopicPartition{Topic: "trips"}
	earliest = archive.Bound{Kind: archive.Earliest}
	end      = archive.Bound{Kind: archive.End}
	ctx      = context.Background()
)

func at(n int64) archive.Bound { return archive.Bound{Kind: archive.AtOffset, Value: n} }

func plan(t testing.TB, s *connect.Source, tp record.TopicPartition, from, until archive.Bound) *archive.PartitionPlan {
	t.Helper()
	p, err := s.Plan(ctx, archive.Request{TP: tp, From: from, Until: until})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// read returns the records of a plan's range, and checks that its segments tile it.
func read(t testing.TB, s *connect.Source, p *archive.PartitionPlan) []record.Record {
	t.Helper()
	var out []record.Record
	for i, ps := range p.Segments {
		if i == 0 && ps.Start > p.From || i > 0 && ps.Start != p.Segments[i-1].Next || i == len(p.Segments)-1 && ps.Next < p.Until {
			t.Fatalf("segments do not tile [%d, %d): %+v", p.From, p.Until, p.Segments)
		}
		body, err := s.Segment(ctx, ps)
		if err != nil {
			t.Fatal(err)
		}
		rd, err := segment.NewReader(ps.Key, body)
		if err != nil {
			t.Fatal(err)
		}
		h := rd.Header()
		if h.TopicID != p.TopicID || h.ClusterID != p.ClusterID || h.Isolation != p.Isolation || h.TP() != p.TopicPartition || h.Start != ps.Start || h.Next != ps.Next || h.Count != ps.Count {
			t.Fatalf("segment says %+v, planned %+v", h, ps)
		}
		for {
			var rec record.Record
			if err := rd.Next(&rec); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if rec.Offset >= p.From && rec.Offset < p.Until {
				out = append(out, rec.Clone())
			}
		}
	}
	return out
}

func trip(id int64) connecttest.Row {
	return connecttest.Row{Value: map[string]any{"id": id, "note": fmt.Sprintf("trip %d", id)}}
}

// write puts an object of trips with ids = offsets into partition 0.
func write(t testing.TB, st *mem.Store, start, n int64, change ...func(*connecttest.Object)) string {
	t.Helper()
	o := connecttest.Object{Topic: "trips", Start: start, Schema: tripSchema}
	for i := range n {
		o.Rows = append(o.Rows, trip(start+i))
	}
	for _, f := range change {
		f(&o)
	}
	return connecttest.Write(t, st, o)
}

// bytesOf is a value in the registry's wire format.
func bytesOf(t testing.TB, id int, schema string, v any) []byte {
	t.Helper()
	b, err := avro.MustParse(schema).Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{0, 0, 0, 0, byte(id)}, b...)
}

// offsets checks that recs are exactly the trips of these offsets, each with its own id.
func offsets(t testing.TB, recs []record.Record, want ...int64) {
	t.Helper()
	var got []int64
	for _, r := range recs {
		got = append(got, r.Offset)
		if want := bytesOf(t, 7, registered, trip(r.Offset).Value); !bytes.Equal(r.Value, want) {
			t.Errorf("offset %d holds %x, want %x", r.Offset, r.Value, want)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("offsets %v, want %v", got, want)
	}
}

func span(from, until int64) []int64 {
	var out []int64
	for ; from < until; from++ {
		out = append(out, from)
	}
	return out
}

func refusedWith(t testing.TB, err error, words ...string) {
	t.Helper()
	var definite interface{ Definite() bool }
	if !errors.As(err, &definite) || !definite.Definite() {
		t.Fatalf("%v is no definite error", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v: does not say %q", err, w)
		}
	}
}

func TestObjectsTileTheRange(t *testing.T) {
	for name, change := range map[string]func(*connecttest.Object){
		"padded":   func(*connecttest.Object) {},
		"unpadded": func(o *connecttest.Object) { o.Width = 1 },
		"wide":     func(o *connecttest.Object) { o.Width = 20 },
		"folders by time": func(o *connecttest.Object) {
			o.Encoded = fmt.Sprintf("year=2026/month=05/day=01/hour=%02d", o.Start/10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := mem.New()
			for _, start := range []int64{100, 0, 9, 20} { // unpadded, 100 is listed before 20 and 9
				n := map[int64]int64{0: 9, 9: 11, 20: 80, 100: 3}[start]
				write(t, st, start, n, change)
			}
			s := open(t, st, connect.Config{})
			p := plan(t, s, trips, earliest, end)
			if p.From != 0 || p.Until != 103 || len(p.Gaps) != 0 || len(p.Segments) != 4 {
				t.Fatalf("plan %+v", p)
			}
			offsets(t, read(t, s, p), span(0, 103)...)
			part := plan(t, s, trips, at(15), at(21))
			if len(part.Segments) != 2 || part.Segments[0].Start != 9 {
				t.Fatalf("plan of a part %+v", part)
			}
			offsets(t, read(t, s, part), span(15, 21)...)
		})
	}
}

func TestPartitionsAndTopics(t *testing.T) {
	st := mem.New()
	for _, topic := range []string{"trips", "trips.v2_x-y", "trips.v2"} {
		for p := range int32(3) {
			connecttest.Write(t, st, connecttest.Object{Topic: topic, Partition: p, Schema: tripSchema, Rows: []connecttest.Row{trip(int64(p))}})
		}
	}
	if err := st.Create(ctx, "topics/trips/partition=0/_SUCCESS", nil); err != nil {
		t.Fatal(err)
	}
	s := open(t, st, connect.Config{Values: connect.Plain})
	all, err := s.List(ctx)
	if err != nil || len(all) != 9 {
		t.Fatalf("%v, %v", all, err)
	}
	some, err := s.List(ctx, "trips.v2")
	if err != nil || len(some) != 3 || some[2] != (record.TopicPartition{Topic: "trips.v2", Partition: 2}) {
		t.Fatalf("%v, %v", some, err)
	}
	recs := read(t, s, plan(t, s, some[2], earliest, end))
	if want := bytesOf(t, 0, registered, trip(2).Value)[5:]; len(recs) != 1 || recs[0].TP() != some[2] || !bytes.Equal(recs[0].Value, want) {
		t.Errorf("%+v", recs)
	}
	for _, tp := range []record.TopicPartition{{Topic: "other"}, {Topic: "trips", Partition: 3}, {Topic: "trips~2"}} {
		if _, err := s.Plan(ctx, archive.Request{TP: tp, From: earliest, Until: end}); !errors.Is(err, archive.ErrNotArchived) {
			t.Errorf("%s: %v", tp, err)
		}
	}
}

func TestHoles(t *testing.T) {
	st := mem.New()
	write(t, st, 5, 3)
	write(t, st, 10, 2)
	write(t, st, 20, 1)
	s := open(t, st, connect.Config{})
	p := plan(t, s, trips, earliest, end)
	want := []segment.Skip{{From: 8, To: 10, Class: archive.Unknown}, {From: 12, To: 20, Class: archive.Unknown}}
	if p.From != 5 || p.Until != 21 || !slices.Equal(p.Gaps, want) {
		t.Fatalf("plan %+v", p)
	}
	offsets(t, read(t, s, p), 5, 6, 7, 10, 11, 20)
	if said := strings.Join(p.Fidelity, "\n"); !strings.Contains(said, "offsets [8, 10), and nothing says why") {
		t.Errorf("fidelity %s", said)
	}

	p = plan(t, s, trips, at(2), at(14)) // from and until in holes
	want = []segment.Skip{{From: 2, To: 5, Class: archive.Unknown}, {From: 8, To: 10, Class: archive.Unknown}, {From: 12, To: 14, Class: archive.Unknown}}
	if p.From != 2 || p.Until != 14 || !slices.Equal(p.Gaps, want) {
		t.Fatalf("plan %+v", p)
	}
	offsets(t, read(t, s, p), 5, 6, 7, 10, 11)

	for _, r := range []archive.Request{{From: at(12), Until: at(20)}, {From: at(21), Until: end}, {From: at(7), Until: at(7)}} {
		r.TP = trips
		if _, err := s.Plan(ctx, r); !errors.Is(err, archive.ErrEmptyRange) {
			t.Errorf("%+v: %v", r, err)
		}
		r.AllowEmpty = true
		if p, err := s.Plan(ctx, r); err != nil || p.From != p.Until || len(p.Segments) != 0 {
			t.Errorf("%+v: %+v, %v", r, p, err)
		}
	}
	for _, r := range []archive.Request{{From: earliest, Until: at(22)}, {From: at(22), Until: end}} {
		r.TP = trips
		if _, err := s.Plan(ctx, r); !errors.Is(err, archive.ErrBeyond) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestOverlapsGiveEachOffsetOnce(t *testing.T) {
	type obj struct {
		start, n int64
		width    int
	}
	for _, c := range []struct {
		objects []obj
		dropped int // overlaps told
		taken   int // objects planned
	}{
		{[]obj{{0, 5, 10}, {0, 7, 1}}, 1, 1}, // the same start, padded and not: the longer one
		{[]obj{{0, 7, 10}, {5, 5, 10}, {7, 5, 10}}, 2, 3},
		{[]obj{{0, 10, 10}, {3, 2, 10}}, 1, 1}, // one inside another
		{[]obj{{0, 4, 10}, {4, 4, 10}, {2, 4, 10}, {8, 1, 10}}, 2, 4},
		{[]obj{{0, 6, 10}, {1, 6, 10}, {2, 6, 10}}, 3, 3},
	} {
		var first *archive.PartitionPlan
		for turn := range 2 {
			st := mem.New()
			until := int64(0)
			for i := range c.objects {
				o := c.objects[i]
				if turn == 1 {
					o = c.objects[len(c.objects)-1-i]
				}
				write(t, st, o.start, o.n, func(x *connecttest.Object) { x.Width = o.width })
				until = max(until, o.start+o.n)
			}
			s := open(t, st, connect.Config{})
			p := plan(t, s, trips, earliest, end)
			offsets(t, read(t, s, p), span(0, until)...)
			told := 0
			for _, f := range p.Fidelity {
				if strings.HasPrefix(f, "overlap: ") {
					told++
				}
			}
			if told != c.dropped || len(p.Segments) != c.taken {
				t.Errorf("%v: %d overlaps told, %d segments: %s %+v", c.objects, told, len(p.Segments), strings.Join(p.Fidelity, "\n"), p.Segments)
			}
			if first == nil {
				first = p
			} else if fmt.Sprint(*first) != fmt.Sprint(*p) {
				t.Errorf("the order of writing matters: %+v, %+v", first, p)
			}
		}
	}
}

func TestContradictionNamesBoth(t *testing.T) {
	st := mem.New()
	one := write(t, st, 0, 6)
	other := write(t, st, 4, 4, func(o *connecttest.Object) { o.Rows[1] = trip(99) })
	s := open(t, st, connect.Config{})
	_, err := s.Plan(ctx, archive.Request{TP: trips, From: earliest, Until: end})
	refusedWith(t, err, one, other, "offset 5", "contradict")

	st = mem.New() // only the keys differ
	keyed := func(key string) func(o *connecttest.Object) {
		return func(o *connecttest.Object) {
			o.KeyFormat, o.KeySchema = ".avro", `"string"`
			for i := range o.Rows {
				o.Rows[i].Key = key
			}
		}
	}
	one, other = write(t, st, 0, 6, keyed("a")), write(t, st, 4, 4, keyed("b"))
	_, err = open(t, st, connect.Config{}).Plan(ctx, archive.Request{TP: trips, From: earliest, Until: end})
	refusedWith(t, err, one, other, "offset 4")
}

// A partitioner by a field, or by the record's time with late records, keeps several objects open.
func TestRecordsDealtToSeveralFoldersAreRefused(t *testing.T) {
	hour := func(h int, late bool) func(o *connecttest.Object) {
		return func(o *connecttest.Object) {
			o.Encoded = fmt.Sprintf("hour=%02d", h)
			if late {
				o.Rows[5] = trip(6)
			}
		}
	}
	for _, c := range []struct {
		late bool
		say  []string
	}{
		{true, []string{"different records", "rotate.interval.ms"}},
		{false, []string{"equal records", "move the second object away"}}, // which could be chance
	} {
		st := mem.New()
		one := write(t, st, 0, 6, hour(13, c.late))
		other := write(t, st, 5, 3, hour(14, false))
		_, err := open(t, st, connect.Config{}).Plan(ctx, archive.Request{TP: trips, From: earliest, Until: end})
		refusedWith(t, err, append(c.say, one, other, "[5, 6)", "different folders")...)
	}
}

func TestTombstones(t *testing.T) {
	st := mem.New()
	write(t, st, 0, 4)
	connecttest.Write(t, st, connecttest.Object{Topic: "trips", Encoded: "tombstone", Start: 4, NoValues: true, KeyFormat: ".avro", KeySchema: `"string"`, Rows: []connecttest.Row{{Key: "a"}}})
	write(t, st, 5, 2)
	_, err := open(t, st, connect.Config{}).Plan(ctx, archive.Request{TP: trips, From: earliest, Until: end})
	refusedWith(t, err, "tombstone/trips+0+0000000004.keys.avro", "connect.tombstones")
	s := open(t, st, connect.Config{Tombstones: connect.IgnoreTombstones})
	p := plan(t, s, trips, earliest, end)
	offsets(t, read(t, s, p), 0, 1, 2, 3, 5, 6)
	if said := strings.Join(p.Fidelity, "\n"); !strings.Contains(said, "tombstones: 1 objects") {
		t.Error(said)
	}
}

func TestFormatsThatAreNotRead(t *testing.T) {
	for key, words := range map[string][]string{
		"topics/trips/partition=0/trips+0+0000000009.json":           {"the format .json", "AvroFormat"},
		"topics/trips/partition=0/trips+0+0000000009.snappy.parquet": {"the format .snappy.parquet"},
		"topics/trips/partition=0/trips+0+0000000009.bin":            {"the format .bin"},
		"topics/trips/partition=0/trips+0+0000000009.avro.gz":        {"the format .avro.gz"},
		"topics/trips/partition=0/readme.txt":                        {"not the S3 sink's", "connect.file.delim"},
		"topics/trips/partition=0/trips-0-9.avro":                    {"not the S3 sink's"},
	} {
		st := mem.New()
		write(t, st, 0, 3)
		if err := st.Create(ctx, key, []byte("x")); err != nil {
			t.Fatal(err)
		}
		s := open(t, st, connect.Config{})
		_, err := s.Plan(ctx, archive.Request{TP: trips, From: earliest, Until: end})
		refusedWith(t, err, append(words, key)...)
		if _, err := s.List(ctx); err == nil {
			t.Errorf("%s: List says nothing", key)
		}
	}
}

func TestChangedObjectIsFound(t *testing.T) {
	for _, n := range []int64{4, 6} {
		st := mem.New()
		write(t, st, 0, 5)
		p := plan(t, open(t, st, connect.Config{}), trips, earliest, end)
		again := mem.New()
		key := write(t, again, 0, n)
		_, err := open(t, again, connect.Config{}).Segment(ctx, p.Segments[0])
		refusedWith(t, err, key, "not the planned one")
	}
}

func TestSettingsAreToldApart(t *testing.T) {
	st := mem.New()
	write(t, st, 0, 5)
	ids := map[string]bool{}
	for _, cfg := range []connect.Config{{}, {Values: connect.Plain}, {Keys: connect.JSON}, {TimestampField: "id"}, {ValueSubject: "x-{topic}", Values: connect.Register}} {
		ids[plan(t, open(t, st, cfg), trips, earliest, end).TopicID] = true
	}
	if len(ids) != 5 {
		t.Errorf("ids %v", ids)
	}
}

func TestConfig(t *testing.T) {
	for want, cfg := range map[string]connect.Config{
		"schema.registry.url":     {},
		"connect.keys is":         {Values: connect.Plain, Keys: connect.Registry},
		"connect.values \"csv\"":  {Values: "csv"},
		"connect.file.delim":      {Values: connect.Plain, FileDelim: "/"},
		"connect.tombstones":      {Values: connect.Plain, Tombstones: "x"},
		"connect.timestamp.field": {Values: connect.Plain, TimestampField: "a..b"},
	} {
		if _, err := connect.New(mem.New(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
	if _, err := connect.New(mem.New(), connect.Config{Values: connect.Plain}); err != nil {
		t.Errorf("without a registry, where none is needed: %v", err)
	}
}
