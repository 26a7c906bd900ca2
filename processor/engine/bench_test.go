package engine

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"testing"

	"github.com/twmb/avro"

	"tapedeck.dev/tapedeck/processor/value"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

const tripSchema = `{"type":"record","name":"Trip","fields":[
	{"name":"trip_id","type":"string"},
	{"name":"user_id","type":"long"},
	{"name":"pickup_ms","type":{"type":"long","logicalType":"timestamp-millis"}},
	{"name":"price","type":"double"},
	{"name":"tip","type":["null","double"],"default":null},
	{"name":"zone","type":"string"}]}`

const tripPipeline = `
name: fares
sources:
  - topic: trips
    format: avro
    schema: |
      ` + tripSchemaLine + `
    eventTime: {field: pickup_ms, unit: ms}
    delay: 10s
    %s
groupBy: [user_id]
window: {tumbling: {size: 10s}}
aggregates: {sum_price: sum(price), trips: count(), max_price: max(price)}
output: {topic: fares, partitions: 4}
`

const tripSchemaLine = `{"type":"record","name":"Trip","fields":[{"name":"user_id","type":"long"},{"name":"pickup_ms","type":"long"},{"name":"price","type":"double"},{"name":"tip","type":["null","double"],"default":null},{"name":"zone","type":"string"}]}`

// oneSchema answers every id with the same writer schema.
type oneSchema string

func (s oneSchema) Writer(TP, int64, int) (segment.Schema, bool, error) {
	return segment.Schema{ID: 1, Type: "AVRO", Text: string(s)}, true, nil
}

func wire(t testing.TB, s *avro.Schema, id int, v any) []byte {
	t.Helper()
	b, err := s.AppendEncode(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// trips makes n records for 4 partitions: 1,000 users, 1,000 records a second of event time, up to 8 s out of order.
func trips(t testing.TB, n int) [4][]record.Record {
	s := avro.MustParse(tripSchema)
	r := rand.New(rand.NewSource(1))
	var logs [4][]record.Record
	for i := range n {
		p := i % 4
		at := int64(i) - int64(r.Intn(8000)) + 1_700_000_000_000
		logs[p] = append(logs[p], record.Record{Topic: "trips", Partition: int32(p), Offset: int64(len(logs[p])), Timestamp: at,
			Value: wire(t, s, 1, map[string]any{"trip_id": fmt.Sprintf("trip-%08d", i), "user_id": int64(r.Intn(1000)), "pickup_ms": at,
				"price": float64(r.Intn(10000)) / 100, "tip": nil, "zone": "Lenox Hill West"})})
	}
	return logs
}

const benchRecords = 200_000

func benchmark(b *testing.B, extra string, swap func(e *Engine)) {
	const n = benchRecords
	logs := trips(b, n)
	p := mustParse(b, fmt.Sprintf(tripPipeline, extra))
	b.ReportAllocs()
	results := 0
	for b.Loop() {
		e, err := New(p, oneSchema(tripSchema), nil)
		if err != nil {
			b.Fatal(err)
		}
		if swap != nil {
			swap(e)
		}
		for i := range logs {
			e.AddPartition(TP{Topic: "trips", Partition: int32(i)}, fresh())
		}
		for at := 0; at < n/4; at += 500 {
			for i, log := range logs {
				if _, err := e.Feed(TP{Topic: "trips", Partition: int32(i)}, log[at:at+500]); err != nil {
					b.Fatal(err)
				}
			}
			results += len(e.Take())
		}
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(results)/float64(b.N), "results/op")
}

func BenchmarkAvro(b *testing.B) { benchmark(b, "", nil) }

func BenchmarkAvroWithExpression(b *testing.B) { benchmark(b, `where: price > 1 && zone != ""`, nil) }

// noDecode gives rows made before, to measure the rest.
type noDecode struct{ rows map[int32][][]value.Value }

func (d noDecode) decode(_ Schemas, _ TP, r *record.Record, row []value.Value) (string, error) {
	copy(row, d.rows[r.Partition][r.Offset])
	return "", nil
}

func BenchmarkWindowsWithoutDecode(b *testing.B) {
	d := noDecode{map[int32][][]value.Value{}}
	e, err := New(mustParse(b, fmt.Sprintf(tripPipeline, "")), oneSchema(tripSchema), nil)
	if err != nil {
		b.Fatal(err)
	}
	s := e.sources["trips"]
	for p, log := range trips(b, benchRecords) {
		for i := range log {
			if reason, err := s.decoder.decode(oneSchema(tripSchema), log[i].TP(), &log[i], s.row); reason != "" || err != nil {
				b.Fatal(reason, err)
			}
			d.rows[int32(p)] = append(d.rows[int32(p)], append([]value.Value(nil), s.row...))
		}
	}
	benchmark(b, "", func(e *Engine) { e.sources["trips"].decoder = d })
}
