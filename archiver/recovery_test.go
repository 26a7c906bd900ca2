package archiver

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

func TestRestartContinuesExactly(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	s := e.settings("trips")
	for round, size := range []int64{30, 7, 100} {
		e.fill("trips", 0, round*100, 100)
		s.Partition.Rule.FlushSize = size
		s.Partition.RotateAge = 400 * time.Millisecond
		r := e.start(s)
		e.awaitArchived("trips", 0, int64(round+1)*100)
		r.end()
	}
	e.checkEqual("trips", 0, e.log("trips", 0))
	e.checkClean()
}

// Field fault 2: a crash between the create and the commit, then other rotation settings.
func TestACrashBetweenCreateAndCommit(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 80)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 31
	// The first segment's create succeeds and nobody hears of it: the process hangs in it and is ended, as kill -9 would, before
	// anything is committed.
	hang := make(chan struct{})
	e.store.SetAfter(func(ctx context.Context, op, key string, err error) error {
		if op == store.OpCreate && strings.HasPrefix(key, "topics/") && err == nil {
			close(hang)
			<-ctx.Done()
			return ctx.Err()
		}
		return err
	})
	s.ShutdownIn = time.Millisecond
	r := e.start(s)
	e.awaitClosed("a create lands", hang)
	r.end()
	e.store.SetAfter(nil)
	if got := e.committed("trips", 0).Offset; got != -1 {
		t.Fatalf("committed %d", got)
	}
	if d := cmp.Diff([]int64{0}, e.starts("trips", 0)); d != "" {
		t.Fatal(d)
	}
	s = e.settings("trips")
	s.Partition.Rule.FlushSize = 7
	r = e.start(s)
	e.awaitArchived("trips", 0, 80)
	r.end()
	if d := cmp.Diff([]int64{0, 31, 38, 45, 52, 59, 66, 73}, e.starts("trips", 0)); d != "" {
		t.Error(d)
	}
	e.checkEqual("trips", 0, e.log("trips", 0))
	e.checkClean()
}

// Field fault 1: the segment of one that was thought dead meets the one that took over.
func TestAnOvertakenArchiverAdopts(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 40)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 40
	var once atomic.Bool
	blocked, release := make(chan struct{}), make(chan struct{})
	e.store.SetBefore(func(ctx context.Context, op, key string) error {
		if op == store.OpCreate && strings.HasPrefix(key, "topics/") && once.CompareAndSwap(false, true) {
			close(blocked)
			select { // stopped in the middle of its create, as by SIGSTOP
			case <-release:
			case <-ctx.Done():
			}
		}
		return nil
	})
	a := e.start(s)
	e.awaitClosed("a create begins", blocked)
	// Another group's archiver does the same work meanwhile: the store alone decides.
	e.fill("trips", 0, 40, 60)
	s.Group, s.Partition.Rule.FlushSize = "g2", 100
	b := e.start(s)
	e.awaitArchived("trips", 0, 100)
	b.end()
	before := e.archived("trips", 0)
	close(release)
	e.await("adoption", func() bool { return a.metric("tapedeck_archiver_adopted_total") == 1 })
	e.fill("trips", 0, 100, 40)
	e.awaitArchived("trips", 0, 140)
	e.await("position stored", func() bool { return e.committed("trips", 0).Offset == 140 })
	a.end()
	if d := cmp.Diff([]int64{0, 100}, e.starts("trips", 0)); d != "" {
		t.Error(d)
	}
	if after := e.archived("trips", 0)[:100]; !cmp.Equal(before, after) {
		t.Error("the object of the one that took over has changed")
	}
	e.checkEqual("trips", 0, e.log("trips", 0))
	e.checkClean()
}

