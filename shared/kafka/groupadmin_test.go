package kafka

import (
	"errors"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

// TestSetGroupOffsets: positions of a group that nobody has joined are set, also where it is not known yet; other positions stay; a group with members
// keeps what it has.
func TestSetGroupOffsets(t *testing.T) {
	e := newEnv(t)
	topic := e.topic(2)
	a, b := TP{Topic: topic}, TP{Topic: topic, Partition: 1}
	e.fill(a, 0, 10)
	group := unique("restored")
	set := func(offs map[TP]CommitOffset) {
		t.Helper()
		// A broker that has had no group yet makes its coordinators first.
		e.must(await(e.ctx(), "set positions", func() (bool, error) {
			err := e.admin.SetGroupOffsets(e.ctx(), group, offs)
			return err == nil, err
		}, func(error) bool { return true }))
	}
	if n, err := e.admin.GroupMembers(e.ctx(), group); n != 0 || err != nil {
		t.Errorf("members of a group that is not there: %d, %v", n, err)
	}
	set(map[TP]CommitOffset{a: {Offset: 3, LeaderEpoch: record.NoEpoch, Metadata: "note"}, b: {Offset: 0, LeaderEpoch: record.NoEpoch}})
	set(map[TP]CommitOffset{a: {Offset: 4, LeaderEpoch: record.NoEpoch}})
	want := map[TP]CommitOffset{a: {Offset: 4, LeaderEpoch: record.NoEpoch}, b: {Offset: 0, LeaderEpoch: record.NoEpoch}}
	check := func() {
		t.Helper()
		got, err := e.admin.GroupOffsets(e.ctx(), group)
		e.must(err)
		if len(got) != 2 || got[a] != want[a] || got[b] != want[b] {
			t.Errorf("%v, want %v", got, want)
		}
	}
	check()

	c := e.consumer(group)
	e.must(c.Subscribe([]string{topic}))
	e.assigned(c, 2)
	if n, err := e.admin.GroupMembers(e.ctx(), group); n != 1 || err != nil {
		t.Errorf("members of a group with one: %d, %v", n, err)
	}
	if err := e.admin.SetGroupOffsets(e.ctx(), group, map[TP]CommitOffset{a: {Offset: 9, LeaderEpoch: record.NoEpoch}}); !errors.Is(err, ErrGroupBusy) {
		t.Errorf("positions of a group with members: %v", err)
	}
	check()
}
