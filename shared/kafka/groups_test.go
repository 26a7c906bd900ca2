package kafka

import (
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

// TestGroups: groups with and without members are listed, and all their positions are read, with metadata and epoch.
func TestGroups(t *testing.T) {
	e := newEnv(t)
	a, b := TP{Topic: e.topic(2), Partition: 1}, TP{Topic: e.topic(1)}
	e.fill(a, 0, 10)
	simple, member := unique("simple"), unique("member")
	want := map[TP]CommitOffset{a: {Offset: 7, LeaderEpoch: 0, Metadata: "note"}, b: {Offset: 0, LeaderEpoch: record.NoEpoch}}
	writer := e.consumer(simple)
	// A broker that has had no group yet makes its coordinators first.
	e.must(await(e.ctx(), "commit", func() (bool, error) {
		err := writer.Commit(e.ctx(), want)
		return err == nil, err
	}, func(error) bool { return true }))
	c := e.consumer(member)
	e.must(c.Subscribe([]string{b.Topic}))
	e.assigned(c, 1)
	names, err := e.admin.Groups(e.ctx())
	e.must(err)
	if !slices.IsSorted(names) || !slices.Contains(names, simple) || !slices.Contains(names, member) {
		t.Errorf("%v: not %s and %s", names, simple, member)
	}
	got, err := e.admin.GroupOffsets(e.ctx(), simple)
	e.must(err)
	if len(got) != 2 || got[a] != want[a] || got[b] != want[b] {
		t.Errorf("%v, want %v", got, want)
	}
	if got, err := e.admin.GroupOffsets(e.ctx(), member); err != nil || len(got) != 0 {
		t.Errorf("of a group without positions: %v, %v", got, err)
	}
}