// Field fault 9: the group grows and shrinks under load; the committed offset never passes the last durable segment.
func TestRebalanceUnderLoad(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const parts, perPart = 4, 1500
	e.topic("trips", parts)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 50
	s.Partition.RotateAge = 300 * time.Millisecond
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		p := e.producer("")
		for i := range perPart / 50 {
			for part := range int32(parts) {
				e.send(p, "trips", part, numbered(i*50, 50)...)
			}
		}
	}()
	a := e.start(s)
	e.await("a owns all", func() bool { return len(a.Status().Partitions) == parts })
	for range 2 {
		b := e.start(s)
		e.await("both own some", func() bool { return len(a.Status().Partitions) == parts/2 && len(b.Status().Partitions) == parts/2 })
		for part := range int32(parts) {
			if c := e.committed("trips", part).Offset; c > 0 {
				hs := e.headers("trips", part)
				if len(hs) == 0 || hs[len(hs)-1].Next < c {
					t.Errorf("partition %d: committed %d is beyond the archive", part, c)
				}
			}
		}
		b.end()
		e.await("a owns all again", func() bool { return len(a.Status().Partitions) == parts })
	}
	<-produced
	for part := range int32(parts) {
		e.awaitArchived("trips", part, perPart)
		e.checkEqual("trips", part, e.log("trips", part))
	}
	a.end()
	e.checkClean()
}

// Field fault 13, both policies.
func TestRetentionOvertakesTheArchiver(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 100)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 100
	r := e.start(s)
	e.awaitArchived("trips", 0, 100)
	r.end()
	e.fill("trips", 0, 100, 500)
	tp := kafka.TP{Topic: "trips"}
	if err := e.admin.DeleteRecords(e.ctx(), map[kafka.TP]int64{tp: 500}); err != nil {
		t.Fatal(err)
	}
	r = e.start(s)
	st := r.awaitStopped("trips", 0, partition.Gap)
	if !strings.Contains(st.Error, "gap.policy") || !strings.Contains(st.Error, "100 to 499") {
		t.Errorf("error %q", st.Error)
	}
	e.await("the metric", func() bool { return r.metric("tapedeck_archiver_stopped_partitions") == 1 })
	r.end()
	if n := len(e.objects("trips", 0)); n != 1 {
		t.Errorf("%d segments", n)
	}

	s.Partition.Gap = partition.GapRecord
	r = e.start(s)
	e.awaitArchived("trips", 0, 600)
	r.end()
	if got := r.metric("tapedeck_archiver_lost_offsets_total"); got != 400 {
		t.Errorf("lost_offsets_total = %v", got)
	}
	hs := e.headers("trips", 0)
	if d := cmp.Diff([]segment.Skip{{From: 100, To: 500, Class: segment.Lost}}, hs[1].Skipped); d != "" {
		t.Error(d)
	}
	e.checkAccepted("trips", 100, 500)
	// A later loss is another one, and is not accepted with it.
	e.fill("trips", 0, 600, 50)
	if err := e.admin.DeleteRecords(e.ctx(), map[kafka.TP]int64{tp: 620}); err != nil {
		t.Fatal(err)
	}
	s.Partition.RotateAge = 300 * time.Millisecond
	r = e.start(s)
	e.awaitArchived("trips", 0, 650)
	r.end()
	e.checkAccepted("trips", 600, 620)
}

// Retention passes a running archiver whose store does not answer: what it holds is kept.
func TestRetentionOvertakesARunningArchiver(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	s.Partition.RotateAge = 300 * time.Millisecond
	s.Partition.Gap = partition.GapRecord
	e.store.SetBefore(failing(store.ErrUnknown))
	e.fill("trips", 0, 0, 20) // before it runs: two segments, whatever their age
	r := e.start(s)
	e.await("held", func() bool { st := r.state("trips", 0); return st != nil && st.Held })
	e.fill("trips", 0, 20, 80)
	if err := e.admin.DeleteRecords(e.ctx(), map[kafka.TP]int64{{Topic: "trips"}: 60}); err != nil {
		t.Fatal(err)
	}
	e.store.SetBefore(nil)
	e.awaitArchived("trips", 0, 100)
	r.end()
	hs := e.headers("trips", 0)
	var skipped []segment.Skip
	for _, h := range hs {
		skipped = append(skipped, h.Skipped...)
	}
	if d := cmp.Diff([]segment.Skip{{From: 20, To: 60, Class: segment.Lost}}, skipped); d != "" {
		t.Error(d)
	}
	if n := len(e.archived("trips", 0)); n != 60 {
		t.Errorf("%d records", n)
	}
}

