package connect

import (
	"context"
	"fmt"
	"sync"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// Definite marks errors that will be the same the next time.
func (e *RefusedError) Definite() bool { return true }

// Definite marks errors that will be the same the next time.
func (e *DamagedError) Definite() bool { return true }

const (
	maxListed  = 100       // topics of which the listing is kept
	maxCounted = 1_000_000 // objects of which the contents are kept
	counting   = 2         // objects that are held in memory at one time to count their records

	// clusterID stands where segments name the cluster, which the sink does not keep.
	clusterID = "kafka-connect"
)

// Source is a foreign archive. It only reads. Safe for concurrent use.
type Source struct {
	st    store.Store
	cfg   Config
	ids   ids
	slots chan struct{} // for counting

	mu      sync.Mutex
	topics  map[string]*listing
	counted map[listed]contents
}

// New reads the archive in st. It makes no store call.
func New(st store.Store, cfg Config) (*Source, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	return &Source{st: st, cfg: cfg.withDefaults(), slots: make(chan struct{}, counting), topics: map[string]*listing{}, counted: map[listed]contents{}}, nil
}

// Where says where the archive is, for messages.
func (s *Source) Where() string {
	return fmt.Sprintf("%s (topics.dir %s, store.layout connect)", s.st, s.cfg.TopicsDir)
}

// Lossy says why the archive cannot reproduce what a live run did.
func (s *Source) Lossy() string {
	return "the archive was written by the S3 sink connector, which keeps neither the bytes that were in Kafka nor each record's offset and timestamp"
}

// Timeless says why records have no timestamps; "" where they have.
func (s *Source) Timeless() string {
	if s.cfg.TimestampField != "" {
		return ""
	}
	return "the archive keeps no timestamps: set connect.timestamp.field to the field of the values that holds them"
}

// Incarnations: the sink cannot tell that a topic was created again.
func (s *Source) Incarnations(context.Context, string) ([]int, error) { return nil, nil }

// Check reads what must be readable at the start: the names of the topics.
func (s *Source) Check(ctx context.Context) error {
	if _, err := s.st.ListDirs(ctx, s.cfg.TopicsDir+"/"); err != nil {
		return fmt.Errorf("list topics of %s: %w", s.Where(), err)
	}
	return nil
}

func (s *Source) get(ctx context.Context, key string) ([]byte, error) {
	data, err := s.st.Get(ctx, key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", key, err)
	case len(data) > maxObjectBytes:
		return nil, refused("object %s has %d bytes, more than %d: it would not fit into memory", key, len(data), maxObjectBytes)
	}
	return data, nil
}

// Segment reads a planned object and returns its records as an ordinary segment [p.Start, p.Next). Offsets that it does not hold are recorded as
// not archived: nobody can say why.
func (s *Source) Segment(ctx context.Context, p archive.PlannedSegment) ([]byte, error) {
	n, err := ParseName(s.cfg.TopicsDir, s.cfg.FileDelim, p.Key)
	if err != nil {
		return nil, &RefusedError{err}
	}
	o := &object{Name: n, key: p.Key, keys: p.Keys, headers: p.Headers}
	w, err := segment.NewWriter(s.identity(n.TopicPartition), p.Start, segment.CodecSnappy)
	if err != nil {
		return nil, &RefusedError{err}
	}
	pos := p.Start
	skip := func(to int64) error {
		if to <= pos {
			return nil
		}
		return w.Skip(pos, to, segment.NotArchived)
	}
	count := int64(0)
	used, err := s.rows(ctx, o, func(r *record.Record) error {
		if r.Offset < p.Start {
			return nil // another object's
		}
		if r.Offset >= p.Next {
			return s.changed(o, p, "has a record behind it")
		}
		if err := skip(r.Offset); err != nil {
			return &RefusedError{err}
		}
		pos = r.Offset + 1
		count++
		if _, err := w.Append(r); err != nil {
			return &RefusedError{fmt.Errorf("object %s: %w", o.key, err)}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if count != p.Count {
		return nil, s.changed(o, p, fmt.Sprintf("holds %d of them", count))
	}
	if err := skip(p.Next); err != nil {
		return nil, &RefusedError{err}
	}
	chain := segment.First()
	if p.Start > 0 {
		chain.Ordinal = segment.IndexEvery // the first of an index block names no segments before it; the sink's objects have no ordinal
	}
	body, _, err := w.Close(p.Next, chain, used)
	if err != nil {
		return nil, &RefusedError{fmt.Errorf("object %s: %w", o.key, err)}
	}
	return body, nil
}

func (s *Source) changed(o *object, p archive.PlannedSegment, what string) error {
	return refused("object %s is not the planned one any more: planned were %d records in offsets [%d, %d), and it %s; the sink writes over its own objects, so replay what it has finished with",
		o.key, p.Count, p.Start, p.Next, what)
}

func (s *Source) identity(tp record.TopicPartition) segment.LogIdentity {
	return segment.LogIdentity{ClusterID: clusterID, TopicID: s.cfg.identity(), Topic: tp.Topic, Partition: tp.Partition, Isolation: segment.ReadUncommitted}
}
