package archiver

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

func TestParseStart(t *testing.T) {
	for text, want := range map[string]Start{
		"earliest":                       {Kind: StartEarliest},
		"latest":                         {Kind: StartLatest},
		"offsets":                        {Kind: StartOffsets},
		"group:connect-s3:prod":          {Kind: StartGroup, Group: "connect-s3:prod"},
		"timestamp:0":                    {Kind: StartTimestamp},
		"timestamp:1769846400000":        {Kind: StartTimestamp, Timestamp: 1769846400000},
		"timestamp:2026-01-31T08:00:00Z": {Kind: StartTimestamp, Timestamp: 1769846400000},
		"timestamp:2026-01-31T08:00Z":    {Kind: StartTimestamp, Timestamp: 1769846400000},
		"timestamp:2026-01-31T10:00:00.250+02:00": {Kind: StartTimestamp, Timestamp: 1769846400250},
	} {
		got, err := ParseStart(text)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v %s", text, err, d)
		}
		if again, err := ParseStart(got.String()); err != nil || !cmp.Equal(again, got) {
			t.Errorf("%s: back as %s: %+v, %v", text, got, again, err)
		}
	}
	for _, bad := range []string{"", "Latest", "latest:", "latest:1", "earliest:x", "offsets:a:0:1", "group", "group:", "timestamp", "timestamp:", "timestamp:-1", "timestamp:yesterday",
		"timestamp:2026-01-31T08:00:00", "timestamp:2026-01-31", "timestamp:1969-01-01T00:00:00Z", "now"} {
		if s, err := ParseStart(bad); err == nil {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}

func FuzzParseStart(f *testing.F) {
	for _, s := range []string{"earliest", "latest", "offsets", "group:connect-x", "timestamp:1", "timestamp:2026-01-31T10:00:00.25+02:00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseStart(text)
		if err != nil {
			return
		}
		if again, err := ParseStart(s.String()); err != nil || !cmp.Equal(again, s) {
			t.Errorf("%q is %+v, written %q, read %+v, %v", text, s, s, again, err)
		}
	})
}

func TestReadStart(t *testing.T) {
	sel := Selection{Names: []string{"trips"}, Pattern: regexp.MustCompile(`\A(?:a\..*)\z`)}
	got, err := readStart("offsets", []string{"trips:0:7", "trips:11:0", "a.b:2:9223372036854775807"}, "g", sel)
	want := map[kafka.TP]int64{{Topic: "trips"}: 7, {Topic: "trips", Partition: 11}: 0, {Topic: "a.b", Partition: 2}: 1<<63 - 1}
	if d := cmp.Diff(want, got.Offsets); err != nil || d != "" {
		t.Error(err, d)
	}
	for _, c := range []struct {
		start, names string
		offsets      []string
	}{
		{"sometimes", "start:", nil},
		{"offsets", "start.offsets", nil},
		{"latest", "start.offsets", []string{"trips:0:7"}},
		{"offsets", "start.offsets", []string{"trips:0"}},
		{"offsets", "start.offsets", []string{":0:7"}},
		{"offsets", "start.offsets", []string{"trips:-1:7"}},
		{"offsets", "start.offsets", []string{"trips:0:-7"}},
		{"offsets", "start.offsets", []string{"trips:0:x"}},
		{"offsets", "twice", []string{"trips:0:7", "trips:0:8"}},
		{"offsets", "do not select it", []string{"trips:0:7", "ab:0:8"}},
		{"group:g", "start: group:g", nil},
	} {
		if s, err := readStart(c.start, c.offsets, "g", sel); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%+v: %+v, %v", c, s, err)
		}
	}
}

// sink commits positions as another group's consumer.
func (e *env) sink(group string, positions map[kafka.TP]int64) {
	e.t.Helper()
	c, err := kafka.NewConsumer(kafka.ConsumerConfig{Client: e.client(), GroupID: group})
	if err != nil {
		e.t.Fatal(err)
	}
	offs := map[kafka.TP]kafka.CommitOffset{}
	for tp, o := range positions {
		offs[tp] = kafka.CommitOffset{Offset: o, LeaderEpoch: record.NoEpoch}
	}
	if err := c.Commit(e.ctx(), offs); err != nil {
		e.t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		e.t.Fatal(err)
	}
}

