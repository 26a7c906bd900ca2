package archiver

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/schema/schematest"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

func (e *env) levelSnapshots() (keys []string) {
	for _, k := range e.store.Keys() {
		if strings.HasPrefix(k, "_tapedeck/compatibility/") {
			keys = append(keys, k)
		}
	}
	return keys
}

// levels is what the newest snapshot says.
func (e *env) levels() string {
	s, err := e.arc.Levels(e.ctx(), math.MaxInt64)
	if err != nil {
		return ""
	}
	out := []string{s.Global}
	for _, subject := range slices.Sorted(maps.Keys(s.Subjects)) {
		out = append(out, fmt.Sprintf("%s=%q", subject, s.Subjects[subject]))
	}
	return strings.Join(out, " ")
}

// levelled is a registry with two subjects, of which trips-value has a level of its own.
func (e *env) levelled() (*schematest.Registry, *schema.Registry) {
	e.t.Helper()
	f := schematest.New()
	e.t.Cleanup(f.Close)
	f.Seed("trips-value", 1, 1, schematest.Schema{Schema: `{"type":"record","name":"Trip","fields":[]}`})
	f.Seed("users-value", 1, 2, schematest.Schema{Schema: `{"type":"record","name":"User","fields":[]}`})
	f.SetLevel("trips-value", "FULL")
	reg, err := schema.NewRegistry(schema.Config{URL: f.URL})
	if err != nil {
		e.t.Fatal(err)
	}
	return f, reg
}

// TestLevelsAreKept: two archivers, each with a topic of its own schema, keep one snapshot of both, and another where a level has changed.
func TestLevelsAreKept(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	f, reg := e.levelled()
	e.topic("trips", 2)
	p := e.producer("")
	for part := range int32(2) {
		e.send(p, "trips", part, record.Record{Value: framed(1 + int(part))}, record.Record{Value: framed(1 + int(part))})
	}
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 2
	s.Partition.SchemaIDs = true
	s.LevelsEvery = 100 * time.Millisecond
	with := func(p *Parts) { p.Registry = reg }
	a, b := e.start(s, with), e.start(s, with)
	looks := func() float64 {
		const name = "tapedeck_archiver_compatibility_snapshots_total"
		return a.metric(name) + b.metric(name)
	}
	first := `BACKWARD trips-value="FULL" users-value=""`
	e.awaitOr("both subjects", e.levels, func() bool { return e.levels() == first })
	var keys []string
	e.await("looks that keep nothing, since nothing has changed", func() bool {
		keys = e.levelSnapshots()
		seen := looks()
		e.await("more looks", func() bool { return looks() >= seen+4 })
		return slices.Equal(e.levelSnapshots(), keys)
	})
	f.SetLevel("users-value", "NONE")
	f.SetLevel("", "FORWARD")
	second := `FORWARD trips-value="FULL" users-value="NONE"`
	e.awaitOr("another snapshot", e.levels, func() bool { return e.levels() == second })
	a.end()
	b.end()
	if got := len(e.levelSnapshots()); got > len(keys)+2 { // the two changes may be seen one by one
		t.Errorf("%d snapshots, before %d", got, len(keys))
	}
	e.checkClean()
}

// TestLevelsOfAShortRun: a run that ends before it was time keeps levels all the same, at its end.
func TestLevelsOfAShortRun(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	_, reg := e.levelled()
	e.topic("trips", 1)
	e.send(e.producer(""), "trips", 0, record.Record{Value: framed(1)})
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 1
	s.Partition.SchemaIDs = true
	s.Refresh = 200 * time.Millisecond
	s.LevelsEvery = time.Hour
	r := e.start(s, func(p *Parts) { p.Registry = reg })
	e.awaitArchived("trips", 0, 1)
	e.send(e.producer(""), "trips", 0, record.Record{Value: framed(2)})
	e.awaitArchived("trips", 0, 2)
	r.end()
	if got := e.levels(); got != `BACKWARD trips-value="FULL" users-value=""` {
		t.Errorf("%q", got)
	}
}

