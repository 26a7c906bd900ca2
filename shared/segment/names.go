package segment

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	suffix       = ".avro"
	startDigits  = 20  // of the start in a name: names sort as their starts do
	maxTopicName = 249 // Kafka's limit
)

// Name is the key of a segment: <topicsDir>/<topic>/partition=<p>/<topic>+<p>+<start, 20 digits>.avro.
//
// Topic is a Kafka topic name, or that of a later incarnation of the topic, <topic>~<n> with n ≥ 2.
type Name struct {
	TopicsDir string // e.g. "topics"; may hold slashes, never empty, no leading or trailing slash
	Topic     string
	Partition int32 // ≥ 0
	Start     int64 // ≥ 0
}

// Format returns the key. ParseName accepts it where the fields are within their bounds.
func (n Name) Format() string {
	return PartitionPrefix(n.TopicsDir, n.Topic, n.Partition) +
		fmt.Sprintf("%s+%d+%0*d%s", n.Topic, n.Partition, startDigits, n.Start, suffix)
}

// PartitionPrefix returns "<topicsDir>/<topic>/partition=<p>/", which begins the key of each segment of the partition and
// no other segment's.
func PartitionPrefix(topicsDir, topic string, partition int32) string {
	return topicsDir + "/" + topic + "/partition=" + strconv.Itoa(int(partition)) + "/"
}

// ParseName is the inverse of Format; any other key is an error.
func ParseName(topicsDir, key string) (Name, error) {
	n, err := parseName(topicsDir, key)
	if err != nil {
		return Name{}, fmt.Errorf("parse segment name %q: %w", key, err)
	}
	return n, nil
}

func parseName(topicsDir, key string) (Name, error) {
	if !validDir(topicsDir) {
		return Name{}, fmt.Errorf("topics directory %q is empty or begins or ends with a slash", topicsDir)
	}
	rest, ok := strings.CutPrefix(key, topicsDir+"/")
	if !ok {
		return Name{}, fmt.Errorf("not below %q", topicsDir+"/")
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 {
		return Name{}, errors.New("want <topic>/partition=<p>/<file>")
	}
	topic, file := parts[0], parts[2]
	if !ValidTopic(topic) {
		return Name{}, fmt.Errorf("%q is not a topic name", topic)
	}
	digits, ok := strings.CutPrefix(parts[1], "partition=")
	if !ok {
		return Name{}, fmt.Errorf("%q is not partition=<p>", parts[1])
	}
	p, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		return Name{}, fmt.Errorf("partition %q: %w", digits, err)
	}
	at := len(file) - len(suffix) - startDigits
	if at < 0 {
		return Name{}, fmt.Errorf("file name %q is too short", file)
	}
	start, err := strconv.ParseUint(file[at:at+startDigits], 10, 64)
	if err != nil || start > math.MaxInt64 {
		return Name{}, fmt.Errorf("start %q is not an offset", file[at:at+startDigits])
	}
	n := Name{TopicsDir: topicsDir, Topic: topic, Partition: int32(p), Start: int64(start)}
	// Only one spelling of a name is a name: leading zeros, signs and another topic or partition in the file name are caught here.
	if want := n.Format(); want != key {
		return Name{}, fmt.Errorf("want %q", want)
	}
	return n, nil
}

func validDir(dir string) bool {
	return dir != "" && !strings.HasPrefix(dir, "/") && !strings.HasSuffix(dir, "/")
}

// ValidTopic reports whether s can stand as the topic of a Name: a legal Kafka topic name (1 to 249 of [a-zA-Z0-9._-], not "." or ".."),
// or one followed by "~" and an incarnation number ≥ 2 without leading zeros.
func ValidTopic(s string) bool {
	if base, number, ok := strings.Cut(s, "~"); ok {
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil || n < 2 || strconv.FormatUint(n, 10) != number {
			return false
		}
		s = base
	}
	if s == "" || s == "." || s == ".." || len(s) > maxTopicName {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// Incarnation returns the name under which the n-th log that was seen under a Kafka topic's name is archived: the topic's own for the first,
// <topic>~<n> for n ≥ 2. No topic in Kafka has a "~" in its name.
func Incarnation(topic string, n int) string {
	if n <= 1 {
		return topic
	}
	return topic + "~" + strconv.Itoa(n)
}

// SplitTopic is the inverse of Incarnation, for a name that ValidTopic accepts.
func SplitTopic(name string) (topic string, n int) {
	base, number, ok := strings.Cut(name, "~")
	if n, err := strconv.Atoi(number); ok && err == nil {
		return base, n
	}
	return name, 1
}
