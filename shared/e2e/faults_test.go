package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/e2e/soak"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// Field faults (docs/field-faults.md) that a broker has a part in, on a real one. The archiver's own tests show them on the fake broker.

// scene is one topic, its archive, and the archivers of one group.
type scene struct {
	t     *testing.T
	topic soak.Topic
	group string
	store string
	arc   *archive.Archive
	admin *kafka.Admin
	dir   string
	n     int
}

const (
	sceneSession = 3 * time.Second
	patience     = 5 * time.Minute
)

func newScene(t *testing.T, partitions int32) *scene {
	t.Helper()
	if os.Getenv("TAPEDECK_TEST_KAFKA") == "" {
		t.Skip("needs a real broker: scripts/real/run.sh; the archiver's tests show the same on the fake one")
	}
	o := options(t, 0, 0)
	s := &scene{t: t, topic: soak.Topic{Name: o.Topic, Partitions: partitions}, group: o.Topic, store: o.StoreURL, dir: t.TempDir()}
	st, err := storeurl.Open(t.Context(), s.store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	s.arc = archive.Open(st, "topics")
	if s.admin, err = kafka.NewAdmin(s.client()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.admin.Close)
	if err := s.admin.CreateTopic(t.Context(), s.topic.Name, partitions, 1, map[string]string{"retention.ms": "-1"}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scene) client() kafka.Client {
	return kafka.Client{Bootstrap: env.Bootstrap, ClientID: "faults"}
}

// start starts an archiver of the group; settings come last, so that they win.
func (s *scene) start(settings ...string) *soak.Archiver {
	s.t.Helper()
	s.n++
	a, err := soak.StartArchiver(filepath.Join(binDir, "archiver"), s.dir, fmt.Sprintf("archiver-%d", s.n), append([]string{
		"bootstrap.servers=" + env.Bootstrap, "store=" + s.store, "topics=" + s.topic.Name, "group.id=" + s.group, "rest.listen=127.0.0.1:0",
		fmt.Sprint("session.timeout.ms=", sceneSession.Milliseconds()), "log.level=debug",
	}, settings...))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(a.Kill)
	return a
}

func (s *scene) stop(as ...*soak.Archiver) {
	s.t.Helper()
	for _, a := range as {
		if err := a.Stop(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// produce sends n records to each partition, in turn.
func (s *scene) produce(ctx context.Context, n int, pause time.Duration) error {
	p, err := kafka.NewProducer(s.client(), "", 0)
	if err != nil {
		return err
	}
	defer p.Close()
	for i := range n {
		for part := range s.topic.Partitions {
			r := record.Record{Topic: s.topic.Name, Partition: part, Timestamp: time.Now().UnixMilli(), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "value %d of partition %d", i, part)}
			if err := p.Send(ctx, &r); err != nil {
				return err
			}
		}
		if pause > 0 && i%20 == 19 {
			time.Sleep(pause) // the pace of the load
		}
	}
	return p.Flush(ctx)
}

func (s *scene) fill(n int) {
	s.t.Helper()
	if err := s.produce(s.t.Context(), n, 0); err != nil {
		s.t.Fatal(err)
	}
}

// next is where the chain of a partition ends.
func (s *scene) next(part int32) int64 {
	s.t.Helper()
	tail, err := s.arc.Tail(s.t.Context(), s.topic.Name, part, -1)
	if err != nil {
		s.t.Fatal(err)
	}
	if tail == nil {
		return 0
	}
	return tail.Header.Next
}

func (s *scene) await(what string, a *soak.Archiver, f func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if f() {
			return
		}
	}
	s.t.Fatalf("did not happen: %s; the log ends:\n%s", what, a.LogTail(20))
}

func (s *scene) awaitLog(a *soak.Archiver, text string) {
	s.t.Helper()
	s.await(text, a, func() bool { return logged(a, text) > 0 })
}

func logged(a *soak.Archiver, text string) int { return strings.Count(a.LogTail(1<<30), text) }

// whole waits until all is archived, and demands n records of each partition, each once, as in the log.
func (s *scene) whole(n int64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	topics := []soak.Topic{s.topic}
	if err := soak.AwaitArchived(ctx, s.admin, s.arc, topics); err != nil {
		s.t.Fatal(err)
	}
	if err := soak.CommitsWithinArchive(ctx, s.admin, s.arc, s.group, topics); err != nil {
		s.t.Error(err)
	}
	c, err := soak.Compare(ctx, env.Bootstrap, s.arc, topics)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.Err(); err != nil || c.Records != n*int64(s.topic.Partitions) {
		s.t.Errorf("%d records, want %d: %v", c.Records, n*int64(s.topic.Partitions), err)
	}
	s.t.Logf("%d records in %d segments, each once", c.Records, c.Segments)
}

// objects returns the segments of partition 0 by name.
func (s *scene) objects() map[string]string {
	s.t.Helper()
	objs, _, err := s.arc.Store().List(s.t.Context(), segment.PartitionPrefix("topics", s.topic.Name, 0), "", 0)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]string{}
	for _, o := range objs {
		data, err := s.arc.Store().Get(s.t.Context(), o.Key)
		if err != nil {
			s.t.Fatal(err)
		}
		out[o.Key] = string(data)
	}
	return out
}

// Field fault 1: A holds 40 records and is stopped; its session expires, B archives all 100; A continues.
func TestRealStoppedArchiverContinues(t *testing.T) {
	s := newScene(t, 1)
	a := s.start("rotate.age.ms=4000", "flush.size=1000")
	s.awaitLog(a, `"partitions assigned"`)
	s.fill(40)
	a.Freeze()
	s.fill(60)
	b := s.start("rotate.age.ms=300")
	s.await("B archives all", b, func() bool { return s.next(0) == 100 })
	before := s.objects()
	a.Thaw()
	s.await("A finds itself fenced", a, func() bool { return logged(a, "fenced or overtaken")+logged(a, `"partitions revoked"`) > 0 })
	s.fill(50)
	s.await("the rest is archived", a, func() bool { return s.next(0) == 150 })
	for name, data := range s.objects() {
		if old, ok := before[name]; ok && old != data {
			t.Errorf("%s has changed", name)
		}
	}
	if n := len(before); n == 0 {
		t.Error("B has archived nothing")
	}
	s.stop(a, b)
	s.whole(150)
}

// Field fault 2: a segment 0 to 30 is there and its commit is not (the group is another one); the successor has other rotation settings.
func TestRealSegmentWithoutCommit(t *testing.T) {
	s := newScene(t, 1)
	a := s.start("flush.size=31", "rotate.age.ms=600000")
	s.fill(31)
	s.await("the segment", a, func() bool { return s.next(0) == 31 })
	a.Kill()
	before := s.objects()
	s.group += "-other"
	b := s.start("flush.size=7", "rotate.age.ms=300")
	s.fill(50)
	s.await("all", b, func() bool { return s.next(0) == 81 })
	s.stop(b)
	for name, data := range before {
		if s.objects()[name] != data {
			t.Errorf("%s has changed", name)
		}
	}
	s.whole(81)
}

// Field fault 4: rotation by age of 1 s, 20 random kill -9, 60,000 records in 6 partitions.
func TestRealKills(t *testing.T) {
	const parts, perPart, kills = 6, 10_000, 20
	s := newScene(t, parts)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 4))
	produced := make(chan error, 1)
	go func() { produced <- s.produce(t.Context(), perPart, 50*time.Millisecond) }()
	for range kills {
		a := s.start("rotate.age.ms=1000")
		before := s.next(0)
		if rnd.IntN(3) > 0 { // else it may meet the start
			s.await("progress", a, func() bool { return before == perPart || s.next(0) > before })
		}
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond) // the random moment
		a.Kill()
	}
	if err := <-produced; err != nil {
		t.Fatal(err)
	}
	a := s.start("rotate.age.ms=1000")
	s.whole(perPart)
	s.stop(a)
}

