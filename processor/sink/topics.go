// Package sink is where a pipeline's outputs go: which topics there are, whether an existing one is fit, and how a topic of
// ours is read back to its end.
package sink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/shared/kafka"
)

// Spec is a topic as the processor needs it.
type Spec struct {
	Name       string
	Partitions int32
	Compact    bool // cleanup.policy compact (progress of sessions); else delete, and kept for ever
	Grow       bool // an existing topic with fewer partitions is enlarged (side outputs follow their source)
	// MinMessage is what max.message.bytes of an existing topic must be at least; 0: not judged. See MinMessage.
	MinMessage int64
}

const (
	// MaxMessage is max.message.bytes of the topics that we create, and about the most that the producer sends. Outputs are larger
	// than the records they come from: a side output carries where it came from, a result holds its key twice and may escape each of
	// its bytes, and a source's own limit may have been met by compressed records.
	MaxMessage = 64 << 20
	// messageSlack is more than the headers that the engine adds to a side output.
	messageSlack = 64 << 10
	// kafkaMaxMessage is Kafka's default of max.message.bytes. The producer's batches of small records keep below it.
	kafkaMaxMessage = 1_048_588
)

// MinMessage is what max.message.bytes of the outputs must be at least, given that of the sources (none: unknown).
func MinMessage(sources ...int64) int64 {
	n := int64(kafkaMaxMessage)
	for _, s := range sources {
		n = max(n, s)
	}
	return min(n+messageSlack, MaxMessage)
}

// Config is what the topic is created with. Results carry event times, which may lie far in the past or the future of the
// broker's clock: retention by time would delete them, and the two limits reject them (after.max is one hour by default).
func (s Spec) Config() map[string]string {
	c := map[string]string{
		"cleanup.policy":                  "delete",
		"retention.ms":                    "-1",
		"retention.bytes":                 "-1",
		"max.message.bytes":               strconv.Itoa(MaxMessage),
		"message.timestamp.type":          "CreateTime",
		"message.timestamp.after.max.ms":  strconv.FormatInt(math.MaxInt64, 10),
		"message.timestamp.before.max.ms": strconv.FormatInt(math.MaxInt64, 10),
	}
	if s.Compact {
		c["cleanup.policy"] = "compact"
	}
	return c
}

// Check reports why an existing topic is not fit for s; nil where it is. Settings that the broker does not report are not
// judged. An unfit topic is never changed: it is the user's.
func (s Spec) Check(t kafka.Topic, config map[string]string) error {
	var why []string
	if t.Partitions != s.Partitions && !(s.Grow && t.Partitions < s.Partitions) {
		why = append(why, fmt.Sprintf("it has %d partitions, not %d", t.Partitions, s.Partitions))
	}
	if v := config["message.timestamp.type"]; v == "LogAppendTime" {
		why = append(why, "message.timestamp.type is LogAppendTime, which replaces our timestamps")
	}
	policy, known := config["cleanup.policy"]
	compacts, deletes := strings.Contains(policy, "compact"), strings.Contains(policy, "delete")
	switch {
	case !known || policy == "":
	case s.Compact && (!compacts || deletes):
		why = append(why, fmt.Sprintf("cleanup.policy is %s, not compact", policy))
	case !s.Compact && compacts:
		why = append(why, fmt.Sprintf("cleanup.policy is %s, which removes records that have the same key", policy))
	}
	if !s.Compact {
		for _, key := range []string{"retention.ms", "retention.bytes"} {
			if v, ok := config[key]; ok && v != "-1" {
				why = append(why, fmt.Sprintf("%s is %s: Kafka would delete outputs (want -1)", key, v))
			}
		}
	}
	for _, key := range []string{"message.timestamp.after.max.ms", "message.timestamp.before.max.ms"} {
		if v, ok := config[key]; ok {
			if n, err := strconv.ParseInt(v, 10, 64); err == nil && n != math.MaxInt64 {
				why = append(why, fmt.Sprintf("%s is %s: the broker would reject results by their event time (want %d)", key, v, int64(math.MaxInt64)))
			}
		}
	}
	if v, ok := config["max.message.bytes"]; ok {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n < s.MinMessage {
			why = append(why, fmt.Sprintf("max.message.bytes is %s: the broker would refuse outputs that are larger than their source records (want %d or more)", v, s.MinMessage))
		}
	}
	if len(why) == 0 {
		return nil
	}
	return &UnfitError{Topic: s.Name, Why: why}
}

// UnfitError says why an existing topic cannot be used.
type UnfitError struct {
	Topic string
	Why   []string
}

func (e *UnfitError) Error() string {
	return fmt.Sprintf("topic %s exists but is not fit: %s; delete it, change it, or choose another name", e.Topic, strings.Join(e.Why, "; "))
}

// Ensure creates the topics that are missing and checks those that exist. It returns them by name. Several processes may do this
// at once. replication ≤ 0 means the broker's default.
func Ensure(ctx context.Context, admin *kafka.Admin, specs []Spec, replication int) (map[string]kafka.Topic, error) {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	there, err := admin.Topics(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe topics %s: %w", strings.Join(names, ", "), err)
	}
	created := false
	for _, s := range specs {
		t, ok := there[s.Name]
		if !ok {
			created = true
			err := admin.CreateTopic(ctx, s.Name, s.Partitions, replication, s.Config())
			if err == nil {
				continue
			}
			if !errors.Is(err, kafka.ErrExists) {
				return nil, fmt.Errorf("create topic %s: %w", s.Name, err)
			}
			again, err := admin.Topics(ctx, s.Name) // another process was faster
			if err != nil {
				return nil, fmt.Errorf("describe topic %s: %w", s.Name, err)
			}
			if t, ok = again[s.Name]; !ok {
				return nil, fmt.Errorf("describe topic %s: %w", s.Name, kafka.ErrNotFound)
			}
		}
		config, err := admin.TopicConfig(ctx, s.Name)
		if err != nil {
			return nil, fmt.Errorf("read configuration of topic %s: %w", s.Name, err)
		}
		if err := s.Check(t, config); err != nil {
			return nil, err
		}
		if t.Partitions < s.Partitions {
			created = true
			if err := admin.CreatePartitions(ctx, s.Name, s.Partitions); err != nil {
				return nil, fmt.Errorf("enlarge topic %s to %d partitions: %w", s.Name, s.Partitions, err)
			}
		}
	}
	if created {
		if there, err = admin.Topics(ctx, names...); err != nil {
			return nil, fmt.Errorf("describe topics %s: %w", strings.Join(names, ", "), err)
		}
		for _, n := range names {
			if _, ok := there[n]; !ok {
				return nil, fmt.Errorf("describe topic %s after its creation: %w", n, kafka.ErrNotFound)
			}
		}
	}
	return there, nil
}
