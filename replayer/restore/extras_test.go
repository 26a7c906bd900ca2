package restore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/schema/schematest"
	"tapedeck.dev/tapedeck/shared/segment"
)

// keep archives positions of one group: old offsets by partition of a topic.
func (g *rig) keep(at int64, group, topic string, positions ...int64) {
	g.t.Helper()
	s := &archive.GroupSnapshot{ClusterID: replaytest.Cluster, Time: at, Topics: map[string]string{topic: replaytest.TopicID(topic)}}
	p := archive.GroupPositions{Group: group}
	for i, o := range positions {
		p.Positions = append(p.Positions, archive.GroupPosition{Topic: topic, Partition: int32(i), Offset: o, LeaderEpoch: 3, Metadata: "kept"})
	}
	s.Groups = []archive.GroupPositions{p}
	g.must(g.a.KeepGroups(g.ctx(), s))
}

// resumed has a plain consumer of the group read everything that it is to read, and returns the values by partition.
func (g *rig) resumed(group, topic string, partitions int32) map[int32][]string {
	g.t.Helper()
	ends := map[int32]int64{}
	var tps []kafka.TP
	for p := range partitions {
		tps = append(tps, kafka.TP{Topic: topic, Partition: p})
	}
	logs, err := g.d.admin.Offsets(g.ctx(), tps)
	g.must(err)
	committed, err := g.d.admin.GroupOffsets(g.ctx(), group)
	g.must(err)
	open := 0
	for _, tp := range tps {
		if committed[tp].Offset < logs[tp].End {
			ends[tp.Partition] = logs[tp].End
			open++
		}
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(g.conf.Bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(), kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	g.must(err)
	defer c.Close()
	got := map[int32][]string{}
	for ctx := g.ctx(); open > 0; {
		fs := c.PollFetches(ctx)
		for _, e := range fs.Errors() {
			g.t.Fatalf("group %s: %s/%d: %v; read %d partitions", group, e.Topic, e.Partition, e.Err, len(got))
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				got[r.Partition] = append(got[r.Partition], string(r.Value))
			}
			if r.Offset+1 == ends[r.Partition] {
				open--
			}
		})
	}
	return got
}

// behind are the values of the archived records of a partition at or behind an old position.
func (g *rig) behind(topic string, p int32, position int64) []string {
	var out []string
	for _, r := range g.records(topic, p) {
		if r.Offset >= position {
			out = append(out, string(r.Value))
		}
	}
	return out
}

// TestGroupsResumeAtTheirNextRecord: positions at records, in gaps, before the restored range, at the end and beyond it, each in a partition of its own.
func TestGroupsResumeAtTheirNextRecord(t *testing.T) {
	g := newRig(t)
	rng := rand.New(rand.NewPCG(6, 6))
	topic := unique("trips")
	const n = 6
	gaps := make([]int64, n)
	for p := range int32(n) {
		tp := kafka.TP{Topic: topic, Partition: p}
		offset := int64(0)
		for range 4 {
			var rs []record.Record
			for range 20 {
				if rng.IntN(4) == 0 {
					gaps[p] = offset // compacted away
					offset++
				}
				rs = append(rs, replaytest.Record(tp, offset, 1_700_000_000_000+offset))
				offset++
			}
			g.a.Segment(t, tp, offset, rs)
		}
	}
	last := g.records(topic, 4)[79].Offset
	group := unique("billing")
	positions := []int64{0, g.records(topic, 1)[37].Offset, gaps[2], last, g.a.Header(kafka.TP{Topic: topic, Partition: 4}).Next, 10_000}
	positions[3] = g.records(topic, 3)[79].Offset
	g.keep(1000, group, topic, 1, 1, 1, 1, 1, 1) // an older snapshot
	g.keep(2000, group, topic, positions...)
	g.keep(3000, group, topic, 2, 2, 2, 2, 2, 2) // a newer one
	to := g.topic(n)
	to2 := group + "-2"
	j := g.job(value(`"topics":[%q],"topicMapping":{%q:%q},"bounds":{"%s/0":{"from":{"kind":"offset","value":10}}},"groups":{"names":[%q],"until":2500,"mapping":{%q:%q}}`,
		topic, topic, to, topic, group, group, to2))
	out, err := g.run(g.d, j)
	g.must(err)
	if len(out.Restored.Groups) != 1 || len(out.Restored.Groups[0].Positions) != n || out.Restored.Groups[0].To != to2 {
		t.Fatalf("outcome %+v", out.Restored.Groups)
	}
	positions[0] = 10 // nothing below was restored
	got := g.resumed(to2, to, n)
	for p := range int32(n) {
		if want := g.behind(topic, p, positions[p]); !slices.Equal(got[p], want) {
			t.Errorf("partition %d at %d (%+v) reads %d records %.60q, want %d %.60q", p, positions[p], out.Restored.Groups[0].Positions[p], len(got[p]), got[p], len(want), want)
		}
	}
	committed, err := g.d.admin.GroupOffsets(g.ctx(), to2)
	g.must(err)
	if c := committed[kafka.TP{Topic: to, Partition: 1}]; c.Metadata != "kept" || c.LeaderEpoch != record.NoEpoch {
		t.Errorf("committed %+v: the old cluster's epoch, or without metadata", c)
	}
}

