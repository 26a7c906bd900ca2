// Package connecttest writes archives in the layout of Confluent's S3 sink connector, for tests. docs/foreign-archives.md describes the layout.
package connecttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/store"
)

// Row is one record as the sink writes it.
type Row struct {
	Value   any
	Key     any
	Headers []record.Header
}

// Object is one object of values, with those of keys and headers.
type Object struct {
	Topic     string
	Partition int32
	Encoded   string // "partition=<Partition>" where empty
	Start     int64
	Width     int    // least number of digits of the start; 10, the sink's default, where 0
	Codec     string // null, deflate or snappy; null where empty
	Schema    string
	Rows      []Row

	KeyFormat, HeaderFormat string // extension, "" where none are stored: .avro, .json, .bin
	KeySchema               string // of KeyFormat .avro
	NoValues                bool   // as of tombstones
}

// headerSchema is what the sink makes of headers.
const headerSchema = `{"type":"array","items":{"type":"record","name":"ConnectDefault","namespace":"io.confluent.connect.avro","fields":[{"name":"key","type":"string"},{"name":"value","type":"string"}]}}`

// Name is the object's key without its extension.
func (o Object) Name() string {
	if o.Width == 0 {
		o.Width = 10
	}
	if o.Encoded == "" {
		o.Encoded = fmt.Sprintf("partition=%d", o.Partition)
	}
	return fmt.Sprintf("topics/%s/%s/%s+%d+%0*d", o.Topic, o.Encoded, o.Topic, o.Partition, o.Width, o.Start)
}

// Write puts the objects into st and returns the key of that of values.
func Write(t testing.TB, st store.Store, o Object) string {
	t.Helper()
	put := func(key string, data []byte) {
		if err := st.Create(context.Background(), key, data); err != nil {
			t.Fatalf("create %s: %v", key, err)
		}
	}
	var values, keys, headers []any
	for _, r := range o.Rows {
		values, keys, headers = append(values, r.Value), append(keys, r.Key), append(headers, headerList(r.Headers))
	}
	if !o.NoValues {
		put(o.Name()+".avro", Container(t, o.Schema, o.Codec, values))
	}
	switch o.KeyFormat {
	case "":
	case ".avro":
		put(o.Name()+".keys.avro", Container(t, o.KeySchema, o.Codec, keys))
	default:
		put(o.Name()+".keys"+o.KeyFormat, lines(t, o.KeyFormat == ".bin", keys))
	}
	switch o.HeaderFormat {
	case "":
	case ".avro":
		put(o.Name()+".headers.avro", Container(t, headerSchema, o.Codec, headers))
	default:
		for i, h := range headers {
			headers[i] = map[string]any{"headers": h}
		}
		put(o.Name()+".headers"+o.HeaderFormat, lines(t, false, headers))
	}
	return o.Name() + ".avro"
}

func headerList(headers []record.Header) any {
	list := []any{}
	for _, h := range headers {
		list = append(list, map[string]any{"key": h.Key, "value": string(h.Value)})
	}
	return list
}

// Container encodes an Avro Object Container File, in blocks of a few records.
func Container(t testing.TB, schema, codec string, data []any) []byte {
	t.Helper()
	s, err := avro.Parse(schema, avro.WithLaxNames(nil))
	if err != nil {
		t.Fatalf("schema %s: %v", schema, err)
	}
	opts := []ocf.WriterOpt{ocf.WithBlockCount(3), ocf.WithSchema(schema), ocf.WithSyncMarker([16]byte{1, 2, 3})}
	switch codec {
	case "", "null":
	case "deflate":
		opts = append(opts, ocf.WithCodec(ocf.DeflateCodec(6)))
	case "snappy":
		opts = append(opts, ocf.WithCodec(ocf.SnappyCodec()))
	case "zstandard":
		opts = append(opts, ocf.WithCodec(ocf.MustZstdCodec(nil, nil)))
	default:
		t.Fatalf("no codec %s", codec)
	}
	var buf bytes.Buffer
	w, err := ocf.NewWriter(&buf, s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range data {
		if err := w.Encode(v); err != nil {
			t.Fatalf("encode %v: %v", v, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// lines writes what the sink's JSON and byte formats do: a line for each.
func lines(t testing.TB, raw bool, data []any) []byte {
	t.Helper()
	var buf bytes.Buffer
	for _, v := range data {
		if raw {
			fmt.Fprintf(&buf, "%s\n", v)
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		buf.Write(append(b, '\n'))
	}
	return buf.Bytes()
}
