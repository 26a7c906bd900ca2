package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/shared/record"
)

// member runs a consumer of a group as a service would: it starts what it is given at the committed position, commits what it
// has seen, and keeps the books.
type member struct {
	e     *env
	c     *Consumer
	books *books
	quit  chan struct{}
	done  chan struct{}

	// kept under books.mu
	records int
	owns    int
}

// books are shared by the members of a test.
type books struct {
	mu    sync.Mutex
	seen  map[TP]map[int64]int
	fails []string
}

func (b *books) fail(format string, args ...any) {
	if len(b.fails) < 10 {
		b.fails = append(b.fails, fmt.Sprintf(format, args...))
	}
}

func (e *env) join(gid, topic string, b *books) *member {
	e.t.Helper()
	m := &member{e: e, books: b, quit: make(chan struct{}), done: make(chan struct{})}
	c, err := NewConsumer(ConsumerConfig{Client: e.client(), GroupID: gid, SessionTimeout: 30 * time.Second, MaxBatchRecords: 50})
	if err != nil {
		e.t.Fatal(err)
	}
	m.c = c
	e.must(c.Subscribe([]string{topic}))
	go m.run()
	return m
}

func (m *member) leave() {
	close(m.quit)
	<-m.done
}

func (m *member) run() {
	defer close(m.done)
	b := m.books
	mine := map[TP]bool{}
	next := map[TP]int64{}
	for {
		select {
		case <-m.quit:
			if err := m.c.Close(); err != nil {
				b.mu.Lock()
				b.fail("close: %v", err)
				b.mu.Unlock()
			}
			return
		default:
		}
		evs, err := m.c.Poll(context.Background(), 20*time.Millisecond)
		b.mu.Lock()
		if err != nil {
			b.fail("poll: %v", err)
		}
		var toStart []TP
		for _, ev := range evs {
			switch ev := ev.(type) {
			case Assigned:
				for _, tp := range ev.Partitions {
					mine[tp] = true
					toStart = append(toStart, tp)
				}
			case Revoked:
				for _, tp := range ev.Partitions {
					delete(mine, tp)
					delete(next, tp)
				}
			case Batch:
				m.records += len(ev.Records)
				if !mine[ev.TP] {
					b.fail("a batch of %s, which was revoked", ev.TP)
				}
				for _, r := range ev.Records {
					if want, ok := next[ev.TP]; !ok || r.Offset != want {
						b.fail("%s: got %d, want %d (started: %v)", ev.TP, r.Offset, want, ok)
					}
					next[ev.TP] = r.Offset + 1
					if b.seen[ev.TP] == nil {
						b.seen[ev.TP] = map[int64]int{}
					}
					b.seen[ev.TP][r.Offset]++
				}
			case PartitionError, OutOfRange:
				b.fail("%#v", ev)
			}
		}
		m.owns = len(mine)
		b.mu.Unlock()
		if len(toStart) > 0 {
			m.start(toStart, next)
		}
		m.commit(next, mine)
	}
}

func (m *member) start(tps []TP, next map[TP]int64) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	offs, err := m.c.Committed(ctx, tps)
	m.books.mu.Lock()
	defer m.books.mu.Unlock()
	if err != nil {
		m.books.fail("committed: %v", err)
		return
	}
	for _, tp := range tps {
		o := offs[tp]
		next[tp] = max(0, o.Offset)
		if err := m.c.Start(Position{TP: tp, Offset: next[tp], LeaderEpoch: o.LeaderEpoch}); err != nil {
			m.books.fail("start: %v", err)
		}
	}
}

