package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"tapedeck.dev/tapedeck/shared/service"
)

// targets are the types of target that a flag is for.
type targets int

const (
	intoProcessor targets = 1 << iota
	intoKafka
	intoAny = intoProcessor | intoKafka
)

// requestFlag is one flag of a request.
type requestFlag struct {
	name, field string // of the flag, and of the request's field that it says, or says a part of
	targets     targets
	register    func(*pflag.FlagSet)
	apply       func(fields map[string]any) error // once the flags are parsed, and only where this one is given
}

// requestFlags are all of them, in the order in which they apply: every field of a request has one, and more than flags can say is said in a file.
func requestFlags() []*requestFlag {
	return []*requestFlag{
		word("name", "name", intoAny, "`name` of the job: a-z, 0-9 and -; a name runs once"),
		word("target", "target", intoAny, "`name` of the target in the replayer's configuration"),
		list("topics", "topics", intoAny, "`topics`, comma separated; trips/0 is one partition, trips~2 the second log of that name (default: the inputs of the target's pipeline)", addTopics("topics")),
		repeated("topics-pattern", "topics", intoAny, "topics by a `pattern` in RE2 over the whole name (may be repeated)", addPatterns("topics")),
		list("exclude", "exclude", intoAny, "`topics` to leave out of these; trips/0 is one partition", addTopics("exclude")),
		repeated("exclude-pattern", "exclude", intoAny, "topics to leave out by a `pattern` in RE2 (may be repeated)", addPatterns("exclude")),
		boundFlag("from", "first record, `bound`: earliest, an offset, or a time (RFC 3339, or ms:NUMBER) (default earliest)"),
		boundFlag("until", "end, exclusive, `bound`: end, an offset, or a time (default end)"),
		repeated("bounds", "bounds", intoAny, "other ends of one partition, `trips/0=FROM..UNTIL`, either left out for the job's (may be repeated)", addBounds),
		text("windows", "windows", intoProcessor, "event-time windows to compute anew, `FROM..UNTIL` as times", setWindows),
		duration("max-lag", "windows", "with --windows: no record comes later than this `duration` after its event time, so that reading may end there", func(m map[string]any, d time.Duration) error {
			w, ok := m["windows"].(map[string]any)
			if !ok {
				return errors.New("it belongs to --windows, which is not given")
			}
			w["maxLag"] = d.Milliseconds()
			return nil
		}),
		repeated("filter-key", "filter", intoAny, "only records of this `key` (may be repeated); forfeits reproduce", func(m map[string]any, keys []string) error {
			part(m, "filter")["keys"] = keys
			return nil
		}),
		text("filter-key-prefix", "filter", intoAny, "only records whose key begins with this `prefix`", func(m map[string]any, s string) error {
			part(m, "filter")["keyPrefix"] = s
			return nil
		}),
		repeated("filter-header", "filter", intoAny, "only records with this header, `NAME=VALUE`, or NAME for any value (may be repeated: all of them)", addHeaders),
		word("promise", "promise", intoProcessor, "`promise`: reproduce, byte-equal to the live run or refused; or recompute (default reproduce)"),
		word("end-mode", "endMode", intoProcessor, "`mode`: hold, what live had emitted; or drain, every window (default hold)"),
		word("schemas", "schemas", intoProcessor, "`source` of writer schemas: segment (default to reproduce) or registry (default to recompute)"),
		word("order", "order", intoAny, "`order`: partition, or event-time over all partitions (default partition)"),
		duration("max-skew", "maxSkew", "with --order event-time: how far in record time partitions may be apart, a `duration` (default 1m0s)", func(m map[string]any, d time.Duration) error {
			m["maxSkew"] = d.Milliseconds()
			return nil
		}),
		text("speed", "speed", intoAny, "`factor` of the original pace by record timestamps, or max (default max)", func(m map[string]any, s string) error {
			if s == "max" {
				m["speed"] = s
				return nil
			}
			f, err := strconv.ParseFloat(s, 64)
			if err != nil {
				return fmt.Errorf("%q: give max, or a factor such as 1 or 0.5", s)
			}
			m["speed"] = f
			return nil
		}),
		text("records-per-second", "recordsPerSecond", intoAny, "at most this `number` of records a second", func(m map[string]any, s string) error {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return fmt.Errorf("%q: give a number of records", s)
			}
			m["recordsPerSecond"] = n
			return nil
		}),
		text("bytes-per-second", "bytesPerSecond", intoAny, "at most this many `bytes` a second, such as 500000 or 10MiB", func(m map[string]any, s string) error {
			n, err := service.ParseBytes(s)
			if err != nil {
				return err
			}
			m["bytesPerSecond"] = n
			return nil
		}),
		word("on-lost", "onLost", intoAny, "where Kafka had deleted records before they were archived: `fail` or allow (default fail)"),
		word("on-unreadable", "onUnreadable", intoAny, "where an object is gone, damaged or in cold storage: `fail` or skip, which ends COMPLETED with gaps, exit 1 (default fail)"),

		repeated("map-topic", "topicMapping", intoKafka, "restore topic OLD as NEW, `OLD=NEW` (may be repeated); others keep their names", func(m map[string]any, pairs []string) error {
			return addPairs(m, "topicMapping", pairs, func(s string) (any, error) { return s, nil })
		}),
		repeated("map-partition", "partitionMapping", intoKafka, "restore partition trips/3 into partition 1, `trips/3=1` (may be repeated); needed where the numbers of partitions differ", func(m map[string]any, pairs []string) error {
			return addPairs(m, "partitionMapping", pairs, func(s string) (any, error) {
				n, err := strconv.ParseInt(s, 10, 32)
				if err != nil {
					return nil, fmt.Errorf("%q is no number of a partition", s)
				}
				return n, nil
			})
		}),
		yes("create-topics", "createTopics", "create missing topics from the archived configuration"),
		text("replication-factor", "replicationFactor", intoKafka, "of created topics, a `number` (default as archived)", func(m map[string]any, s string) error {
			n, err := strconv.ParseInt(s, 10, 32)
			if err != nil {
				return fmt.Errorf("%q is no number", s)
			}
			m["replicationFactor"] = n
			return nil
		}),
		word("if-not-empty", "ifNotEmpty", intoKafka, "where a partition of the target holds records: `fail` or append (default fail)"),
		yes("provenance-headers", "provenanceHeaders", "add headers that say where each record was"),
		list("groups", "groups", intoKafka, "consumer `groups` to restore with the topics, comma separated", func(m map[string]any, names []string) error {
			part(m, "groups")["names"] = names
			return nil
		}),
		text("groups-pattern", "groups", intoKafka, "consumer groups by a `pattern` in RE2 over the whole name", func(m map[string]any, s string) error {
			part(m, "groups")["pattern"] = s
			return nil
		}),
		text("groups-until", "groups", intoKafka, "their positions as they were at this `time` (default the newest)", func(m map[string]any, s string) error {
			ms, ok := parseTime(s)
			if !ok {
				return fmt.Errorf("%q: give a time such as 2026-03-01T14:00:00Z, or ms:NUMBER", s)
			}
			part(m, "groups")["until"] = ms
			return nil
		}),
		repeated("map-group", "groups", intoKafka, "restore group OLD as NEW, `OLD=NEW` (may be repeated)", func(m map[string]any, pairs []string) error {
			return addPairs(part(m, "groups"), "mapping", pairs, func(s string) (any, error) { return s, nil })
		}),
		word("registry", "registry", intoKafka, "the target's schema registry: `none`, restore (ids may change in the records), or same-ids (default none)"),
	}
}

