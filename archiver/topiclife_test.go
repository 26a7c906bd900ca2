package archiver

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// Topics whose names begin with each other's, hold dots and underscores, or look like a file's: each has its own chains, and every record is in its own.
func TestTopicsWhoseNamesLookAlike(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	selected := []string{"a", "a-b", "a.b", "a.b.c", "a_c", "ab", "x", "x.avro", "x.avro.avro", "__named"}
	left := []string{"a-tmp", "ab-tmp", "__offsets", "b", "xa"}
	for i, name := range slices.Concat(selected, left) {
		parts := int32(1)
		if name == "x" {
			parts = 12 // partition=1 begins partition=10 and partition=11
		}
		e.topic(name, parts)
		p := e.producer("")
		for part := range parts {
			e.send(p, name, part, numbered(100*i+int(part), 20+i)...)
		}
	}
	s := e.settings()
	s.Topics = Selection{Names: []string{"__named"}, Pattern: fullMatch(`a.*|x|x\..*|__.*`), Exclude: fullMatch(`.*-tmp`)}
	s.Partition.Rule.FlushSize = 15
	s.Partition.RotateAge = 200 * time.Millisecond
	r := e.start(s)
	for i, name := range selected {
		for part := range int32(12) {
			if part == 0 || name == "x" {
				e.awaitArchived(name, part, int64(20+i))
			}
		}
	}
	slices.Sort(selected)
	if d := cmp.Diff(selected, r.Status().Topics); d != "" {
		t.Error(d)
	}
	r.end()
	var want []record.TopicPartition
	for _, name := range selected {
		for part := range int32(12) {
			if part == 0 || name == "x" {
				want = append(want, record.TopicPartition{Topic: name, Partition: part})
				e.checkEqual(name, part, e.log(name, part))
			}
		}
	}
	slices.SortFunc(want, func(a, b record.TopicPartition) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	got, err := e.arc.List(e.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, name := range []string{"a", "x", "x.avro"} { // one topic's verify, inspect and tail see nothing of the others
		rep, err := e.arc.Verify(e.ctx(), name)
		if err != nil || len(rep.Findings) > 0 {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
		if parts := map[string]int{"x": 12}[name]; rep.Partitions != max(1, parts) {
			t.Errorf("%s: %d partitions", name, rep.Partitions)
		}
	}
	e.checkClean()
}

func TestSelections(t *testing.T) {
	for _, c := range []struct {
		pattern, exclude string
		in, out          string
	}{
		{`a`, ``, "a", "ab a.b a-b xa"},
		{`a\.b`, ``, "a.b", "a a-b aXb a.b.c"},
		{`a.b`, ``, "a.b a-b a_b", "ab a..b"},
		{`a.*`, `a\..*`, "a ab a-b", "a. a.b a.b.c"},
		{`.*\.avro`, ``, "x.avro .avro", "xavro x.avro.x"},
		{`.*`, `tmp|.*-tmp`, "a tmp2 a-tmp-b _x", "tmp a-tmp __consumer_offsets __transaction_state __x"},
		{`a|b`, ``, "a b", "ab ac xb"}, // not ^a or b$
		{`(?i)trips`, ``, "Trips TRIPS", "tripss"},
		{`__.*`, ``, "", "__x __consumer_offsets"},
	} {
		s := Selection{Pattern: fullMatch(c.pattern), Exclude: fullMatch(c.exclude)}
		for name := range strings.FieldsSeq(c.in) {
			if !s.Matches(kafka.Topic{Name: name}) {
				t.Errorf("%s without %q leaves out %s", c.pattern, c.exclude, name)
			}
		}
		for name := range strings.FieldsSeq(c.out) {
			if s.Matches(kafka.Topic{Name: name}) {
				t.Errorf("%s without %q takes %s", c.pattern, c.exclude, name)
			}
		}
	}
}

// The group owes an assignment to a process that has lost all that it had, while there is something to assign.
func TestLostPartitions(t *testing.T) {
	one, other := kafka.TP{Topic: "a"}, kafka.TP{Topic: "b"}
	for _, c := range []struct {
		name    string
		topics  []string
		had     []kafka.TP
		revoked kafka.Revoked
		owes    bool
	}{
		{"the membership", []string{"a", "b"}, []kafka.TP{one, other}, kafka.Revoked{Partitions: []kafka.TP{one, other}, Lost: true}, true},
		{"a deleted topic", []string{"b"}, []kafka.TP{one, other}, kafka.Revoked{Partitions: []kafka.TP{one}, Lost: true}, false},
		{"the last topic", []string{}, []kafka.TP{one}, kafka.Revoked{Partitions: []kafka.TP{one}, Lost: true}, false},
		{"given away", []string{"a"}, []kafka.TP{one}, kafka.Revoked{Partitions: []kafka.TP{one}}, false},
	} {
		m := newMetrics(prometheus.NewRegistry())
		l := &loop{log: zap.NewNop(), m: m, work: &workers{trouble: &trouble{}}, com: newCommitter(nil, zap.NewNop(), m), owned: &atomic.Pointer[[]kafka.TP]{},
			topics: c.topics, parts: map[kafka.TP]*assigned{}}
		for _, tp := range c.had {
			l.parts[tp] = &assigned{cancel: func() {}}
		}
		if err := l.event(c.revoked); err != nil {
			t.Fatal(err)
		}
		if owes := !l.outside.IsZero(); owes != c.owes {
			t.Errorf("%s: the group owes an assignment: %v", c.name, owes)
		}
	}
}

// A topic that a pattern found is deleted and comes back while others go on; one that grows begins its new partitions at 0, also where its name
// begins another's.
func TestTopicsComeGoAndGrow(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("a", 1)
	e.topic("a.b", 1)
	e.fill("a", 0, 0, 20)
	e.fill("a.b", 0, 0, 30)
	s := e.incarnations()
	s.Topics = Selection{Pattern: regexp.MustCompile(`\A(?:a.*)\z`)}
	// The consumer sees a topic's end before the archiver does, mostly: it reports the partition as lost then.
	s.Refresh, s.Consumer["topic.metadata.refresh.interval.ms"] = 500*time.Millisecond, "50"
	r := e.start(s)
	e.awaitArchived("a", 0, 20)
	e.awaitArchived("a.b", 0, 30)
	if err := e.admin.CreatePartitions(e.ctx(), "a.b", 3); err != nil {
		t.Fatal(err)
	}
	e.fill("a.b", 2, 0, 15)
	e.awaitArchived("a.b", 2, 15)
	old := e.log("a", 0)
	// The consumer joins again over a's end. However long that takes: a.b goes on, and nobody named a.
	joins := e.holdBack(kmsg.JoinGroup)
	if err := e.admin.DeleteTopic(e.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	e.await("a is let go", func() bool { return cmp.Equal([]string{"a.b"}, r.Status().Topics) && r.state("a", 0) == nil })
	joins.await()
	e.await("the present state is published", r.published())
	if st := r.Status(); len(st.Degraded) > 0 || len(st.Missing) > 0 {
		t.Errorf("%+v", st)
	}
	if err := r.Ready(); err != nil {
		t.Error(err)
	}
	joins.release()
	for i := range 3 {
		e.fill("a.b", int32(i), 50, 10)
	}
	e.awaitArchived("a.b", 0, 40)
	e.awaitArchived("a.b", 1, 10)
	e.topic("a", 2)
	e.fill("a", 1, 500, 12)
	e.awaitArchived("a~2", 1, 12)
	r.end()
	e.checkEqual("a", 0, old)
	e.checkEqual("a~2", 1, e.log("a", 1))
	for part := range int32(3) {
		e.checkEqual("a.b", part, e.log("a.b", part))
	}
	if n := len(e.objects("a", 1)); n != 0 {
		t.Error(fmt.Sprint(n, " objects of the new log in the old one's folder"))
	}
	e.checkClean()
}