func (m *member) commit(next map[TP]int64, mine map[TP]bool) {
	offs := map[TP]CommitOffset{}
	for tp, o := range next {
		if mine[tp] {
			offs[tp] = CommitOffset{Offset: o, LeaderEpoch: record.NoEpoch}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := m.c.Commit(ctx, offs); err != nil && !errors.Is(err, ErrFenced) && !errors.Is(err, ErrRebalancing) {
		m.books.mu.Lock()
		m.books.fail("commit: %v", err)
		m.books.mu.Unlock()
	}
}

// A group grows from two members to three and shrinks again, five times, under load: every record is seen, each member sees
// every partition without a hole from where it started, and none that it does not own.
func TestGroupGrowsAndShrinks(t *testing.T) {
	e := newEnv(t)
	const partitions = 12
	name := e.topic(partitions)
	gid := unique("g")
	b := &books{seen: map[TP]map[int64]int{}}

	p := e.producer("")
	stop, stopped := make(chan struct{}), make(chan int64)
	go func() {
		n := int64(0)
		for {
			select {
			case <-stop:
				stopped <- n
				return
			case <-time.After(2 * time.Millisecond):
			}
			for i := range int32(partitions) {
				r := &record.Record{Topic: name, Partition: i, Timestamp: 1, Value: []byte("x")}
				if err := p.Send(context.Background(), r); err != nil {
					b.mu.Lock()
					b.fail("send: %v", err)
					b.mu.Unlock()
				}
			}
			n++
		}
	}()

	members := []*member{e.join(gid, name, b), e.join(gid, name, b)}
	rounds := 5
	if testing.Short() {
		rounds = 1
	}
	// share waits until these members, and nobody else, own all partitions and each has seen more records.
	share := func(ms ...*member) {
		e.t.Helper()
		b.mu.Lock()
		var from []int
		for _, m := range ms {
			from = append(from, m.records)
		}
		b.mu.Unlock()
		e.eventually(fmt.Sprintf("%d members to share the work", len(ms)), func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			owned := 0
			for i, m := range ms {
				if m.owns < partitions/4 || m.records < from[i]+50 {
					return false
				}
				owned += m.owns
			}
			return owned == partitions
		})
	}
	for range rounds {
		share(members...)
		third := e.join(gid, name, b)
		share(members[0], members[1], third)
		third.leave()
	}
	share(members...)
	close(stop)
	n := <-stopped
	e.must(p.Flush(e.ctx()))
	e.eventually("every record to be seen", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i := range int32(partitions) {
			if int64(len(b.seen[TP{Topic: name, Partition: i}])) != n {
				return false
			}
		}
		return true
	})
	for _, m := range members {
		m.leave()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.fails) > 0 {
		t.Fatal(strings.Join(b.fails, "\n"))
	}
}

