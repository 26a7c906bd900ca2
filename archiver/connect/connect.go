// Package connect reads the configuration of a Confluent S3 sink connector as the archiver's: what maps is taken over, what differs is noted,
// and what the archiver cannot do is refused. docs/archiver.md has the table. It is a pure function of the file.
package connect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Setting is one setting of the archiver.
type Setting struct {
	Name, Value string
	From        string // the connector's keys that it comes from
}

// Result is a connector's configuration in the archiver's words.
type Result struct {
	Name     string    // of the connector
	Settings []Setting // by name
	Notes    []string  // one line for every key that means something else here, or nothing
}

// ErrNot: the file is no connector's configuration.
var ErrNot = errors.New("this is no connector's configuration")

// Convert reads a connector's JSON, {"name": …, "config": {…}} as it is posted to Connect, or the flat map that Connect answers. ErrNot where it is
// something else. What cannot be honoured is one error that names every such key.
func Convert(data []byte) (*Result, error) {
	cfg, name, err := parse(data)
	if err != nil {
		return nil, err
	}
	c := &conversion{cfg: cfg, done: map[string]bool{}, out: map[string]Setting{}}
	c.run(name)
	if len(c.refused) > 0 {
		slices.Sort(c.refused)
		return nil, fmt.Errorf("the connector's configuration cannot be honoured: %s", strings.Join(c.refused, "; "))
	}
	r := &Result{Name: c.name, Notes: c.notes}
	for _, k := range slices.Sorted(maps.Keys(c.out)) {
		r.Settings = append(r.Settings, c.out[k])
	}
	return r, nil
}

// parse returns the connector's keys with their values as text.
func parse(data []byte) (map[string]string, string, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return nil, "", ErrNot
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var top map[string]any
	if err := d.Decode(&top); err != nil {
		if bytes.Contains(data, []byte(`"connector.class"`)) {
			return nil, "", fmt.Errorf("read the connector's configuration: %w", err)
		}
		return nil, "", ErrNot
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) && bytes.Contains(data, []byte(`"connector.class"`)) {
		return nil, "", errors.New("read the connector's configuration: there is something behind its end")
	}
	name, _ := top["name"].(string)
	if inner, ok := top["config"].(map[string]any); ok {
		top = inner
	}
	if _, ok := top["connector.class"]; !ok {
		return nil, "", ErrNot
	}
	cfg := make(map[string]string, len(top))
	for k, v := range top {
		switch v := v.(type) {
		case string:
			cfg[k] = strings.TrimSpace(v)
		case json.Number, bool:
			cfg[k] = fmt.Sprint(v)
		case nil:
		default:
			return nil, "", fmt.Errorf("read the connector's configuration: %s is neither text, number nor true or false", k)
		}
	}
	return cfg, name, nil
}

type conversion struct {
	cfg     map[string]string
	name    string
	done    map[string]bool
	out     map[string]Setting
	notes   []string
	refused []string
}

// take returns a key's value and marks it as dealt with.
func (c *conversion) take(key string) (string, bool) {
	v, ok := c.cfg[key]
	c.done[key] = true
	return v, ok
}

func (c *conversion) set(name, value string, from ...string) {
	c.out[name] = Setting{name, value, strings.Join(from, ", ")}
}

func (c *conversion) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

func (c *conversion) refuse(key, format string, args ...any) {
	c.refused = append(c.refused, key+": "+fmt.Sprintf(format, args...))
}

func (c *conversion) run(name string) {
	if v, ok := c.take("name"); ok {
		name = v
	}
	c.name = name
	for _, key := range slices.Sorted(maps.Keys(c.cfg)) {
		if v := c.cfg[key]; strings.Contains(v, "${") {
			c.done[key] = true
			c.refuse(key, "%s is filled in by Connect; write the value, or leave the key out and give the archiver's setting", placeholder.FindString(v))
		}
	}
	c.class()
	c.topics()
	c.rotation()
	c.store()
	c.format()
	c.registry()
	c.overrides()
	c.rest()
	c.seam()
}