// part returns the object that several flags make up together.
func part(m map[string]any, field string) map[string]any {
	if o, ok := m[field].(map[string]any); ok {
		return o
	}
	o := map[string]any{}
	m[field] = o
	return o
}

func text(name, field string, t targets, usage string, apply func(map[string]any, string) error) *requestFlag {
	v := new(string)
	return &requestFlag{name, field, t, func(f *pflag.FlagSet) { f.StringVar(v, name, "", usage) }, func(m map[string]any) error { return apply(m, *v) }}
}

// word is a field whose words the replayer knows.
func word(name, field string, t targets, usage string) *requestFlag {
	return text(name, field, t, usage, func(m map[string]any, s string) error { m[field] = s; return nil })
}

func yes(name, field, usage string) *requestFlag {
	v := new(bool)
	return &requestFlag{name, field, intoKafka, func(f *pflag.FlagSet) { f.BoolVar(v, name, false, usage) }, func(m map[string]any) error { m[field] = *v; return nil }}
}

func duration(name, field, usage string, apply func(map[string]any, time.Duration) error) *requestFlag {
	v, t := new(time.Duration), intoAny
	if field == "windows" {
		t = intoProcessor
	}
	return &requestFlag{name, field, t, func(f *pflag.FlagSet) { f.DurationVar(v, name, 0, usage) }, func(m map[string]any) error { return apply(m, *v) }}
}

