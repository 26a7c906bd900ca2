package replayer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/processor/live"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/runtime"
	"tapedeck.dev/tapedeck/processor/sessions"
	"tapedeck.dev/tapedeck/processor/sink"
	"tapedeck.dev/tapedeck/replayer/client"
	"tapedeck.dev/tapedeck/replayer/connect/connecttest"
	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

const (
	rideSchema = `{"type":"record","name":"Ride","namespace":"nyc","fields":[{"name":"id","type":"long"},{"name":"user","type":"string"},{"name":"price","type":["null","double"]},` +
		`{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}}]}`
	// rideByConnect is what Connect's converter makes of rideSchema.
	rideByConnect = `{"type":"record","name":"Ride","namespace":"nyc","fields":[{"name":"id","type":"long"},{"name":"user","type":"string"},{"name":"price","type":["null","double"],"default":null},` +
		`{"name":"at","type":{"type":"long","connect.version":1,"connect.name":"org.apache.kafka.connect.data.Timestamp","logicalType":"timestamp-millis"}}],"connect.version":1,"connect.name":"nyc.Ride"}`

	ridesPartitions = 2
	ridesEach       = 300 // per partition
	ridesBegin      = 1_700_000_000_000
)

// rides are the same records in two archives, one of Tapedeck's and one as the sink would have written it, and what a replay writes into: a processor
// and a Kafka.
type rides struct {
	t     *testing.T
	f     *foreign
	id    int // of rideSchema in the registry
	conf  kafka.Client
	admin *kafka.Admin
	pipe  *pipeline.Pipeline
	proc  string // URL of the processor

	values  map[record.TopicPartition][]any // as written into containers
	records map[record.TopicPartition][]record.Record
	name    string // of the store of our own archive
}

func newRides(t *testing.T) *rides {
	t.Helper()
	r := &rides{t: t, f: newForeign(t), values: map[record.TopicPartition][]any{}, records: map[record.TopicPartition][]record.Record{}}
	reg, err := schema.NewRegistry(schema.Config{URL: r.setting("schema.registry.url")})
	r.must(err)
	r.id, err = reg.Register(t.Context(), "rides-value", rideSchema, "AVRO")
	r.must(err)
	r.fill()
	r.ours()

	c, err := kfake.NewCluster(kfake.Ports(0), kfake.GroupMinSessionTimeout(time.Second))
	r.must(err)
	t.Cleanup(c.Close)
	r.conf = kafka.Client{Bootstrap: strings.Join(c.ListenAddrs(), ","), ClientID: "test", Log: zap.NewNop()}
	r.admin, err = kafka.NewAdmin(r.conf)
	r.must(err)
	t.Cleanup(r.admin.Close)
	r.must(r.admin.CreateTopic(t.Context(), "rides", ridesPartitions, 1, nil))
	r.processor()
	return r
}

func (r *rides) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rides) setting(name string) string {
	for _, s := range r.f.sets {
		if value, ok := strings.CutPrefix(s, name+"="); ok {
			return value
		}
	}
	r.t.Fatalf("no setting %s", name)
	return ""
}

// fill makes the records: event time goes on by uneven steps and back now and then, far enough for a ride to be late.
func (r *rides) fill() {
	value := avro.MustParse(rideSchema)
	for p := range int32(ridesPartitions) {
		tp := record.TopicPartition{Topic: "rides", Partition: p}
		clock := int64(ridesBegin)
		for i := range int64(ridesEach) {
			clock += 37 * (i % 11)
			at := clock
			if i%29 == 28 {
				at -= 9_000
			}
			v := map[string]any{"id": i, "user": fmt.Sprint("u", (i+int64(p))%5), "price": float64(i%97) / 4, "at": time.UnixMilli(at).UTC()}
			if i%13 == 0 {
				v["price"] = nil
			}
			b, err := value.Encode(v)
			r.must(err)
			r.values[tp] = append(r.values[tp], v)
			r.records[tp] = append(r.records[tp], record.Record{Topic: tp.Topic, Partition: p, Offset: i, Timestamp: at, LeaderEpoch: record.NoEpoch, Key: fmt.Append(nil, "k", i),
				Value: append(schema.AppendWire(nil, r.id), b...), Headers: []record.Header{{Key: "trace", Value: fmt.Append(nil, i)}, {Key: "trace", Value: []byte("ä")}}})
		}
	}
}

