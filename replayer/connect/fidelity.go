package connect

import (
	"fmt"
	"slices"
	"strings"

	"tapedeck.dev/tapedeck/shared/archive"
)

// maxWords bounds how many overlaps and holes are told one by one.
const maxWords = 20

// fidelity says in words what the records of a plan lack, or have been given.
func (s *Source) fidelity(p *archive.PartitionPlan, overlaps []overlap, orphans []string) []string {
	say := []string{
		"offsets: an object's first is in its name, the others are counted from it; where Kafka had no record (control markers, compaction) or the sink left one out inside an object, those after it are too low",
		s.timestampWords(),
		"values: not the bytes that were in Kafka, but what Connect's converter made of them; " + encodingWords(s.cfg.Values, s.cfg.ValueSubject, p.Topic),
		"schemas: the id that a record was written with is not kept; an id comes from the registry as it is now, by what the object's schema encodes",
		"nulls: records without a value are not in these objects (behavior.on.null.values: left out, or stored apart as tombstones)",
		s.keyWords(p),
		headerWords(p),
		"log: cluster, topic id, leader epochs and what was aborted are not kept; a topic that was created again looks like the same one",
	}
	if len(orphans) > 0 {
		say = append(say, fmt.Sprintf("tombstones: %d objects of keys or headers without values are left out (connect.tombstones ignore), the first is %s", len(orphans), orphans[0]))
	}
	if n := folders(p); n > 1 && len(p.Gaps) > 0 {
		say = append(say, fmt.Sprintf("order: the objects lie in %d folders of the partitioner; where offsets are missing, a record that the sink dealt to another folder may stand before one that came earlier", n))
	}
	say = append(say, overlapWords(p, overlaps)...)
	for i, g := range p.Gaps {
		if i == maxWords {
			say = append(say, fmt.Sprintf("holes: %d in all", len(p.Gaps)))
			break
		}
		say = append(say, fmt.Sprintf("hole: no object holds offsets [%d, %d), and nothing says why: control markers, compaction, records that the sink left out, or an object that is gone", g.From, g.To))
	}
	return say
}

func (s *Source) timestampWords() string {
	if s.cfg.TimestampField == "" {
		return "timestamps: neither they nor their type are kept by the sink; records have none (-1): set connect.timestamp.field where the values hold them"
	}
	return "timestamps: not kept by the sink; taken from the field " + s.cfg.TimestampField + " of the values (-1 where it is null), and their type is said to be CreateTime"
}

func (s *Source) keyWords(p *archive.PartitionPlan) string {
	without, first := lacking(p, func(ps *archive.PlannedSegment) string { return ps.Keys })
	if without == len(p.Segments) {
		return "keys: not stored (store.kafka.keys was off); every key is null"
	}
	words := "keys: as Connect's converter read them; " + encodingWords(s.cfg.Keys, s.cfg.KeySubject, p.Topic)
	if without > 0 {
		words += fmt.Sprintf("; %d of %d objects have none, and their records' keys are null, the first is %s", without, len(p.Segments), first)
	}
	return words
}

func headerWords(p *archive.PartitionPlan) string {
	without, first := lacking(p, func(ps *archive.PlannedSegment) string { return ps.Headers })
	if without == len(p.Segments) {
		return "headers: not stored (store.kafka.headers was off); records have none"
	}
	words := "headers: the sink stores every value as text, and takes a record that has none for an error"
	if without > 0 {
		words += fmt.Sprintf("; %d of %d objects have none, the first is %s", without, len(p.Segments), first)
	}
	return words
}

// lacking counts the objects of a plan that lack what side names.
func lacking(p *archive.PartitionPlan, side func(*archive.PlannedSegment) string) (n int, first string) {
	for i := range p.Segments {
		if ps := &p.Segments[i]; side(ps) == "" {
			if n++; n == 1 {
				first = ps.Key
			}
		}
	}
	return n, first
}

// folders counts those of the partitioner that a plan's objects lie in.
func folders(p *archive.PartitionPlan) int {
	var dirs []string
	for _, ps := range p.Segments {
		dirs = append(dirs, ps.Key[:strings.LastIndexByte(ps.Key, '/')])
	}
	slices.Sort(dirs)
	return len(slices.Compact(dirs))
}

func overlapWords(p *archive.PartitionPlan, overlaps []overlap) []string {
	var say []string
	for _, o := range overlaps {
		if o.to > p.From && o.from < p.Until {
			say = append(say, fmt.Sprintf("overlap: offsets [%d, %d) of %s are dropped: %s holds the same records", o.from, o.to, o.second.key, o.first.key))
		}
	}
	if n := len(say); n > maxWords {
		say = append(say[:maxWords], fmt.Sprintf("overlaps: %d in all", n))
	}
	return say
}

func encodingWords(e Encoding, subject, topic string) string {
	subject = strings.ReplaceAll(subject, "{topic}", topic)
	switch e {
	case Auto:
		return "strings and bytes as they are, anything else in the registry's wire format under an id of subject " + subject
	case Registry, Register:
		return "in the registry's wire format under an id of subject " + subject
	case Plain:
		return "as Avro without the wire format's prefix"
	case JSON:
		return "as JSON"
	}
	return "strings and bytes as they are"
}