var placeholder = regexp.MustCompile(`\$\{[^}]*\}?`)

func (c *conversion) class() {
	switch v, _ := c.take("connector.class"); v {
	case "io.confluent.connect.s3.S3SinkConnector", "S3SinkConnector", "S3Sink":
	default:
		c.refuse("connector.class", "%s is not Confluent's S3 sink", v)
	}
	if v, ok := c.take("tasks.max"); ok {
		c.note("tasks.max=%s: the tasks of a connector are spread over its workers; here tasks.max is of one process (1 by default), and more processes of the same group.id share the partitions", v)
	}
}

func (c *conversion) topics() {
	if v, ok := c.take("topics"); ok && v != "" {
		c.set("topics", v, "topics")
	}
	if v, ok := c.take("topics.regex"); ok && v != "" {
		if _, err := regexp.Compile(v); err != nil {
			c.refuse("topics.regex", "Java's expression is none of RE2: %v", err)
		}
		c.set("topics.regex", v, "topics.regex")
	}
	if c.cfg["topics"] == "" && c.cfg["topics.regex"] == "" {
		c.refuse("topics", "neither topics nor topics.regex is given")
	}
	if v, ok := c.take("topics.dir"); ok {
		c.set("topics.dir", v, "topics.dir")
	}
}

func (c *conversion) rotation() {
	for _, key := range []string{"flush.size", "rotate.interval.ms", "rotate.schedule.interval.ms", "timezone"} {
		if v, ok := c.take(key); ok && v != "" {
			c.set(key, v, key)
		}
	}
	if _, ok := c.cfg["rotate.interval.ms"]; ok && c.cfg["rotate.interval.ms"] != "-1" {
		c.note("rotate.interval.ms: counted in record timestamps of Kafka, whatever the connector's timestamp.extractor is")
	}
	c.note("rotate.age.ms has no counterpart in the sink: a segment is written after 60 s at the latest, also where flush.size is not reached; set it to change that")
}

// store makes the address. The archive is never beside the sink's objects: a prefix that holds others is refused at start.
func (c *conversion) store() {
	bucket, _ := c.take("s3.bucket.name")
	if bucket == "" {
		c.refuse("s3.bucket.name", "no bucket is given")
	}
	q := url.Values{}
	from := []string{"s3.bucket.name"}
	option := func(key, name string) (string, bool) {
		v, ok := c.take(key)
		if !ok || v == "" {
			return "", false
		}
		q.Set(name, v)
		from = append(from, key)
		return v, true
	}
	option("s3.region", "region")
	option("store.url", "endpoint")
	option("s3.path.style.access.enabled", "path-style")
	if q.Get("endpoint") != "" && q.Get("path-style") == "" {
		q.Set("path-style", "true") // the sink's default; AWS itself takes both
	}
	option("s3.acl.canned", "acl")
	option("s3.proxy.url", "proxy")
	option("s3.part.size", "part-size")
	option("s3.credentials.provider.sts.role.arn", "role-arn")
	option("s3.credentials.provider.sts.role.external.id", "external-id")
	if sse, ok := option("s3.ssea.name", "sse"); ok && sse != "AES256" && sse != "aws:kms" {
		c.refuse("s3.ssea.name", "%q is neither AES256 nor aws:kms", sse)
	}
	if id, ok := option("s3.sse.kms.key.id", "kms-key-id"); ok && c.cfg["s3.ssea.name"] != "aws:kms" {
		c.refuse("s3.sse.kms.key.id", "%s needs s3.ssea.name=aws:kms", id)
	}
	address := "s3://" + bucket + "/tapedeck"
	if len(q) > 0 {
		address += "?" + q.Encode()
	}
	c.set("store", address, from...)
	c.note("store: the archive goes below the prefix tapedeck of the bucket, never between the sink's objects; --set store=… to change that")
	for key, why := range map[string]string{
		"s3.sse.customer.key": "keys that the client gives (SSE-C) are not supported",
		"s3.proxy.user":       "give a proxy with its user by the environment (HTTPS_PROXY)",
	} {
		if v, ok := c.take(key); ok && v != "" {
			c.refuse(key, "%s", why)
		}
	}
	for _, key := range []string{"aws.access.key.id", "aws.secret.access.key"} {
		if _, ok := c.take(key); ok {
			c.note("%s: not taken over; give credentials by the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), a profile or a role", key)
		}
	}
	if v, ok := c.take("s3.object.tagging"); ok && v == "true" {
		c.note("s3.object.tagging: offsets and count are in every segment's header instead")
	}
}