// TestLevelsThatAreNotToBeHad: a registry whose /config does not answer, or is not there, holds nothing up, and nothing is kept.
func TestLevelsThatAreNotToBeHad(t *testing.T) {
	t.Parallel()
	for _, status := range []int{503, 404} {
		e := newEnv(t)
		f, reg := e.levelled()
		f.Hook(func(_, path string) int {
			if strings.HasPrefix(path, "/config") {
				return status
			}
			return 0
		})
		e.topic("trips", 1)
		s := e.settings("trips")
		s.Partition.Rule.FlushSize = 1
		s.Partition.SchemaIDs = true
		s.LevelsEvery = 50 * time.Millisecond
		r := e.start(s, func(p *Parts) { p.Registry = reg })
		e.send(e.producer(""), "trips", 0, record.Record{Value: framed(1)})
		e.await("looks without an answer", func() bool { return r.metric("tapedeck_archiver_compatibility_snapshots_total") >= 2 })
		e.send(e.producer(""), "trips", 0, record.Record{Value: framed(2)})
		e.awaitArchived("trips", 0, 2)
		if err := r.Ready(); err != nil {
			t.Errorf("%d: %v", status, err)
		}
		if got := e.levelSnapshots(); len(got) != 0 {
			t.Errorf("%d: %v", status, got)
		}
		f.Hook(nil)
		e.awaitOr("levels when the registry answers", e.levels, func() bool { return strings.Contains(e.levels(), `trips-value="FULL"`) })
		r.end()
	}
}

func (e *env) levelKeeper(reg *schema.Registry, leads *bool) *levelKeeper {
	return &levelKeeper{registry: reg, arc: e.arc, leads: func() bool { return *leads }, every: time.Minute, log: testLog(e.t), m: newMetrics(prometheus.NewRegistry())}
}

// TestLevelKeeper: only the one that leads asks, with the calls that docs/archive.md names; times rise whatever the clock does; one
// subject that cannot be read is no snapshot; a registry that was rebuilt empty takes nothing away, and one that has lost a level does.
func TestLevelKeeper(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	f, reg := e.levelled()
	leads := false
	k := e.levelKeeper(reg, &leads)
	now := time.Now()
	look := func(want string, n int) {
		t.Helper()
		k.look(e.ctx(), now, false)
		if got, keys := e.levels(), e.levelSnapshots(); got != want || len(keys) != n {
			t.Errorf("%q, want %q; %v", got, want, keys)
		}
	}
	leads = true
	look("", 0) // no schemas are archived
	if calls := f.Calls(); len(calls) != 0 {
		t.Errorf("asked %v", calls)
	}
	for id, subject := range map[int]string{1: "trips-value", 2: "users-value"} {
		if err := e.arc.KeepSchema(e.ctx(), segment.Schema{ID: id, Type: "AVRO", Text: "x", Subject: subject, Version: 1}); err != nil {
			t.Fatal(err)
		}
	}
	leads = false
	look("", 0)
	// Another archiver's clock is ahead.
	ahead := now.Add(time.Hour).UnixMilli()
	if err := e.arc.KeepLevels(e.ctx(), &archive.LevelSnapshot{Time: ahead, Global: "NONE"}); err != nil {
		t.Fatal(err)
	}
	leads = true
	f.Hook(func(_, path string) int {
		if path == "/config/users-value" {
			return 503
		}
		return 0
	})
	look("NONE", 1)
	f.Hook(nil)
	first := `BACKWARD trips-value="FULL" users-value=""`
	look(first, 2)
	e.store.ResetCounts()
	k.look(e.ctx(), now, false)
	k.look(e.ctx(), now, true) // nothing is new
	if c := e.store.Counts(); c[store.OpList] != 3+2 || c[store.OpGet] != 1 || len(c) != 2 {
		t.Errorf("calls %v", c)
	}
	if s, err := e.arc.Levels(e.ctx(), math.MaxInt64); err != nil || s.Time != ahead+1 {
		t.Errorf("%+v, %v", s, err)
	}
	f.Delete("trips-value", 1)
	f.SetLevel("trips-value", "")
	look(first, 2)
	f.Seed("trips-value", 2, 1, schematest.Schema{Schema: "x"})
	look(`BACKWARD trips-value="" users-value=""`, 3)
}