// TestGroupsOfIncrementalRestores: a topic is restored in two jobs; a group in the first part, and one in the second, are right after both.
func TestGroupsOfIncrementalRestores(t *testing.T) {
	g := newRig(t)
	topic := unique("trips")
	g.fill(topic, 1, 200, 3)
	recs := g.records(topic, 0)
	border, early, late := recs[100].Offset, recs[40].Offset, recs[150].Offset
	a, b := unique("early"), unique("late")
	to := g.topic(1)
	restore := func(name, bounds string, group string, at, position int64) {
		t.Helper()
		g.keep(at, group, topic, position)
		_, err := g.run(g.d, g.job(value(`"topics":[%q],"topicMapping":{%q:%q},"ifNotEmpty":"append",%s,"groups":[%q]`, topic, topic, to, bounds, group)))
		g.must(err)
		if want := g.behind(topic, 0, position); name != "first" && !slices.Equal(g.resumed(group, to, 1)[0], want) {
			t.Errorf("%s: not resumed at %d", name, position)
		}
	}
	restore("first", value(`"until":{"kind":"offset","value":%d}`, border), a, 1000, early)
	restore("second", value(`"from":{"kind":"offset","value":%d}`, border), b, 2000, late)
	if want := g.behind(topic, 0, early); !slices.Equal(g.resumed(a, to, 1)[0], want) {
		t.Error("the first group is not right after both")
	}
	// The same again, of a group in the first part, planned by the second job.
	c := unique("again")
	g.keep(3000, c, topic, early)
	_, err := g.run(g.d, g.job(value(`"topics":[%q],"topicMapping":{%q:%q},"ifNotEmpty":"append","from":{"kind":"offset","value":%d},"groups":[%q]`, topic, topic, to, recs[199].Offset, c)))
	g.must(err)
	if got, want := g.resumed(c, to, 1)[0], append(g.behind(topic, 0, early), string(recs[199].Value)); len(got) < len(want)-1 || got[0] != want[0] {
		t.Errorf("planned by a later job: %d records from %.40q, want %d from %.40q", len(got), got[:1], len(want), want[:1])
	}
}

