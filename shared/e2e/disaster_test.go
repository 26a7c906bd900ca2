package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"tapedeck.dev/tapedeck/shared/e2e/proof"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/schema/schematest"
)

// drill is docs/disaster-recovery.md as a test.
type drill struct {
	t     *testing.T
	ctx   context.Context
	id    string
	store string
	made  map[string]map[int32][]made   // by topic, partition: what the old cluster held when it was archived
	at    map[string]map[kafka.TP]int64 // by group: what it had committed there
}

// made is one record of the old cluster.
type made struct {
	offset     int64
	key, value string // with its id
	schema     string // its text
}

func (d *drill) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// run runs a command of a binary, which must exit 0.
func (d *drill) run(bin string, args ...string) string {
	d.t.Helper()
	cmd := exec.CommandContext(d.ctx, filepath.Join(binDir, bin), args...)
	cmd.Env = proof.Environment(env.Vars)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("%s %s: %v\n%s\n%s", bin, strings.Join(args, " "), err, out, log.String())
	}
	return string(out)
}

// archive runs the archiver over a cluster to its present end.
func (d *drill) archive(store, bootstrap, registry string) {
	d.t.Helper()
	d.run("archiver", "run", "--until", "now", "--timeout", "2m", "--set", "bootstrap.servers="+bootstrap, "--set", "store="+store, "--set", "schema.registry.url="+registry,
		"--set", "topics.regex=drill-.*-"+d.id, "--set", "groups.regex=.*-"+d.id, "--set", "flush.size=40", "--set", "group.id=archiver-"+d.id)
	d.run("archiver", "verify", "--store", store)
}

const zoneText = `{"type":"record","name":"Zone","fields":[{"name":"id","type":"long"}]}`

// texts are the schemas of the old registry: two versions of a trip, of which the second refers to another schema, and a user.
var texts = map[int]struct {
	subject string
	version int
	text    string
	refs    []schematest.Reference
}{
	3: {"zone", 1, zoneText, nil},
	7: {"trips-value", 1, `{"type":"record","name":"Trip","fields":[{"name":"fare","type":"long"}]}`, nil},
	8: {"trips-value", 2, `{"type":"record","name":"Trip","fields":[{"name":"fare","type":"long"},{"name":"zone","type":["null","Zone"],"default":null}]}`,
		[]schematest.Reference{{Name: "Zone", Subject: "zone", Version: 1}}},
	9: {"users-value", 1, `{"type":"record","name":"User","fields":[{"name":"visits","type":"long"}]}`, nil},
}

// ownLevels are the subjects of texts that have a compatibility level of their own.
var ownLevels = map[string]string{"trips-value": "FULL_TRANSITIVE", "zone": "FULL"}

