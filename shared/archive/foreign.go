package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// foreignPartitions bounds how many partitions CheckForeign looks into.
const foreignPartitions = 100

// CheckForeign refuses a prefix that holds objects in the shape of segments that are not Tapedeck's (reads one header per partition found, bounded).
//
// The usual case is the prefix of another Kafka-to-S3 sink, whose names have the same shape and whose files are Avro too.
// Writing beside them would make two archives out of one folder. Of each of the first 100 partitions it looks at the names on
// one page and at the header of the first object. Folders of another shape (year=…) are nobody's business here.
func (a *Archive) CheckForeign(ctx context.Context) error {
	tps, err := a.partitions(ctx, foreignPartitions)
	if err != nil {
		return fmt.Errorf("check the prefix for foreign objects: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, tp := range tps {
		g.Go(func() error {
			segs, _, err := a.segmentsFrom(ctx, tp, 0, 0)
			if err != nil || len(segs) == 0 {
				return err
			}
			_, err = a.readHeader(ctx, tp, segs[0].start)
			if errors.Is(err, store.ErrNotFound) {
				return nil // expired in between
			}
			if errors.Is(err, ErrDamaged) {
				return nil // ours; it concerns this partition alone, and whoever reads it is told
			}
			return asForeign(err)
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("check the prefix for foreign objects: %w", err)
	}
	return nil
}

// List returns the partitions that have a chain, sorted. topics empty: all.
func (a *Archive) List(ctx context.Context, topics ...string) ([]record.TopicPartition, error) {
	tps, err := a.partitions(ctx, 0, topics...)
	if err != nil {
		return nil, fmt.Errorf("list the partitions of the archive: %w", err)
	}
	return tps, nil
}

// partitions lists partition folders, sorted; max > 0 bounds their number and with it the calls. A folder that begins with
// "partition=" below a topic's and is none of ours is ErrForeign.
func (a *Archive) partitions(ctx context.Context, max int, topics ...string) ([]record.TopicPartition, error) {
	if len(topics) == 0 {
		dirs, err := a.st.ListDirs(ctx, a.topicsDir+"/")
		if err != nil {
			return nil, fmt.Errorf("list topics below %s/: %w", a.topicsDir, err)
		}
		for _, d := range dirs {
			if segment.ValidTopic(d) {
				topics = append(topics, d)
			}
		}
	}
	var tps []record.TopicPartition
	for _, topic := range topics {
		prefix := a.topicsDir + "/" + topic + "/"
		dirs, err := a.st.ListDirs(ctx, prefix)
		if err != nil {
			return nil, fmt.Errorf("list partitions below %s: %w", prefix, err)
		}
		for _, d := range dirs {
			if !strings.HasPrefix(d, "partition=") {
				continue
			}
			// The name of a first segment in that folder parses exactly where the folder's name does.
			n, err := segment.ParseName(a.topicsDir, prefix+d+"/"+topic+"+"+strings.TrimPrefix(d, "partition=")+"+00000000000000000000.avro")
			if err != nil {
				return nil, fmt.Errorf("%w: %s%s is not a partition's folder", ErrForeign, prefix, d)
			}
			tps = append(tps, record.TopicPartition{Topic: topic, Partition: n.Partition})
			if len(tps) == max {
				break
			}
		}
		if max > 0 && len(tps) == max {
			break
		}
	}
	sortTPs(tps)
	return tps, nil
}
