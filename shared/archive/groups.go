package archive

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/shared/store"
)

const groupsDir = dir + "groups/"

const (
	groupsFormat   = 1
	maxGroupsBytes = 1 << 30 // of a snapshot, uncompressed
)

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

// FormatGroupsName is the key of the snapshot of a time in ms: _tapedeck/groups/<2^63−1−ms>+<ms>.json.gz, both of 20 digits. The first number makes
// the newest one at or before a time the first of a listing.
func FormatGroupsName(ms int64) string {
	return fmt.Sprintf("%s%020d+%020d.json.gz", groupsDir, math.MaxInt64-ms, ms)
}

// ParseGroupsName is the reverse of FormatGroupsName.
func ParseGroupsName(key string) (ms int64, err error) {
	_, number, _ := strings.Cut(strings.TrimSuffix(key, ".json.gz"), "+")
	ms, err = strconv.ParseInt(number, 10, 64)
	if err != nil || ms < 0 || FormatGroupsName(ms) != key {
		return 0, fmt.Errorf("%w: %s is not the name of a snapshot of groups", ErrForeign, key)
	}
	return ms, nil
}

// KeepGroups writes a snapshot: one create. Errors: store.ErrExists where there is one of the same millisecond, and the store's others.
func (a *Archive) KeepGroups(ctx context.Context, s *GroupSnapshot) error {
	s.Version = groupsFormat
	if s.Time < 0 {
		return fmt.Errorf("keep consumer groups: time %d is before 1970", s.Time)
	}
	s.Sort()
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("keep consumer groups: %w", err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed) // without a name or time: nothing but the snapshot decides its bytes
	_, err = z.Write(data)
	if err = errors.Join(err, z.Close()); err != nil {
		return fmt.Errorf("keep consumer groups: %w", err)
	}
	if err := a.st.Create(ctx, FormatGroupsName(s.Time), packed.Bytes()); err != nil {
		return fmt.Errorf("create %s: %w", FormatGroupsName(s.Time), err)
	}
	return nil
}

// Groups returns the newest snapshot that was complete at or before the time until, in ms: one LIST of one key and one GET. Errors:
// store.ErrNotFound where there is none so old, ErrForeign, the store's.
func (a *Archive) Groups(ctx context.Context, until int64) (*GroupSnapshot, error) {
	what := fmt.Sprintf("find consumer groups at or before %d ms", until)
	if until < 0 {
		return nil, fmt.Errorf("%s: %w", what, store.ErrNotFound)
	}
	objs, _, err := a.st.List(ctx, groupsDir, fmt.Sprintf("%s%020d", groupsDir, math.MaxInt64-until), 1)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(objs) == 0 {
		return nil, fmt.Errorf("%s: %w", what, store.ErrNotFound)
	}
	key := objs[0].Key
	ms, err := ParseGroupsName(key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	data, err := a.st.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	s, err := parseGroups(data)
	if err == nil && s.Time != ms {
		err = fmt.Errorf("it is of the time %d", s.Time)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrForeign, key, err)
	}
	return s, nil
}

func parseGroups(data []byte) (*GroupSnapshot, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxGroupsBytes+1))
	if err != nil {
		return nil, err
	}
	if len(plain) > maxGroupsBytes {
		return nil, fmt.Errorf("more than %d bytes", maxGroupsBytes)
	}
	s := &GroupSnapshot{}
	if err := json.Unmarshal(plain, s); err != nil {
		return nil, err
	}
	switch {
	case s.Version > groupsFormat:
		return nil, fmt.Errorf("format %d, this program knows %d: use a newer version", s.Version, groupsFormat)
	case s.Version < 1:
		return nil, errors.New("not a snapshot of groups")
	}
	return s, nil
}
