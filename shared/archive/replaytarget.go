package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tapedeck.dev/tapedeck/shared/store"
)

// A topic that a replay writes to has an object of its topic id. It is archived only where it is named: a pattern that matched it would archive the
// archive.
const replayTargetsDir = dir + "replay-targets/"

// ReplayTarget is what the object says.
type ReplayTarget struct {
	ClusterID string `json:"clusterId"`
	Topic     string `json:"topic"`
	TopicID   string `json:"topicId"`
}

// MarkReplayTarget says that a replay writes to a topic. It can be repeated.
func (a *Archive) MarkReplayTarget(ctx context.Context, t ReplayTarget) error {
	data, err := json.Marshal(t)
	if err == nil {
		err = a.st.Create(ctx, replayTargetsDir+t.TopicID, data)
	}
	if err != nil && !errors.Is(err, store.ErrExists) {
		return fmt.Errorf("mark topic %s as the target of a replay: %w", t.Topic, err)
	}
	return nil
}