// Every start, on a topic of three partitions with 100 records each; timestamps are 1_700_000_000_000 + offset.
func TestStarts(t *testing.T) {
	t.Parallel()
	tp := func(p int32) kafka.TP { return kafka.TP{Topic: "trips", Partition: p} }
	for _, tt := range []struct {
		name  string
		start Start
		want  [3]int64 // first offset archived
		from  [3]string
	}{
		{"earliest", Start{}, [3]int64{0, 0, 0}, [3]string{"earliest", "earliest", "earliest"}},
		{"latest", Start{Kind: StartLatest}, [3]int64{100, 100, 100}, [3]string{"latest", "latest", "latest"}},
		{"timestamp", Start{Kind: StartTimestamp, Timestamp: 1_700_000_000_042}, [3]int64{42, 42, 42}, [3]string{"timestamp:", "timestamp:", "timestamp:"}},
		{"a time to come", Start{Kind: StartTimestamp, Timestamp: 1_900_000_000_000}, [3]int64{100, 100, 100}, [3]string{"timestamp:", "timestamp:", "timestamp:"}},
		{"offsets", Start{Kind: StartOffsets, Offsets: map[kafka.TP]int64{tp(0): 10, tp(2): 100}}, [3]int64{10, 0, 100}, [3]string{"start.offsets", "says nothing", "start.offsets"}},
		{"group", Start{Kind: StartGroup, Group: "connect-s3"}, [3]int64{30, 0, 99}, [3]string{"group:connect-s3", "has no position", "group:connect-s3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.topic("trips", 3)
			for p := range int32(3) {
				e.fill("trips", p, 0, 100)
			}
			e.sink("connect-s3", map[kafka.TP]int64{tp(0): 30, tp(2): 99})
			s := e.settings("trips")
			s.Start = tt.start
			s.Partition.Rule.FlushSize = 40
			s.Partition.RotateAge = 200 * time.Millisecond
			r := e.start(s)
			for p := range int32(3) {
				e.awaitSeam(r, p, tt.want[p], tt.from[p])
			}
			for p := range int32(3) {
				e.send(e.producer(""), "trips", p, numbered(100, 1)...)
				e.awaitArchived("trips", p, 101)
			}
			r.end()
			for p := range int32(3) {
				e.checkBegins(p, tt.want[p])
			}
			e.checkClean() // what was not to be archived is no finding

			// Another start changes nothing in a chain that is there.
			s.Start = Start{Kind: StartLatest}
			if tt.start.Kind == StartLatest {
				s.Start = Start{}
			}
			for p := range int32(3) {
				e.send(e.producer(""), "trips", p, numbered(101, 9)...)
			}
			r = e.start(s)
			for p := range int32(3) {
				e.awaitArchived("trips", p, 110)
				var st *PartitionStatus
				e.await("a status", func() bool { st = r.state("trips", p); return st != nil && st.State == partition.Fetching })
				if st.Seam != nil {
					t.Errorf("a seam of a chain that was there: %+v", st)
				}
			}
			r.end()
			for p := range int32(3) {
				e.checkBegins(p, tt.want[p])
			}
			e.checkClean()
		})
	}
}

func (e *env) awaitSeam(r *running, p int32, offset int64, source string) {
	e.t.Helper()
	var st *PartitionStatus
	e.awaitOr("a seam", func() string { return fmt.Sprintf("%+v", st) }, func() bool {
		st = r.state("trips", p)
		return st != nil && st.Seam != nil
	})
	if st.Seam.Offset != offset || !strings.Contains(st.Seam.Source, source) {
		e.t.Errorf("partition %d: seam %+v, want %d %s", p, st.Seam, offset, source)
	}
}

// checkBegins demands that trips-p holds all of the log from an offset on, and says that what is below was not to be archived.
func (e *env) checkBegins(p int32, first int64) {
	e.t.Helper()
	e.checkEqual("trips", p, e.log("trips", p)[first:])
	h := e.headers("trips", p)[0]
	want := []segment.Skip{{From: 0, To: first, Class: segment.NotArchived}}
	if first == 0 {
		want = nil
	}
	if h.Start != 0 || len(h.Skipped) != len(want) || len(want) > 0 && !cmp.Equal(want, h.Skipped) {
		e.t.Errorf("partition %d: the first segment starts at %d and skips %v, want %v", p, h.Start, h.Skipped, want)
	}
}

// A start that was chosen holds from the moment it was chosen: a process that ends before its first segment does not let the next choose again.
func TestALatestStartIsWrittenAtOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 50)
	s := e.settings("trips") // segments end by age alone, after an hour
	s.Start = Start{Kind: StartLatest}
	r := e.start(s)
	e.awaitArchived("trips", 0, 50)
	r.end()
	e.fill("trips", 0, 50, 10)
	s.Partition.RotateAge = 200 * time.Millisecond
	r = e.start(s)
	e.awaitArchived("trips", 0, 60)
	r.end()
	e.checkBegins(0, 50)
}

