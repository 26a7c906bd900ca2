package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// A topic that was deleted and created again under its name is another log. Its chains are those of the topic's next incarnation, <topic>~2, ~3,
// …, for all of its partitions. Which log an incarnation is stands in an object of its own, created before the first segment, so that writers
// which saw different logs collide on it, as they do on segments:
//
//	_tapedeck/incarnations/<topic>/<n, 10 digits>    {"format":1,"clusterId":…,"topicId":…}, n ≥ 2
//
// The first incarnation has no such object: its log is the one of the segments in its folder.

// ErrStaleTopic: the topic id is that of a log which another has followed under its name. A broker that still tells it is behind.
var ErrStaleTopic = errors.New("the topic id is an earlier one")

// ErrRecreated: the archive holds another log of that topic, and no incarnation for this one.
var ErrRecreated = fmt.Errorf("%w: the topic was deleted and created again", ErrOtherLog)

const incarnationFormat = 1

type incarnation struct {
	Format    int    `json:"format"`
	ClusterID string `json:"clusterId"`
	TopicID   string `json:"topicId"`
}

func incarnationKey(topic string, n int) string {
	return fmt.Sprintf("%s%s/%010d", incarnationsDir, topic, n)
}

// Incarnations returns the numbers of a Kafka topic's incarnations from 2 on, ascending; none where it was never created again. One LIST.
func (a *Archive) Incarnations(ctx context.Context, topic string) ([]int, error) {
	prefix := incarnationsDir + topic + "/"
	var ns []int
	err := eachObject(ctx, a.st, prefix, func(o store.Object) error {
		n, err := strconv.Atoi(strings.TrimPrefix(o.Key, prefix))
		if err != nil || n < 2 || o.Key != incarnationKey(topic, n) {
			return fmt.Errorf("%w: %s is not the name of an incarnation", ErrForeign, o.Key)
		}
		ns = append(ns, n)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list incarnations of %s: %w", topic, err)
	}
	return ns, nil
}

// FindIncarnation returns which incarnation of its topic a log is, 1 where the archive holds nothing of the topic. Where the archive holds
// others only: ErrRecreated, or, with open, the number of the next one, which belongs to the log from then on. ErrStaleTopic; ErrOtherLog where
// the archive holds the topic of another cluster.
//
// Calls: 1 LIST of incarnations; where there are none, at most 1 LIST of the topic's partitions, 1 of segments and 1 header; else 1 GET for
// each, at most; and 1 PUT to open.
func (a *Archive) FindIncarnation(ctx context.Context, id segment.LogIdentity, open bool) (int, error) {
	for {
		n, opened, err := a.findIncarnation(ctx, id, open)
		if err != nil {
			return 0, fmt.Errorf("find the incarnation of %s: %w", id.Topic, err)
		}
		if opened {
			return n, nil
		}
	}
}

// findIncarnation is one round; found is false where another writer opened the next one meanwhile.
func (a *Archive) findIncarnation(ctx context.Context, id segment.LogIdentity, open bool) (n int, found bool, err error) {
	ns, err := a.Incarnations(ctx, id.Topic)
	if err != nil {
		return 0, false, err
	}
	newest := 1
	for i := len(ns) - 1; i >= 0; i-- {
		have, err := a.readIncarnation(ctx, id.Topic, ns[i])
		switch {
		case err != nil:
			return 0, false, err
		case have.ClusterID != id.ClusterID:
			return 0, false, fmt.Errorf("%w: %s is of cluster %s in the archive, not of %s", ErrOtherLog, segment.Incarnation(id.Topic, ns[i]), have.ClusterID, id.ClusterID)
		case have.TopicID != id.TopicID:
		case i == len(ns)-1:
			return ns[i], true, nil
		default:
			return 0, false, fmt.Errorf("%w: %s is incarnation %d, and %d is there", ErrStaleTopic, id.TopicID, ns[i], ns[len(ns)-1])
		}
		newest = max(newest, ns[i])
	}
	first, err := a.anyHeader(ctx, id.Topic)
	switch {
	case err != nil:
		return 0, false, err
	case first == nil && newest == 1:
		return 1, true, nil
	case first != nil && first.ClusterID != id.ClusterID:
		return 0, false, fmt.Errorf("%w: cluster id of %s is %q in the archive and %q in Kafka", ErrOtherLog, id.Topic, first.ClusterID, id.ClusterID)
	case first != nil && first.TopicID == id.TopicID && newest == 1:
		return 1, true, nil
	case first != nil && first.TopicID == id.TopicID:
		return 0, false, fmt.Errorf("%w: %s is the first incarnation, and %d is there", ErrStaleTopic, id.TopicID, newest)
	case !open:
		had := "unknown"
		if first != nil {
			had = first.TopicID
		}
		return 0, false, fmt.Errorf("%w: its id in Kafka is %s, the archive's first is %s", ErrRecreated, id.TopicID, had)
	}
	data, err := json.Marshal(incarnation{incarnationFormat, id.ClusterID, id.TopicID})
	if err != nil {
		return 0, false, err
	}
	n = newest + 1
	switch err := a.st.Create(ctx, incarnationKey(id.Topic, n), data); {
	case err == nil:
		return n, true, nil
	case errors.Is(err, store.ErrExists):
		return 0, false, nil // another writer's; look who it is
	default:
		return 0, false, fmt.Errorf("open incarnation %d: %w", n, err)
	}
}

func (a *Archive) readIncarnation(ctx context.Context, topic string, n int) (incarnation, error) {
	key := incarnationKey(topic, n)
	data, err := a.st.Get(ctx, key)
	if err != nil {
		return incarnation{}, err
	}
	var i incarnation
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&i); err != nil || i.Format != incarnationFormat || i.TopicID == "" {
		return incarnation{}, fmt.Errorf("%w: %s is not readable: %.100q", ErrForeign, key, data)
	}
	return i, nil
}

// anyHeader returns the first header of some partition of a topic's first incarnation, nil where there is none.
func (a *Archive) anyHeader(ctx context.Context, topic string) (*segment.Header, error) {
	tps, err := a.partitions(ctx, 1, topic)
	if err != nil || len(tps) == 0 {
		return nil, err
	}
	segs, _, err := a.segmentsFrom(ctx, record.TopicPartition{Topic: topic, Partition: tps[0].Partition}, 0, 1)
	if err != nil || len(segs) == 0 {
		return nil, err
	}
	t, err := a.readHeader(ctx, tps[0], segs[0].start)
	if err != nil {
		return nil, asForeign(err)
	}
	return t.Header, nil
}
