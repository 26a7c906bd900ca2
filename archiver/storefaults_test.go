package archiver

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/devstack/s3faults"
	"tapedeck.dev/tapedeck/shared/devstack/s3server"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/metered"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

// s3env is an env whose archiver writes to a real S3 server through one that answers badly.
type s3env struct {
	*env
	faults *s3faults.Proxy
	direct *s3.Store // past the faults
	arc    *archive.Archive
	o      s3.Options // through the faults
}

// newS3Env is not for parallel tests: there is one server per process.
func newS3Env(t *testing.T) *s3env {
	t.Helper()
	const access, secret = "test-access", "test-secret-key"
	endpoint, stop, err := s3server.Start(context.Background(), t.TempDir(), "127.0.0.1:0", access, secret, "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	p, err := s3faults.Start(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	e := &s3env{env: newEnv(t), faults: p}
	e.o = s3.Options{Bucket: "bucket", Prefix: "p", Endpoint: p.URL(), Region: s3server.Region, AccessKey: access, SecretKey: secret, Timeout: time.Minute}
	o := e.o
	o.Endpoint, o.Timeout = endpoint, time.Minute
	if e.direct, err = s3.New(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.direct.Close() })
	e.arc = archive.Open(e.direct, "topics")
	return e
}

// run starts an archiver on the faulty server, with a metered store as the service has.
func (e *s3env) run(s Settings) *running {
	e.t.Helper()
	st, err := s3.New(context.Background(), e.o)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = st.Close() })
	return e.start(s, func(p *Parts) {
		if p.Store, err = metered.New(st, p.Metrics); err != nil {
			e.t.Fatal(err)
		}
	})
}

// segments are the objects of a partition.
func (e *s3env) segments(topic string, part int32) []store.Object {
	e.t.Helper()
	objs, _, err := e.direct.List(e.ctx(), segment.PartitionPrefix("topics", topic, part), "", 0)
	if err != nil {
		e.t.Fatal(err)
	}
	return objs
}

func (e *s3env) awaitNext(topic string, part int32, next int64) {
	e.t.Helper()
	var at int64
	e.awaitOr(fmt.Sprintf("%s-%d archived to %d", topic, part, next), func() string { return fmt.Sprintf("archived to %d", at) }, func() bool {
		tail, err := e.arc.Tail(e.ctx(), topic, part, -1)
		if err != nil {
			e.t.Fatal(err)
		}
		if tail == nil {
			return false
		}
		at = tail.Header.Next
		return at >= next
	})
}

// checkArchive demands that the archive is clean and holds exactly what the log does.
func (e *s3env) checkArchive(topic string, part int32) {
	e.t.Helper()
	r, err := e.arc.Verify(e.ctx())
	if err != nil || len(r.Findings) > 0 {
		e.t.Fatalf("verify: %v, %v", r, err)
	}
	var got []record.Record
	for _, o := range e.segments(topic, part) {
		data, err := e.direct.Get(e.ctx(), o.Key)
		if err != nil {
			e.t.Fatal(err)
		}
		sr, err := segment.NewReader(o.Key, data)
		if err != nil {
			e.t.Fatal(err)
		}
		for {
			var rec record.Record
			if err := sr.Next(&rec); err == io.EOF {
				break
			} else if err != nil {
				e.t.Fatal(err)
			}
			got = append(got, rec)
		}
	}
	want := e.log(topic, part)
	if len(got) != len(want) {
		e.t.Fatalf("%s-%d: %d records in the archive, want %d", topic, part, len(got), len(want))
	}
	for i := range got {
		if !record.Equal(&got[i], &want[i]) {
			e.t.Fatalf("%s-%d: record %d differs", topic, part, i)
		}
	}
}

