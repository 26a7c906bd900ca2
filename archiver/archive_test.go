package archiver

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

func TestRotationByRecords(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 2)
	e.fill("trips", 0, 0, 1000)
	e.fill("trips", 1, 0, 250)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 100
	r := e.start(s)
	e.awaitArchived("trips", 0, 1000)
	e.awaitArchived("trips", 1, 200)
	if d := cmp.Diff([]int64{0, 100, 200, 300, 400, 500, 600, 700, 800, 900}, e.starts("trips", 0)); d != "" {
		t.Error(d)
	}
	e.await("positions stored", func() bool { return e.committed("trips", 0).Offset == 1000 })
	if m := e.committed("trips", 0).Metadata; m != "segment=900" {
		t.Errorf("hint %q", m)
	}
	r.end()
	if got := r.metric("tapedeck_archiver_records_total"); got != 1200 {
		t.Errorf("records_total = %v", got)
	}
	// The 50 records that no segment was full with are dropped, not flushed, and still in Kafka.
	if hs := e.headers("trips", 1); len(hs) != 2 || hs[1].Next != 200 {
		t.Errorf("partition 1 has %d segments", len(hs))
	}
	e.checkEqual("trips", 0, e.log("trips", 0))
	e.checkEqual("trips", 1, e.log("trips", 1)[:200])
	e.checkClean()
}

func TestRotationByBytesAndRecordTime(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("bytes", 1)
	e.topic("span", 1)
	p := e.producer("")
	var recs []record.Record
	for range 10 {
		recs = append(recs, record.Record{Value: make([]byte, 1000)})
	}
	e.send(p, "bytes", 0, recs...)
	recs = nil
	for _, ts := range []int64{1000, 1500, 1999, 2000, 2500, 9000, 8000} {
		recs = append(recs, record.Record{Timestamp: ts, Value: []byte("x")})
	}
	e.send(p, "span", 0, recs...)
	s := e.settings("bytes", "span")
	s.Partition.Rule = segment.CutRule{SegmentBytes: 3500, RotateIntervalMs: 1000}
	s.Partition.RotateAge = 500 * time.Millisecond
	e.start(s)
	e.awaitArchived("bytes", 0, 10)
	e.awaitArchived("span", 0, 7)
	if d := cmp.Diff([]int64{0, 3, 6, 9}, e.starts("bytes", 0)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int64{0, 3, 5}, e.starts("span", 0)); d != "" {
		t.Error(d)
	}
	e.checkClean()
}

// Field fault 3: five records, then silence.
func TestAQuietPartitionIsFlushedByAge(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("quiet", 1)
	s := e.settings("quiet")
	s.Partition.RotateAge = 500 * time.Millisecond
	e.fill("quiet", 0, 0, 5) // before it runs, so that they are fetched together
	r := e.start(s)
	e.awaitArchived("quiet", 0, 5)
	hs := e.headers("quiet", 0)
	if len(hs) != 1 || hs[0].Count != 5 {
		t.Fatalf("%d segments, the first of %d records", len(hs), hs[0].Count)
	}
	// Nothing new, so nothing is written, however long it lasts.
	e.fill("quiet", 0, 5, 1)
	e.awaitArchived("quiet", 0, 6)
	before := len(e.objects("quiet", 0))
	deadline := time.Now().Add(1500 * time.Millisecond)
	e.await("three ages pass", func() bool { return time.Now().After(deadline) })
	if after := len(e.objects("quiet", 0)); after != before {
		t.Errorf("%d segments while nothing was new", after-before)
	}
	r.end()
	e.checkEqual("quiet", 0, e.log("quiet", 0))
	e.checkClean()
}

// Field faults 6 and 7.
func TestEveryShapeOfARecordIsKept(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("shapes", 1)
	k, v, empty := []byte("k"), []byte("v"), []byte{}
	recs := []record.Record{
		{Key: k, Value: v}, {Key: k}, {Value: v}, {}, {Key: k, Value: empty}, {Key: empty, Value: v},
		{Key: k, Value: v, Headers: []record.Header{{Key: "a", Value: []byte("1")}, {Key: "x-id", Value: []byte("2")}, {Key: "a", Value: []byte("3")},
			{Key: "b"}, {Key: "c", Value: empty}}},
		{Key: []byte{0, 255, 0}, Value: []byte{0, 0, 0, 0, 7, 254}, Timestamp: 1},
	}
	e.send(e.producer(""), "shapes", 0, recs...)
	s := e.settings("shapes")
	s.Partition.Rule.FlushSize = int64(len(recs))
	e.start(s)
	e.awaitArchived("shapes", 0, int64(len(recs)))
	for i := range recs {
		recs[i].Offset = int64(i)
	}
	e.checkEqual("shapes", 0, recs)
	e.checkClean()
}

