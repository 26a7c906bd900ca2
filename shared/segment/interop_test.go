package segment_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/twmb/avro/ocf"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// ocfRecord is a record as another Avro reader sees it.
type ocfRecord struct {
	Key           *[]byte     `avro:"key"`
	Value         *[]byte     `avro:"value"`
	Topic         string      `avro:"topic"`
	Partition     int32       `avro:"partition"`
	Offset        int64       `avro:"offset"`
	Timestamp     int64       `avro:"timestamp"`
	TimestampType int32       `avro:"timestampType"`
	Headers       []ocfHeader `avro:"headers"`
}

type ocfHeader struct {
	Key   string  `avro:"key"`
	Value *[]byte `avro:"value"`
}

func (o *ocfRecord) record() record.Record {
	bytes := func(p *[]byte) []byte {
		if p == nil {
			return nil
		}
		return append([]byte{}, *p...)
	}
	r := record.Record{
		Topic: o.Topic, Partition: o.Partition, Offset: o.Offset, Timestamp: o.Timestamp,
		TimestampType: record.TimestampType(o.TimestampType), Key: bytes(o.Key), Value: bytes(o.Value),
	}
	for _, h := range o.Headers {
		r.Headers = append(r.Headers, record.Header{Key: h.Key, Value: bytes(h.Value)})
	}
	return r
}

// TestAnotherReader: a reader written by others, from the Avro specification, sees the same records and metadata.
func TestAnotherReader(t *testing.T) {
	id, recs := shapes()
	for i := range recs { // Avro strings are UTF-8; Kafka's header keys need not be
		for j := range recs[i].Headers {
			recs[i].Headers[j].Key = strings.ToValidUTF8(recs[i].Headers[j].Key, "?")
		}
	}
	schemas := []segment.Schema{{ID: 5, Type: "AVRO", Text: strings.Repeat("x", 3<<20)}}
	for _, codec := range codecNames {
		data, h := write(t, id, 0, int64(len(recs)), codec, segment.First(), recs, schemas...)
		r, err := ocf.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", codec, err)
		}
		var got []record.Record
		for {
			var x ocfRecord
			if err := r.Decode(&x); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: record %d: %v", codec, len(got), err)
			}
			got = append(got, x.record())
		}
		wantRecords(t, got, recs)
		meta := r.Metadata()
		if string(meta["tapedeck.topic"]) != id.Topic || string(meta["tapedeck.format"]) != "1" || string(meta["avro.codec"]) != h.Codec {
			t.Errorf("%s: metadata %q", codec, meta["tapedeck.topic"])
		}
	}
	empty, _ := write(t, id, 0, 5, "", segment.First(), nil)
	r, err := ocf.NewReader(bytes.NewReader(empty))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Decode(new(ocfRecord)); !errors.Is(err, io.EOF) {
		t.Errorf("empty segment: %v", err)
	}
}
