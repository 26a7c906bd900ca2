package archiver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
)

func TestCondition(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	part := func(p int32, s partition.State) PartitionStatus {
		ps := PartitionStatus{Status: partition.Status{TP: kafka.TP{Topic: "t", Partition: p}, State: s}}
		if s == partition.Stopped {
			ps.Reason, ps.Error = partition.Gap, "offsets 0 to 9 were removed"
		}
		return ps
	}
	well := func() condition {
		return condition{turned: now, kafka: now, status: Status{Topics: []string{"t"}, Assigned: true,
			Partitions: []PartitionStatus{part(0, partition.Fetching), part(1, partition.Fetching)}}}
	}
	for name, c := range map[string]struct {
		change                  func(*condition)
		ready, health, degraded string // part of the text; "": none
	}{
		"well":                 {func(*condition) {}, "", "", ""},
		"one of two stopped":   {func(c *condition) { c.status.Partitions[1] = part(1, partition.Stopped) }, "", "", "1 of 2 partitions have stopped; t-1: gap: offsets"},
		"all stopped":          {func(c *condition) { c.status.Partitions = []PartitionStatus{part(0, partition.Stopped)} }, "every partition has stopped (1); t-0: gap", "", "1 of 1"},
		"a spare process":      {func(c *condition) { c.status.Partitions = nil }, "", "", ""},
		"no topic yet":         {func(c *condition) { c.status.Topics, c.status.Assigned = []string{}, false }, "", "", ""},
		"did not look yet":     {func(c *condition) { c.status.Topics, c.status.Assigned = nil, false }, "looking for topics", "", ""},
		"kafka silent, short":  {func(c *condition) { c.kafka = ago(silentAfter - time.Second) }, "", "", ""},
		"kafka silent":         {func(c *condition) { c.kafka = ago(silentAfter + time.Second) }, "kafka has not answered for 31s", "", "kafka has not answered"},
		"a topic is missing":   {func(c *condition) { c.status.Missing = []string{"trisp"} }, "", "", "trisp"},
		"never assigned":       {func(c *condition) { c.status.Assigned, c.outside = false, ago(time.Minute) }, "waiting for the group", "", "waiting for the group"},
		"lost its membership":  {func(c *condition) { c.outside = ago(time.Minute) }, "waiting for the group", "", "waiting for the group"},
		"… for long":           {func(c *condition) { c.outside = ago(outsideAfter + time.Second) }, "waiting for the group", "assigned nothing for 10m1s", "assigned nothing"},
		"… with kafka silent":  {func(c *condition) { c.outside, c.kafka = ago(outsideAfter+time.Second), ago(time.Hour) }, "kafka has not answered", "", "kafka has not answered"},
		"not listed, short":    {func(c *condition) { c.stranger, c.strangerAfter = ago(time.Second), time.Minute }, "", "", ""},
		"not listed":           {func(c *condition) { c.stranger, c.strangerAfter = ago(2*time.Minute), time.Minute }, "", "not listed this process", "not listed"},
		"… with kafka silent ": {func(c *condition) { c.stranger, c.kafka = ago(time.Hour), ago(time.Hour) }, "kafka has not", "", "kafka has not answered"},
		"stands still, short":  {func(c *condition) { c.status.Partitions[1].unmoved, c.stalledAfter = ago(time.Second), time.Minute }, "", "", ""},
		"stands still":         {func(c *condition) { c.status.Partitions[1].unmoved, c.stalledAfter = ago(2*time.Minute), time.Minute }, "", "t-1 stands at offset 0 for 2m0s", "t-1 stands"},
		"… the store is down": {func(c *condition) {
			c.status.Partitions[1].unmoved, c.trouble = ago(time.Hour), errors.New("store down")
		}, "store down", "", "store down"},
		"one is paused":        {func(c *condition) { c.status.Partitions[1] = part(1, Paused) }, "", "", "1 of 2 partitions are paused"},
		"the loop is stuck":    {func(c *condition) { c.turned = ago(stuckAfter + time.Second) }, "", "has not turned for 1m1s", "has not turned"},
		"the store is in need": {func(c *condition) { c.trouble = errors.New("store down") }, "store down", "", "store down"},
	} {
		t.Run(name, func(t *testing.T) {
			cond := well()
			c.change(&cond)
			check := func(what, got, want string) {
				t.Helper()
				if (want == "") != (got == "") || !strings.Contains(got, want) {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			text := func(err error) string {
				if err == nil {
					return ""
				}
				return err.Error()
			}
			check("ready", text(cond.ready(now)), c.ready)
			check("health", text(cond.health(now)), c.health)
			check("degraded", strings.Join(cond.degraded(now), "; "), c.degraded)
		})
	}
}

func TestANamedTopicThatIsNotThereIsTold(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("there", 1)
	core, logs := observer.New(zap.WarnLevel)
	r := e.start(e.settings("there", "trisp"), func(p *Parts) { p.Log = zap.New(core) })
	e.await("missing", func() bool { return len(r.Status().Missing) == 1 && r.Status().Missing[0] == "trisp" })
	e.await("ready all the same", func() bool { return r.Ready() == nil })
	e.await("the metric", func() bool { return r.metric("tapedeck_archiver_topics_missing") == 1 })
	e.await("degraded", func() bool { return strings.Contains(strings.Join(r.Status().Degraded, "; "), "trisp") })
	e.topic("trisp", 1)
	e.await("there now", func() bool { return len(r.Status().Missing) == 0 && len(r.Status().Partitions) == 2 })
	e.await("the metric", func() bool { return r.metric("tapedeck_archiver_topics_missing") == 0 })
	r.end()
	if n := logs.FilterMessageSnippet("are not in Kafka").Len(); n != 1 {
		t.Errorf("%d warnings, want one per change", n)
	}
}

// The group answers a process for which it has no partition too; that one is ready and not left out.
func TestASpareProcessIsReady(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("one", 1)
	a := e.start(e.settings("one"))
	e.await("a owns it", func() bool { return len(a.Status().Partitions) == 1 })
	b := e.start(e.settings("one"))
	e.await("both ready", func() bool { return a.Ready() == nil && b.Ready() == nil })
	e.await("one of them owns it", func() bool { return len(a.Status().Partitions)+len(b.Status().Partitions) == 1 })
	for _, r := range []*running{a, b} {
		e.await("in the group", func() bool { return r.loop.Load().condition().outside.IsZero() })
	}
}