// oldCluster makes the cluster and the registry that will be gone, archives them, and ends both.
func (d *drill) oldCluster(trips, users string) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("old-"+d.id), kfake.GroupMinSessionTimeout(time.Second))
	d.must(err)
	defer cluster.Close()
	bootstrap := cluster.ListenAddrs()[0]
	registry := schematest.New()
	defer registry.Close()
	for _, id := range slices.Sorted(maps.Keys(texts)) {
		s := texts[id]
		registry.Seed(d.id+"-"+s.subject, s.version, id, schematest.Schema{Schema: s.text, References: d.refs(s.refs)})
	}
	registry.SetLevel("", "FORWARD")
	for subject, level := range ownLevels {
		registry.SetLevel(d.id+"-"+subject, level)
	}
	admin, err := kafka.NewAdmin(kafka.Client{Bootstrap: bootstrap, ClientID: "drill"})
	d.must(err)
	defer admin.Close()
	d.must(admin.CreateTopic(d.ctx, trips, 3, 1, map[string]string{"retention.ms": "-1", "max.message.bytes": "2000000"}))
	d.must(admin.CreateTopic(d.ctx, users, 2, 1, map[string]string{"cleanup.policy": "compact", "retention.ms": "-1", "min.compaction.lag.ms": "0"}))

	p, err := kafka.NewProducer(kafka.Client{Bootstrap: bootstrap, ClientID: "drill"}, "drill-"+d.id, 0)
	d.must(err)
	defer p.Close()
	d.must(p.InitTransactions(d.ctx))
	for round := range 12 {
		d.must(p.Begin())
		for n := range 10 {
			i := round*10 + n
			id := 7 + i/60
			d.must(p.Send(d.ctx, &record.Record{Topic: trips, Partition: int32(i % 3), Key: fmt.Appendf(nil, "trip-%d", i), Value: d.value(id, int64(i)),
				Timestamp: 1_750_000_000_000 + int64(i)*1000, Headers: []record.Header{{Key: "n", Value: fmt.Append(nil, i)}}}))
			user := i % 14
			if i < 2 {
				user = 100 + i // never written again, so that the logs begin at 0
			}
			d.must(p.Send(d.ctx, &record.Record{Topic: users, Partition: int32(i % 2), Key: fmt.Appendf(nil, "user-%d", user), Value: d.value(9, int64(i)),
				Timestamp: 1_750_000_000_000 + int64(i)*1000}))
		}
		if round%5 == 4 {
			d.must(p.AbortTx(d.ctx))
		} else {
			d.must(p.CommitTx(d.ctx))
		}
	}
	cluster.Compact()
	d.made = map[string]map[int32][]made{trips: d.read(bootstrap, registry.URL, trips, 3), users: d.read(bootstrap, registry.URL, users, 2)}
	gap := false
	for _, rs := range d.made[users] {
		for i := range rs[1:] {
			gap = gap || rs[i+1].offset > rs[i].offset+1
		}
	}
	if !gap {
		d.t.Fatal("the compacted topic has no gaps")
	}

	// Groups in the middle: one that has really read, and one that is put at a record, into a gap, and at an end.
	d.consume(bootstrap, "billing-"+d.id, trips, map[int32]int64{0: 0, 1: 0, 2: 0}, 50)
	at := func(topic string, partition int32, offset int64) kafka.CommitOffset {
		return kafka.CommitOffset{Offset: offset, LeaderEpoch: 0, Metadata: "drill"}
	}
	ends, err := admin.Offsets(d.ctx, []kafka.TP{{Topic: trips}})
	d.must(err)
	gapAt := int64(-1)
	for i, r := range d.made[users][0][1:] {
		if before := d.made[users][0][i].offset; r.offset > before+1 {
			gapAt = before + 1
			break
		}
	}
	d.must(admin.SetGroupOffsets(d.ctx, "audit-"+d.id, map[kafka.TP]kafka.CommitOffset{
		{Topic: users}: at(users, 0, gapAt), {Topic: users, Partition: 1}: at(users, 1, d.made[users][1][3].offset),
		{Topic: trips}: at(trips, 0, ends[kafka.TP{Topic: trips}].End), {Topic: trips, Partition: 2}: at(trips, 2, d.made[trips][2][11].offset)}))
	d.at = map[string]map[kafka.TP]int64{}
	for _, group := range []string{"billing-" + d.id, "audit-" + d.id} {
		there, err := admin.GroupOffsets(d.ctx, group)
		d.must(err)
		d.at[group] = map[kafka.TP]int64{}
		for tp, o := range there {
			d.at[group][tp] = o.Offset
		}
	}
	d.archive(d.store, bootstrap, registry.URL)
}

func (d *drill) refs(refs []schematest.Reference) []schematest.Reference {
	refs = slices.Clone(refs)
	for i := range refs {
		refs[i].Subject = d.id + "-" + refs[i].Subject
	}
	return refs
}

