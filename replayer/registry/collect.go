package registry

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

const collectParallel = 16

// Collect finds the schemas that the planned segments name: one read of each one's header, and for each partition what was found for its segments
// afterwards. Where skip is set, segments that cannot be read are passed over. Errors: those of the archive; ErrRefused where a schema refers to what is
// not there.
func Collect(ctx context.Context, a *archive.Archive, parts []archive.PartitionPlan, skip bool) ([]Want, error) {
	w := newWants()
	finder := a.NewSchemaFinder(nil)
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(collectParallel)
	for _, p := range parts {
		for _, s := range p.Segments {
			if s.Count == 0 || s.Outside {
				continue
			}
			g.Go(func() error {
				h, err := a.Header(gctx, s)
				if skip && (errors.Is(err, store.ErrNotFound) || errors.Is(err, archive.ErrDamaged)) {
					return nil
				}
				if err != nil {
					return err
				}
				name, err := segment.ParseName(a.TopicsDir(), s.Key)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				all, err := finder.All(gctx, record.TopicPartition{Topic: name.Topic, Partition: name.Partition}, h)
				if err != nil {
					return err
				}
				w.add(p.Topic, all)
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return w.list()
}