// TestGroupWithMembers: it is found before the first record; one that comes later fails the job at its end, and a retry restores it.
func TestGroupWithMembers(t *testing.T) {
	g := newRig(t)
	topic := unique("trips")
	g.fill(topic, 1, 60, 4)
	group := unique("busy")
	position := g.records(topic, 0)[30].Offset
	g.keep(1000, group, topic, position)
	to := g.topic(1)
	join := func() *kgo.Client {
		t.Helper()
		c, err := kgo.NewClient(kgo.SeedBrokers(g.conf.Bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(to), kgo.DisableAutoCommit())
		g.must(err)
		for ctx := g.ctx(); ; {
			c.PollFetches(func() context.Context {
				ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				t.Cleanup(cancel)
				return ctx
			}())
			if n, err := g.d.admin.GroupMembers(ctx, group); err == nil && n == 1 {
				return c
			}
			g.must(ctx.Err())
		}
	}
	fields := value(`"topics":[%q],"topicMapping":{%q:%q},"groups":[%q]`, topic, topic, to, group)
	member := join()
	j := g.job(fields)
	_, err := g.run(g.d, j)
	wantFailure(t, err, group, "members", "stop them")
	if got := g.read(kafka.TP{Topic: to}); len(got) > 0 {
		t.Errorf("%d records were restored before the group was found", len(got))
	}
	member.Close()

	j = g.job(fields)
	g.prepare(g.d, j)
	member = join()
	_, err = g.run(g.d, j)
	wantFailure(t, err, group, "members")
	member.Close()
	j = next(j)
	_, err = g.run(g.d, j)
	g.must(err)
	if want := g.behind(topic, 0, position); !slices.Equal(g.resumed(group, to, 1)[0], want) {
		t.Error("not resumed after the retry")
	}
	g.same(kafka.TP{Topic: to}, g.records(topic, 0))
	// A group that has gone on at the target is not put back.
	at := kafka.TP{Topic: to}
	g.must(g.d.admin.SetGroupOffsets(g.ctx(), group, map[kafka.TP]kafka.CommitOffset{at: {Offset: 60, LeaderEpoch: record.NoEpoch}}))
	out, err := g.run(g.d, next(j))
	g.must(err)
	if c, err := g.d.admin.GroupOffsets(g.ctx(), group); err != nil || c[at].Offset != 60 || out.Restored.Groups[0].Positions[0].New != 60 {
		t.Errorf("the group is at %d, %v; outcome %+v", c[at].Offset, err, out.Restored.Groups)
	}
}

func text(name string) string {
	return fmt.Sprintf(`{"type":"record","name":"%s","fields":[{"name":"id","type":"long"}]}`, name)
}

// encode archives records whose keys and values name schemas by the wire format, each segment with its own.
func (g *rig) encode(topic string, segments ...segment.Schema) {
	g.t.Helper()
	tp := kafka.TP{Topic: topic}
	offset := int64(0)
	for i, s := range segments {
		var rs []record.Record
		for range 10 {
			r := replaytest.Record(tp, offset, 1_700_000_000_000+offset)
			if i%2 == 0 {
				r.Key = append(schema.AppendWire(nil, s.ID), r.Key...)
			}
			r.Value = append(schema.AppendWire(nil, s.ID), s.Text...) // what it must be decoded with
			rs = append(rs, r)
			offset++
		}
		g.a.SegmentWith(g.t, tp, offset, rs, []segment.Schema{s})
	}
}

// decoded holds each restored record against the registry: its id must mean the text that it was written with.
func (g *rig) decoded(tp kafka.TP, url string) {
	g.t.Helper()
	reg, err := schema.NewRegistry(schema.Config{URL: url})
	g.must(err)
	for _, r := range g.read(tp) {
		id, payload, ok := schema.WireID(r.Value)
		if !ok {
			g.t.Fatalf("%+v has no id", r)
		}
		s, err := reg.ByID(g.ctx(), id)
		if err != nil || s.Text != string(payload) {
			g.t.Fatalf("offset %d: id %d is %q (%v), written with %q", r.Offset, id, s.Text, err, payload)
		}
		if keyID, _, ok := schema.WireID(r.Key); ok && keyID != id {
			g.t.Fatalf("offset %d: key has id %d, value %d", r.Offset, keyID, id)
		}
	}
}

// TestIDWithTwoMeanings: the archive knows id 7 in two meanings, by ranges; at the registry ids are taken, live and softly deleted. Every record is rewritten
// by its own segment's schema, or nothing is restored at all.
func TestIDWithTwoMeanings(t *testing.T) {
	registries := map[string]func() (url string, before func() string){
		"import": func() (string, func() string) {
			f := schematest.New()
			t.Cleanup(f.Close)
			f.Seed("other", 1, 70008, schematest.Schema{Schema: text("Other")})
			f.Seed("gone", 1, 70009, schematest.Schema{Schema: text("Gone")})
			f.Delete("gone", 1)
			return f.URL, f.Dump
		},
	}
	if url := os.Getenv("TAPEDECK_TEST_REGISTRY"); url != "" {
		registries["real"] = func() (string, func() string) { return url, func() string { return "" } }
	}
	for name, start := range registries {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			url, dump := start()
			g.conf.Registry = schema.Config{URL: url}
			topic := unique("trips")
			run := "R" + topic[len(topic)-6:]
			s := func(id, version int, name string) segment.Schema {
				return segment.Schema{ID: id, Type: "AVRO", Text: text(name + run), Subject: topic + "-value", Version: version}
			}
			g.encode(topic, s(70007, 1, "Old"), s(70008, 2, "Taken"), s(70007, 1, "New"), s(70009, 3, "Deleted"), s(70007, 1, "New"), s(70011, 4, "Free"))
			to := g.topic(1)
			d := g.target(small(nil))
			before := dump()
			fields := value(`"topics":[%q],"topicMapping":{%q:%q}`, topic, topic, to)
			_, err := g.run(d, g.job(fields+`,"registry":"same-ids"`))
			wantFailure(t, err, "under their own ids", `registry "restore"`)
			if got := g.read(kafka.TP{Topic: to}); len(got) > 0 || dump() != before {
				t.Errorf("%d records, and the registry:\n%s", len(got), dump())
			}
			j := g.job(fields + `,"registry":"restore"`)
			p := g.prepare(d, j)
			if len(p.Kafka.Registry.Rewritten[topic]) < 3 && name == "import" {
				t.Errorf("the plan says that %v change", p.Kafka.Registry.Rewritten)
			}
			out, err := d.Start(j, p).Execute(g.ctx())
			g.must(err)
			g.decoded(kafka.TP{Topic: to}, url)
			changed := int64(60)
			if name == "import" {
				changed = 30 // Old, Taken, Deleted
			}
			if got := out.Restored.Parts[0].Rewritten; got != changed && name == "import" {
				t.Errorf("%d records rewritten, want %d", got, changed)
			}
			if len(g.read(kafka.TP{Topic: to})) != 60 {
				t.Error("records are missing")
			}
		})
	}
}