// value is the wire format: magic byte, id, and a long as Avro writes it.
func (d *drill) value(id int, n int64) []byte {
	v := binary.AppendVarint(schema.AppendWire(nil, id), n)
	if id == 8 {
		v = append(v, 0) // no zone
	}
	return v
}

// read reads a topic as a consumer does, with the schema of each record as the registry tells it.
func (d *drill) read(bootstrap, registryURL, topic string, partitions int32) map[int32][]made {
	d.t.Helper()
	reg, err := schema.NewRegistry(schema.Config{URL: registryURL})
	d.must(err)
	start := map[int32]kgo.Offset{}
	from := map[int32]int64{}
	for p := range partitions {
		start[p], from[p] = kgo.NewOffset().AtStart(), 0
	}
	return d.poll(bootstrap, topic, from, -1, reg, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: start}))
}

// poll reads until the end of every partition of from, which says where they begin (a reader at an end is told of nothing). With a limit ≥ 0 it ends when
// there are so many records, and commits.
func (d *drill) poll(bootstrap, topic string, from map[int32]int64, limit int, reg *schema.Registry, opts ...kgo.Opt) map[int32][]made {
	d.t.Helper()
	admin, err := kafka.NewAdmin(kafka.Client{Bootstrap: bootstrap, ClientID: "drill"})
	d.must(err)
	defer admin.Close()
	var tps []kafka.TP
	for p := range from {
		tps = append(tps, kafka.TP{Topic: topic, Partition: p})
	}
	ends, err := admin.Offsets(d.ctx, tps)
	d.must(err)
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(bootstrap), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...)
	d.must(err)
	defer c.CloseAllowingRebalance()
	got := map[int32][]made{}
	open := map[int32]bool{}
	for tp, r := range ends {
		if r.End > max(r.Start, from[tp.Partition]) {
			open[tp.Partition] = true
		}
	}
	for n := 0; len(open) > 0 && (limit < 0 || n < limit); {
		fs := c.PollRecords(d.ctx, 10)
		for _, e := range fs.Errors() {
			d.t.Fatalf("read %s/%d: %v", e.Topic, e.Partition, e.Err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				m := made{offset: r.Offset, key: string(r.Key), value: string(r.Value)}
				if id, _, ok := schema.WireID(r.Value); ok && reg != nil {
					s, err := reg.ByID(d.ctx, id)
					d.must(err)
					m.schema = s.Text
				}
				got[r.Partition] = append(got[r.Partition], m)
				n++
			}
			if r.Offset+1 >= ends[kafka.TP{Topic: topic, Partition: r.Partition}].End {
				delete(open, r.Partition)
			}
		})
		if limit >= 0 && n >= limit {
			d.must(c.CommitUncommittedOffsets(d.ctx))
		}
		c.AllowRebalance()
	}
	return got
}

// consume has a group read from its positions to the ends or, with a limit ≥ 0, so many records from the beginning, which it commits.
func (d *drill) consume(bootstrap, group, topic string, from map[int32]int64, limit int) map[int32][]made {
	d.t.Helper()
	reset := kgo.NoResetOffset()
	if limit >= 0 {
		reset = kgo.NewOffset().AtStart()
	}
	return d.poll(bootstrap, topic, from, limit, nil, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(reset), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll())
}