// Field fault 8, scaled: the store answers 503 SlowDown for several session time-outs.
func TestRealSlowDown(t *testing.T) {
	const perPart = 5000
	s := newScene(t, 4)
	base, query, _ := strings.Cut(s.store, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(q.Get("endpoint"))
	if err != nil {
		t.Fatal(err)
	}
	var slow atomic.Bool
	var refused atomic.Int64
	// The host of the request stays: its signature covers it.
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slow.Load() {
			refused.Add(1)
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprint(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	q.Set("endpoint", front.URL)
	direct := s.store
	s.store = base + "?" + q.Encode()
	a := s.start("flush.size=500", "rotate.age.ms=1000")
	s.store = direct
	s.fill(1000)
	s.await("the first records", a, func() bool { return s.next(0) == 1000 })
	slow.Store(true)
	s.fill(perPart - 1000)
	began := time.Now()
	s.await("the store is asked again for several sessions", a, func() bool { return refused.Load() > 20 && time.Since(began) > 5*sceneSession })
	if s.next(0) != 1000 || logged(a, `"partitions revoked"`) > 0 || !a.Running() {
		t.Errorf("it wrote, left its group or ended:\n%s", a.LogTail(10))
	}
	slow.Store(false)
	s.whole(perPart)
	if logged(a, `"partitions revoked"`) > 0 || logged(a, `"partitions assigned"`) != 1 {
		t.Error("the group was left meanwhile")
	}
	t.Logf("%d requests refused in %s", refused.Load(), time.Since(began).Round(time.Second))
	s.stop(a)
}

// Field fault 9: 12 partitions, the group goes 2, 3, 2 under load, five times.
func TestRealRebalanceUnderLoad(t *testing.T) {
	const parts, perPart, times = 12, 4000, 5
	s := newScene(t, parts)
	produced := make(chan error, 1)
	go func() { produced <- s.produce(t.Context(), perPart, 100*time.Millisecond) }()
	sets := []string{"flush.size=150", "rotate.age.ms=500"}
	a, b := s.start(sets...), s.start(sets...)
	topics := []soak.Topic{s.topic}
	commits := func() {
		if err := soak.CommitsWithinArchive(t.Context(), s.admin, s.arc, s.group, topics); err != nil {
			t.Error(err)
		}
	}
	for range times {
		c := s.start(sets...)
		s.awaitLog(c, `"partitions assigned"`)
		commits()
		s.await("the third archives too", c, func() bool { return logged(c, `"segment confirmed"`) > 0 || s.next(0) == perPart })
		commits()
		s.stop(c)
	}
	if err := <-produced; err != nil {
		t.Fatal(err)
	}
	s.whole(perPart)
	s.stop(a, b)
}
