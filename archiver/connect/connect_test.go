package connect

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func values(r *Result) map[string]string {
	out := map[string]string{}
	for _, s := range r.Settings {
		out[s.Name] = s.Value
	}
	return out
}

func TestConvert(t *testing.T) {
	for file, want := range map[string]map[string]string{
		"simple.json": {
			"topics": "trips,orders", "flush.size": "3", "group.id": "tapedeck-s3-sink",
			"store": "s3://confluent-kafka-connect-s3-testing/tapedeck?part-size=5242880&region=us-west-2",
		},
		"full.json": {
			"topics.regex": `^prod\.trips\..*`, "topics.dir": "raw/kafka", "flush.size": "50000", "rotate.interval.ms": "600000",
			"rotate.schedule.interval.ms": "3600000", "timezone": "Europe/Berlin", "codec": "snappy", "group.id": "tapedeck-lake.trips",
			"store":               "s3://lake/tapedeck?endpoint=http%3A%2F%2F127.0.0.1%3A9000&kms-key-id=alias%2Flake&path-style=true&region=eu-central-1&sse=aws%3Akms",
			"schema.registry.url": "http://registry:8081", "schema.registry.basic.auth.user.info": "archiver:secret",
			"isolation.level": "read_committed", "start": "latest", "consumer.override.max.partition.fetch.bytes": "2097152",
			"consumer.override.client.rack": "euc1-az1", "consumer.override.fetch.wait.max.ms": "250",
		},
	} {
		t.Run(file, func(t *testing.T) {
			r, err := Convert(read(t, file))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, values(r)); d != "" {
				t.Error(d)
			}
			// Nothing is passed over in silence: each key is taken over or has its line.
			cfg, name, err := parse(read(t, file))
			if err != nil {
				t.Fatal(err)
			}
			told := strings.Join(r.Notes, "\n")
			for _, s := range r.Settings {
				told += "\n" + s.From
			}
			for key, v := range cfg {
				if !strings.Contains(told, key) && key != "connector.class" && !defaults[key+"="+v] {
					t.Errorf("%s=%s is neither taken over nor noted", key, v)
				}
			}
			if !strings.Contains(told, "start=group:connect-") {
				t.Errorf("it is not told how to take over from %s:\n%s", name, told)
			}
			if strings.Contains(told, "secret") {
				t.Error("a secret is in the notes")
			}
		})
	}
}

// defaults are values that mean the same here without a word.
var defaults = map[string]bool{
	"storage.class=io.confluent.connect.s3.storage.S3Storage":                       true,
	"partitioner.class=io.confluent.connect.storage.partitioner.DefaultPartitioner": true,
	"format.class=io.confluent.connect.s3.format.avro.AvroFormat":                   true,
	"behavior.on.null.values=write":                                                 true,
	"value.converter.basic.auth.credentials.source=USER_INFO":                       true,
}

// Everything that cannot be honoured is said at once.
func TestRefused(t *testing.T) {
	_, err := Convert(read(t, "refused.json"))
	if err == nil {
		t.Fatal("taken")
	}
	for _, key := range []string{"format.class: ", "JsonFormat", "partitioner.class: ", "TimeBasedPartitioner", "behavior.on.null.values: ignore", "transforms: mask",
		"aws.secret.access.key: ${file:", "consumer.override.sasl.jaas.config: ", "flush.sise: not known"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%q is missing: %v", key, err)
		}
	}
	for _, key := range []string{"path.format", "timestamp.field", "locale"} {
		if strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s is refused for itself: %v", key, err)
		}
	}
	base := map[string]string{"connector.class": "io.confluent.connect.s3.S3SinkConnector", "topics": "a", "s3.bucket.name": "b", "flush.size": "1"}
	for key, value := range map[string]string{
		"connector.class": "io.confluent.connect.hdfs.HdfsSinkConnector", "s3.bucket.name": "", "topics": "", "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
		"avro.codec": "bzip2", "s3.sse.customer.key": "k", "directory.delim": "_", "file.delim": "-", "partition.field.name": "f", "topics.regex": "(?=x)",
		"consumer.override.ssl.truststore.location": "/x.jks", "consumer.override.fetch.mystery": "1", "s3.ssea.name": "AES128", "what": "1",
		"key.converter.basic.auth.credentials.source": "SASL_INHERIT",
	} {
		doc := map[string]string{}
		for k, v := range base {
			doc[k] = v
		}
		doc[key] = value
		if _, err := Convert(jsonOf(t, doc)); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s=%s: %v", key, value, err)
		}
	}
	if _, err := Convert(jsonOf(t, base)); err != nil {
		t.Error(err)
	}
}

func TestNotAConnector(t *testing.T) {
	for _, s := range []string{"", "topics: [a]\n", `{"topics": "a"}`, `{"flush": {"size": 5}}`, `[1]`, `{flush.size: 5}`} {
		if _, err := Convert([]byte(s)); !errors.Is(err, ErrNot) {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{`{"connector.class": "x"`, `{"connector.class": ["x"]}`, `{"connector.class": "x"} {}`} {
		if _, err := Convert([]byte(s)); err == nil || errors.Is(err, ErrNot) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzConvert(f *testing.F) {
	for _, name := range []string{"simple.json", "full.json", "refused.json"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := Convert(data); (r == nil) == (err == nil) {
			t.Fatalf("%v, %v", r, err)
		}
	})
}

func jsonOf(t *testing.T, m map[string]string) []byte {
	t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
