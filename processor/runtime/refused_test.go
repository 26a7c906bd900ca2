package runtime_test

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/processor/live"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/sink"
	"tapedeck.dev/tapedeck/shared/record"
)

// anyTime is fares without a bound on the future.
func anyTime(t testing.TB, topic string) *pipeline.Pipeline {
	name := unique("fares")
	return parse(t, fmt.Sprintf("name: %s\nsources: [{topic: %s, format: json, eventTime: {field: t, unit: ms}, delay: 2s}]\ngroupBy: [user]\n"+
		"window: {tumbling: {size: 1s}}\naggregates: {total: sum(price), n: count()}\noutput: {topic: %s-out, partitions: 3}\n", name, topic, name))
}

func trip(topic string, timestamp, at int64, pad int) record.Record {
	return record.Record{Topic: topic, Timestamp: timestamp, Value: fmt.Appendf(nil, `{"t":%d,"user":"u","price":1,"pad":%q}`, at, strings.Repeat("x", pad))}
}

// untilReadOnce waits for the positions; a run that began again was stopped by a record.
func (e *env) untilReadOnce(p *pipeline.Pipeline, r *run) {
	e.t.Helper()
	ends := e.ends(p.Source[0].Topic)
	e.until("positions at the log end", func() bool {
		st := r.Status()
		if st.Restarts > 0 || st.State == live.Failed {
			e.t.Fatalf("%s, %d restarts: %s", st.State, st.Restarts, st.Error)
		}
		for _, s := range st.Partitions {
			if s.Position < ends[s.TopicPartition] {
				return false
			}
		}
		return len(st.Partitions) == len(ends)
	})
}

// No clock of a producer stops the pipeline.
func TestLiveTakesAnyTime(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := anyTime(t, topic)
	e.topic(topic, 1)
	r := e.start(p)
	const last = math.MaxInt64 / 1_000_000
	e.produce(trip(topic, base, base*1000, 0), trip(topic, last, base, 0), trip(topic, 1, -base*1000, 0), trip(topic, base, base+10_000, 0),
		trip(topic, last, base, 0), trip(topic, base, last-2000, 0), trip(topic, base, last, 0), trip(topic, base, math.MaxInt64, 0))
	e.untilReadOnce(p, r)
	got := e.outputs(p, "")
	if len(got["results"]) != 2 || len(got["late"]) != 1 || len(got["poison"]) != 4 {
		t.Errorf("%v", got)
	}
	if d := diff(e.oracle(p), got); d != "" {
		t.Error(d)
	}
}

// A side output is larger than its record, which may be as large as its topic allows.
func TestLiveTakesTheLargestRecords(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"of a default topic": 1_048_588, "of a larger topic": 3 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			topic := unique("trips")
			p := anyTime(t, topic)
			if err := e.admin.CreateTopic(e.ctx(), topic, 1, 0, map[string]string{"max.message.bytes": fmt.Sprint(limit)}); err != nil {
				t.Fatal(err)
			}
			r := e.start(p)
			e.produce(trip(topic, base, base+100_000, 0), trip(topic, base, base, limit-200))
			e.untilReadOnce(p, r)
			if late := e.read(p.Output.Topic + ".late")[0]; len(late) != 1 || len(late[0].Value) < limit-200 {
				t.Errorf("%d late records", len(late))
			}
		})
	}
}

// An output topic that somebody made too small is found before a record needs it.
func TestLiveRefusesOutputsThatAreTooSmall(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := anyTime(t, topic)
	e.topic(topic, 1)
	config := maps.Clone(sink.Spec{}.Config())
	config["max.message.bytes"] = "1048588"
	if err := e.admin.CreateTopic(e.ctx(), p.Output.Topic+".late", 1, 0, config); err != nil {
		t.Fatal(err)
	}
	e.untilFailed(e.start(p), p.Output.Topic+".late", "max.message.bytes is 1048588")
}

// What the client or the broker refuses for good leaves the pipeline FAILED, and the message names the record. Nothing of that transaction is visible.
func TestLiveFailsOnARefusedRecord(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		broker *kerr.Error // what it answers to the large batch; nil: the client's own limit is lower
		want   string
	}{
		{"too large for the client", nil, "too large"},
		{"too large for the broker", kerr.MessageTooLarge, "too large"},
		{"too large for a log segment", kerr.RecordListTooLarge, "larger than"},
		{"a timestamp that the broker does not take", kerr.InvalidTimestamp, "timestamp"},
		{"a record that the broker does not take", kerr.InvalidRecord, "validate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, fake := newFake(t)
			topic := unique("trips")
			p := anyTime(t, topic)
			e.topic(topic, 1)
			e.produce(trip(topic, base, base+100_000, 0), trip(topic, base, base, 10), trip(topic, base, base, 50_000), trip(topic, base, base, 20))
			var limit map[string]string
			if c.broker == nil {
				limit = map[string]string{"message.max.bytes": "20000", "batch.size": "10000"}
			} else {
				fake.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
					fake.KeepControl()
					req := kreq.(*kmsg.ProduceRequest)
					resp := req.ResponseKind().(*kmsg.ProduceResponse)
					found := false
					for _, rt := range req.Topics {
						st := kmsg.NewProduceResponseTopic()
						st.Topic, st.TopicID = rt.Topic, rt.TopicID
						for _, rp := range rt.Partitions {
							sp := kmsg.NewProduceResponseTopicPartition()
							sp.Partition, sp.ErrorCode = rp.Partition, c.broker.Code
							st.Partitions = append(st.Partitions, sp)
							found = found || len(rp.Records) > 40_000
						}
						resp.Topics = append(resp.Topics, st)
					}
					if !found {
						return nil, nil, false
					}
					return resp, nil, true
				})
			}
			r := e.start(p, func(cfg *live.Config) { cfg.Producer.Overrides = limit })
			e.untilFailed(r, "late record of "+topic+"-0@2 ", c.want, p.Output.Topic+".late-0")
			if n := r.Status().Restarts; n > 0 {
				t.Errorf("%d restarts before it was seen", n)
			}
			if late := e.lines(p.Output.Topic + ".late"); len(late) != 0 {
				t.Errorf("late: %v", late)
			}
		})
	}
}