func TestANewChainStartsAtZero(t *testing.T) {
	t.Parallel()
	for _, start := range []StartKind{StartEarliest, StartLatest} {
		t.Run(string(start), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.topic("trips", 1)
			e.fill("trips", 0, 0, 100)
			if err := e.admin.DeleteRecords(e.ctx(), map[kafka.TP]int64{{Topic: "trips"}: 40}); err != nil {
				t.Fatal(err)
			}
			s := e.settings("trips")
			s.Start.Kind = start
			s.Partition.RotateAge = 300 * time.Millisecond
			r := e.start(s)
			e.awaitArchived("trips", 0, 100)
			e.fill("trips", 0, 100, 10)
			e.awaitArchived("trips", 0, 110)
			r.end()
			hs := e.headers("trips", 0)
			want, records := segment.Skip{From: 0, To: 40, Class: segment.Lost}, 70
			if start == StartLatest {
				want, records = segment.Skip{From: 0, To: 100, Class: segment.NotArchived}, 10
			}
			if hs[0].Start != 0 || !cmp.Equal(hs[0].Skipped, []segment.Skip{want}) {
				t.Errorf("first segment starts at %d, skips %v", hs[0].Start, hs[0].Skipped)
			}
			if n := len(e.archived("trips", 0)); n != records {
				t.Errorf("%d records, want %d", n, records)
			}
		})
	}
}

// Field fault 23: the tail expired, or the prefix is wrong.
func TestAGroupAheadOfAnEmptyChainStops(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 10)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	r := e.start(s)
	e.awaitArchived("trips", 0, 10)
	e.await("position stored", func() bool { return e.committed("trips", 0).Offset == 10 })
	r.end()
	for _, k := range e.objects("trips", 0) {
		e.store.Delete(k)
	}
	r = e.start(s)
	st := r.awaitStopped("trips", 0, partition.NoTail)
	if !strings.Contains(st.Error, "the tail expired, or store or topics.dir is wrong") {
		t.Errorf("error %q", st.Error)
	}
	r.end()
	if n := len(e.objects("trips", 0)); n != 0 {
		t.Errorf("%d objects: a second chain was begun", n)
	}
}

func TestAGroupAheadOfTheArchiveIsRewound(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 30)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	r := e.start(s)
	e.awaitArchived("trips", 0, 30)
	e.await("position stored", func() bool { return e.committed("trips", 0).Offset == 30 })
	r.end()
	keys := e.objects("trips", 0)
	e.store.Delete(keys[len(keys)-1])
	r = e.start(s)
	e.awaitArchived("trips", 0, 30)
	r.end()
	e.checkEqual("trips", 0, e.log("trips", 0))
	e.checkClean()
}

func TestATopicCreatedAgainStops(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"while it runs", "while it is down"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.topic("trips", 1)
			e.fill("trips", 0, 0, 10)
			s := e.settings("trips")
			s.Partition.Rule.FlushSize = 10
			r := e.start(s)
			e.awaitArchived("trips", 0, 10)
			if how != "while it runs" {
				r.end()
			}
			if err := e.admin.DeleteTopic(e.ctx(), "trips"); err != nil {
				t.Fatal(err)
			}
			e.topic("trips", 1)
			e.fill("trips", 0, 500, 40)
			if how != "while it runs" {
				r = e.start(s)
			}
			st := r.awaitStopped("trips", 0, partition.OtherLog)
			if !strings.Contains(st.Error, "topic") {
				t.Errorf("error %q", st.Error)
			}
			r.end()
			if hs := e.headers("trips", 0); len(hs) != 1 || hs[0].Next != 10 {
				t.Errorf("%d segments", len(hs))
			}
			e.checkClean()
		})
	}
}

