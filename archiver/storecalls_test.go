package archiver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/shared/devstack/s3faults"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

// service starts an archiver as the service does: it checks the store, then archives. It answers a function that ends it.
func (e *s3env) service(s Settings) (end func()) {
	e.t.Helper()
	st, err := s3.New(context.Background(), e.o)
	if err != nil {
		e.t.Fatal(err)
	}
	a, err := New(s, Parts{Store: st, TopicsDir: "topics", Log: testLog(e.t), Metrics: prometheus.NewRegistry()})
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := a.CheckStore(ctx)
		if err == nil {
			err = a.Archive(ctx)
		}
		done <- err
	}()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			e.t.Errorf("archiver ended with %v", err)
		}
		_ = st.Close()
	})
	e.t.Cleanup(end)
	return end
}

// calls are the requests since the last time, as "GetObject 2, PutObject 1".
func (e *s3env) calls() string {
	counts := e.faults.Counts()
	e.faults.ResetCounts()
	var out []string
	for _, op := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%s %d", op, counts[op]))
	}
	return strings.Join(out, ", ")
}

// The requests that an archiver may make of its store, as docs/archiver.md lists them: per start of a process, per start of a partition, per
// segment, per 256 segments. They are counted on the wire, each page and each retry of its own.
func TestAllowedStoreCalls(t *testing.T) {
	e := newS3Env(t)
	e.o.Timeout = time.Minute // no retry by chance
	check := func(phase, want string) {
		t.Helper()
		if got := e.calls(); got != want {
			t.Errorf("%s: %s; allowed are %s", phase, got, want)
		}
	}
	st, err := s3.New(context.Background(), e.o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	checkStore := func() {
		t.Helper()
		a, err := New(e.settings("trips"), Parts{Store: st, TopicsDir: "topics", Log: testLog(t), Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.CheckStore(e.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	checkStore()
	check("first start of a process on an empty prefix", "GetObject 3, ListMultipartUploads 1, ListObjectsV2 5, PutObject 13")
	checkStore()
	check("later start of a process", "GetObject 3, ListMultipartUploads 1, ListObjectsV2 4, PutObject 1")

	e.topic("trips", 1)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 1
	run := func(records int64) {
		t.Helper()
		end := e.service(s)
		e.awaitCommitted("trips", records)
		end()
	}
	e.fill("trips", 0, 0, 10)
	run(10)
	// A new partition: its index, its first page, its topic's incarnations and first header. A new topic: its configuration.
	check("first start, 10 segments", "GetObject 3, ListMultipartUploads 1, ListObjectsV2 9, PutObject 12")
	e.fill("trips", 0, 10, 20)
	run(30)
	// By the hint: a page of its directory and a header. The topic's configuration is read. The look for foreign objects sees one
	// partition: its folder, a page, a header.
	check("later start, 20 segments", "GetObject 6, ListMultipartUploads 1, ListObjectsV2 8, PutObject 21")
	e.fill("trips", 0, 30, 226)
	run(256)
	check("later start, 226 segments and an index object", "GetObject 6, ListMultipartUploads 1, ListObjectsV2 8, PutObject 228")
	e.fill("trips", 0, 256, 10)
	run(266)
	// A tail that ends a block of 256: its index object is offered once more.
	check("later start, 10 segments", "GetObject 6, ListMultipartUploads 1, ListObjectsV2 8, PutObject 12")
}

// awaitCommitted waits without a request to the store.
func (e *s3env) awaitCommitted(topic string, offset int64) {
	e.t.Helper()
	e.await(fmt.Sprintf("position %d stored", offset), func() bool { return e.committedBy("g", topic, 0).Offset == offset })
}

// Field fault 12 on the wire: 8 replicas start at once on an empty bucket and archive about 100 segments.
func TestEightReplicasStartAtOnce(t *testing.T) {
	e := newS3Env(t)
	e.o.Timeout = time.Minute
	const replicas, each = 8, 13
	e.topic("trips", replicas)
	var segments atomic.Int64
	e.faults.Set(func(r s3faults.Request) s3faults.Fault {
		if isSegmentPut(r) {
			segments.Add(1)
		}
		return s3faults.Fault{}
	})
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 1
	all := make([]func(), replicas)
	for i := range all {
		all[i] = e.service(s)
	}
	for part := range int32(replicas) {
		e.fill("trips", part, 0, each)
	}
	for part := range int32(replicas) {
		e.await(fmt.Sprintf("partition %d archived", part), func() bool { return e.committedBy("g", "trips", part).Offset == each })
	}
	for _, end := range all {
		end()
	}
	counts := e.faults.Counts()
	total := 0
	for _, n := range counts {
		total += n
	}
	t.Logf("%d puts of segments, %d other requests: %v", segments.Load(), int64(total)-segments.Load(), counts)
	// A partition that moves while its put is under way may be put a second time, and refused.
	if n := segments.Load(); n < replicas*each || n > replicas*(each+3) {
		t.Errorf("%d puts for %d segments", n, replicas*each)
	}
	// Per replica the probe and the checks, per partition a few starts: the group deals anew with each member that joins.
	if other := total - int(segments.Load()); other > replicas*60 {
		t.Errorf("%d other requests of %d replicas: %v", other, replicas, counts)
	}
	for part := range int32(replicas) {
		e.checkArchive("trips", part)
		if n := len(e.segments("trips", part)); n != each {
			t.Errorf("partition %d has %d segments", part, n)
		}
	}
}