// What the sink did not take and Kafka has removed since is a gap, not a start.
func TestATakeOverWithAGap(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 100)
	e.sink("connect-s3", map[kafka.TP]int64{{Topic: "trips"}: 30})
	if err := e.admin.DeleteRecords(e.ctx(), map[kafka.TP]int64{{Topic: "trips"}: 60}); err != nil {
		t.Fatal(err)
	}
	s := e.settings("trips")
	s.Start = Start{Kind: StartGroup, Group: "connect-s3"}
	r := e.start(s)
	if st := r.awaitStopped("trips", 0, partition.Gap); !strings.Contains(st.Error, "30 to 59") {
		t.Error(st.Error)
	}
	r.end()
	if n := len(e.objects("trips", 0)); n != 0 {
		t.Errorf("%d objects", n)
	}
	s.Partition.Gap = partition.GapRecord
	s.Partition.RotateAge = 200 * time.Millisecond
	r = e.start(s)
	e.awaitArchived("trips", 0, 100)
	r.end()
	want := []segment.Skip{{From: 0, To: 30, Class: segment.NotArchived}, {From: 30, To: 60, Class: segment.Lost}}
	if d := cmp.Diff(want, e.headers("trips", 0)[0].Skipped); d != "" {
		t.Error(d)
	}
	if fs := e.findings(); len(fs) != 1 || fs[0].Kind != "lost" || !strings.Contains(fs[0].Text, "[30, 60)") {
		t.Errorf("%+v", fs)
	}
}

func TestStartsThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		start Start
		says  string
	}{
		{"a group that is not there", Start{Kind: StartGroup, Group: "connect-s4"}, "group connect-s4 has no position in this cluster"},
		{"a group's position of another log", Start{Kind: StartGroup, Group: "connect-s3"}, "offset 500 (group:connect-s3) of trips-0 is beyond the log's end 100"},
		{"an offset beyond the end", Start{Kind: StartOffsets, Offsets: map[kafka.TP]int64{{Topic: "trips"}: 101}}, "offset 101 (start.offsets)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.topic("trips", 1)
			e.fill("trips", 0, 0, 100)
			e.sink("connect-s3", map[kafka.TP]int64{{Topic: "trips"}: 500})
			s := e.settings("trips")
			s.Start = tt.start
			r := e.start(s)
			if st := r.awaitStopped("trips", 0, partition.BadStart); !strings.Contains(st.Error, tt.says) {
				t.Error(st.Error)
			}
			r.end()
			if n := len(e.objects("trips", 0)); n != 0 {
				t.Errorf("%d objects", n)
			}
		})
	}
}

// Of topics and partitions that appear while it runs nothing is left out, whatever `start` says.
func TestWhatComesLaterBeginsAtZero(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("a.trips", 1)
	e.fill("a.trips", 0, 0, 20)
	s := e.settings()
	s.Topics = Selection{Pattern: regexp.MustCompile(`\A(?:a\..*)\z`)}
	s.Start = Start{Kind: StartLatest}
	s.Partition.RotateAge = 200 * time.Millisecond
	s.Refresh = 4 * time.Second // so that they hold records when they are seen
	r := e.start(s)
	e.awaitArchived("a.trips", 0, 20)
	if err := e.admin.CreatePartitions(e.ctx(), "a.trips", 2); err != nil {
		t.Fatal(err)
	}
	e.fill("a.trips", 1, 0, 30)
	e.topic("a.new", 1)
	e.fill("a.new", 0, 0, 40)
	e.awaitArchived("a.trips", 1, 30)
	e.awaitArchived("a.new", 0, 40)
	r.end()
	e.checkEqual("a.trips", 0, nil)
	e.checkEqual("a.trips", 1, e.log("a.trips", 1))
	e.checkEqual("a.new", 0, e.log("a.new", 0))
	e.checkClean()
}

// Two archivers that do not agree where a chain begins collide on its first name: one chain comes out, and it is one of theirs.
func TestTwoStartsCollide(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 100)
	// Both stand before their first create; then the one that begins at the end of the log goes first.
	var waiting atomic.Int32
	first, all := make(chan struct{}), make(chan struct{})
	hold := func(until <-chan struct{}) func(context.Context) {
		return func(ctx context.Context) {
			select {
			case <-until:
			case <-ctx.Done():
			}
		}
	}
	gate := func(wait func(context.Context)) func(*Parts) {
		return func(p *Parts) {
			p.Store = &gated{Store: p.Store, before: func(ctx context.Context, key string) {
				if strings.HasPrefix(key, "topics/") {
					if waiting.Add(1) == 2 {
						close(all)
					}
					wait(ctx)
				}
			}}
		}
	}
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	late := s
	late.Group, late.Start = "g2", Start{Kind: StartLatest}
	a := e.start(s, gate(hold(first)))
	b := e.start(late, gate(hold(all)))
	e.awaitArchived("trips", 0, 100)
	close(first)
	e.await("adoption", func() bool { return a.metric("tapedeck_archiver_adopted_total") >= 1 })
	e.fill("trips", 0, 100, 40)
	e.awaitArchived("trips", 0, 140)
	a.end()
	b.end()
	e.checkBegins(0, 100)
	e.checkClean()
}

// gated runs before at each create.
type gated struct {
	store.Store
	before func(ctx context.Context, key string)
}

func (g *gated) Create(ctx context.Context, key string, data []byte, with ...store.Attributes) error {
	g.before(ctx, key)
	return g.Store.Create(ctx, key, data, with...)
}