// TestDisasterDrill: cluster and registry are gone, the archive is there. One job brings topics with their configuration, schemas and consumer groups back
// into an empty cluster; consumers read on at exactly their next record and decode it; archiving goes on under another prefix. The registry is an empty one,
// one that has given two of the ids to other schemas (one of them softly deleted since), or a real one, which gives ids of its own.
func TestDisasterDrill(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	o := options(t, 0, 0)
	d := &drill{t: t, ctx: ctx, id: fmt.Sprintf("%x", time.Now().UnixNano()&0xffffff), store: o.StoreURL}
	trips, users := "drill-trips-"+d.id, "drill-users-"+d.id
	d.oldCluster(trips, users) // and it is gone
	if bootstrap := os.Getenv("TAPEDECK_TEST_KAFKA"); bootstrap != "" {
		d.recover(bootstrap, os.Getenv("TAPEDECK_TEST_REGISTRY"), trips, users, nil)
		return
	}
	for name, taken := range map[string][]int{"empty registry": {}, "ids taken": {7, 9}} {
		t.Run(name, func(t *testing.T) {
			d := *d
			d.t = t
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("new-"+d.id), kfake.GroupMinSessionTimeout(time.Second))
			d.must(err)
			defer cluster.Close()
			registry := schematest.New()
			defer registry.Close()
			for _, id := range taken {
				registry.Seed(fmt.Sprintf("other-%d", id), 1, id, schematest.Schema{Schema: fmt.Sprintf(`{"type":"record","name":"Other%d","fields":[]}`, id)})
			}
			if len(taken) > 0 {
				registry.Delete(fmt.Sprintf("other-%d", taken[len(taken)-1]), 1)
				registry.SetLevel(d.id+"-zone", "BACKWARD_TRANSITIVE")
			}
			d.recover(cluster.ListenAddrs()[0], registry.URL, trips, users, taken)
		})
	}
}

// recover restores everything into a cluster and compares. The ids of taken must be others afterwards and no other may; nil: the registry gives its own.
func (d *drill) recover(bootstrap, registryURL, trips, users string, taken []int) {
	t, ctx := d.t, d.ctx
	t.Helper()
	port, err := proof.FreePort()
	d.must(err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	replayer, err := proof.NewProcess(binDir, t.TempDir(), "replayer", "http://"+address, fmt.Sprintf("rest.listen: "+address+"\nstore: %q\ntargets:\n  dr:\n    type: kafka\n    bootstrap.servers: %q\n    progress.replication.factor: 1\n    schema.registry.url: %q\n",
		d.store, bootstrap, registryURL), env.Vars)
	d.must(err)
	d.must(replayer.Start(ctx))
	defer func() {
		if t.Failed() {
			t.Logf("replayer log:\n%s", replayer.LogTail(25))
		}
		d.must(replayer.Stop())
	}()
	flags := []string{"--url", replayer.URL, "--name", fmt.Sprintf("drill-%s-%d", d.id, len(taken)), "--target", "dr", "--topics-pattern", "drill-.*-" + d.id, "--create-topics",
		"--replication-factor", "1", "--groups-pattern", ".*-" + d.id, "--registry", "restore"}
	plan := d.run("replayer", append([]string{"plan"}, flags...)...)
	levels, zone := maps.Clone(ownLevels), "set"
	levels["users-value"] = ""
	if len(taken) > 0 {
		levels["zone"], zone = "BACKWARD_TRANSITIVE", "leave" // it has one of its own there
	}
	for subject, action := range map[string]string{"trips-value": "set", "zone": zone} {
		if want := fmt.Sprintf("compatibility level %s of subject %s-%s: %s\n", ownLevels[subject], d.id, subject, action); !strings.Contains(plan, want) {
			t.Errorf("the plan does not say %q:\n%s", want, plan)
		}
	}
	all := d.levels(registryURL, "")[""]
	d.run("replayer", append([]string{"restore", "--wait"}, flags...)...)
	levels[""] = all // the registry's own is left alone
	if got := d.levels(registryURL, slices.Collect(maps.Keys(levels))...); !maps.Equal(got, levels) {
		t.Errorf("compatibility levels %v, want %v", got, levels)
	}

	// Topics and records.
	admin, err := kafka.NewAdmin(kafka.Client{Bootstrap: bootstrap, ClientID: "drill"})
	d.must(err)
	defer admin.Close()
	for topic, want := range map[string]map[string]string{
		trips: {"max.message.bytes": "2000000", "cleanup.policy": "delete"}, users: {"cleanup.policy": "compact", "min.compaction.lag.ms": "0"},
	} {
		conf, err := admin.TopicConfig(ctx, topic)
		d.must(err)
		for k, v := range want {
			if conf[k] != v {
				t.Errorf("%s: %s is %q, was %q", topic, k, conf[k], v)
			}
		}
		partitions := int32(len(d.made[topic]))
		got := d.read(bootstrap, registryURL, topic, partitions)
		for p, rs := range d.made[topic] {
			same(t, fmt.Sprintf("%s/%d", topic, p), got[p], rs, taken)
		}
	}
	// Groups: a plain consumer of each reads its next record first, and all that follow.
	for group, topics := range map[string][]string{"billing-" + d.id: {trips}, "audit-" + d.id: {trips, users}} {
		at := d.at[group]
		if len(at) == 0 {
			t.Fatalf("%s had committed nothing", group)
		}
		for _, topic := range topics {
			partitions := int32(len(d.made[topic]))
			there, err := admin.GroupOffsets(ctx, group)
			d.must(err)
			want := map[int32][]made{}
			from, assigned := map[int32]int64{}, map[int32]kgo.Offset{}
			for tp, position := range at {
				if tp.Topic != topic {
					continue
				}
				for _, r := range d.made[topic][tp.Partition] {
					if r.offset >= position {
						want[tp.Partition] = append(want[tp.Partition], r)
					}
				}
				from[tp.Partition], assigned[tp.Partition] = there[tp].Offset, kgo.NewOffset().At(there[tp].Offset)
			}
			var got map[int32][]made
			if int32(len(assigned)) == partitions { // the group has a position everywhere
				got = d.consume(bootstrap, group, topic, from, -1)
			} else {
				got = d.poll(bootstrap, topic, from, -1, nil, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: assigned}))
			}
			for p := range assigned {
				same(t, fmt.Sprintf("group %s in %s/%d, archived at %d, restored to %d", group, topic, p, at[kafka.TP{Topic: topic, Partition: p}], there[kafka.TP{Topic: topic, Partition: p}].Offset),
					got[p], want[p], taken)
			}
		}
	}
	// Archiving goes on: a new cluster has new logs, so it gets a prefix of its own, which is complete by itself.
	base, query, _ := strings.Cut(d.store, "?")
	next := fmt.Sprintf("%s-%d?%s", base, len(taken), query)
	d.archive(next, bootstrap, registryURL)
	out := d.run("archiver", "inspect", "--store", next)
	for topic := range d.made {
		if !strings.Contains(out, topic) {
			t.Errorf("%s is not archived again:\n%s", topic, out)
		}
	}
}

