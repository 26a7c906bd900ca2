package archiver

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/archiver/inspect"
	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// What only a real broker does, at TAPEDECK_TEST_KAFKA; make test-real runs it. Topics and groups have names of their own, and go at the end.

func realEnv(t *testing.T) *env {
	t.Helper()
	bootstrap := os.Getenv("TAPEDECK_TEST_KAFKA")
	if bootstrap == "" {
		t.Skip("needs a real broker: set TAPEDECK_TEST_KAFKA, or run make test-real")
	}
	e := &env{t: t, bootstrap: bootstrap, store: mem.New()}
	var err error
	if e.admin, err = kafka.NewAdmin(e.client()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.admin.Close)
	e.arc = archive.Open(e.store, "topics")
	return e
}

// realTopic creates a topic of one partition that the test alone uses.
func (e *env) realTopic(config map[string]string) string {
	e.t.Helper()
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		e.t.Fatal(err)
	}
	name := "tapedeck-test." + hex.EncodeToString(b[:])
	// Without it the timestamps of these tests, which are old, are retention's.
	all := map[string]string{"retention.ms": "-1"}
	for k, v := range config {
		all[k] = v
	}
	if err := e.admin.CreateTopic(e.ctx(), name, 1, 1, all); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = e.admin.DeleteTopic(e.ctx(), name) })
	return name
}

// realSettings archive a topic in a group of its own.
func (e *env) realSettings(topic string) Settings {
	s := e.settings(topic)
	s.Group = "group-of-" + topic
	s.Partition.Rule.FlushSize = 10
	s.Partition.RotateAge = 300 * time.Millisecond
	return s
}

// skips are the ranges without records of a partition, joined.
func (e *env) skips(topic string) []segment.Skip {
	var out []segment.Skip
	for _, h := range e.headers(topic, 0) {
		for _, s := range h.Skipped {
			if k := len(out); k > 0 && out[k-1].To == s.From && out[k-1].Class == s.Class {
				out[k-1].To = s.To
				continue
			}
			out = append(out, s)
		}
	}
	return out
}

// Field fault 13: the topic is truncated while the archiver is down.
func TestRealTruncation(t *testing.T) {
	e := realEnv(t)
	topic := e.realTopic(nil)
	s := e.realSettings(topic)
	e.fill(topic, 0, 0, 30)
	r := e.start(s)
	e.awaitArchived(topic, 0, 30)
	r.end()
	e.fill(topic, 0, 30, 70)
	if err := e.admin.DeleteRecords(e.ctx(), map[kafka.TP]int64{{Topic: topic}: 60}); err != nil {
		t.Fatal(err)
	}
	r = e.start(s)
	if st := r.awaitStopped(topic, 0, partition.Gap); !strings.Contains(st.Error, "30 to 59") {
		t.Error(st.Error)
	}
	r.end()
	s.Partition.Gap = partition.GapRecord
	r = e.start(s)
	e.awaitArchived(topic, 0, 100)
	if n := r.metric("tapedeck_archiver_lost_offsets_total"); n != 30 {
		t.Errorf("%v offsets lost", n)
	}
	r.end()
	if d := cmp.Diff([]segment.Skip{{From: 30, To: 60, Class: segment.Lost}}, e.skips(topic)); d != "" {
		t.Error(d)
	}
	got := e.archived(topic, 0)
	if len(got) != 70 || !sameRecords(got[30:], e.log(topic, 0)) {
		t.Errorf("%d records", len(got))
	}
	e.checkAccepted(topic, 30, 60)
}

// checkAccepted demands that verify objects to [from, to) as lost and to nothing else, until the gap is accepted.
func (e *env) checkAccepted(topic string, from, to int64) {
	e.t.Helper()
	if fs := e.findings(); len(fs) != 1 || fs[0].Kind != archive.KindLost {
		e.t.Errorf("findings %+v", fs)
	}
	tp := record.TopicPartition{Topic: topic}
	if err := inspect.AcceptGap(e.ctx(), e.arc, tp, from-1, to); err == nil {
		e.t.Error("more than was lost could be accepted")
	}
	if err := inspect.AcceptGap(e.ctx(), e.arc, tp, from, to); err != nil {
		e.t.Error(err)
	}
	e.checkClean()
}

