package archiver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// StartKind is what `start` says.
type StartKind string

// Kinds of a Start. The zero value is StartEarliest.
const (
	StartEarliest  StartKind = "earliest"
	StartLatest    StartKind = "latest"
	StartTimestamp StartKind = "timestamp"
	StartOffsets   StartKind = "offsets"
	StartGroup     StartKind = "group"
)

// Start says where partitions without a chain begin.
type Start struct {
	Kind      StartKind
	Timestamp int64              // ms; of StartTimestamp
	Offsets   map[kafka.TP]int64 // of StartOffsets
	Group     string             // of StartGroup
}

// String is the setting's text.
func (s Start) String() string {
	switch s.Kind {
	case "":
		return string(StartEarliest)
	case StartTimestamp:
		return "timestamp:" + time.UnixMilli(s.Timestamp).UTC().Format("2006-01-02T15:04:05.000Z")
	case StartGroup:
		return "group:" + s.Group
	}
	return string(s.Kind)
}

const startForms = "earliest, latest, timestamp:<ISO 8601 or ms>, offsets, group:<name>"

// ParseStart parses the setting `start`; Offsets are those of `start.offsets`.
func ParseStart(text string) (Start, error) {
	kind, arg, hasArg := strings.Cut(text, ":")
	s := Start{Kind: StartKind(kind)}
	switch {
	case !hasArg && (s.Kind == StartEarliest || s.Kind == StartLatest || s.Kind == StartOffsets):
		return s, nil
	case s.Kind == StartTimestamp && hasArg:
		var err error
		s.Timestamp, err = parseTime(arg)
		return s, err
	case s.Kind == StartGroup && arg != "":
		s.Group = arg
		return s, nil
	}
	return Start{}, fmt.Errorf("%q is none of %s", text, startForms)
}

// timeLayouts are the spellings of a time besides milliseconds. A time without a zone is not taken: it would depend on the machine.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00"}

func parseTime(text string) (int64, error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		if ms < 0 {
			return 0, fmt.Errorf("the time %d is before 1970", ms)
		}
		return ms, nil
	}
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			if t.UnixMilli() < 0 {
				return 0, fmt.Errorf("the time %s is before 1970", text)
			}
			return t.UnixMilli(), nil
		}
	}
	return 0, fmt.Errorf("the time %q is neither milliseconds since 1970 nor a time with a zone such as 2026-01-31T08:00:00Z", text)
}

func checkStart(text string) error {
	_, err := ParseStart(text)
	return err
}

// parseOffsets parses the elements of `start.offsets`, each topic:partition:offset.
func parseOffsets(elems []string) (map[kafka.TP]int64, error) {
	out := make(map[kafka.TP]int64, len(elems))
	for _, e := range elems {
		f := strings.Split(e, ":")
		if len(f) != 3 || f[0] == "" {
			return nil, fmt.Errorf("%q is not topic:partition:offset", e)
		}
		p, err := strconv.ParseUint(f[1], 10, 31)
		if err != nil {
			return nil, fmt.Errorf("%q: %q is not a partition", e, f[1])
		}
		o, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || o < 0 {
			return nil, fmt.Errorf("%q: %q is not an offset", e, f[2])
		}
		tp := kafka.TP{Topic: f[0], Partition: int32(p)}
		if _, twice := out[tp]; twice {
			return nil, fmt.Errorf("%q: %s stands there twice", e, tp)
		}
		out[tp] = o
	}
	return out, nil
}

// readStart reads and checks `start` and `start.offsets` for a group and a selection of topics.
func readStart(text string, offsets []string, group string, sel Selection) (Start, error) {
	s, err := ParseStart(text)
	if err != nil {
		return s, fmt.Errorf("start: %w", err)
	}
	if (s.Kind == StartOffsets) != (len(offsets) > 0) {
		return s, errors.New("start.offsets: give it together with start=offsets, and only then")
	}
	if s.Offsets, err = parseOffsets(offsets); err != nil {
		return s, fmt.Errorf("start.offsets: %w", err)
	}
	for tp := range s.Offsets {
		if !slices.Contains(sel.Names, tp.Topic) && !sel.Matches(kafka.Topic{Name: tp.Topic}) {
			return s, fmt.Errorf("start.offsets: topic %s is not archived: topics and topics.regex do not select it", tp.Topic)
		}
	}
	if s.Kind == StartGroup && s.Group == group {
		return s, fmt.Errorf("start: group:%s is this archiver's own group.id; name the group of the sink that is taken over from", s.Group)
	}
	return s, nil
}

// errStart: where a new chain is to begin cannot be found, and asking again does not help.
var errStart = errors.New("start")

// firstLook remembers the partitions that were in Kafka when this process first looked. `start` is about them: of what comes later nothing is
// left out. Safe for concurrent use.
type firstLook struct {
	mu         sync.Mutex
	partitions map[string]int32 // nil: not looked yet
}

func (f *firstLook) see(topics map[string]kafka.Topic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.partitions != nil {
		return
	}
	f.partitions = make(map[string]int32, len(topics))
	for name, t := range topics {
		f.partitions[name] = t.Partitions
	}
}

// later reports whether tp was not there at the first look.
func (f *firstLook) later(tp kafka.TP) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.partitions != nil && tp.Partition >= f.partitions[tp.Topic]
}

// atEnd is the offset of a Begin at the log's end, which the caller fills in: it asks for that anyway.
const atEnd = -1

// begin finds where the chain of a partition without one begins.
func (w *workers) begin(ctx context.Context, tp kafka.TP) (partition.Begin, error) {
	s := w.start
	settle := s.Kind != "" && s.Kind != StartEarliest
	earliest := partition.Begin{Source: string(StartEarliest), Settle: settle}
	if s.Kind != "" && s.Kind != StartEarliest && w.first.later(tp) {
		earliest.Source = "earliest: the partition is newer than this process"
		return earliest, nil
	}
	switch s.Kind {
	case StartLatest:
		return partition.Begin{Offset: atEnd, Source: s.String(), Settle: settle}, nil
	case StartTimestamp:
		offs, err := w.admin.OffsetsForTime(ctx, []kafka.TP{tp}, s.Timestamp)
		if err != nil {
			return partition.Begin{}, err
		}
		return partition.Begin{Offset: offs[tp], Source: s.String(), Settle: settle}, nil
	case StartOffsets:
		o, ok := s.Offsets[tp]
		if !ok {
			earliest.Source = "earliest: start.offsets says nothing of the partition"
			return earliest, nil
		}
		return partition.Begin{Offset: o, Named: true, Source: "start.offsets", Settle: settle}, nil
	case StartGroup:
		all, err := w.admin.GroupOffsets(ctx, s.Group)
		if err != nil {
			return partition.Begin{}, err
		}
		if len(all) == 0 {
			return partition.Begin{}, fmt.Errorf("%w: group %s has no position in this cluster: is its name right (connect-<connector>), or did its positions expire? "+
				"Name the right group, give start.offsets, or use earliest", errStart, s.Group)
		}
		o, ok := all[tp]
		if !ok {
			earliest.Source = fmt.Sprintf("earliest: group %s has no position of the partition", s.Group)
			return earliest, nil
		}
		return partition.Begin{Offset: o.Offset, Named: true, Source: s.String(), Settle: settle}, nil
	}
	return earliest, nil
}