func (c *conversion) format() {
	switch v, ok := c.take("format.class"); {
	case !ok || strings.HasSuffix(v, ".AvroFormat"):
		c.note("format.class: segments are Avro files of whole Kafka records, key, value and headers as bytes (the columns of Spark's Kafka source); the sink's files hold decoded values")
	default:
		c.refuse("format.class", "%s: the archive is Avro of whole records; convert what is archived instead", v)
	}
	switch v, ok := c.take("avro.codec"); {
	case !ok:
		c.note("avro.codec: zstandard, the archiver's default; the sink's is null. Set codec to change that")
	case slices.Contains([]string{"null", "deflate", "snappy", "zstandard"}, v):
		c.set("codec", v, "avro.codec")
	default:
		c.refuse("avro.codec", "%s: want null, deflate, snappy or zstandard", v)
	}
	if v, ok := c.take("storage.class"); ok && v != "io.confluent.connect.s3.storage.S3Storage" {
		c.refuse("storage.class", "%s is not the sink's S3 storage", v)
	}
	if v, ok := c.take("partitioner.class"); ok && !strings.HasSuffix(v, ".DefaultPartitioner") {
		c.refuse("partitioner.class", "%s: a segment holds offsets of one Kafka partition, and nothing else decides where a record goes", v)
	}
	if v, ok := c.take("partition.field.name"); ok && v != "" {
		c.refuse("partition.field.name", "%s: records are not placed by a field", v)
	}
	switch v, ok := c.take("behavior.on.null.values"); {
	case ok && v == "ignore":
		c.refuse("behavior.on.null.values", "ignore: the archive keeps every record, tombstones too; leave the key out to accept that")
	case !ok || v == "fail":
		c.note("behavior.on.null.values: tombstones are archived; the sink fails at them")
	}
	if v, ok := c.take("transforms"); ok && v != "" {
		c.refuse("transforms", "%s: the archive holds what Kafka holds; transform what is replayed", v)
	}
	for key, want := range map[string]string{"directory.delim": "/", "file.delim": "+"} {
		if v, ok := c.take(key); ok && v != want {
			c.refuse(key, "%q: names of segments are fixed, with %q", v, want)
		}
	}
	if v, ok := c.take("filename.offset.zero.pad.width"); ok && v != "20" {
		c.note("filename.offset.zero.pad.width=%s: offsets in names have 20 digits, so that names sort", v)
	}
	for _, key := range []string{"store.kafka.keys", "store.kafka.headers"} {
		if _, ok := c.take(key); ok {
			c.note("%s: keys and headers are always archived, in the same record", key)
		}
	}
}

// seam says how to take over from the running sink.
func (c *conversion) seam() {
	group := c.sinkGroup()
	if c.name != "" {
		c.set("group.id", "tapedeck-"+c.name, "name")
		c.note("group.id: a group of the archiver's own; the sink's group is %s", group)
	}
	c.note("to begin where the sink stands, stop it and add --set start=group:%s; without that everything that Kafka still holds is archived", group)
	if _, ok := c.out["bootstrap.servers"]; !ok {
		c.note("bootstrap.servers is the Connect worker's, not the connector's: give it with --set or in the environment")
	}
}

// sinkGroup is the consumer group that Connect makes for the connector.
func (c *conversion) sinkGroup() string {
	if g := c.cfg["consumer.override.group.id"]; g != "" {
		return g
	}
	if c.name == "" {
		return "connect-<name of the connector>"
	}
	return "connect-" + c.name
}