// levels are what a registry says of subjects, "" for itself.
func (d *drill) levels(url string, subjects ...string) map[string]string {
	d.t.Helper()
	reg, err := schema.NewRegistry(schema.Config{URL: url})
	d.must(err)
	out := map[string]string{}
	for _, s := range subjects {
		name := s
		if s != "" {
			name = d.id + "-" + s
		}
		out[s], err = reg.Level(d.ctx, name)
		d.must(err)
	}
	return out
}

// same compares records without their offsets. An id that was taken must be another one, every other the same (taken is nil: any); the schema that it names
// at the registry must have the text that it had.
func same(t *testing.T, what string, got, want []made, taken []int) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d records, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		g, w := got[i], want[i]
		g.offset, w.offset = 0, 0
		if g.schema == "" { // it was read without
			w.schema = ""
		}
		was, _, _ := schema.WireID([]byte(w.value))
		is, _, ok := schema.WireID([]byte(g.value))
		if !ok || taken != nil && slices.Contains(taken, was) == (was == is) {
			t.Errorf("%s: record %d has schema id %d, had %d; taken were %v", what, i, is, was, taken)
			return
		}
		g.value, w.value = g.value[5:], w.value[5:]
		if g != w {
			t.Errorf("%s: record %d is %+v, was %+v", what, i, g, w)
			return
		}
	}
}