// ours archives the records as the archiver does.
func (r *rides) ours() {
	a := replaytest.New()
	for tp, recs := range r.records {
		for at := 0; at < len(recs); at += 100 {
			a.SegmentWith(r.t, tp, int64(at+100), recs[at:at+100], []segment.Schema{{ID: r.id, Type: "AVRO", Text: rideSchema, Subject: "rides-value", Version: 1}})
		}
	}
	r.name = strings.ToLower(r.t.Name()) + "-ours"
	st := mem.Named(r.name)
	r.t.Cleanup(func() { mem.Forget(r.name) })
	for _, key := range a.Mem.Keys() {
		data, err := a.Mem.Get(r.t.Context(), key)
		r.must(err)
		r.must(st.Create(r.t.Context(), key, data))
	}
}

// sink archives them as the sink does: in objects that end elsewhere than our segments, with names that sort wrongly, and one range written twice.
func (r *rides) sink(sides bool) {
	for tp, values := range r.values {
		for _, span := range [][2]int{{0, 7}, {7, 120}, {100, 120}, {120, 299}, {299, ridesEach}} {
			o := connecttest.Object{Topic: tp.Topic, Partition: tp.Partition, Start: int64(span[0]), Width: 1, Codec: "deflate", Schema: rideByConnect}
			if sides {
				o.KeyFormat, o.KeySchema, o.HeaderFormat = ".avro", `"string"`, ".avro"
			}
			for i := span[0]; i < span[1]; i++ {
				rec := r.records[tp][i]
				o.Rows = append(o.Rows, connecttest.Row{Value: values[i], Key: string(rec.Key), Headers: rec.Headers})
			}
			connecttest.Write(r.t, r.f.st, o)
		}
	}
}

// processor serves a pipeline's replay sessions.
func (r *rides) processor() {
	p, err := pipeline.Parse("rides.yaml", []byte(fmt.Sprintf(`
name: fares
sources:
  - topic: rides
    format: avro
    schema: '%s'
    eventTime: {field: at, unit: ms}
    delay: 2s
    maxFuture: 1h
groupBy: [user]
window: {tumbling: {size: 1s}}
aggregates: {total: sum(price), n: count()}
output: {topic: fares, partitions: 3, format: json}
`, rideSchema)))
	r.must(err)
	r.pipe = p
	rt, err := runtime.New([]*pipeline.Pipeline{p}, func(p *pipeline.Pipeline) live.Config {
		return live.Config{Pipeline: p, Consumer: r.conf, Producer: r.conf, Admin: r.admin, Log: zap.NewNop(), InstanceID: "a"}
	}, sessions.Config{Consumer: r.conf, Producer: r.conf, Admin: r.admin, Log: zap.NewNop(), CommitInterval: time.Millisecond, TxTimeout: time.Minute})
	r.must(err)
	mux := http.NewServeMux()
	rt.Routes(mux)
	srv := httptest.NewServer(mux)
	r.t.Cleanup(func() { srv.Close(); rt.Close() })
	r.proc = srv.URL
}

// replayers are one over each archive.
func (r *rides) replayers() (foreign, ours *client.Client) {
	r.t.Helper()
	targets := []string{"targets.fares.url=" + r.proc, "targets.fares.pipeline=fares", "targets.back.type=kafka", "targets.back.bootstrap.servers=" + r.conf.Bootstrap,
		"targets.back.progress.replication.factor=1", "targets.back.transaction.records=70"}
	return serve(r.t, append(slices.Clone(r.f.sets), targets...)...), serve(r.t, append(targets, "store=mem://"+r.name, "replayer.id=ours")...)
}

