package restore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/jobstore"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/session"
)

// node starts a replayer that takes up jobs of the rig's archive, with the rig's Kafka as its target k.
func (g *rig) node(set manager.Settings, tune tuning) *replaytest.Node {
	g.t.Helper()
	rc := replaytest.NewReceiver(g.t, session.Pipeline{Name: "p", Hash: "hash"}) // the target of another type that every such replayer has
	return replaytest.StartOn(g.t, g.a.Mem, rc, set, func(r *run.Runner, targets map[string]manager.Destination) {
		d, err := New("k", g.conf, r)
		g.must(err)
		g.t.Cleanup(d.Close)
		d.tune = tune
		targets["k"] = d
	})
}

// create has a replayer make a job that restores a topic.
func (g *rig) create(n *replaytest.Node, name, topic, to, fields string) {
	g.t.Helper()
	r, err := job.ParseRequest([]byte(value(`{"name":%q,"target":"k","topics":[%q],"topicMapping":{%q:%q}%s}`, name, topic, topic, to, fields)))
	g.must(err)
	if _, created, err := n.Create(g.ctx(), r); err != nil || !created {
		g.t.Fatal(created, err)
	}
}

// ends waits for the end of a job, which must be the given one.
func (g *rig) ends(n *replaytest.Node, name string, want job.State) *manager.View {
	g.t.Helper()
	var v *manager.View
	replaytest.Until(g.t, value("job %s is %s", name, want), func() bool {
		var err error
		if v, err = n.Get(context.Background(), name); err != nil {
			g.t.Fatal(err)
		}
		if v.State.Ended() && v.State != want {
			g.t.Fatalf("job %s is %s: %s", name, v.State, v.Error)
		}
		return v.State == want
	})
	return v
}

// count is how many records a reader of the target sees of a topic.
func (g *rig) count(topic string, partitions int32) int {
	g.t.Helper()
	n := 0
	for p := range partitions {
		n += len(g.read(kafka.TP{Topic: topic, Partition: p}))
	}
	return n
}

// deliveries counts what is sent, by archived topic: on any replayer, into transactions that may be aborted.
type deliveries struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *deliveries) add(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[topic]++
}

func (c *deliveries) of(topic string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[topic]
}

// TestRestorePausedAndCancelledByEventCounts: paused or cancelled, nothing more is sent, and nothing more becomes visible, while another restore into the same
// Kafka runs through. Resumed, everything is there once, and it comes at the rate, without a burst for the pause. A cancelled job tells what stays.
func TestRestorePausedAndCancelledByEventCounts(t *testing.T) {
	const partitions, per, rate = 2, 450, 300
	g := newRig(t)
	to := map[string]string{}
	for _, topic := range []string{"paused", "cancelled", "other"} {
		g.even(topic, partitions, per, 20, 10)
		to[topic] = g.topic(partitions)
	}
	var sent deliveries
	var resumed atomic.Pointer[time.Time]
	var since, early atomic.Int64
	n := g.node(manager.Settings{ID: "a", Lease: time.Hour, Scan: 10 * time.Millisecond}, tuning{records: 20, bytes: 1 << 20, age: time.Minute,
		sending: func(tp kafka.TP, _, _ int64) {
			sent.add(tp.Topic)
			if at := resumed.Load(); at != nil && tp.Topic == "paused" {
				// A part of each lane may just have begun.
				if since.Add(1) > int64(time.Since(*at).Seconds()*rate*1.1)+rate/2 {
					early.Add(1)
				}
			}
		}})
	slow := value(`,"recordsPerSecond":%d`, rate)
	stop := func(topic string, event job.Event) (records int) {
		t.Helper()
		g.create(n, topic, topic, to[topic], slow)
		replaytest.Until(t, "50 records are sent, most of them visible", func() bool { return sent.of(topic) >= 50 })
		_, err := n.Do(g.ctx(), topic, event)
		g.must(err)
		replaytest.Until(t, "the worker has stopped", func() bool { return len(n.Working()) == 0 })
		return sent.of(topic)
	}
	sentAt := map[string]int{"paused": stop("paused", job.Pause), "cancelled": stop("cancelled", job.Cancel)}
	visible := map[string]int{}
	for topic, s := range sentAt {
		if visible[topic] = g.count(to[topic], partitions); s >= partitions*per || visible[topic] > s || visible[topic] < 50-partitions*20 {
			t.Errorf("%s: %d of %d records were sent, %d are visible", topic, s, partitions*per, visible[topic])
		}
	}
	cancelled := g.ends(n, "cancelled", job.Cancelled)
	told := int64(0)
	for _, p := range cancelled.Restored.Parts {
		told += p.Records
	}
	if told != int64(visible["cancelled"]) || !strings.Contains(fmt.Sprint(cancelled.Restored.Notes), value("%d records had been committed", told)) {
		t.Errorf("the cancelled job tells of %d records, %q; %d are visible", told, cancelled.Restored.Notes, visible["cancelled"])
	}

	g.create(n, "other", "other", to["other"], "")
	g.ends(n, "other", job.Completed)
	for topic, s := range sentAt {
		if now, seen := sent.of(topic), g.count(to[topic], partitions); now != s || seen != visible[topic] {
			t.Errorf("%s: %d records sent and %d visible; while another job ran through it became %d and %d", topic, s, visible[topic], now, seen)
		}
	}
	if v := g.ends(n, "paused", job.Paused); v.Totals.RecordsSent > int64(visible["paused"]) {
		t.Errorf("the paused job says %d records, %d are visible", v.Totals.RecordsSent, visible["paused"])
	}

	now := time.Now()
	resumed.Store(&now)
	_, err := n.Do(g.ctx(), "paused", job.Resume)
	g.must(err)
	g.ends(n, "paused", job.Completed)
	if early.Load() > 0 {
		t.Errorf("%d of %d records came before the rate allows them after the resume", early.Load(), since.Load())
	}
	g.checkNamed("paused", "paused", to["paused"], partitions)
	g.checkNamed("other", "other", to["other"], partitions)
}

