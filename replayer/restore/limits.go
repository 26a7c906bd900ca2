package restore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/archive"
)

// facts are what the plan says of a topic's records.
type facts struct {
	min, max int64 // timestamps, ms; −1 where there are no records with one
	bytes    int64 // largest sum over a partition, of objects in the archive
}

func factsOf(parts []archive.PartitionPlan) facts {
	f := facts{min: -1, max: -1}
	for i := range parts {
		var bytes int64
		for _, s := range parts[i].Segments {
			if s.Count == 0 || s.Outside {
				continue
			}
			bytes += s.Bytes
			low, high := s.MinTimestamp, s.MaxTimestamp
			if t := parts[i].FromTimestamp; t >= 0 {
				low = max(low, t)
			}
			if t := parts[i].UntilTimestamp; t >= 0 {
				high = min(high, t-1)
			}
			if low >= 0 && (f.min < 0 || low < f.min) {
				f.min = low
			}
			f.max = max(f.max, high)
		}
		f.bytes = max(f.bytes, bytes)
	}
	return f
}

// limits are a topic's settings that may reject, delete or change records. −1: no limit.
type limits struct {
	before, after  int64 // ms that a timestamp may lie before and after the broker's clock
	beforeBy       string
	afterBy        string
	appendTime     bool
	deletes        bool // cleanup.policy has delete
	compacts       bool
	retention      int64 // ms
	retentionBytes int64
	message        int64 // bytes
}

func limitsOf(config map[string]string) limits {
	number := func(key string) int64 {
		n, err := strconv.ParseInt(config[key], 10, 64)
		if err != nil || n < 0 || n >= 1<<62 {
			return -1
		}
		return n
	}
	policy := config["cleanup.policy"]
	l := limits{before: number("message.timestamp.before.max.ms"), beforeBy: "message.timestamp.before.max.ms",
		after: number("message.timestamp.after.max.ms"), afterBy: "message.timestamp.after.max.ms",
		appendTime: config["message.timestamp.type"] == "LogAppendTime",
		deletes:    policy == "" || strings.Contains(policy, "delete"), compacts: strings.Contains(policy, "compact"),
		retention: number("retention.ms"), retentionBytes: number("retention.bytes"), message: number("max.message.bytes")}
	// Brokers before 4.0 have one setting for both directions; it holds where it is narrower.
	if d := number("message.timestamp.difference.max.ms"); d >= 0 {
		if l.before < 0 || d < l.before {
			l.before, l.beforeBy = d, "message.timestamp.difference.max.ms"
		}
		if l.after < 0 || d < l.after {
			l.after, l.afterBy = d, "message.timestamp.difference.max.ms"
		}
	}
	return l
}

// finding is what is wrong with one setting, and the value with which it would not be.
type finding struct {
	setting, better, text string
	warn                  bool // it may be meant so
}

// find holds records against limits.
func (l limits) find(f facts, now time.Time) []finding {
	var out []finding
	say := func(warn bool, setting, better, format string, args ...any) {
		out = append(out, finding{setting, better, fmt.Sprintf(format, args...), warn})
	}
	ms := now.UnixMilli()
	if l.appendTime {
		say(false, "message.timestamp.type", "CreateTime", "message.timestamp.type is LogAppendTime, which would give every record the time of the restore")
	}
	if !l.appendTime && l.before >= 0 && f.min >= 0 && ms-f.min > l.before {
		say(false, l.beforeBy, strconv.FormatInt(1<<63-1, 10), "%s is %d, and the oldest record is %d ms old, so it would be rejected", l.beforeBy, l.before, ms-f.min)
	}
	if !l.appendTime && l.after >= 0 && f.max >= 0 && f.max-ms > l.after {
		say(false, l.afterBy, strconv.FormatInt(1<<63-1, 10), "%s is %d, and the newest record's timestamp lies %d ms in the future, so it would be rejected", l.afterBy, l.after, f.max-ms)
	}
	if l.deletes && l.retention >= 0 && f.min >= 0 && ms-f.min > l.retention {
		say(false, "retention.ms", "-1", "retention.ms is %d, and the oldest record is %d ms old, so restored records would be deleted", l.retention, ms-f.min)
	}
	if l.deletes && l.retentionBytes >= 0 && f.bytes > l.retentionBytes {
		say(false, "retention.bytes", "-1", "retention.bytes is %d, and a partition's records have %d bytes even compressed, so restored records would be deleted", l.retentionBytes, f.bytes)
	} else if l.deletes && l.retentionBytes >= 0 {
		say(true, "retention.bytes", "-1", "retention.bytes is %d: what a partition holds beyond is deleted, the oldest first", l.retentionBytes)
	}
	if l.compacts {
		say(true, "cleanup.policy", "delete", "cleanup.policy is %s: the target will compact what is restored", "compact")
	}
	return out
}

// checkLimits finds what the target would reject, delete or change, before the first record. A topic that is there must be changed by its owner; one that
// the job creates gets settings with which its records stay, and the plan says so.
func checkLimits(t *job.KafkaTopic, parts []archive.PartitionPlan, infos map[string]archive.TopicInfo, cl *cluster, now time.Time) (warnings []string, err error) {
	config := t.Config
	if !t.Create {
		config = cl.configs[t.Name]
	}
	l := limitsOf(config)
	var bad []string
	for _, f := range l.find(factsOf(parts), now) {
		switch {
		case f.warn:
			warnings = append(warnings, fmt.Sprintf("topic %s: %s", t.Name, f.text))
		case t.Create:
			t.Config[f.setting] = f.better
			warnings = append(warnings, fmt.Sprintf("topic %s is created with %s=%s, not as archived: the archived %s", t.Name, f.setting, f.better, f.text))
		default:
			bad = append(bad, fmt.Sprintf("%s (set %s=%s)", f.text, f.setting, f.better))
		}
	}
	if len(bad) > 0 {
		return nil, run.Failf("topic %s of the target would not keep the records: %s. Change the topic's configuration (kafka-configs --alter --entity-type topics --entity-name %s), and start again",
			t.Name, strings.Join(bad, "; "), t.Name)
	}
	if info, ok := infos[t.Source]; !t.Create && l.message >= 0 {
		was := int64(defaultMaxMessage)
		if n := limitsOf(info.Config).message; ok && n >= 0 {
			was = n
		}
		if l.message < was {
			warnings = append(warnings, fmt.Sprintf("topic %s: max.message.bytes is %d at the target, and %d where the records come from: a larger record would be refused, and the job FAILED there",
				t.Name, l.message, was))
		}
	}
	return warnings, nil
}

// defaultMaxMessage is Kafka's default of max.message.bytes.
const defaultMaxMessage = 1048588
