package connect

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Part of the records that an object holds: the sink writes values, keys and headers to objects of their own.
type Part string

// Parts, as they stand in a name before the extension.
const (
	Values  Part = ""
	Keys    Part = ".keys"
	Headers Part = ".headers"
)

// defaultFileDelim is the sink's file.delim.
const defaultFileDelim = "+"

// Name is the key of an object of the sink:
//
//	<topics.dir>/<topic>/<encoded partition>/<topic><delim><partition><delim><start><part><extension>
//
// The encoded partition is what the sink's partitioner says: "partition=0", or "year=2026/month=05/day=01/hour=13", of any depth; the sink's
// own is never empty, and an empty one is read too. (Sources: docs/foreign-archives.md.)
type Name struct {
	TopicsDir string // may hold slashes, never empty, no leading or trailing slash
	Delim     string // file.delim; never empty, without slash or digit
	record.TopicPartition
	Encoded string // with slashes, without one at either end
	Start   int64  // ≥ 0, offset of the first record
	Width   int    // filename.offset.zero.pad.width, ≥ 1: the least number of digits of the start
	Part    Part
	Ext     string // ".avro", ".json", ".json.gz", ".bin", ".parquet", …
}

// Format returns the key.
func (n Name) Format() string {
	dir := n.TopicsDir + "/" + n.Topic + "/"
	if n.Encoded != "" {
		dir += n.Encoded + "/"
	}
	return fmt.Sprintf("%s%s%s%d%s%0*d%s%s", dir, n.Topic, n.Delim, n.Partition, n.Delim, n.Width, n.Start, n.Part, n.Ext)
}

// ParseName is the inverse of Format; any other key is an error. Width is the number of digits where the start has leading zeros, else 1.
func ParseName(topicsDir, delim, key string) (Name, error) {
	n, err := parseName(topicsDir, delim, key)
	if err != nil {
		return Name{}, fmt.Errorf("parse name %q: %w", key, err)
	}
	return n, nil
}

func parseName(topicsDir, delim, key string) (Name, error) {
	rest, ok := strings.CutPrefix(key, topicsDir+"/")
	if !ok {
		return Name{}, fmt.Errorf("not below %q", topicsDir+"/")
	}
	topic, rest, ok := strings.Cut(rest, "/")
	if !ok {
		return Name{}, errors.New("not below a topic's folder")
	}
	if !kafkaTopic(topic) {
		return Name{}, fmt.Errorf("%q is not a topic's name", topic)
	}
	n := Name{TopicsDir: topicsDir, Delim: delim, Width: 1, TopicPartition: record.TopicPartition{Topic: topic}}
	file := rest
	if at := strings.LastIndexByte(rest, '/'); at == 0 {
		return Name{}, errors.New("a path element is empty")
	} else if at > 0 {
		n.Encoded, file = rest[:at], rest[at+1:]
	}
	place, ok := strings.CutPrefix(file, topic+delim)
	if !ok {
		return Name{}, fmt.Errorf("the file's name does not begin with %q", topic+delim)
	}
	digits, place, ok := strings.Cut(place, delim)
	p, err := strconv.ParseUint(digits, 10, 31)
	if !ok || err != nil || strconv.FormatUint(p, 10) != digits {
		return Name{}, fmt.Errorf("%q is not a partition's number", digits)
	}
	n.Partition = int32(p)
	end := 0
	for end < len(place) && place[end] >= '0' && place[end] <= '9' {
		end++
	}
	start, err := strconv.ParseUint(place[:end], 10, 64)
	if err != nil || start > math.MaxInt64 {
		return Name{}, fmt.Errorf("%q does not begin with an offset", place)
	}
	n.Start = int64(start)
	if end > 1 && place[0] == '0' {
		n.Width = end
	}
	n.Ext = place[end:]
	for _, part := range []Part{Keys, Headers} {
		if ext, ok := strings.CutPrefix(n.Ext, string(part)); ok && strings.HasPrefix(ext, ".") {
			n.Part, n.Ext = part, ext
			break
		}
	}
	if len(n.Ext) < 2 || n.Ext[0] != '.' {
		return Name{}, fmt.Errorf("%q is not an extension", n.Ext)
	}
	return n, nil
}

// kafkaTopic reports whether a topic in Kafka can have this name.
func kafkaTopic(s string) bool { return segment.ValidTopic(s) && !strings.Contains(s, "~") }

// checkDelim reports whether names with this file.delim can be read back.
func checkDelim(d string) error {
	if d == "" || strings.ContainsAny(d, "/") || strings.ContainsAny(d, "0123456789") {
		return fmt.Errorf("%q: give the sink's file.delim, which has neither slash nor digit", d)
	}
	return nil
}

// base is what the objects of one range have in common, whatever their part and format.
func (n Name) base() string {
	n.Part, n.Ext = Values, ""
	return n.Format()
}