// Field fault 27: the log was rewritten and has grown past the archive's end.
func TestARewrittenLogStops(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 30)
	// An archive of a log with another record at offset 19, of the same topic id.
	ts, err := e.admin.Topics(e.ctx(), "trips")
	if err != nil {
		t.Fatal(err)
	}
	id := segment.LogIdentity{ClusterID: "test-cluster", TopicID: ts["trips"].ID, Topic: "trips", Isolation: "read_committed"}
	recs := e.log("trips", 0)[:20]
	recs[19].Value = []byte("as it was before the election")
	e.putSegment(id, 0, 20, recs, segment.First())
	before := e.archived("trips", 0)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 5
	r := e.start(s)
	st := r.awaitStopped("trips", 0, partition.Diverged)
	if !strings.Contains(st.Error, "offset 19") {
		t.Errorf("error %q", st.Error)
	}
	r.end()
	if after := e.archived("trips", 0); !cmp.Equal(before, after) {
		t.Error("the archive has changed")
	}
}

// putSegment writes a segment as another archiver would.
func (e *env) putSegment(id segment.LogIdentity, start, next int64, recs []record.Record, c segment.Chain) {
	e.t.Helper()
	w, err := segment.NewWriter(id, start, "")
	if err != nil {
		e.t.Fatal(err)
	}
	for i := range recs {
		if _, err := w.Append(&recs[i]); err != nil {
			e.t.Fatal(err)
		}
	}
	data, h, err := w.Close(next, c, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.arc.Create(e.ctx(), h, data, archive.RetryPolicy{}); err != nil {
		e.t.Fatal(err)
	}
}

func TestATruncatedLogStops(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 30)
	ts, err := e.admin.Topics(e.ctx(), "trips")
	if err != nil {
		t.Fatal(err)
	}
	id := segment.LogIdentity{ClusterID: "test-cluster", TopicID: ts["trips"].ID, Topic: "trips", Isolation: "read_committed"}
	e.putSegment(id, 0, 50, e.log("trips", 0), segment.First())
	r := e.start(e.settings("trips"))
	if st := r.awaitStopped("trips", 0, partition.Diverged); !strings.Contains(st.Error, "the archive ends at offset 50, but the log in Kafka at 30") {
		t.Errorf("error %q", st.Error)
	}
}

func TestAnotherIsolationStops(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 10)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	r := e.start(s)
	e.awaitArchived("trips", 0, 10)
	r.end()
	s.Isolation = "read_uncommitted"
	r = e.start(s)
	if st := r.awaitStopped("trips", 0, partition.OtherLog); !strings.Contains(st.Error, "isolation") {
		t.Errorf("error %q", st.Error)
	}
}

// Field faults 8 and 16: the store is in trouble for a while.
func TestTheStoreInTrouble(t *testing.T) {
	t.Parallel()
	for _, trouble := range []error{store.ErrUnknown, store.ErrNotAllowed, errors.New("connection reset")} {
		t.Run(trouble.Error(), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.topic("trips", 2)
			s := e.settings("trips")
			s.Consumer["session.timeout.ms"] = "12000"
			s.Partition.Rule.FlushSize = 10
			r := e.start(s)
			e.await("ready", func() bool { return r.Ready() == nil && len(r.Status().Partitions) == 2 })
			e.store.SetBefore(failing(trouble))
			e.fill("trips", 0, 0, 200)
			e.fill("trips", 1, 0, 200)
			e.await("both partitions held", func() bool {
				a, b := r.state("trips", 0), r.state("trips", 1)
				return a != nil && b != nil && a.Held && b.Held
			})
			e.await("retries counted", func() bool { return r.metric("tapedeck_archiver_store_retries_total") > 20 })
			e.await("ready says why not", func() bool { err := r.Ready(); return err != nil && strings.Contains(err.Error(), trouble.Error()) })
			// Longer than the group's session: it must still be a member.
			sessionEnd := time.Now().Add(14 * time.Second)
			e.await("a session passes", func() bool { return time.Now().After(sessionEnd) })
			if len(r.Status().Partitions) != 2 {
				t.Error("partitions were taken away")
			}
			for part := range int32(2) {
				if c := e.committed("trips", part).Offset; c > 0 {
					t.Errorf("partition %d: %d is committed, nothing is archived", part, c)
				}
				e.await("the status says why", func() bool {
					st := r.state("trips", part)
					return st != nil && strings.Contains(st.Waiting, trouble.Error()) && st.Putting
				})
			}
			e.store.SetBefore(nil)
			for part := range int32(2) {
				e.awaitArchived("trips", part, 200)
				e.checkEqual("trips", part, e.log("trips", part))
			}
			e.await("ready again", func() bool { return r.Ready() == nil })
			r.end()
			e.checkClean()
		})
	}
}

