package archive

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

func snapshot(at int64, groups ...string) *GroupSnapshot {
	s := &GroupSnapshot{ClusterID: "c", Time: at, Topics: map[string]string{"trips": "id"}}
	for i, g := range groups {
		s.Groups = append(s.Groups, GroupPositions{g, []GroupPosition{{"trips", 1, int64(i), 3, "m"}, {"trips", 0, 7, -1, ""}}})
	}
	return s
}

// TestGroups: the newest at or before a time, by one LIST of one key and one GET, whatever the number of snapshots.
func TestGroups(t *testing.T) {
	ctx := t.Context()
	st := mem.New()
	a := Open(st, "topics")
	if _, err := a.Groups(ctx, math.MaxInt64); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	times := []int64{0, 5, 1_000, 1_001, 1_700_000_000_000}
	for _, at := range times {
		if err := a.KeepGroups(ctx, snapshot(at, "b", "a")); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.KeepGroups(ctx, snapshot(5, "c")); !errors.Is(err, store.ErrExists) {
		t.Errorf("a second one of the same time: %v", err)
	}
	for _, c := range []struct{ until, want int64 }{{-1, -1}, {0, 0}, {4, 0}, {5, 5}, {999, 5}, {1_000, 1_000}, {1_001, 1_001}, {1_002, 1_001},
		{1_700_000_000_000, 1_700_000_000_000}, {math.MaxInt64, 1_700_000_000_000}} {
		st.ResetCounts()
		s, err := a.Groups(ctx, c.until)
		if c.want < 0 {
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("until %d: %v", c.until, err)
			}
			continue
		}
		if err != nil || s.Time != c.want {
			t.Errorf("until %d: %+v, %v", c.until, s, err)
			continue
		}
		if n := st.Counts(); n["list"] != 1 || n["get"] != 1 || len(n) != 2 {
			t.Errorf("calls %v", n)
		}
		if !s.Same(snapshotSorted(c.want, "a", "b")) {
			t.Errorf("until %d: %+v", c.until, s.Groups)
		}
	}
	if err := a.KeepGroups(ctx, snapshot(-1)); err == nil {
		t.Error("before 1970")
	}
	if names, err := a.Groups(ctx, 0); err != nil || names.Groups[0].Group != "a" || names.Groups[0].Positions[0].Partition != 0 {
		t.Errorf("order: %+v, %v", names, err)
	}
}

func snapshotSorted(at int64, groups ...string) *GroupSnapshot {
	s := snapshot(at, groups...)
	s.Groups[0].Positions[0].Offset, s.Groups[1].Positions[0].Offset = 1, 0 // as TestGroups gave them to b and a
	s.Sort()
	return s
}

func TestSnapshotsDiffer(t *testing.T) {
	a := snapshot(1, "a", "b")
	if !a.Same(snapshot(2, "a", "b")) {
		t.Error("another time is no difference")
	}
	for name, change := range map[string]func(*GroupSnapshot){
		"offset":   func(s *GroupSnapshot) { s.Groups[0].Positions[0].Offset++ },
		"metadata": func(s *GroupSnapshot) { s.Groups[0].Positions[0].Metadata = "" },
		"epoch":    func(s *GroupSnapshot) { s.Groups[0].Positions[0].LeaderEpoch++ },
		"group":    func(s *GroupSnapshot) { s.Groups[1].Group = "c" },
		"fewer":    func(s *GroupSnapshot) { s.Groups = s.Groups[:1] },
		"topic id": func(s *GroupSnapshot) { s.Topics["trips"] = "other" },
		"cluster":  func(s *GroupSnapshot) { s.ClusterID = "d" },
	} {
		b := snapshot(1, "a", "b")
		change(b)
		if a.Same(b) {
			t.Error(name)
		}
	}
}

// TestManyGroups: a snapshot of 10,000 groups is one object of moderate size.
func TestManyGroups(t *testing.T) {
	st := mem.New()
	a := Open(st, "topics")
	s := &GroupSnapshot{ClusterID: "c", Time: 1, Topics: map[string]string{"trips": "id"}}
	for i := range 10_000 {
		g := GroupPositions{Group: fmt.Sprintf("group-%05d", i)}
		for p := range int32(12) {
			g.Positions = append(g.Positions, GroupPosition{"trips", p, int64(i) * 7919 * int64(p+1) % 1_000_003, 3, ""})
		}
		s.Groups = append(s.Groups, g)
	}
	if err := a.KeepGroups(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	objs, _, err := st.List(t.Context(), groupsDir, "", 0)
	if err != nil || len(objs) != 1 || objs[0].Size > 2<<20 {
		t.Errorf("%+v, %v", objs, err)
	}
	t.Logf("%d bytes", objs[0].Size)
	if got, err := a.Groups(t.Context(), 1); err != nil || !got.Same(s) {
		t.Error(err)
	}
}

func TestDamagedGroups(t *testing.T) {
	good := mem.New()
	if err := Open(good, "topics").KeepGroups(t.Context(), snapshot(7, "a")); err != nil {
		t.Fatal(err)
	}
	data, err := good.Get(t.Context(), FormatGroupsName(7))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key  string
		data []byte
	}{
		"another time": {FormatGroupsName(8), data}, "cut off": {FormatGroupsName(7), data[:len(data)-9]}, "not gzip": {FormatGroupsName(7), []byte("{}")},
		"name": {groupsDir + "x", data},
	} {
		st := mem.New()
		st.Put(c.key, c.data)
		if _, err := Open(st, "topics").Groups(t.Context(), math.MaxInt64); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), c.key) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzGroupsName(f *testing.F) {
	f.Add(FormatGroupsName(1_700_000_000_000))
	f.Add(groupsDir + "1+2.json.gz")
	f.Fuzz(func(t *testing.T, key string) {
		if ms, err := ParseGroupsName(key); err == nil && FormatGroupsName(ms) != key {
			t.Fatalf("%q is not %q", key, FormatGroupsName(ms))
		}
	})
}
