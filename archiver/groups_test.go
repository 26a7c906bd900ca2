package archiver

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/store"
)

// commitAs stores positions of a group that has no member.
func (e *env) commitAs(group string, offs map[kafka.TP]kafka.CommitOffset) {
	e.t.Helper()
	c, err := kafka.NewConsumer(kafka.ConsumerConfig{Client: e.client(), GroupID: group})
	if err != nil {
		e.t.Fatal(err)
	}
	if err := errors.Join(c.Commit(e.ctx(), offs), c.Close()); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) snapshots() (keys []string) {
	for _, k := range e.store.Keys() {
		if strings.HasPrefix(k, "_tapedeck/groups/") {
			keys = append(keys, k)
		}
	}
	return keys
}

// flat is what the newest snapshot says.
func (e *env) flat() string {
	s, err := e.arc.Groups(e.ctx(), math.MaxInt64)
	if err != nil {
		return ""
	}
	var out []string
	for _, g := range s.Groups {
		for _, p := range g.Positions {
			out = append(out, fmt.Sprintf("%s %s-%d %d/%d %q", g.Group, p.Topic, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata))
		}
	}
	return strings.Join(out, "; ")
}

// Positions of matching groups in archived topics are kept where they have changed, by one of two archivers; the archivers' own group never is.
func TestGroupsAreKept(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 2)
	e.topic("other", 1)
	e.fill("trips", 0, 0, 50)
	tp := func(topic string, p int32) kafka.TP { return kafka.TP{Topic: topic, Partition: p} }
	at := func(o int64, metadata string) kafka.CommitOffset {
		return kafka.CommitOffset{Offset: o, LeaderEpoch: record.NoEpoch, Metadata: metadata}
	}
	e.commitAs("billing", map[kafka.TP]kafka.CommitOffset{tp("trips", 0): at(30, "m"), tp("trips", 1): at(0, ""), tp("other", 0): at(5, "")})
	e.commitAs("noise-1", map[kafka.TP]kafka.CommitOffset{tp("trips", 0): at(1, "")})
	e.commitAs("elsewhere", map[kafka.TP]kafka.CommitOffset{tp("other", 0): at(1, "")})
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	s.Groups = GroupSelection{Pattern: regexp.MustCompile(`.*`), Exclude: regexp.MustCompile(`\Anoise.*\z`), Every: 100 * time.Millisecond}
	a, b := e.start(s), e.start(s)
	looks := func(rs ...*running) (n float64) {
		for _, r := range rs {
			n += r.metric("tapedeck_archiver_group_snapshots_total")
		}
		return n
	}
	first := `billing trips-0 30/-1 "m"; billing trips-1 0/-1 ""`
	e.awaitOr("a snapshot", e.flat, func() bool { return e.flat() == first })
	e.awaitArchived("trips", 0, 50)
	e.await("the archivers' own group has a position", func() bool { return e.committed("trips", 0).Offset == 50 })
	seen := looks(a, b)
	e.await("more looks", func() bool { return looks(a, b) >= seen+4 })
	if keys := e.snapshots(); len(keys) != 1 || e.flat() != first {
		t.Errorf("%v: %s", keys, e.flat())
	}
	before := time.Now().UnixMilli()
	e.commitAs("billing", map[kafka.TP]kafka.CommitOffset{tp("trips", 0): at(40, "")})
	second := `billing trips-0 40/-1 ""; billing trips-1 0/-1 ""`
	e.awaitOr("another snapshot", e.flat, func() bool { return e.flat() == second })
	a.end()
	b.end()
	c := e.start(s)
	e.await("a restarted archiver looks", func() bool { return looks(c) >= 2 })
	c.end()
	if keys := e.snapshots(); len(keys) != 2 {
		t.Errorf("%v", keys)
	}
	old, err := e.arc.Groups(e.ctx(), before-1)
	if err != nil || old.Groups[0].Positions[0].Offset != 30 || old.ClusterID != "test-cluster" || old.Topics["trips"] == "" || len(old.Topics) != 1 {
		t.Errorf("%+v, %v", old, err)
	}
}