// Answers get lost, and creates land late: the worst that a store may do.
func TestLostAndLateAnswers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 300)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	var n atomic.Int64
	e.store.SetAfter(func(_ context.Context, op, key string, err error) error {
		if op == store.OpCreate && strings.HasPrefix(key, "topics/") && err == nil && n.Add(1)%3 == 0 {
			return store.ErrUnknown
		}
		return err
	})
	r := e.start(s)
	e.awaitArchived("trips", 0, 300)
	r.end()
	e.checkEqual("trips", 0, e.log("trips", 0))
	e.checkClean()
	if n.Load() < 30 {
		t.Errorf("%d creates", n.Load())
	}
}

// The cap is far below what is buffered without it: segments end early, and nothing is lost.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const parts = 8
	e.topic("trips", parts)
	p := e.producer("")
	for part := range int32(parts) {
		recs := numbered(0, 40)
		for i := range recs {
			recs[i].Value = make([]byte, 50_000)
			for j := range recs[i].Value { // that does not compress
				recs[i].Value[j] = byte((i*7919 + j*j*31 + j>>3) ^ j*2654435761>>13)
			}
		}
		e.send(p, "trips", part, recs...)
	}
	s := e.settings("trips")
	s.Partition.Codec = "null"
	s.MaxMemory = 4 << 20 // of 16 MB
	s.Partition.RotateAge = 2 * time.Second
	r := e.start(s)
	for part := range int32(parts) {
		e.awaitArchived("trips", part, 40)
		e.checkEqual("trips", part, e.log("trips", part))
	}
	r.end()
	if early := r.metric("tapedeck_archiver_segments_total") - parts; early < 1 {
		t.Errorf("no segment ended early")
	}
	e.checkClean()
}

// Field fault 10: what is buffered at the end is written in full or not at all.
func TestShutdownLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 40)
	r := e.start(e.settings("trips"))
	e.await("buffered", func() bool { st := r.state("trips", 0); return st != nil && st.OpenRecords == 40 })
	r.end()
	if n := len(e.objects("trips", 0)); n != 0 {
		t.Errorf("%d objects", n)
	}
	if c := e.committed("trips", 0).Offset; c != -1 {
		t.Errorf("committed %d", c)
	}
}

// A create in flight at shutdown may finish, and its position is stored.
func TestShutdownFinishesTheCreateInFlight(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 40)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	entered, release := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	e.store.SetBefore(func(ctx context.Context, op, key string) error {
		if op == store.OpCreate && strings.HasPrefix(key, "topics/") && once.CompareAndSwap(false, true) {
			close(entered)
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return nil
	})
	r := e.start(s)
	e.awaitClosed("a create begins", entered)
	ended := make(chan error, 1)
	go func() { ended <- r.stop() }()
	close(release)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	hs := e.headers("trips", 0)
	if len(hs) == 0 || hs[0].Next != 10 {
		t.Fatalf("%d segments", len(hs))
	}
	if c := e.committed("trips", 0).Offset; c != hs[len(hs)-1].Next {
		t.Errorf("committed %d, archived to %d", c, hs[len(hs)-1].Next)
	}
	e.checkClean()
}