// answered is the metric of requests with this name and answer.
func answered(t *testing.T, reg *prometheus.Registry, request, answer string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "tapedeck_store_requests_total" && labels["request"] == request && labels["answer"] == answer {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func isSegmentPut(r s3faults.Request) bool {
	return (r.Op == "PutObject" || r.Op == "UploadPart") && strings.HasPrefix(r.Key, "p/topics/")
}

// Field faults 8 and 16 on the wire: two of three creates of segments are answered badly, and a read; everything is archived once.
func TestStoreFaultsOnTheWire(t *testing.T) {
	e := newS3Env(t)
	e.topic("warm-up", 1)
	for name, c := range map[string]struct {
		fault  s3faults.Fault
		answer string // of the metric; "" = not counted by one of its own
	}{
		"slow-down":      {s3faults.Fault{Status: 503, Code: "SlowDown", RetryAfter: "0"}, "503"},
		"internal-error": {s3faults.Fault{Status: 500, Code: "InternalError"}, "500"},
		"error-in-200":   {s3faults.Fault{Status: 200, Code: "InternalError"}, "200"},
		"conflict":       {s3faults.Fault{Status: 409, Code: "ConditionalRequestConflict"}, "409"},
		"denied":         {s3faults.Fault{Status: 403, Code: "AccessDenied"}, "403"},
		"expired":        {s3faults.Fault{Status: 400, Code: "ExpiredToken"}, "400"},
		"reset":          {s3faults.Fault{Reset: true}, "none"},
		"answer-lost":    {s3faults.Fault{Lose: true}, "none"},
		"lands-late":     {s3faults.Fault{Late: true}, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &s3env{env: &env{t: t, fake: e.fake, bootstrap: e.bootstrap, admin: e.admin, store: e.store, arc: e.env.arc},
				faults: e.faults, direct: e.direct, arc: e.arc, o: e.o}
			if e.o.Timeout = time.Minute; c.fault.Late {
				e.o.Timeout = 500 * time.Millisecond
			}
			e.topic(name, 1)
			e.fill(name, 0, 0, 60)
			s := e.settings(name)
			s.Group, s.Partition.Rule.FlushSize = name, 20
			var puts atomic.Int64
			e.faults.ResetCounts()
			e.faults.Set(func(r s3faults.Request) s3faults.Fault {
				switch {
				case isSegmentPut(r) && puts.Add(1)%3 != 0:
					return c.fault
				case r.Op == "GetObject" && r.N == 2:
					return s3faults.Fault{Status: 503, Code: "SlowDown"}
				}
				return s3faults.Fault{}
			})
			t.Cleanup(func() { e.faults.Set(nil) })
			r := e.run(s)
			e.awaitNext(name, 0, 60)
			e.await("position stored", func() bool { return e.committedBy(name, name, 0).Offset == 60 })
			r.end()
			late := e.faults.Release()
			if c.fault.Late && late == 0 {
				t.Error("nothing was late")
			}
			e.checkArchive(name, 0)
			if n := len(e.segments(name, 0)); n != 3 {
				t.Errorf("%d segments, want 3", n)
			}
			if n := answered(t, r.reg, "PutObject", c.answer); n < 2 {
				t.Errorf("%v puts with the answer %s are counted", n, c.answer)
			}
			if n := r.metric("tapedeck_archiver_store_retries_total"); n < 1 && !c.fault.Lose {
				t.Errorf("%v retries are counted", n)
			}
		})
	}
}

// Field fault 8, scaled down: the store is down for longer than the group's session and its poll interval together. The membership
// holds, nothing is committed, no partition moves; then everything is archived.
func TestStoreDownForLongerThanTheGroupAllows(t *testing.T) {
	e := newS3Env(t)
	e.topic("trips", 2)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	s.Consumer = map[string]string{"session.timeout.ms": "12000", "heartbeat.interval.ms": "300", "max.poll.interval.ms": "12000"}
	r := e.run(s)
	state := func() string { return fmt.Sprintf("ready: %v, status %+v", r.Ready(), r.Status()) }
	e.awaitOr("ready", state, func() bool { return r.Ready() == nil && len(r.Status().Partitions) == 2 })
	e.faults.Set(func(s3faults.Request) s3faults.Fault {
		return s3faults.Fault{Status: 503, Code: "SlowDown", RetryAfter: "1"}
	})
	began := time.Now()
	rebalances := r.metric("tapedeck_archiver_rebalances_total")
	for part := range int32(2) {
		e.fill("trips", part, 0, 200)
	}
	e.awaitOr("both partitions held", state, func() bool {
		a, b := r.state("trips", 0), r.state("trips", 1)
		return a != nil && b != nil && a.Held && b.Held
	})
	e.await("session and poll interval pass", func() bool { return time.Since(began) > 25*time.Second })
	if n := r.metric("tapedeck_archiver_rebalances_total"); n != rebalances || len(r.Status().Partitions) != 2 {
		t.Errorf("%v rebalances during the outage, %d partitions", n-rebalances, len(r.Status().Partitions))
	}
	for part := range int32(2) {
		if c := e.committed("trips", part).Offset; c > 0 {
			t.Errorf("partition %d: %d is committed, nothing is archived", part, c)
		}
	}
	if err := r.Health(); err != nil {
		t.Errorf("health: %v: a restart would not help", err)
	}
	if n, most := answered(t, r.reg, "PutObject", "503"), 10+4*time.Since(began).Seconds(); n < 2 || n > most {
		t.Errorf("%v puts of two partitions, at one a second asked for: at most %.0f expected", n, most)
	}
	e.faults.Set(nil)
	for part := range int32(2) {
		e.awaitNext("trips", part, 200)
		e.checkArchive("trips", part)
	}
	e.await("ready again", func() bool { return r.Ready() == nil })
	r.end()
}

// large fills a partition with records that do not compress, so that a segment of them is uploaded in three parts.
func (e *s3env) large(topic string) Settings {
	e.t.Helper()
	e.o.MultipartAbove, e.o.PartSize, e.o.Timeout = 5<<20, 5<<20, time.Minute
	e.topic(topic, 1)
	noise := rand.NewChaCha8([32]byte{7})
	recs := numbered(0, 28)
	for i := range recs {
		recs[i].Value = make([]byte, 400_000)
		_, _ = noise.Read(recs[i].Value)
	}
	e.send(e.producer(""), topic, 0, recs...)
	s := e.settings(topic)
	s.Partition.Rule.FlushSize = 28
	return s
}

func (e *s3env) committedBy(group, topic string, part int32) (c struct{ Offset int64 }) {
	e.t.Helper()
	tp := record.TopicPartition{Topic: topic, Partition: part}
	offs, err := e.admin.CommittedOffsets(e.ctx(), group, []record.TopicPartition{tp})
	if err != nil {
		e.t.Fatal(err)
	}
	c.Offset = -1
	if o, ok := offs[tp]; ok {
		c.Offset = o.Offset
	}
	return c
}

// Field fault 16: the rights go away, and the credentials expire, in the middle of an upload in parts. Nothing is visible, nothing is
// committed; when they are back everything is there once, and no upload is left.
func TestDeniedInTheMiddleOfAnUpload(t *testing.T) {
	e := newS3Env(t)
	s := e.large("trips")
	var denied atomic.Bool
	denied.Store(true)
	e.faults.Set(func(r s3faults.Request) s3faults.Fault {
		switch {
		case !denied.Load() || !isSegmentPut(r) || r.N%2 == 1:
			return s3faults.Fault{}
		case r.N%4 == 0:
			return s3faults.Fault{Status: 400, Code: "ExpiredToken"}
		}
		return s3faults.Fault{Status: 403, Code: "AccessDenied"}
	})
	r := e.run(s)
	e.await("uploads are refused", func() bool {
		return answered(t, r.reg, "UploadPart", "403") >= 2 && answered(t, r.reg, "UploadPart", "400") >= 1
	})
	e.await("the status says why", func() bool {
		st := r.state("trips", 0)
		return st != nil && strings.Contains(st.Waiting, "not allowed")
	})
	if n := len(e.segments("trips", 0)); n != 0 {
		t.Errorf("%d objects of refused uploads", n)
	}
	if c := e.committed("trips", 0).Offset; c > 0 {
		t.Errorf("%d is committed, nothing is archived", c)
	}
	denied.Store(false)
	e.awaitNext("trips", 0, 28)
	r.end()
	e.checkArchive("trips", 0)
	if objs := e.segments("trips", 0); len(objs) != 1 || objs[0].Size < 11_000_000 {
		t.Errorf("%v", objs)
	}
	e.noUploads()
}

// Field fault 10: SIGTERM in the middle of an upload in parts leaves neither an object nor an upload.
func TestShutdownInTheMiddleOfAnUpload(t *testing.T) {
	e := newS3Env(t)
	s := e.large("trips")
	s.ShutdownIn = 200 * time.Millisecond
	uploading := make(chan struct{})
	e.faults.Set(func(r s3faults.Request) s3faults.Fault {
		if isSegmentPut(r) && r.N == 3 {
			close(uploading)
			return s3faults.Fault{Hang: true}
		}
		return s3faults.Fault{}
	})
	r := e.run(s)
	e.awaitClosed("a part is under way", uploading)
	r.end()
	if n := len(e.segments("trips", 0)); n != 0 {
		t.Errorf("%d objects", n)
	}
	if c := e.committed("trips", 0).Offset; c > 0 {
		t.Errorf("committed %d", c)
	}
	e.noUploads()
	e.faults.Set(nil)
	r = e.run(s)
	e.awaitNext("trips", 0, 28)
	r.end()
	e.checkArchive("trips", 0)
}

// noUploads demands that every upload that was begun is completed or aborted.
func (e *s3env) noUploads() {
	e.t.Helper()
	a := e.faults.Answers()
	begun, ended := a["CreateMultipartUpload 200"], a["CompleteMultipartUpload 200"]+a["AbortMultipartUpload 204"]
	if begun == 0 || begun != ended {
		e.t.Errorf("%d uploads were begun, %d completed or aborted: %v", begun, ended, a)
	}
}

// What a writer that was killed has left is swept at the start of the next one, by its age; a store that refuses that holds up nothing.
func TestStartSweeps(t *testing.T) {
	e := newS3Env(t)
	for _, refuse := range []bool{false, true} {
		e.faults.ResetCounts()
		e.faults.Set(func(r s3faults.Request) s3faults.Fault {
			if refuse && r.Op == "ListMultipartUploads" {
				return s3faults.Fault{Status: 403, Code: "AccessDenied"}
			}
			return s3faults.Fault{}
		})
		st, err := s3.New(context.Background(), e.o)
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(e.settings("trips"), Parts{Store: st, TopicsDir: "topics", Log: testLog(t), Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.CheckStore(e.ctx()); err != nil {
			t.Errorf("refused %v: %v", refuse, err)
		}
		if n := e.faults.Counts()["ListMultipartUploads"]; n != 1 {
			t.Errorf("%d listings of uploads", n)
		}
		_ = st.Close()
	}
}
