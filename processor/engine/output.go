package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/value"
	"tapedeck.dev/tapedeck/shared/murmur2"
	"tapedeck.dev/tapedeck/shared/record"
)

// Names of the headers that the engine writes. Their values are text.
const (
	HeaderID          = "tapedeck-id"      // results: 32 hex digits, the same for the same result in every run
	HeaderDrained     = "tapedeck-drained" // results: "true" where the window was closed by Drain, before its time
	HeaderTopic       = "tapedeck-source-topic"
	HeaderPartition   = "tapedeck-source-partition"
	HeaderOffset      = "tapedeck-source-offset"
	HeaderTimestamp   = "tapedeck-source-timestamp"
	HeaderReason      = "tapedeck-reason"
	HeaderEventTime   = "tapedeck-event-time"   // late, future: ms
	HeaderWindowStart = "tapedeck-window-start" // late: ms
	HeaderWindowEnd   = "tapedeck-window-end"   // late: ms, exclusive
	HeaderWatermark   = "tapedeck-watermark"    // late: w_p that the window's end did not exceed, ms
)

// SideTopic is the topic of a kind of side output. It is one for the whole pipeline and its partitions are those of the source: with several
// sources, records of partition p of each would share one partition, in an order that depends on how they were read. Whoever lets a
// pipeline have several sources must first give each source side topics of its own.
func SideTopic(p *pipeline.Pipeline, k Kind) string {
	if k == Result {
		return p.Output.Topic
	}
	return p.Output.Topic + "." + k.String()
}

// shape holds the constant pieces of keys and values.
type shape struct {
	keys [][]byte // `"user_id":` of each group key, with a comma before all but the first
	aggs [][]byte // `,"sum_price":` of each aggregate
}

func newShape(p *pipeline.Pipeline) shape {
	var s shape
	for i, g := range p.GroupBy {
		b := value.AppendString(nil, g.Name)
		if i > 0 {
			b = append([]byte{','}, b...)
		}
		s.keys = append(s.keys, append(b, ':'))
	}
	for _, a := range p.Aggregates {
		s.aggs = append(s.aggs, append(value.AppendString([]byte{','}, a.Name), ':'))
	}
	return s
}

// result is the record of one group of a closed window of sh.
func (e *Engine) result(sh *shard, w *window, g *group) Output {
	start := w.end - e.p.Window.SizeMs
	key := []byte(g.key)
	partition := int32(0)
	if e.p.Keyed {
		partition = sh.parts[0].tp.Partition
	} else {
		partition = murmur2.Partition(key, e.p.Output.Partitions)
	}
	headers := []record.Header{{Key: HeaderID, Value: e.id(w.end, start, partition, key)}}
	if w.drained {
		headers = append(headers, record.Header{Key: HeaderDrained, Value: []byte("true")})
	}
	return Output{Kind: Result, Record: record.Record{Topic: e.p.Output.Topic, Partition: partition,
		Timestamp: max(w.end-1, 1), Key: key, Value: e.value(g, start, w.end), Headers: headers, LeaderEpoch: record.NoEpoch}}
}

// size is about what the output takes in memory and in a transaction, bytes.
func (o *Output) size() int64 {
	n := 100 + len(o.Record.Key) + len(o.Record.Value)
	for _, h := range o.Record.Headers {
		n += 40 + len(h.Key) + len(h.Value)
	}
	return int64(n)
}

// value is the JSON object of one result: window, key fields, aggregates, in the pipeline's order. An aggregate whose exact result does not
// fit is null, and the object's last member says which.
func (e *Engine) value(g *group, start, end int64) []byte {
	b := make([]byte, 0, 96+len(g.key)+24*len(g.accs))
	b = append(b, `{"window_start":`...)
	b = strconv.AppendInt(b, start, 10)
	b = append(b, `,"window_end":`...)
	b = strconv.AppendInt(b, end, 10)
	if inner := g.key[1 : len(g.key)-1]; inner != "" {
		b = append(append(b, ','), inner...)
	}
	failed := ""
	for i := range g.accs {
		b = append(b, e.shape.aggs[i]...)
		a := &e.p.Aggregates[i]
		v, err := a.Func.Result(&g.accs[i])
		if err != nil {
			if failed != "" {
				failed += "; "
			}
			failed += a.Name + ": " + err.Error()
		}
		b, _ = v.AppendJSON(b) // aggregates are scalars
	}
	if failed != "" {
		b = append(b, `,"error":`...)
		b = value.AppendString(b, failed)
	}
	return append(b, '}')
}

// id identifies one result: 16 bytes of SHA-256 over pipeline name, window, output partition and key.
func (e *Engine) id(end, start int64, partition int32, key []byte) []byte {
	b := make([]byte, 0, 128)
	b = append(b, e.p.Name...)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(end))
	b = binary.BigEndian.AppendUint64(b, uint64(start))
	b = binary.BigEndian.AppendUint32(b, uint32(partition))
	b = append(b, key...)
	sum := sha256.Sum256(b)
	return hex.AppendEncode(nil, sum[:16])
}

func (e *Engine) poison(p *partition, r *record.Record, reason string) {
	e.aside(Poison, p, r, reason)
}

func (e *Engine) future(p *partition, r *record.Record, t int64) {
	e.aside(Future, p, r, "future", number(HeaderEventTime, t))
}

func (e *Engine) lateRecord(p *partition, r *record.Record, t, end int64) {
	e.aside(Late, p, r, "late", number(HeaderEventTime, t), number(HeaderWindowStart, end-e.p.Window.SizeMs),
		number(HeaderWindowEnd, end), number(HeaderWatermark, p.watermark()))
}

// aside puts the record into a side output: as it is, with where it came from and why. Reasons are fixed words of ours, never a library's
// message, because they are output bytes.
func (e *Engine) aside(k Kind, p *partition, r *record.Record, reason string, more ...record.Header) {
	if r.Offset < p.handedOut {
		return
	}
	headers := make([]record.Header, 0, len(r.Headers)+5+len(more))
	for _, h := range r.Headers {
		// Kafka allows a zero byte in a header's key; clients in C, as ours, end the key there.
		h.Key = strings.ReplaceAll(h.Key, "\x00", `\0`)
		headers = append(headers, h)
	}
	headers = append(headers, record.Header{Key: HeaderTopic, Value: []byte(p.tp.Topic)}, number(HeaderPartition, int64(p.tp.Partition)),
		number(HeaderOffset, r.Offset), number(HeaderTimestamp, r.Timestamp), record.Header{Key: HeaderReason, Value: []byte(reason)})
	headers = append(headers, more...)
	o := Output{Kind: k, Record: record.Record{Topic: SideTopic(e.p, k), Partition: p.tp.Partition,
		Timestamp: min(max(r.Timestamp, 1), MaxTime), Key: r.Key, Value: r.Value, Headers: headers, LeaderEpoch: record.NoEpoch}}
	p.side = append(p.side, o)
	e.stats.SideBytes += o.size()
}

func number(key string, n int64) record.Header {
	return record.Header{Key: key, Value: strconv.AppendInt(nil, n, 10)}
}
