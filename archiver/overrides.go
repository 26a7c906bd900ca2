package archiver

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/store"
)

// perTopic are the settings that an override may give; they mean the same there.
var perTopic = []string{"flush.size", "segment.bytes", "rotate.interval.ms", "rotate.age.ms", "rotate.schedule.interval.ms", "codec"}

// overridesKey describes the setting overrides, keys being the archiver's others.
func overridesKey(keys []service.Key) service.Key {
	members := []service.Key{
		{Name: "topics", Kind: service.List, Doc: "topics by name"},
		{Name: "topics.regex", Check: checkRegex, Doc: "topics whose full name matches (RE2)"},
	}
	for _, k := range keys {
		if slices.Contains(perTopic, k.Name) {
			k.Default, k.Required = "", false
			members = append(members, k)
		}
	}
	members = append(members,
		service.Key{Name: "storage-class", Check: store.CheckStorageClass, Doc: "storage class of the segments"},
		service.Key{Name: "tags", Check: checkTags, Doc: "tags of the segments, name=value,name=value"})
	return service.Key{Name: "overrides", Kind: service.Entries, Members: members,
		Doc: "settings of some topics: a list of entries, each with topics and/or topics.regex, and of flush.size, segment.bytes, rotate.*, codec, storage-class, tags what is to differ; " +
			"the first entry that matches a topic holds for it"}
}

func checkTags(s string) error {
	if s == "" {
		return nil
	}
	_, err := store.ParseTags(s)
	return err
}

// Topic is what holds for one topic.
type Topic struct {
	Partition  partition.Config
	Schedule   time.Duration    // rotate.schedule.interval.ms; 0: off
	Attributes store.Attributes // of its segments, over those of the store's address
	Override   int              // number of the entry in overrides that holds, from 1; 0: none
}

// Override is an entry of overrides.
type Override struct {
	Names   []string
	Pattern *regexp.Regexp // of the full name; nil: none
	Topic   Topic
}

// Topic returns what holds for a topic: the first override that matches, else the general settings.
func (s Settings) Topic(name string) Topic {
	for _, o := range s.Overrides {
		if slices.Contains(o.Names, name) || o.Pattern != nil && o.Pattern.MatchString(name) {
			return o.Topic
		}
	}
	return Topic{Partition: s.Partition, Schedule: s.Schedule}
}

// readOverrides makes the overrides complete: what an entry does not give is as in general.
func (s *Settings) readOverrides(c *service.Config) error {
	for i, e := range c.Entries("overrides") {
		o := Override{Names: e.List("topics"), Pattern: fullMatch(e.String("topics.regex")), Topic: Topic{Partition: s.Partition, Schedule: s.Schedule, Override: i + 1}}
		t := &o.Topic
		ms := func(name string) time.Duration { return max(0, time.Duration(e.Int(name))*time.Millisecond) }
		for _, name := range perTopic {
			if !e.Given(name) {
				continue
			}
			switch name {
			case "flush.size":
				t.Partition.Rule.FlushSize = e.Int(name)
			case "segment.bytes":
				t.Partition.Rule.SegmentBytes = e.Int(name)
			case "rotate.interval.ms":
				t.Partition.Rule.RotateIntervalMs = max(0, e.Int(name))
			case "rotate.age.ms":
				t.Partition.RotateAge = ms(name)
			case "rotate.schedule.interval.ms":
				t.Schedule = ms(name)
			case "codec":
				t.Partition.Codec = e.String(name)
			default:
				return fmt.Errorf("overrides: %s is not read", name)
			}
		}
		t.Attributes.StorageClass = e.String("storage-class")
		var err error
		if text := e.String("tags"); text != "" {
			if t.Attributes.Tags, err = store.ParseTags(text); err != nil {
				return fmt.Errorf("overrides, entry %d: tags: %w", i+1, err)
			}
		}
		if len(o.Names) == 0 && o.Pattern == nil {
			return fmt.Errorf("overrides, entry %d: it matches no topic: set topics or topics.regex", i+1)
		}
		if err := checkFlushed(t.Partition, t.Schedule); err != nil {
			return fmt.Errorf("overrides, entry %d: %w", i+1, err)
		}
		s.Overrides = append(s.Overrides, o)
	}
	return nil
}

// checkFlushed demands that a clock ends segments: without one a partition that falls quiet would never be archived to its end.
func checkFlushed(p partition.Config, schedule time.Duration) error {
	if p.RotateAge == 0 && schedule == 0 {
		return errors.New("rotate.age.ms is off: a partition that falls quiet would never be archived to its end; set rotate.age.ms or rotate.schedule.interval.ms")
	}
	return nil
}

// TopicStatus shows what holds for a partition's topic. Times in ms, 0: off; sizes in bytes.
type TopicStatus struct {
	Override       int               `json:"override"` // number of the entry in overrides that holds, from 1; 0: none
	FlushSize      int64             `json:"flushSize"`
	SegmentBytes   int64             `json:"segmentBytes"`
	RotateInterval int64             `json:"rotateIntervalMs"`
	RotateAge      int64             `json:"rotateAgeMs"`
	RotateSchedule int64             `json:"rotateScheduleIntervalMs"`
	Codec          string            `json:"codec"`
	StorageClass   string            `json:"storageClass,omitempty"`
	Tags           map[string]string `json:"tags,omitempty"`
}

func (t Topic) status() TopicStatus {
	r := t.Partition.Rule
	return TopicStatus{Override: t.Override, FlushSize: r.FlushSize, SegmentBytes: r.SegmentBytes, RotateInterval: r.RotateIntervalMs,
		RotateAge: t.Partition.RotateAge.Milliseconds(), RotateSchedule: t.Schedule.Milliseconds(), Codec: t.Partition.Codec,
		StorageClass: t.Attributes.StorageClass, Tags: maps.Clone(t.Attributes.Tags)}
}
