package registry

import (
	"context"
	"fmt"
	"sync"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Rewriter writes the target's schema ids into records. Safe for concurrent use.
type Rewriter struct {
	to    map[namedKey]int
	only  map[int]int  // what an id becomes where it has one meaning
	two   map[int]bool // ids that become different ones, by meaning
	names string       // topics.dir

	mu     sync.Mutex
	finder *archive.SchemaFinder
}

// NewRewriter makes the Rewriter of a restored plan; nil where no record changes.
func NewRewriter(a *archive.Archive, p *job.RegistryPlan) *Rewriter {
	if p == nil || len(p.Rewritten) == 0 {
		return nil
	}
	w := &Rewriter{to: map[namedKey]int{}, only: map[int]int{}, two: map[int]bool{}, names: a.TopicsDir(), finder: a.NewSchemaFinder(nil)}
	for _, s := range p.Schemas {
		if s.ID < 0 {
			continue
		}
		w.to[namedKey{s.ID, "", s.Fingerprint}] = s.To
		if to, ok := w.only[s.ID]; ok && to != s.To {
			w.two[s.ID] = true
		}
		w.only[s.ID] = s.To
	}
	return w
}

// Segment returns what rewrites the records of the segment h, whose object is key: an id is what this segment says that it is. An id that the segment
// (and what was found for it afterwards) does not name is what it is elsewhere in the archive, where that is one thing; where it is several, a record that
// names it is an error (ErrRefused). Others stay: they are no ids of schemas, or nobody knows of which.
func (w *Rewriter) Segment(ctx context.Context, key string, h *segment.Header) (func(*record.Record) (changed bool, err error), error) {
	name, err := segment.ParseName(w.names, key)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	schemas, err := w.finder.All(ctx, record.TopicPartition{Topic: name.Topic, Partition: name.Partition}, h)
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	here := make(map[int]int, len(schemas))
	for _, s := range schemas {
		if s.ID < 0 {
			continue
		}
		if to, ok := w.to[namedKey{s.ID, "", s.Fingerprint()}]; ok {
			here[s.ID] = to
		}
	}
	return func(r *record.Record) (bool, error) {
		var unclear error
		changed := schema.Rewrite(r, func(id int) (int, bool) {
			if to, ok := here[id]; ok {
				return to, true
			}
			if w.two[id] {
				unclear = fmt.Errorf("%w: %s at offset %d names schema id %d, which the archive knows in several meanings and not in which here (%s); leave the record out, or ask for registry %q",
					ErrRefused, r.TP(), r.Offset, id, key, "none")
				return id, false
			}
			to, ok := w.only[id]
			return to, ok
		})
		return changed, unclear
	}, nil
}
