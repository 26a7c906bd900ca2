package archiver

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/store"
)

func load(t *testing.T, sets ...string) (Settings, error) {
	t.Helper()
	c, err := service.Load(Keys(), "", append([]string{"bootstrap.servers=x", "store=file:///x", "topics.regex=.*"}, sets...), nil)
	if err != nil {
		return Settings{}, err
	}
	return ReadSettings(c)
}

func TestTheFirstOverrideThatMatchesHolds(t *testing.T) {
	s, err := load(t, "flush.size=500", "rotate.age.ms=7000", `overrides=[
		{topics: [audit, trips], flush.size: 10, segment.bytes: 1MiB, storage-class: STANDARD_IA, tags: "team=data,cost=low"},
		{topics.regex: "log-.*|audit", rotate.interval.ms: 5000, rotate.age.ms: -1, rotate.schedule.interval.ms: 60000, codec: snappy},
		{topics: "x", topics.regex: "y+", codec: "null"},
	]`)
	if err != nil {
		t.Fatal(err)
	}
	general := TopicStatus{FlushSize: 500, SegmentBytes: 64 << 20, RotateAge: 7000, Codec: "zstandard"}
	with := func(f func(*TopicStatus)) TopicStatus { g := general; f(&g); return g }
	first := with(func(r *TopicStatus) {
		r.Override, r.FlushSize, r.SegmentBytes, r.StorageClass = 1, 10, 1<<20, "STANDARD_IA"
		r.Tags = map[string]string{"team": "data", "cost": "low"}
	})
	second := with(func(r *TopicStatus) {
		r.Override, r.RotateInterval, r.RotateAge, r.RotateSchedule, r.Codec = 2, 5000, 0, 60000, "snappy"
	})
	third := with(func(r *TopicStatus) { r.Override, r.Codec = 3, "null" })
	for topic, want := range map[string]TopicStatus{
		"audit": first, "trips": first, "trips2": general, "log-a": second, "my-log-a": general, "x": third, "yyy": third, "xy": general, "log-": second,
	} {
		if d := cmp.Diff(want, s.Topic(topic).status()); d != "" {
			t.Errorf("%s: %s", topic, d)
		}
	}
}

// What is wrong in an override is refused at start, with its place.
func TestOverridesThatAreRefused(t *testing.T) {
	for in, want := range map[string]string{
		`[{topics: a, flush.sise: 1}]`:                       `entry 1: unknown setting "flush.sise" (--set:1); did you mean "flush.size"?`,
		`[{topics: a}, {topics: b, flush.size: 0}]`:          `entry 2: setting "flush.size"`,
		`[{topics: a, codec: gzip}]`:                         `want one of zstandard`,
		`[{topics.regex: "("}]`:                              `RE2`,
		`[{flush.size: 3}]`:                                  `matches no topic`,
		`[{topics: a, rotate.age.ms: -1}]`:                   `entry 1: rotate.age.ms is off`,
		`[{topics: a, storage-class: DEEP_ARCHIVE}]`:         `cannot be read`,
		`[{topics: a, tags: nonsense}]`:                      `name=value`,
		`[{topics: a, memory.max.bytes: 1}]`:                 `unknown setting "memory.max.bytes"`,
		`[{topics: a, segment.bytes: many}]`:                 `want a number of bytes`,
		`[{topics: a, flush.size: 1}, {topics: b}, nothing]`: `entry 3`,
	} {
		if _, err := load(t, "overrides="+in); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "overrides") {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

// Two topics of one process are cut, compressed and scheduled each by its own settings.
func TestOverridesHoldForTheirTopics(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, name := range []string{"big", "small", "timed"} {
		e.topic(name, 1)
		e.fill(name, 0, 0, 20)
	}
	s := e.settings("big", "small", "timed")
	s.Partition.Rule.FlushSize = 10
	small, timed := Topic{Partition: s.Partition, Override: 1}, Topic{Partition: s.Partition, Override: 2, Schedule: 300 * time.Millisecond}
	small.Partition.Rule.FlushSize, small.Partition.Codec = 4, "snappy"
	small.Attributes = store.Attributes{StorageClass: "STANDARD_IA", Tags: map[string]string{"topic": "small"}}
	timed.Partition.Rule.FlushSize = 100
	s.Overrides = []Override{{Names: []string{"small"}, Topic: small}, {Pattern: fullMatch("t.*"), Topic: timed}}
	r := e.start(s)
	for _, name := range []string{"big", "small", "timed"} {
		e.awaitArchived(name, 0, 20)
	}
	if d := cmp.Diff([]int64{0, 10}, e.starts("big", 0)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int64{0, 4, 8, 12, 16}, e.starts("small", 0)); d != "" {
		t.Error(d)
	}
	if c := e.headers("small", 0)[0].Codec; c != "snappy" {
		t.Errorf("codec %s", c)
	}
	for name, want := range map[string]store.Attributes{"small": small.Attributes, "big": {}} {
		if d := cmp.Diff(want, e.store.Attributes(e.objects(name, 0)[0])); d != "" {
			t.Errorf("attributes of %s: %s", name, d)
		}
	}
	e.await("the status names the override", func() bool {
		st := r.state("timed", 0)
		return st != nil && st.Settings.Override == 2 && st.Settings.RotateSchedule == 300
	})
	r.end()
	e.checkClean()
}
