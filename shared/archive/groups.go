package archive

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
)

const groupsDir = dir + "groups/"

const groupsFormat = 1

// GroupSnapshot is what positions consumer groups had, in archived topics, at the latest at Time.
type GroupSnapshot struct {
	Version   int               `json:"version"` // of this object's format; set by KeepGroups
	ClusterID string            `json:"clusterId"`
	Time      int64             `json:"time"`   // ms since the epoch, by the writer's clock, when the last position had been read
	Topics    map[string]string `json:"topics"` // ids of the topics that positions name
	Groups    []GroupPositions  `json:"groups"` // ascending by name; none without a position
}

// GroupPositions are the committed positions of one group, ascending by topic and partition.
type GroupPositions struct {
	Group     string          `json:"group"`
	Positions []GroupPosition `json:"positions"`
}

// GroupPosition is one committed position: the next offset to read.
type GroupPosition struct {
	Topic       string `json:"topic"`
	Partition   int32  `json:"partition"`
	Offset      int64  `json:"offset"`
	LeaderEpoch int32  `json:"leaderEpoch"` // −1: none
	Metadata    string `json:"metadata,omitempty"`
}

// Same reports whether both hold the same positions, whenever they were taken.
func (s *GroupSnapshot) Same(o *GroupSnapshot) bool {
	return s.ClusterID == o.ClusterID && maps.Equal(s.Topics, o.Topics) && slices.EqualFunc(s.Groups, o.Groups, func(a, b GroupPositions) bool {
		return a.Group == b.Group && slices.Equal(a.Positions, b.Positions)
	})
}

// Sort brings the snapshot into the order that it has in the archive.
func (s *GroupSnapshot) Sort() {
	for _, g := range s.Groups {
		slices.SortFunc(g.Positions, func(a, b GroupPosition) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
		})
	}
	slices.SortFunc(s.Groups, func(a, b GroupPositions) int { return cmp.Compare(a.Group, b.Group) })
}

// FormatGroupsName is the key of the snapshot of a time in ms: _tapedeck/groups/<2^63−1−ms>+<ms>.json.gz, both of 20 digits.
func FormatGroupsName(ms int64) string { return formatSnapshotName(groupsDir, ms) }

// ParseGroupsName is the reverse of FormatGroupsName.
func ParseGroupsName(key string) (ms int64, err error) { return parseSnapshotName(groupsDir, key) }

// KeepGroups writes a snapshot: one create. Errors: store.ErrExists where there is one of the same millisecond, and the store's others.
func (a *Archive) KeepGroups(ctx context.Context, s *GroupSnapshot) error {
	s.Version = groupsFormat
	s.Sort()
	if err := a.keepSnapshot(ctx, groupsDir, s.Time, s); err != nil {
		return fmt.Errorf("keep consumer groups: %w", err)
	}
	return nil
}

// Groups returns the newest snapshot that was complete at or before the time until, in ms: one LIST of one key and one GET. Errors:
// store.ErrNotFound where there is none so old, ErrForeign, the store's.
func (a *Archive) Groups(ctx context.Context, until int64) (*GroupSnapshot, error) {
	s := &GroupSnapshot{}
	err := a.snapshot(ctx, groupsDir, until, s, func() (int, int64) { return s.Version, s.Time }, groupsFormat)
	if err != nil {
		return nil, fmt.Errorf("find consumer groups at or before %d ms: %w", until, err)
	}
	return s, nil
}