// TestExtrasKilledAnywhere: killed at every step, records, registry and groups come out as of an undisturbed run.
func TestExtrasKilledAnywhere(t *testing.T) {
	for _, point := range append(slices.Clone(crashPoints), "before "+stepGroups) {
		for _, occurrence := range []int64{1, 2} {
			t.Run(value("%s %d", point, occurrence), func(t *testing.T) {
				t.Parallel()
				g := newRig(t)
				f := schematest.New()
				t.Cleanup(f.Close)
				f.Seed("other", 1, 7, schematest.Schema{Schema: text("Other")})
				g.conf.Registry, g.conf.Lanes = schema.Config{URL: f.URL}, 1
				topic, group := unique("trips"), unique("billing")
				s := segment.Schema{ID: 7, Type: "AVRO", Text: text("Trip"), Subject: "trips-value", Version: 2}
				g.encode(topic, s, s, s, s, s, s)
				g.keep(1000, group, topic, 33)
				g.must(g.a.KeepLevels(g.ctx(), &archive.LevelSnapshot{Time: 1000, Global: "BACKWARD", Subjects: map[string]string{"trips-value": "FULL"}}))
				to := g.topic(1)
				var hits atomic.Int64
				d := g.target(small(func(_ context.Context, step string, _ int) error {
					if step == point && hits.Add(1) == occurrence {
						return errKilled
					}
					return nil
				}))
				j := g.job(value(`"topics":[%q],"topicMapping":{%q:%q},"groups":[%q],"registry":"restore"`, topic, topic, to, group))
				p := g.prepare(d, j)
				if _, err := d.Start(j, p).Execute(g.ctx()); hits.Load() >= occurrence && !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
				j = next(j)
				out, err := g.run(g.target(small(nil)), j)
				g.must(err)
				g.decoded(kafka.TP{Topic: to}, f.URL)
				if got := len(g.read(kafka.TP{Topic: to})); got != 60 || out.Restored.Parts[0].Rewritten != 60 {
					t.Errorf("%d records, %d rewritten", got, out.Restored.Parts[0].Rewritten)
				}
				if want := "level trips-value FULL\nother v1 id 7 " + text("Other") + "\ntrips-value v2 id 8 " + text("Trip"); f.Dump() != want {
					t.Errorf("registry:\n%s", f.Dump())
				}
				if got := g.resumed(group, to, 1)[0]; len(got) != 27 {
					t.Errorf("the group reads %d records, want 27", len(got))
				}
			})
		}
	}
}

// TestCancelPutsModesBack: a job that died while the registry's subjects took ids, before it had a plan, and is cancelled.
func TestCancelPutsModesBack(t *testing.T) {
	g := newRig(t)
	f := schematest.New()
	t.Cleanup(f.Close)
	g.conf.Registry = schema.Config{URL: f.URL}
	topic := unique("trips")
	g.encode(topic, segment.Schema{ID: 7, Type: "AVRO", Text: text("Trip"), Subject: "trips-value", Version: 1})
	to := g.topic(1)
	d := g.target(small(nil))
	j := g.job(value(`"topics":[%q],"topicMapping":{%q:%q},"registry":"restore"`, topic, topic, to))
	ctx, cancel := context.WithCancel(g.ctx())
	f.Hook(func(method, _ string) int {
		if method == "POST" && ctx.Err() == nil {
			return 0
		}
		if method == "PUT" { // from here on the registry is not reached any more
			cancel()
			return 0
		}
		if ctx.Err() != nil {
			return 503
		}
		return 0
	})
	if _, err := d.Prepare(ctx, j); err == nil {
		t.Fatal("no error")
	}
	f.Hook(nil)
	if f.Dump() != "mode trips-value IMPORT" {
		t.Fatalf("left: %q", f.Dump())
	}
	if _, err := d.Cancel(g.ctx(), next(j)); err != nil || f.Dump() != "" {
		t.Errorf("%v, %q", err, f.Dump())
	}
}

// TestNoRegistryConfigured says which setting is missing.
func TestNoRegistryConfigured(t *testing.T) {
	g := newRig(t)
	r, err := job.ParseRequest([]byte(`{"name":"a","target":"k","topics":["x"],"registry":"restore"}`))
	g.must(err)
	if err := g.d.Accepts(r); err == nil || err.Error() != `registry "restore": target k has no schema registry; configure targets.k.schema.registry.url` {
		t.Error(err)
	}
}