// list is comma separated; repeated may hold commas.
func list(name, field string, t targets, usage string, apply func(map[string]any, []string) error) *requestFlag {
	v := new([]string)
	return &requestFlag{name, field, t, func(f *pflag.FlagSet) { f.StringSliceVar(v, name, nil, usage) }, func(m map[string]any) error { return apply(m, *v) }}
}

func repeated(name, field string, t targets, usage string, apply func(map[string]any, []string) error) *requestFlag {
	v := new([]string)
	return &requestFlag{name, field, t, func(f *pflag.FlagSet) { f.StringArrayVar(v, name, nil, usage) }, func(m map[string]any) error { return apply(m, *v) }}
}

func boundFlag(name, usage string) *requestFlag {
	return text(name, name, intoAny, usage, func(m map[string]any, s string) error {
		b, err := parseBound(s)
		m[name] = b
		return err
	})
}

// addTopics takes names, and single partitions of them.
func addTopics(field string) func(map[string]any, []string) error {
	return func(m map[string]any, names []string) error {
		var topics []any
		at := map[string]int{} // topics by partitions → place
		for _, s := range names {
			name, number, one := strings.Cut(s, "/")
			if !one {
				topics = append(topics, name)
				continue
			}
			p, err := strconv.ParseInt(number, 10, 32)
			if err != nil {
				return fmt.Errorf("%q: give a topic, or topic/partition such as trips/0", s)
			}
			i, ok := at[name]
			if !ok {
				i = len(topics)
				at[name] = i
				topics = append(topics, map[string]any{"name": name, "partitions": []int64{}})
			}
			o := topics[i].(map[string]any)
			o["partitions"] = append(o["partitions"].([]int64), p)
		}
		old, _ := m[field].([]any)
		m[field] = append(old, topics...)
		return nil
	}
}

func addPatterns(field string) func(map[string]any, []string) error {
	return func(m map[string]any, patterns []string) error {
		topics, _ := m[field].([]any)
		for _, p := range patterns {
			topics = append(topics, map[string]any{"pattern": p})
		}
		m[field] = topics
		return nil
	}
}

func addBounds(m map[string]any, list []string) error {
	const form = "give trips/0=FROM..UNTIL, or one of them, such as trips/0=100.. or trips/0=..end"
	for _, s := range list {
		tp, ends, ok := strings.Cut(s, "=")
		from, until, dots := strings.Cut(ends, "..")
		if !ok || !dots || from == "" && until == "" {
			return fmt.Errorf("%q: %s", s, form)
		}
		o := map[string]any{}
		for name, text := range map[string]string{"from": from, "until": until} {
			if text == "" {
				continue
			}
			b, err := parseBound(text)
			if err != nil {
				return fmt.Errorf("%q: %w", s, err)
			}
			o[name] = b
		}
		part(m, "bounds")[tp] = o
	}
	return nil
}

func setWindows(m map[string]any, s string) error {
	from, until, ok := strings.Cut(s, "..")
	f, fromOK := parseTime(from)
	u, untilOK := parseTime(until)
	if !ok || !fromOK || !untilOK {
		return fmt.Errorf("%q: give two times, such as 2026-03-01T14:00:00Z..2026-03-01T15:00:00Z", s)
	}
	m["windows"] = map[string]any{"from": f, "until": u}
	return nil
}

func addHeaders(m map[string]any, list []string) error {
	var headers []any
	for _, s := range list {
		name, value, ok := strings.Cut(s, "=")
		h := map[string]any{"key": name}
		if ok {
			h["value"] = value
		}
		headers = append(headers, h)
	}
	part(m, "filter")["headers"] = headers
	return nil
}

func addPairs(m map[string]any, field string, pairs []string, value func(string) (any, error)) error {
	for _, s := range pairs {
		from, to, ok := strings.Cut(s, "=")
		if !ok || from == "" || to == "" {
			return fmt.Errorf("%q: give OLD=NEW", s)
		}
		v, err := value(to)
		if err != nil {
			return fmt.Errorf("%q: %w", s, err)
		}
		part(m, field)[from] = v
	}
	return nil
}