func sameRecords(a, b []record.Record) bool {
	return slices.EqualFunc(a, b, func(x, y record.Record) bool { return record.Equal(&x, &y) })
}

// Field fault 14, transactions: aborted records are absent, their offsets and the markers are no data, and the archive ends where the log does.
func TestRealTransactions(t *testing.T) {
	e := realEnv(t)
	topic := e.realTopic(nil)
	p := e.producer("tx-of-" + topic)
	var want []int64
	offset := int64(0)
	for round := range 6 {
		if err := p.Begin(); err != nil {
			t.Fatal(err)
		}
		e.send(p, topic, 0, numbered(round*10, 10)...)
		commit := p.CommitTx
		if round%2 == 1 || round >= 4 { // it ends with two that are aborted
			commit = p.AbortTx
		} else {
			for o := range int64(10) {
				want = append(want, offset+o)
			}
		}
		if err := commit(e.ctx()); err != nil {
			t.Fatal(err)
		}
		offset += 11
	}
	s := e.realSettings(topic)
	r := e.start(s)
	e.awaitArchived(topic, 0, offset)
	r.end()
	e.checkOffsets(topic, want, offset)
	e.checkEqual(topic, 0, e.log(topic, 0))
	e.checkClean()
}

// checkOffsets demands that the archive holds records at these offsets, and that every other one below next is no data.
func (e *env) checkOffsets(topic string, want []int64, next int64) {
	e.t.Helper()
	var got []int64
	for _, r := range e.archived(topic, 0) {
		got = append(got, r.Offset)
	}
	if d := cmp.Diff(want, got); d != "" {
		e.t.Error(d)
	}
	skipped := int64(0)
	for _, s := range e.skips(topic) {
		if s.Class != segment.NoData {
			e.t.Errorf("%+v", s)
		}
		skipped += s.To - s.From
	}
	if skipped+int64(len(got)) != next {
		e.t.Errorf("%d records and %d offsets without data of %d", len(got), skipped, next)
	}
}

// Field fault 14, compaction: a batch that is emptied, one that keeps its last record, one that keeps the first.
func TestRealCompaction(t *testing.T) {
	e := realEnv(t)
	topic := e.realTopic(map[string]string{"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.001",
		"min.compaction.lag.ms": "0", "delete.retention.ms": "0"})
	p := e.producer("")
	now := int64(1_700_000_000_000)
	batch := func(keys ...string) {
		recs := make([]record.Record, len(keys))
		now += 1000 // the broker closes segments by record time
		for i, k := range keys {
			recs[i].Key, recs[i].Value, recs[i].Timestamp = []byte(k), []byte("of "+k), now
		}
		e.send(p, topic, 0, recs...)
	}
	ten := strings.Split("abcdefghij", "")
	batch(ten...)                               // 0–9: emptied by the next
	batch(ten...)                               // 10–19: keeps j at 19
	batch(ten[:9]...)                           // 20–28: all stay
	batch(strings.Split("zzzzzzzzzz", "")...)   // 29–38: keeps its last
	batch(append([]string{"y"}, ten[:0]...)...) // 39
	want := []int64{19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 38, 39}
	// The cleaner looks every 15 s, and takes segments that are closed: each look adds a record, which closes the one before.
	next := int64(40)
	var offsets []int64
	deadline := time.Now().Add(2 * time.Minute)
	for {
		offsets = offsets[:0]
		for _, r := range e.log(topic, 0) {
			if r.Offset < 40 {
				offsets = append(offsets, r.Offset)
			}
		}
		if slices.Equal(offsets, want) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the broker has not compacted: %v", offsets)
		}
		e.await("a second passes", func() func() bool {
			at := time.Now().Add(time.Second)
			return func() bool { return time.Now().After(at) }
		}())
		batch("x" + hex.EncodeToString([]byte{byte(next)}))
		next++
	}
	for o := int64(40); o < next; o++ {
		want = append(want, o)
	}
	r := e.start(e.realSettings(topic))
	e.awaitArchived(topic, 0, next)
	r.end()
	e.checkOffsets(topic, want, next)
	e.checkEqual(topic, 0, e.log(topic, 0))
	e.checkClean()
}