// checkNamed is check of a job in the store.
func (g *rig) checkNamed(name, topic, to string, partitions int32) {
	g.t.Helper()
	e, err := jobstore.New(g.a.Mem).Load(g.ctx(), name, nil)
	g.must(err)
	g.check(&e.Job, topic, to, partitions)
}

// TestRestoreByOneTwoAndThreeReplayers: however many replayers share the archive, and whichever of them is killed at its work, each partition of the target
// gets the same records in the same order: the archived ones, each once.
func TestRestoreByOneTwoAndThreeReplayers(t *testing.T) {
	var all runs
	for replayers := 1; replayers <= 3; replayers++ {
		all.add(value("%d replayers", replayers), func(t *testing.T) {
			const partitions = 3
			g := newRig(t)
			g.fill("trips", partitions, 100, uint64(replayers))
			to := g.topic(partitions)
			var sent deliveries
			var gate atomic.Int64 // no more is sent than so much before the next kill
			gate.Store(80)
			started := 0
			dead := map[*replaytest.Node]*atomic.Bool{}
			add := func() *replaytest.Node {
				started++
				killed := new(atomic.Bool)
				n := g.node(manager.Settings{ID: value("r%d", started), Lease: 2 * time.Second, Scan: 10 * time.Millisecond}, tuning{records: 20, bytes: 1 << 20, age: time.Minute,
					at: func(context.Context, string, int) error {
						if killed.Load() {
							return errKilled
						}
						return nil
					},
					sending: func(tp kafka.TP, _, _ int64) {
						for int64(sent.of(tp.Topic)) >= gate.Load() && !killed.Load() {
							time.Sleep(time.Millisecond)
						}
						sent.add(tp.Topic)
					}})
				dead[n] = killed
				return n
			}
			var nodes []*replaytest.Node
			for range replayers {
				nodes = append(nodes, add())
			}
			g.create(nodes[0], "restore", "trips", to, "")
			for _, at := range []int{60, 180} {
				replaytest.Until(t, value("%d records are sent", at), func() bool { return sent.of("trips") >= at })
				for k, n := range nodes {
					if len(n.Working()) > 0 {
						dead[n].Store(true)
						n.Jobs.Cut(true) // it cannot even let go
						n.Stop()
						nodes[k] = add()
						break
					}
				}
				gate.Add(120)
			}
			gate.Store(1 << 40)
			if v := g.ends(nodes[0], "restore", job.Completed); v.Epoch != 3 {
				t.Errorf("completed under epoch %d, want 3 after two kills", v.Epoch)
			}
			g.checkNamed("restore", "trips", to, partitions)
		})
	}
	all.run(t)
}