func (e *env) groupKeeper(sel GroupSelection) (*groupKeeper, *prometheus.Registry) {
	e.t.Helper()
	all, err := e.admin.Topics(e.ctx())
	if err != nil {
		e.t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	k := &groupKeeper{admin: e.admin, arc: e.arc, clusterID: "c", own: "g", sel: sel, owned: &atomic.Pointer[[]kafka.TP]{}, log: testLog(e.t),
		m: newMetrics(reg)}
	k.owned.Store(&[]kafka.TP{{Topic: "trips", Partition: 0}})
	k.see(all, []string{"trips"})
	return k, reg
}

// A group that cannot be read keeps what was kept of it; a group that was deleted is left out of the next snapshot.
func TestAGroupThatCannotBeReadKeepsWhatItHad(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	trips := kafka.TP{Topic: "trips", Partition: 0}
	for i, g := range []string{"billing", "fraud"} {
		e.commitAs(g, map[kafka.TP]kafka.CommitOffset{trips: {Offset: int64(i + 1), LeaderEpoch: record.NoEpoch}})
	}
	k, reg := e.groupKeeper(GroupSelection{Names: []string{"billing", "fraud"}})
	k.look(e.ctx(), time.Now())
	if got := e.flat(); got != `billing trips-0 1/-1 ""; fraud trips-0 2/-1 ""` {
		t.Fatal(got)
	}
	e.fake.ControlKey(int16(kmsg.OffsetFetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		req := kreq.(*kmsg.OffsetFetchRequest)
		const denied = 30 // GROUP_AUTHORIZATION_FAILED
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		switch {
		case req.Group == "fraud":
			resp.ErrorCode = denied
		case slices.ContainsFunc(req.Groups, func(g kmsg.OffsetFetchRequestGroup) bool { return g.Group == "fraud" }):
			g := kmsg.NewOffsetFetchResponseGroup()
			g.Group, g.ErrorCode = "fraud", denied
			resp.Groups = append(resp.Groups, g)
		default:
			return nil, nil, false
		}
		return resp, nil, true
	})
	e.commitAs("billing", map[kafka.TP]kafka.CommitOffset{trips: {Offset: 10, LeaderEpoch: record.NoEpoch}})
	k.look(e.ctx(), time.Now())
	if got := e.flat(); got != `billing trips-0 10/-1 ""; fraud trips-0 2/-1 ""` {
		t.Error(got)
	}
	if n := (&running{e: e, reg: reg}).metric("tapedeck_archiver_groups_unread_total"); n != 1 {
		t.Errorf("groups_unread_total = %v", n)
	}
}

// Only the owner of the first partition keeps groups; the store is asked once by whoever becomes it, and times rise whatever the clock does.
func TestGroupKeeper(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 2)
	trips := kafka.TP{Topic: "trips", Partition: 0}
	k, _ := e.groupKeeper(GroupSelection{Pattern: regexp.MustCompile(`.*`), Every: time.Minute})
	now := time.Now()
	k.look(e.ctx(), now)
	if n := len(e.snapshots()); n != 0 {
		t.Errorf("%d snapshots where there is no group", n)
	}
	e.commitAs("billing", map[kafka.TP]kafka.CommitOffset{trips: {Offset: 1, LeaderEpoch: record.NoEpoch}})
	k.look(e.ctx(), now.Add(time.Minute-1))
	k.owned.Store(&[]kafka.TP{{Topic: "trips", Partition: 1}})
	k.look(e.ctx(), now.Add(time.Minute))
	if n := len(e.snapshots()); n != 0 {
		t.Errorf("%d snapshots before it is time, and by another", n)
	}
	// Another archiver's clock is ahead.
	ahead := now.Add(time.Hour).UnixMilli()
	if err := e.arc.KeepGroups(e.ctx(), &archive.GroupSnapshot{ClusterID: "c", Time: ahead}); err != nil {
		t.Fatal(err)
	}
	k.owned.Store(&[]kafka.TP{{Topic: "trips", Partition: 1}, trips})
	e.store.ResetCounts()
	k.look(e.ctx(), now.Add(2*time.Minute))
	k.look(e.ctx(), now.Add(3*time.Minute))
	k.look(e.ctx(), now.Add(4*time.Minute))
	if c := e.store.Counts(); c[store.OpList] != 1 || c[store.OpGet] != 1 || c[store.OpCreate] != 1 {
		t.Errorf("calls %v", c)
	}
	got, err := e.arc.Groups(e.ctx(), math.MaxInt64)
	if err != nil || got.Time != ahead+1 || len(got.Groups) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestGroupSelection(t *testing.T) {
	s := GroupSelection{Names: []string{"noise-kept"}, Pattern: regexp.MustCompile(`\A(?:a.*|noise.*)\z`), Exclude: regexp.MustCompile(`\Anoise.*\z`)}
	for name, want := range map[string]bool{"abc": true, "b": false, "noise-1": false, "noise-kept": true} {
		if s.Matches(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
	if (GroupSelection{}).Any() || !s.Any() || (GroupSelection{}).Matches("a") {
		t.Error("nothing selects nothing")
	}
}
