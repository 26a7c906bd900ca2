package connect

import (
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

func TestNames(t *testing.T) {
	tp := func(topic string, p int32) record.TopicPartition {
		return record.TopicPartition{Topic: topic, Partition: p}
	}
	for key, want := range map[string]Name{
		"topics/trips/partition=0/trips+0+0000000000.avro":        {Encoded: "partition=0", TopicPartition: tp("trips", 0), Width: 10, Ext: ".avro"},
		"topics/trips/partition=11/trips+11+1234567890.avro":      {Encoded: "partition=11", TopicPartition: tp("trips", 11), Start: 1234567890, Width: 1, Ext: ".avro"},
		"topics/trips/partition=0/trips+0+42.avro":                {Encoded: "partition=0", TopicPartition: tp("trips", 0), Start: 42, Width: 1, Ext: ".avro"},
		"topics/trips/partition=0/trips+0+0.avro":                 {Encoded: "partition=0", TopicPartition: tp("trips", 0), Width: 1, Ext: ".avro"},
		"topics/a.b_c-d/year=2026/month=05/a.b_c-d+3+007.avro":    {Encoded: "year=2026/month=05", TopicPartition: tp("a.b_c-d", 3), Start: 7, Width: 3, Ext: ".avro"},
		"topics/trips/partition=0/trips+0+0000000042.keys.avro":   {Encoded: "partition=0", TopicPartition: tp("trips", 0), Start: 42, Width: 10, Part: Keys, Ext: ".avro"},
		"topics/trips/partition=0/trips+0+42.headers.json.gz":     {Encoded: "partition=0", TopicPartition: tp("trips", 0), Start: 42, Width: 1, Part: Headers, Ext: ".json.gz"},
		"topics/trips/tombstone/trips+0+0000000005.keys.bin":      {Encoded: "tombstone", TopicPartition: tp("trips", 0), Start: 5, Width: 10, Part: Keys, Ext: ".bin"},
		"topics/trips/trips+0+5.snappy.parquet":                   {TopicPartition: tp("trips", 0), Start: 5, Width: 1, Ext: ".snappy.parquet"},
		"topics/trips.keys/partition=0/trips.keys+0+5.keys.avro":  {Encoded: "partition=0", TopicPartition: tp("trips.keys", 0), Start: 5, Width: 1, Part: Keys, Ext: ".avro"},
		"topics/t/field=a+1/t+0+9223372036854775807.avro":         {Encoded: "field=a+1", TopicPartition: tp("t", 0), Start: 9223372036854775807, Width: 1, Ext: ".avro"},
		"topics/t/partition=0/t+0+00000000000000000000.avro":      {Encoded: "partition=0", TopicPartition: tp("t", 0), Width: 20, Ext: ".avro"},
		"topics/trips/partition=0/trips+0+0000000042.keysy.avro":  {Encoded: "partition=0", TopicPartition: tp("trips", 0), Start: 42, Width: 10, Ext: ".keysy.avro"},
		"topics/trips/partition=0/trips+0+0000000042.headers":     {Encoded: "partition=0", TopicPartition: tp("trips", 0), Start: 42, Width: 10, Ext: ".headers"},
		"topics/topics/partition=0/topics+2147483647+1.avro":      {Encoded: "partition=0", TopicPartition: tp("topics", 2147483647), Start: 1, Width: 1, Ext: ".avro"},
		"topics/trips/a/b/c/d/e/partition=0/trips+0+1.avro":       {Encoded: "a/b/c/d/e/partition=0", TopicPartition: tp("trips", 0), Start: 1, Width: 1, Ext: ".avro"},
		"topics/trips/city=New York/trips+0+0000000001.keys.json": {Encoded: "city=New York", TopicPartition: tp("trips", 0), Start: 1, Width: 10, Part: Keys, Ext: ".json"},
	} {
		want.TopicsDir, want.Delim = "topics", "+"
		got, err := ParseName("topics", "+", key)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", key, got, err, want)
		}
		if back := got.Format(); back != key {
			t.Errorf("%s is formatted as %s", key, back)
		}
	}
	for _, key := range []string{
		"", "topics", "topics/", "topics/trips", "topics/trips/partition=0/", "other/trips/partition=0/trips+0+0.avro",
		"topics/trips/partition=0/other+0+0.avro", "topics/trips/partition=0/trips-0-0.avro", "topics/trips/partition=0/trips+00+0.avro",
		"topics/trips/partition=0/trips+-1+0.avro", "topics/trips/partition=0/trips+0+-1.avro", "topics/trips/partition=0/trips+0+.avro",
		"topics/trips/partition=0/trips+0+5", "topics/trips/partition=0/trips+0+5.", "topics/trips/partition=0/trips+0+5avro",
		"topics/trips/partition=0/trips+0+9223372036854775808.avro", "topics/trips/partition=0/trips+2147483648+0.avro",
		"topics/tr+ips/partition=0/tr+ips+0+0.avro", "topics/trips~2/partition=0/trips~2+0+0.avro", "topics/../partition=0/..+0+0.avro",
		"topics/trips/partition=0/trips+0+5+6.avro", "topics/trips/_SUCCESS",
	} {
		if n, err := ParseName("topics", "+", key); err == nil {
			t.Errorf("%q is read as %+v", key, n)
		} else if !strings.Contains(err.Error(), "parse name") {
			t.Errorf("%q: %v", key, err)
		}
	}
	n, err := ParseName("a/b", "__", "a/b/my_topic/partition=0/my_topic__0__0000000007.avro")
	if err != nil || n.Start != 7 || n.Format() != "a/b/my_topic/partition=0/my_topic__0__0000000007.avro" {
		t.Errorf("with another delimiter: %+v, %v", n, err)
	}
}

func FuzzName(f *testing.F) {
	f.Add("topics/trips/partition=0/trips+0+0000000042.keys.avro", "+")
	f.Add("topics/a.b/year=2026/a.b+1+7.headers.json.gz", "+")
	f.Add("topics/a_b/x/a_b__1__7.avro", "__")
	f.Fuzz(func(t *testing.T, key, delim string) {
		if checkDelim(delim) != nil {
			return
		}
		n, err := ParseName("topics", delim, key)
		if err != nil {
			return
		}
		if back := n.Format(); back != key {
			t.Fatalf("%q is read as %+v and formatted as %q", key, n, back)
		}
		if again, err := ParseName("topics", delim, n.Format()); err != nil || again != n {
			t.Fatalf("%+v comes back as %+v, %v", n, again, err)
		}
	})
}
