package connect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tapedeck.dev/tapedeck/shared/record"
)

// listing is what a topic's folder holds.
type listing struct {
	objects map[int32][]*object // of values
	orphans map[int32][]string  // keys or headers without values: tombstones
}

// list reads a topic's folder, whatever its partitioner made of it. An object that is not of the sink, or of a format that is not read, is a
// *RefusedError: to pass it over could lose records. Names that begin with "_" or "." are left alone, as Hadoop's tools do.
func (s *Source) list(ctx context.Context, topic string) (*listing, error) {
	prefix := s.cfg.TopicsDir + "/" + topic + "/"
	values := map[string]*object{}
	sides := map[string][]string{}
	after := ""
	for {
		objs, more, err := s.st.List(ctx, prefix, after, 1000)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, o := range objs {
			after = o.Key
			if file := o.Key[strings.LastIndexByte(o.Key, '/')+1:]; file == "" || file[0] == '_' || file[0] == '.' {
				continue
			}
			n, err := ParseName(s.cfg.TopicsDir, s.cfg.FileDelim, o.Key)
			if err != nil {
				return nil, refused("%w: it is not the S3 sink's (names have the shape <topic>%s<partition>%s<offset>.avro; connect.file.delim is the sink's file.delim)",
					err, s.cfg.FileDelim, s.cfg.FileDelim)
			}
			switch {
			case n.Part != Values:
				sides[n.base()] = append(sides[n.base()], o.Key)
			case n.Ext != ".avro":
				return nil, refused("object %s: values in the format %s are not read: this version reads archives that the sink wrote with AvroFormat", o.Key, n.Ext)
			default:
				values[n.base()] = &object{Name: n, key: o.Key, size: o.Size}
			}
		}
		if !more || len(objs) == 0 {
			break
		}
	}
	l := &listing{objects: map[int32][]*object{}, orphans: map[int32][]string{}}
	for base, keys := range sides {
		slices.Sort(keys)
		if o := values[base]; o != nil {
			if err := s.attach(o, keys); err != nil {
				return nil, err
			}
			continue
		}
		n, err := ParseName(s.cfg.TopicsDir, s.cfg.FileDelim, keys[0])
		if err != nil {
			return nil, err
		}
		l.orphans[n.Partition] = append(l.orphans[n.Partition], keys...)
	}
	for _, o := range values {
		l.objects[o.Partition] = append(l.objects[o.Partition], o)
	}
	for p := range l.objects {
		slices.SortFunc(l.objects[p], func(a, b *object) int { return strings.Compare(a.key, b.key) })
	}
	for p := range l.orphans {
		slices.Sort(l.orphans[p])
	}
	return l, nil
}

// attach notes the objects of keys and headers that belong to one of values.
func (s *Source) attach(o *object, keys []string) error {
	for _, key := range keys {
		n, err := ParseName(s.cfg.TopicsDir, s.cfg.FileDelim, key)
		if err != nil {
			return err
		}
		side := &o.headers
		if n.Part == Keys {
			side = &o.keys
		}
		if *side != "" {
			return refused("objects %s and %s hold the same %s in two formats", *side, key, strings.TrimPrefix(string(n.Part), "."))
		}
		*side = key
	}
	return nil
}

// List returns the partitions that the archive holds, of all topics or of those named, sorted.
func (s *Source) List(ctx context.Context, topics ...string) ([]record.TopicPartition, error) {
	if len(topics) == 0 {
		dirs, err := s.st.ListDirs(ctx, s.cfg.TopicsDir+"/")
		if err != nil {
			return nil, fmt.Errorf("list topics: %w", err)
		}
		topics = slices.DeleteFunc(dirs, func(d string) bool { return !kafkaTopic(d) })
	}
	var out []record.TopicPartition
	for _, topic := range topics {
		if !kafkaTopic(topic) {
			continue // an incarnation, or no topic: nothing is there
		}
		l, err := s.list(ctx, topic)
		if err != nil {
			return nil, err
		}
		s.remember(topic, l)
		seen := map[int32]bool{}
		for p := range l.objects {
			seen[p] = true
		}
		for p := range l.orphans {
			seen[p] = true
		}
		for p := range seen {
			out = append(out, record.TopicPartition{Topic: topic, Partition: p})
		}
	}
	slices.SortFunc(out, func(a, b record.TopicPartition) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	return out, nil
}

// remember keeps what the planning of a topic's partitions begins from, so that each does not list the topic again.
func (s *Source) remember(topic string, l *listing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.topics) >= maxListed {
		clear(s.topics)
	}
	s.topics[topic] = l
}

// recall returns what was last listed of a topic. Objects that have come since do not matter to a planned job, and one that is gone is found
// when it is read.
func (s *Source) recall(ctx context.Context, topic string) (*listing, error) {
	s.mu.Lock()
	l := s.topics[topic]
	s.mu.Unlock()
	if l != nil {
		return l, nil
	}
	l, err := s.list(ctx, topic)
	if err == nil {
		s.remember(topic, l)
	}
	return l, err
}
