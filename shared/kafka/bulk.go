//go:build linux && cgo

package kafka

// #include <stdlib.h>
// #include "bulk.h"
import "C"

import (
	"encoding/binary"
	"reflect"
	"unsafe"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"tapedeck.dev/tapedeck/shared/record"
)

// bulk polls the consumer's queue of librdkafka for many events in one call. The Go client's Poll calls C four times for each record and
// makes six allocations for it; that is most of what fetching costs. docs/decisions.md says why this way.
//
// It reads the two handles of the Go client, queue and client, by the names of their fields. Where they are not there, or not what they
// were, newBulk returns nil and the client's own Poll is used. Events other than records are few and are handed on as the client's own.
//
// A batch is handled to its end before anything else is done with the consumer, so nothing of it can become stale but by what
// handling it does itself (see Consumer.message).
type bulk struct {
	rk, queue unsafe.Pointer
	msgs      []C.tapedeck_msg
	mem       []byte // rest of the memory that records' bytes are copied to; never written twice
}

const (
	bulkMessages = 1000
	bulkMemory   = 256 << 10 // bytes of one piece of memory, shared by the records of a batch or two
)

func newBulk(c *kafka.Consumer) *bulk {
	if C.tapedeck_usable() == 0 {
		return nil
	}
	pointer := func(field string) unsafe.Pointer {
		h := reflect.ValueOf(c).Elem().FieldByName("handle")
		if h.Kind() != reflect.Struct {
			return nil
		}
		if f := h.FieldByName(field); f.IsValid() && f.Kind() == reflect.Pointer {
			return f.UnsafePointer()
		}
		return nil
	}
	b := &bulk{rk: pointer("rk"), queue: pointer("rkq"), msgs: make([]C.tapedeck_msg, bulkMessages)}
	if b.rk == nil || b.queue == nil {
		return nil
	}
	return b
}

// bulkMessage is one record, or one error of a partition, as polled.
type bulkMessage struct {
	topic string
	rec   record.Record // without its topic
	err   error
}

// poll waits up to waitMs for events and hands them over in order; it reports whether there was one.
func (b *bulk) poll(waitMs int, message func(*bulkMessage), other func(kafka.Event)) bool {
	if len(b.mem) < bulkMemory/4 {
		b.mem = make([]byte, bulkMemory)
	}
	var got C.tapedeck_batch
	C.tapedeck_fetch(b.queue, C.int(waitMs), &got, &b.msgs[0], C.int(len(b.msgs)), (*C.char)(unsafe.Pointer(&b.mem[0])), C.size_t(len(b.mem)))
	var large C.tapedeck_msg
	var largeMem []byte
	if got.large != nil {
		largeMem = make([]byte, max(int(got.large_size), 1))
		C.tapedeck_take_large(&got, &large, (*C.char)(unsafe.Pointer(&largeMem[0])))
	}
	mem := b.mem
	if got.n > 0 {
		b.mem = b.mem[b.msgs[got.n-1].end:]
	}
	var m bulkMessage
	for i := range int(got.n) {
		m.read(&b.msgs[i], mem)
		message(&m)
	}
	switch {
	case largeMem != nil:
		m.read(&large, largeMem)
		message(&m)
	case got.event != nil:
		ev := b.event(got.event, got._type)
		if ev != nil {
			other(ev)
		}
		C.tapedeck_event_free(got.event)
	case got.n == 0:
		return false
	}
	return true
}

func (m *bulkMessage) read(c *C.tapedeck_msg, mem []byte) {
	at := int64(c.at)
	take := func(n int64) []byte {
		if n < 0 {
			return nil
		}
		b := mem[at : at+n : at+n]
		at += n
		return b
	}
	if c.name_len >= 0 {
		m.topic = string(take(int64(c.name_len)))
	}
	r := &m.rec
	*r = record.Record{Partition: int32(c.partition), Offset: int64(c.offset), Timestamp: -1, LeaderEpoch: record.NoEpoch}
	r.Key, r.Value = take(int64(c.key_len)), take(int64(c.value_len))
	if c.ts != -1 {
		switch kafka.TimestampType(c.ts_type) {
		case kafka.TimestampCreateTime:
			r.Timestamp = int64(c.ts)
		case kafka.TimestampLogAppendTime:
			r.Timestamp, r.TimestampType = int64(c.ts), record.LogAppendTime
		}
	}
	if c.epoch >= 0 {
		r.LeaderEpoch = int32(c.epoch)
	}
	if c.headers > 0 {
		r.Headers = make([]record.Header, c.headers)
		for i := range r.Headers {
			lens := take(8)
			key := take(int64(int32(binary.NativeEndian.Uint32(lens))))
			r.Headers[i] = record.Header{Key: string(key), Value: take(int64(int32(binary.NativeEndian.Uint32(lens[4:]))))}
		}
	}
	m.err = nil
	if c.err != 0 {
		m.err = kafka.NewError(kafka.ErrorCode(c.err), "", false)
	}
}

// event makes the Go client's event of one that is no record; nil for those that nobody waits for.
func (b *bulk) event(ev unsafe.Pointer, kind C.int) kafka.Event {
	switch kind {
	case C.TAPEDECK_REBALANCE:
		list := C.tapedeck_event_list(ev)
		var ps []kafka.TopicPartition
		if list != nil {
			for _, p := range unsafe.Slice(list.elems, int(list.cnt)) {
				ps = append(ps, bulkPart(&p))
			}
		}
		if kafka.ErrorCode(C.tapedeck_event_code(ev)) == kafka.ErrAssignPartitions {
			return kafka.AssignedPartitions{Partitions: ps}
		}
		return kafka.RevokedPartitions{Partitions: ps}
	case C.TAPEDECK_ERROR:
		if kafka.ErrorCode(C.tapedeck_event_code(ev)) == kafka.ErrPartitionEOF {
			p := C.tapedeck_event_part(ev)
			if p == nil {
				return nil
			}
			defer C.tapedeck_part_free(p)
			return kafka.PartitionEOF(bulkPart(p))
		}
		var code, fatal C.int
		text := (*[512]C.char)(C.calloc(512, 1))
		defer C.free(unsafe.Pointer(text))
		C.tapedeck_error(b.rk, ev, &code, &fatal, &text[0], 512)
		return kafka.NewError(kafka.ErrorCode(code), C.GoString(&text[0]), fatal != 0)
	case C.TAPEDECK_TOKEN_REFRESH:
		return kafka.OAuthBearerTokenRefresh{Config: C.GoString(C.tapedeck_event_config(ev))}
	}
	return nil
}

func bulkPart(p *C.tapedeck_part) kafka.TopicPartition {
	topic := C.GoString(p.topic)
	out := kafka.TopicPartition{Topic: &topic, Partition: int32(p.partition), Offset: kafka.Offset(p.offset)}
	if p.err != 0 {
		out.Error = kafka.NewError(kafka.ErrorCode(p.err), "", false)
	}
	return out
}