// Field fault 14: aborted transactions are absent, markers and compaction holes are no data, and `next` moves past them.
func TestTransactionsAndCompaction(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("tx", 1)
	p := e.producer("tx-1")
	var want []record.Record
	offset := int64(0)
	for round := range 4 {
		if err := p.Begin(); err != nil {
			t.Fatal(err)
		}
		recs := numbered(round*10, 10)
		e.send(p, "tx", 0, recs...)
		var err error
		if round%2 == 0 {
			err = p.CommitTx(e.ctx())
			for i := range recs {
				recs[i].Offset = offset + int64(i)
			}
			want = append(want, recs...)
		} else {
			err = p.AbortTx(e.ctx())
		}
		if err != nil {
			t.Fatal(err)
		}
		offset += 11 // ten records and a marker
	}
	s := e.settings("tx")
	s.Partition.Rule.FlushSize = 15
	s.Partition.RotateAge = 500 * time.Millisecond
	r := e.start(s)
	e.awaitArchived("tx", 0, 44)
	r.end()
	e.checkEqual("tx", 0, want)
	for _, h := range e.headers("tx", 0) {
		for _, sk := range h.Skipped {
			if sk.Class != segment.NoData {
				t.Errorf("offsets %d to %d are recorded as %s", sk.From, sk.To, sk.Class)
			}
		}
	}
	e.checkClean()
}

func TestAZeroRecordSegmentMovesOverAnAbortedTransaction(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("tx", 1)
	p := e.producer("tx-1")
	s := e.settings("tx")
	s.Partition.RotateAge = 300 * time.Millisecond
	r := e.start(s)
	for range 2 {
		if err := p.Begin(); err != nil {
			t.Fatal(err)
		}
		e.send(p, "tx", 0, numbered(0, 3)...)
		if err := p.AbortTx(e.ctx()); err != nil {
			t.Fatal(err)
		}
		// One of them is archived before the next begins, so that an empty segment also has a predecessor.
		end := int64(4)
		if len(e.headers("tx", 0)) > 0 {
			end = 8
		}
		e.awaitArchived("tx", 0, end)
	}
	r.end()
	e.checkEqual("tx", 0, nil)
	e.checkClean()
	// A restart finds its place behind segments without records.
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
	e.send(p, "tx", 0, numbered(0, 2)...)
	if err := p.CommitTx(e.ctx()); err != nil {
		t.Fatal(err)
	}
	r2 := e.start(s)
	e.awaitArchived("tx", 0, 11)
	r2.end()
	e.checkEqual("tx", 0, e.log("tx", 0))
	e.checkClean()
}

func TestNewTopicsAndPartitionsAreFound(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("other", 1)
	s := e.settings("later")
	s.Topics.Pattern, s.Topics.Exclude = fullMatch("log-.*"), fullMatch("log-secret")
	s.Partition.Rule.FlushSize = 10
	r := e.start(s)
	e.await("ready without topics", func() bool { return r.Ready() == nil })
	for _, topic := range []string{"later", "log-a", "log-secret", "xlog-b"} {
		e.topic(topic, 1)
		e.fill(topic, 0, 0, 10)
	}
	e.awaitArchived("later", 0, 10)
	e.awaitArchived("log-a", 0, 10)
	if err := e.admin.CreatePartitions(e.ctx(), "later", 2); err != nil {
		t.Fatal(err)
	}
	e.fill("later", 1, 0, 10)
	e.awaitArchived("later", 1, 10)
	r.end()
	for _, topic := range []string{"log-secret", "xlog-b", "other"} {
		if n := len(e.objects(topic, 0)); n > 0 {
			t.Errorf("%s has %d segments", topic, n)
		}
	}
	e.checkClean()
}

func TestTargetsOfReplaysAreMatchedByNameOnly(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, topic := range []string{"copy-a", "copy-b", "plain"} {
		e.topic(topic, 1)
		e.fill(topic, 0, 0, 10)
	}
	ts, err := e.admin.Topics(e.ctx(), "copy-a", "copy-b")
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range ts {
		e.store.Put(replayTargets+topic.ID, nil)
	}
	s := e.settings("copy-a")
	s.Topics.Pattern = fullMatch(".*")
	s.Partition.Rule.FlushSize = 10
	r := e.start(s)
	e.awaitArchived("copy-a", 0, 10)
	e.awaitArchived("plain", 0, 10)
	e.await("topics", func() bool { return cmp.Equal(r.Status().Topics, []string{"copy-a", "plain"}) })
}

func TestSelectionLeavesInternalTopicsToNames(t *testing.T) {
	s := Selection{Pattern: fullMatch(".*"), Exclude: fullMatch("b.*")}
	for topic, want := range map[kafka.Topic]bool{
		{Name: "a"}: true, {Name: "b1"}: false, {Name: "ab"}: true, {Name: "__consumer_offsets"}: false, {Name: "internal", Internal: true}: false,
	} {
		if got := s.Matches(topic); got != want {
			t.Errorf("%+v: %t", topic, got)
		}
	}
}
