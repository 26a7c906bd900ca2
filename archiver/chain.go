package archiver

import (
	"context"
	"errors"
	"fmt"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/segment"
)

// chain is where a log is archived.
type chain struct {
	incarnation int
	tail        *archive.Tail      // nil: nothing is there yet
	committed   kafka.CommitOffset // the group's position in it; offset −1: none
}

// findChain finds the chain of a log. The group's metadata says which one it was last, and where its tail was; where that is the log's, nothing
// else is asked. Only a chain that is new, or a topic that was created again, costs the calls of FindIncarnation.
func (w *workers) findChain(ctx context.Context, id segment.LogIdentity, committed kafka.CommitOffset) (chain, error) {
	hint, err := partition.ParseHint(committed.Metadata)
	if committed.Offset < 0 || err != nil {
		hint = partition.Hint{Start: -1, Incarnation: 1}
	}
	tail, err := w.arc.Tail(ctx, segment.Incarnation(id.Topic, hint.Incarnation), id.Partition, hint.Start)
	if err != nil {
		return chain{}, err
	}
	if tail != nil {
		if err := archive.CheckLog(tail.Header, id); err == nil {
			return chain{hint.Incarnation, tail, committed}, nil
		}
		if h := tail.Header; h.ClusterID != id.ClusterID || h.Isolation != id.Isolation {
			return chain{hint.Incarnation, tail, committed}, nil // another log for another reason: the partition says which
		}
	}
	n, err := w.arc.FindIncarnation(ctx, id, w.recreated == partition.RecreatedIncarnation)
	if errors.Is(err, archive.ErrRecreated) {
		return chain{}, fmt.Errorf("%w; set topic.recreated to incarnation to archive it as the topic's next one, or archive it under another prefix of the store", err)
	}
	if err != nil {
		return chain{}, err
	}
	if n == hint.Incarnation {
		return chain{n, tail, committed}, nil
	}
	// The group's position is one in an earlier log.
	if tail, err = w.arc.Tail(ctx, segment.Incarnation(id.Topic, n), id.Partition, -1); err != nil {
		return chain{}, err
	}
	return chain{n, tail, kafka.CommitOffset{Offset: -1}}, nil
}