// A topic that is created again, while it runs and while it does not.
func TestRealTopicCreatedAgain(t *testing.T) {
	e := realEnv(t)
	topic := e.realTopic(nil)
	s := e.realSettings(topic)
	s.Partition.Recreated = partition.RecreatedIncarnation
	e.fill(topic, 0, 0, 20)
	r := e.start(s)
	e.awaitArchived(topic, 0, 20)
	logs := map[string][]record.Record{topic: e.log(topic, 0)}
	for _, name := range []string{topic + "~2", topic + "~3"} {
		if strings.HasSuffix(name, "~3") {
			r.end()
		}
		if err := e.admin.DeleteTopic(e.ctx(), topic); err != nil {
			t.Fatal(err)
		}
		e.awaitOr("it can be created again", func() string { return "" }, func() bool {
			return e.admin.CreateTopic(e.ctx(), topic, 1, 1, map[string]string{"retention.ms": "-1"}) == nil
		})
		e.fill(topic, 0, 100, 35)
		if strings.HasSuffix(name, "~3") {
			r = e.start(s)
		}
		e.awaitArchived(name, 0, 35)
		logs[name] = e.log(topic, 0)
	}
	r.end()
	for name, want := range logs {
		e.checkEqual(name, 0, want)
	}
	e.checkClean()
}

// Taking over from another group, and a start by time.
func TestRealStarts(t *testing.T) {
	e := realEnv(t)
	topic := e.realTopic(nil)
	e.fill(topic, 0, 0, 100)
	sink := "connect-of-" + topic
	e.sink(sink, map[kafka.TP]int64{{Topic: topic}: 42})
	for name, start := range map[string]Start{"by group": {Kind: StartGroup, Group: sink}, "by time": {Kind: StartTimestamp, Timestamp: 1_700_000_000_042}} {
		e.store = mem.New()
		e.arc = archive.Open(e.store, "topics")
		s := e.realSettings(topic)
		s.Group += name
		s.Start = start
		r := e.start(s)
		e.awaitArchived(topic, 0, 100)
		if st := r.state(topic, 0); st == nil || st.Seam == nil || st.Seam.Offset != 42 {
			t.Errorf("%s: %+v", name, st)
		}
		r.end()
		if d := cmp.Diff([]segment.Skip{{From: 0, To: 42, Class: segment.NotArchived}}, e.skips(topic)); d != "" {
			t.Error(name, d)
		}
		e.checkEqual(topic, 0, e.log(topic, 0)[42:])
		e.checkClean()
	}
	var out bytes.Buffer
	if err := inspect.Inspect(e.ctx(), &out, e.arc, nil, inspect.Table); err != nil || !strings.Contains(out.String(), "[0,42) not-archived") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// Field fault 27 on a real broker: it loses the end of the log after that was archived, as in an unclean election, and gives the offsets to
// other records, once to fewer and once to more than were lost.
func TestRealUncleanLoss(t *testing.T) {
	hook := os.Getenv("TAPEDECK_TEST_KAFKA_LOSE")
	e := realEnv(t)
	if hook == "" {
		t.Skip("needs a broker that may be killed: set TAPEDECK_TEST_KAFKA_LOSE, or run make test-real")
	}
	_, port, _ := strings.Cut(e.bootstrap, ":")
	for _, more := range []int{5, 60} {
		topic := e.realTopic(nil)
		for i := range 4 { // batches of ten; half of the file is two of them
			e.fill(topic, 0, 10*i, 10)
		}
		s := e.realSettings(topic)
		r := e.start(s)
		e.awaitArchived(topic, 0, 40)
		r.end()
		before := e.archived(topic, 0)
		if out, err := exec.Command("sh", "-c", hook+` "$0" "$1"`, topic+"-0", port).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		e.fill(topic, 0, 1000, more)
		if log := e.log(topic, 0); len(log) >= 40+more || len(log) < 10+more || string(log[len(log)-more].Value) != "v1000" {
			t.Fatalf("the broker lost nothing, or everything: %d records", len(log))
		}
		r = e.start(s)
		st := r.awaitStopped(topic, 0, partition.Diverged)
		t.Log(st.Error)
		r.end()
		if !sameRecords(before, e.archived(topic, 0)) {
			t.Error("the archive has changed")
		}
		e.checkClean()
	}
}
