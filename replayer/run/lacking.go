package run

import (
	"context"
	"errors"
	"slices"
	"sync"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
)

// lacking finds writer schemas that a segment was archived without, while the registry was down, and that the archive got afterwards. A receiver
// knows what the segment says, so they are put into the copy that it is sent.
type lacking struct {
	mu     sync.Mutex            // partitions are loaded side by side
	finder *archive.SchemaFinder // nil where segments lack nothing that could be found

	topicsDir string
}

// complete adds to l.body what it lacks. A schema that the archive does not have, or has in two meanings of which none is said to be this segment's, is
// left out: whether it is needed at all, and what then, is the receiver's to say.
func (k *lacking) complete(ctx context.Context, key string, l *loaded) error {
	if k.finder == nil {
		return nil
	}
	name, err := segment.ParseName(k.topicsDir, key)
	if err != nil {
		return &Failure{err}
	}
	chain := record.TopicPartition{Topic: name.Topic, Partition: name.Partition} // which incarnation of the topic
	var more []segment.Schema
	for _, ref := range l.named.Refs() {
		if slices.ContainsFunc(l.head.Schemas, func(s segment.Schema) bool { return schema.RefOf(s) == ref }) {
			continue
		}
		k.mu.Lock()
		s, err := k.finder.Kept(ctx, chain, l.head, ref.ID, ref.GUID)
		k.mu.Unlock()
		switch {
		case err == nil:
			more = append(more, s)
		case errors.Is(err, archive.ErrNoSchema), errors.Is(err, archive.ErrTwoSchemas):
		default:
			return err
		}
	}
	if len(more) == 0 {
		return nil
	}
	body, err := segment.WithSchemas(key, l.body, more)
	if err != nil {
		return &Failure{err}
	}
	l.body = body
	return nil
}

func (r *Runner) newLacking() lacking {
	if r.Foreign != nil {
		return lacking{} // its segments are made with every schema that they name
	}
	return lacking{finder: r.Archive.NewSchemaFinder(nil), topicsDir: r.Archive.TopicsDir()}
}
