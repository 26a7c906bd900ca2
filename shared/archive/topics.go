package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// What a topic is, besides its records, is kept as a sequence: _tapedeck/topics/<topic>/<n, 20 digits>, n = 0, 1, 2, … The highest n holds.

const topicsDir = dir + "topics/"

const topicFormat = 1

// TopicInfo is what it takes to create a topic again.
type TopicInfo struct {
	Version           int               `json:"version"` // of this object's format; set by KeepTopic
	ClusterID         string            `json:"clusterId"`
	Topic             string            `json:"topic"`
	TopicID           string            `json:"topicId"`
	Partitions        int32             `json:"partitions"`
	ReplicationFactor int               `json:"replicationFactor"`
	Config            map[string]string `json:"config"` // what is set on the topic itself
}

// TopicName is the name of an object that holds a TopicInfo.
type TopicName struct {
	Topic string
	N     int64 // ≥ 0
}

// Format is the object's key.
func (n TopicName) Format() string { return fmt.Sprintf("%s%s/%020d", topicsDir, n.Topic, n.N) }

// ParseTopicName is the reverse of Format.
func ParseTopicName(key string) (TopicName, error) {
	topic, number, _ := strings.Cut(strings.TrimPrefix(key, topicsDir), "/")
	n, err := strconv.ParseInt(number, 10, 64)
	name := TopicName{topic, n}
	if err != nil || n < 0 || !segment.ValidTopic(topic) || name.Format() != key {
		return TopicName{}, fmt.Errorf("%w: %s is not the name of a topic's configuration", ErrForeign, key)
	}
	return name, nil
}

// KeepTopic records what a topic is now, where the newest record says anything else. Several writers with the same news write it once. Store
// calls: one LIST (per 1,000 changes), one GET of the newest, one create where something changed. Errors: ErrForeign, the store's.
func (a *Archive) KeepTopic(ctx context.Context, t TopicInfo) (written bool, err error) {
	t.Version = topicFormat
	if t.Config == nil {
		t.Config = map[string]string{}
	}
	data, err := json.Marshal(t) // keys of a map in ascending order
	if err != nil {
		return false, fmt.Errorf("keep the configuration of %s: %w", t.Topic, err)
	}
	for {
		n, have, err := a.newestTopic(ctx, t.Topic)
		if err != nil {
			return false, fmt.Errorf("keep the configuration of %s: %w", t.Topic, err)
		}
		if string(have) == string(data) {
			return false, nil
		}
		key := TopicName{t.Topic, n + 1}.Format()
		switch err := a.st.Create(ctx, key, data); {
		case err == nil:
			return true, nil
		case !errors.Is(err, store.ErrExists): // another writer was first: what did it write?
			return false, fmt.Errorf("create %s: %w", key, err)
		case ctx.Err() != nil:
			return false, ctx.Err()
		}
	}
}

// newestTopic returns the highest number and its object, −1 and nil where there is none.
func (a *Archive) newestTopic(ctx context.Context, topic string) (int64, []byte, error) {
	last, err := a.lastTopicName(ctx, topic)
	if err != nil || last.N < 0 {
		return -1, nil, err
	}
	data, err := a.st.Get(ctx, last.Format())
	if err != nil {
		return -1, nil, fmt.Errorf("read %s: %w", last.Format(), err)
	}
	return last.N, data, nil
}

func (a *Archive) lastTopicName(ctx context.Context, topic string) (TopicName, error) {
	last := TopicName{topic, -1}
	err := eachObject(ctx, a.st, topicsDir+topic+"/", func(o store.Object) (err error) {
		last, err = ParseTopicName(o.Key)
		return err
	})
	return last, err
}

// Topic returns what a topic was when it was last recorded; where topicID is not "", the topic of this id. Errors: store.ErrNotFound where there is none,
// ErrForeign, the store's.
func (a *Archive) Topic(ctx context.Context, topic, topicID string) (TopicInfo, error) {
	name, err := a.lastTopicName(ctx, topic)
	for ; err == nil && name.N >= 0; name.N-- {
		var t TopicInfo
		if t, err = a.topicInfo(ctx, name); err == nil && (topicID == "" || t.TopicID == topicID) {
			return t, nil
		}
	}
	if err == nil {
		err = store.ErrNotFound
	}
	return TopicInfo{}, fmt.Errorf("find the configuration of topic %s %s: %w", topic, topicID, err)
}

func (a *Archive) topicInfo(ctx context.Context, n TopicName) (TopicInfo, error) {
	var t TopicInfo
	if err := a.getJSON(ctx, n.Format(), &t); err != nil {
		return TopicInfo{}, err
	}
	switch {
	case t.Version > topicFormat:
		return TopicInfo{}, fmt.Errorf("%w: %s has format %d, this program knows %d: use a newer version", ErrForeign, n.Format(), t.Version, topicFormat)
	case t.Version < 1 || t.Topic != n.Topic || t.Partitions < 1:
		return TopicInfo{}, fmt.Errorf("%w: %s does not hold the configuration of its topic", ErrForeign, n.Format())
	}
	return t, nil
}

// Topics returns the newest record of each topic, by name: one listing of names, and per topic one LIST and one GET.
func (a *Archive) Topics(ctx context.Context) ([]TopicInfo, error) {
	names, err := a.st.ListDirs(ctx, topicsDir)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	out := make([]TopicInfo, 0, len(names))
	for _, name := range names {
		t, err := a.Topic(ctx, name, "")
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// Equal reports whether both say the same.
func (t TopicInfo) Equal(o TopicInfo) bool {
	return t.ClusterID == o.ClusterID && t.Topic == o.Topic && t.TopicID == o.TopicID && t.Partitions == o.Partitions &&
		t.ReplicationFactor == o.ReplicationFactor && maps.Equal(t.Config, o.Config)
}