func (r *rides) completed(c *client.Client, request string) {
	r.t.Helper()
	if v := ended(r.t, c, request); v.State != job.Completed {
		r.t.Fatalf("%s: %s: %s", request, v.State, v.Error)
	}
}

// read returns what readers of committed records see of a topic, partition by partition.
func (r *rides) read(topic string) []record.Record {
	r.t.Helper()
	topics, err := r.admin.Topics(r.t.Context(), topic)
	r.must(err)
	var out []record.Record
	for p := range topics[topic].Partitions {
		recs, err := sink.ReadLog(r.t.Context(), r.conf, r.admin, kafka.TP{Topic: topic, Partition: p})
		r.must(err)
		out = append(out, recs...)
	}
	return out
}

// same compares what can be read of two topics; place says whether offsets count.
func (r *rides) same(what string, got, want []record.Record) {
	r.t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		r.t.Fatalf("%s: %d records, and %d from our own archive", what, len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		g.Topic, g.Offset = w.Topic, w.Offset // transactions end at other records
		if !record.Equal(&g, &w) {
			r.t.Fatalf("%s, record %d of %d:\n%+v\nfrom our own archive\n%+v", what, i, len(got), g, w)
		}
	}
}

// A processor makes the same of the sink's archive as of ours, in every output: timestamps come from a field, everything else that it reads is in the values.
func TestForeignArchiveGivesOurOutput(t *testing.T) {
	r := newRides(t)
	r.sink(true)
	foreign, ours := r.replayers()
	r.completed(foreign, `{"name":"foreign","target":"fares","promise":"recompute"}`)
	r.completed(ours, `{"name":"ours","target":"fares","promise":"recompute"}`)
	outputs := 0
	for role, spec := range sink.Outputs(r.pipe, nil) {
		got, want := r.read(spec.Name+".replay.foreign"), r.read(spec.Name+".replay.ours")
		if len(got) == 0 && len(want) == 0 {
			continue
		}
		r.same(role, got, want)
		outputs++
	}
	if outputs < 2 {
		t.Errorf("%d outputs have records: results and late ones are needed", outputs)
	}
}

// What is restored from the sink's archive is what is restored from ours.
func TestForeignArchiveIsRestored(t *testing.T) {
	r := newRides(t)
	r.sink(true)
	foreign, ours := r.replayers()
	for name, c := range map[string]*client.Client{"foreign": foreign, "ours": ours} {
		r.must(r.admin.CreateTopic(t.Context(), "rides-"+name, ridesPartitions, 1, map[string]string{"retention.ms": "-1"}))
		r.completed(c, fmt.Sprintf(`{"name":%q,"target":"back","topics":["rides"],"topicMapping":{"rides":"rides-%s"}}`, name, name))
	}
	got := r.read("rides-foreign")
	if len(got) != ridesPartitions*ridesEach {
		t.Fatalf("%d records", len(got))
	}
	r.same("restored", got, r.read("rides-ours"))
}

// Of an archive of values alone, values come back, byte for byte, and nothing else.
func TestForeignValuesAreRestored(t *testing.T) {
	r := newRides(t)
	r.sink(false)
	r.f.sets = append(r.f.sets, "connect.timestamp.field=")
	foreign, _ := r.replayers()
	r.must(r.admin.CreateTopic(t.Context(), "rides-foreign", ridesPartitions, 1, map[string]string{"retention.ms": "-1"}))
	r.completed(foreign, `{"name":"foreign","target":"back","topics":["rides"],"topicMapping":{"rides":"rides-foreign"}}`)
	var want []record.Record
	for p := range int32(ridesPartitions) {
		for _, rec := range r.records[record.TopicPartition{Topic: "rides", Partition: p}] {
			rec.Key, rec.Headers, rec.Timestamp = nil, nil, -1
			want = append(want, rec)
		}
	}
	r.same("restored", r.read("rides-foreign"), want)
}
