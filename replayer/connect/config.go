// Package connect reads archives that Confluent's S3 sink connector wrote in Avro, and gives them out as ordinary segments: planned as our own archive
// is, one object after the other, converted when it is read. docs/foreign-archives.md describes the layout, its sources, and what it does not keep.
package connect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"tapedeck.dev/tapedeck/shared/segment"
)

// Encoding says what bytes a key or a value is given again. The sink stores what its converter made of them, so the ones in Kafka are not kept.
type Encoding string

// Encodings.
const (
	// Auto: strings and bytes as they are; anything else as Registry.
	Auto Encoding = "auto"
	// Registry: the registry's wire format, under the id of that version of the subject whose schema encodes the same; an error where there is none.
	Registry Encoding = "registry"
	// Register: as Registry, and a schema that the subject lacks is registered under it.
	Register Encoding = "register"
	// Plain: Avro without the wire format's prefix.
	Plain Encoding = "avro"
	// JSON: as JSON text.
	JSON Encoding = "json"
	// Raw: strings and bytes as they are; an error for anything else.
	Raw Encoding = "raw"
)

// Encodings lists them, for settings.
var Encodings = []string{string(Auto), string(Registry), string(Register), string(Plain), string(JSON), string(Raw)}

// What to do with tombstones, which the sink stores apart from the values, without their places among them.
const (
	RefuseTombstones = "refuse"
	IgnoreTombstones = "ignore"
)

// Schemas is a schema registry.
type Schemas interface {
	// Versions are the schemas of a subject by version, ascending; none where there is no such subject.
	Versions(ctx context.Context, subject string) ([]segment.Schema, error)
	// Register registers a schema under a subject and returns its id.
	Register(ctx context.Context, subject, text, typ string) (int, error)
}

// Config of a Source.
type Config struct {
	TopicsDir string // the sink's topics.dir
	FileDelim string // the sink's file.delim; "+" where empty

	Values, Keys Encoding // Registry and Auto where empty
	// ValueSubject and KeySubject name the subject; {topic} and {record} (the full name of the record's schema) are filled in.
	// "{topic}-value" and "{topic}-key" where empty.
	ValueSubject, KeySubject string
	// TimestampField is a field of the value that holds the record's timestamp: a name, or names with dots between them. Its type: a timestamp, a
	// long or int in milliseconds, or a string in RFC 3339. Empty: records have none (−1).
	TimestampField string
	Tombstones     string // RefuseTombstones where empty

	Schemas Schemas // needed by Registry and Register
}

func (c Config) withDefaults() Config {
	set := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	set(&c.FileDelim, defaultFileDelim)
	set((*string)(&c.Values), string(Registry))
	set((*string)(&c.Keys), string(Auto))
	set(&c.ValueSubject, "{topic}-value")
	set(&c.KeySubject, "{topic}-key")
	set(&c.Tombstones, RefuseTombstones)
	return c
}

// Check says what is wrong with a configuration. settings are named as the replayer names them.
func (c Config) Check() error {
	c = c.withDefaults()
	if err := checkDelim(c.FileDelim); err != nil {
		return fmt.Errorf("connect.file.delim %w", err)
	}
	for _, e := range []struct {
		setting string
		value   Encoding
	}{{"connect.values", c.Values}, {"connect.keys", c.Keys}} {
		if !slices.Contains(Encodings, string(e.value)) {
			return fmt.Errorf("%s %q: give one of %s", e.setting, e.value, strings.Join(Encodings, ", "))
		}
		if c.Schemas == nil && (e.value == Registry || e.value == Register) {
			return fmt.Errorf("%s is %s, and no registry is given: set schema.registry.url, or %s to avro, json or raw", e.setting, e.value, e.setting)
		}
	}
	if c.Tombstones != RefuseTombstones && c.Tombstones != IgnoreTombstones {
		return fmt.Errorf("connect.tombstones %q: give refuse or ignore", c.Tombstones)
	}
	for _, name := range strings.Split(c.TimestampField, ".") {
		if name == "" && c.TimestampField != "" {
			return fmt.Errorf("connect.timestamp.field %q: give a field's name, or names with single dots between them", c.TimestampField)
		}
	}
	return nil
}

// identity stands for what decides about the bytes that are made of an object. It takes the place of the topic id, which the sink does not keep: a
// job that was planned under other settings is refused, not carried on with other bytes.
func (c Config) identity() string {
	h := sha256.New()
	for _, s := range []string{string(c.Values), string(c.Keys), c.ValueSubject, c.KeySubject, c.TimestampField, c.Tombstones} {
		fmt.Fprintf(h, "%d:%s,", len(s), s)
	}
	return "connect-" + hex.EncodeToString(h.Sum(nil)[:8])
}