func (e *env) eventually(what string, f func() bool) {
	e.t.Helper()
	for deadline := time.Now().Add(4 * time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			e.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// assigned polls until the group has given these partitions to c.
func (e *env) assigned(c *Consumer, n int) []TP {
	e.t.Helper()
	var tps []TP
	e.until(c, fmt.Sprintf("%d partitions", n), func(ev Event) bool {
		switch ev := ev.(type) {
		case Assigned:
			tps = append(tps, ev.Partitions...)
		case Revoked:
			tps = slices.DeleteFunc(tps, func(tp TP) bool { return slices.Contains(ev.Partitions, tp) })
		default:
			e.t.Fatalf("%#v%s", ev, errText(ev))
		}
		return len(tps) == n
	})
	return tps
}

func TestCommit(t *testing.T) {
	e := newEnv(t)
	name, gid := e.topic(2), unique("g")
	a, b := TP{Topic: name}, TP{Topic: name, Partition: 1}
	e.fill(a, 0, 10)
	c := e.consumer(gid)
	e.must(c.Subscribe([]string{name}))
	e.assigned(c, 2)

	got, err := c.Committed(e.ctx(), []TP{a, b})
	e.must(err)
	none := CommitOffset{Offset: -1, LeaderEpoch: record.NoEpoch}
	if got[a] != none || got[b] != none {
		t.Fatalf("before any commit: %v", got)
	}
	want := CommitOffset{Offset: 7, LeaderEpoch: 0, Metadata: `{"low":3,"note":"ä"}`}
	e.must(c.Commit(e.ctx(), map[TP]CommitOffset{a: want}))
	if got, err = c.Committed(e.ctx(), []TP{a, b}); err != nil || got[a] != want || got[b] != none {
		t.Fatalf("after a commit: %v, %v", got, err)
	}
	if got, err = e.admin.CommittedOffsets(e.ctx(), gid, []TP{a, b}); err != nil || len(got) != 1 || got[a] != want {
		t.Fatalf("seen from outside: %v, %v", got, err)
	}
	if got, err = e.admin.CommittedOffsets(e.ctx(), unique("nobody"), []TP{a}); err != nil || len(got) != 0 {
		t.Fatalf("of a group that is not there: %v, %v", got, err)
	}

	other := TP{Topic: e.topic(1)}
	if err := c.Commit(e.ctx(), map[TP]CommitOffset{other: {Offset: 1}}); !errors.Is(err, ErrFenced) {
		t.Fatalf("commit of what is not ours: %v, want ErrFenced", err)
	}
	if err := c.Start(Position{TP: other}); !errors.Is(err, ErrFenced) {
		t.Fatalf("start of what is not ours: %v, want ErrFenced", err)
	}
	if err := c.Commit(e.ctx(), map[TP]CommitOffset{a: {Offset: 1, Metadata: strings.Repeat("x", 4096)}}); err == nil {
		t.Fatal("too much metadata was taken")
	}
	lo, hi, err := c.Watermarks(e.ctx(), a)
	if err != nil || lo != 0 || hi != 10 {
		t.Fatalf("watermarks: %d, %d, %v", lo, hi, err)
	}
}

// A member that did not poll for too long has lost its partitions: it is told so, and its commit is refused.
func TestLostMember(t *testing.T) {
	e := newEnv(t)
	name, gid := e.topic(1), unique("g")
	tp := TP{Topic: name}
	e.fill(tp, 0, 10)
	c := e.consumer(gid, func(cfg *ConsumerConfig) {
		cfg.SessionTimeout = 6 * time.Second
		cfg.Overrides = map[string]string{"max.poll.interval.ms": "6000"}
	})
	e.must(c.Subscribe([]string{name}))
	e.assigned(c, 1)
	e.must(c.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
	e.untilEnd(c, tp)
	// Another member takes over while this one is silent.
	d := e.consumer(gid)
	e.must(d.Subscribe([]string{name}))
	e.assigned(d, 1)
	if err := c.Commit(e.ctx(), map[TP]CommitOffset{tp: {Offset: 10, LeaderEpoch: record.NoEpoch}}); !errors.Is(err, ErrFenced) {
		t.Fatalf("commit of a lost member: %v, want ErrFenced", err)
	}
	lost := false
	e.until(c, "the loss", func(ev Event) bool {
		switch ev := ev.(type) {
		case Revoked:
			lost = ev.Lost && slices.Equal(ev.Partitions, []TP{tp})
			return true
		case Batch:
			t.Fatalf("%#v", ev)
		}
		return false
	})
	if !lost {
		t.Fatal("revoked, but not as lost")
	}
}

func TestSubscribeAgain(t *testing.T) {
	e := newEnv(t)
	one, two, gid := e.topic(2), e.topic(1), unique("g")
	c := e.consumer(gid)
	e.must(c.Subscribe([]string{one}))
	e.assigned(c, 2)
	e.must(c.Subscribe([]string{two, one}))
	if got := e.assigned(c, 1); got[0].Topic != two {
		t.Fatalf("assigned %v", got)
	}
	e.must(c.Subscribe([]string{two}))
	e.until(c, "the revocation", func(ev Event) bool {
		r, ok := ev.(Revoked)
		if !ok || len(r.Partitions) != 2 || r.Lost {
			t.Fatalf("%#v%s", ev, errText(ev))
		}
		return true
	})
}

func TestWithoutAGroup(t *testing.T) {
	e := newEnv(t)
	c := e.consumer("")
	if err := c.Subscribe([]string{"x"}); err == nil {
		t.Error("subscribe was taken")
	}
	if err := c.Commit(e.ctx(), map[TP]CommitOffset{{Topic: "x"}: {}}); err == nil {
		t.Error("commit was taken")
	}
	if _, err := c.GroupMetadata(); err == nil {
		t.Error("group metadata was given")
	}
}

// The group throws the member out; a commit that comes before its next Poll must not be accepted.
func TestLostMemberCannotSendOffsets(t *testing.T) {
	e := onFake(t)
	name, gid := e.topic(1), unique("g")
	tp := TP{Topic: name}
	e.fill(tp, 0, 10)
	a := e.consumer(gid, func(cfg *ConsumerConfig) { cfg.SessionTimeout = 6 * time.Second })
	e.must(a.Subscribe([]string{name}))
	e.assigned(a, 1)
	e.must(a.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
	e.untilEnd(a, tp)
	var thrown atomic.Bool
	e.fake.ControlKey(int16(kmsg.Heartbeat), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		req := kreq.(*kmsg.HeartbeatRequest)
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = kerr.UnknownMemberID.Code
		thrown.Store(true)
		return resp, nil, true
	})
	var err error
	for deadline := time.Now().Add(4 * time.Minute); ; {
		if _, err = a.GroupMetadata(); err != nil || time.Now().After(deadline) {
			break
		}
		time.Sleep(10 * time.Millisecond) // between looks: the heartbeat is librdkafka's own
	}
	if !thrown.Load() || !errors.Is(err, ErrFenced) {
		t.Errorf("thrown out %t, and the membership is still told: %v", thrown.Load(), err)
	}
}
