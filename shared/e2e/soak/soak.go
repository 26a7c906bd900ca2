// Package soak lets a group of real archivers archive real topics while they are killed, frozen, added and taken away and while store
// and broker misbehave, at random and from a seed; then it compares the archive with the log, record by record.
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// Options of a soak.
type Options struct {
	Bootstrap string // Kafka
	Store     string // s3://bucket/prefix?endpoint=http://host:port&…; the archivers reach it through a proxy
	Archiver  string // binary
	Dir       string // for the archivers' logs
	BrokerPID int    // of the broker, which is paused by SIGSTOP; 0: it is not

	Duration time.Duration // events happen for so long …
	Events   int           // … or so many of them, where > 0
	Kills    int           // and go on until so many archivers were killed
	Pause    time.Duration // longest pause between two events; each is a random part of it
	Rate     float64       // records per second and topic
	Seed     uint64

	Out io.Writer // one line for each event; nil: none
}

// Figures of a soak.
type Figures struct {
	Comparison
	Took                                                        time.Duration
	Sent, Aborted                                               int64 // records, transactions
	Kills, Freezes, Grown, Shrunk, StoreFaults, BrokerPauses, N int   // events; N: all
	Fenced                                                      int   // creates that found another archiver's segment in their place
	Memberships                                                 int   // lost, as their owners noticed
}

func (f *Figures) String() string {
	return fmt.Sprintf("%s, %d events: %d kills, %d freezes past the session, group %d times larger and %d times smaller, %d store faults, %d broker pauses; "+
		"%d records archived (%d sent, %d transactions aborted), %d segments, %d memberships lost, %d creates overtaken; "+
		"lost %d, duplicated %d, overlapping %d, different %d, invented %d, findings of verify %d",
		f.Took.Round(time.Second), f.N, f.Kills, f.Freezes, f.Grown, f.Shrunk, f.StoreFaults, f.BrokerPauses, f.Records, f.Sent, f.Aborted, f.Segments, f.Memberships, f.Fenced,
		f.Lost, f.Duplicated, f.Overlapping, f.Different, f.Invented, f.Findings)
}

const (
	session = 3 * time.Second // of the archivers' group
	// settle bounds how long all may take to be archived once the events are over.
	settle = 4 * time.Minute
	fewest = 2 // archivers
	most   = 3
)

// soak is one in progress.
type soak struct {
	o      Options
	rnd    *rand.Rand
	store  string // through the proxy
	proxy  *Proxy
	admin  *kafka.Admin
	arc    *archive.Archive
	topics []Topic
	group  string

	members []*Archiver
	started int
	f       Figures
}

// Run runs a soak. The error is nil only where it could run to its end and everything held; the figures are as far as it came.
func Run(ctx context.Context, o Options) (*Figures, error) {
	s := &soak{o: o, rnd: rand.New(rand.NewPCG(o.Seed, 1))}
	if s.o.Out == nil {
		s.o.Out = io.Discard
	}
	began := time.Now()
	err := s.run(ctx)
	s.f.Took = time.Since(began)
	return &s.f, err
}

func (s *soak) run(ctx context.Context) (err error) {
	id := fmt.Sprintf("%x", time.Now().UnixNano())
	s.group = "soak-" + id
	s.topics = []Topic{{Name: "soak-plain-" + id, Partitions: 4}, {Name: "soak-tx-" + id, Partitions: 2, Transactional: true}}
	direct, endpoint, err := below(s.o.Store, id)
	if err != nil {
		return err
	}
	if s.proxy, err = NewProxy(endpoint); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.proxy.Close()) }()
	s.store = strings.ReplaceAll(direct, endpoint, s.proxy.Addr())
	st, err := storeurl.Open(ctx, direct)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	s.arc = archive.Open(st, "topics")
	client := kafka.Client{Bootstrap: s.o.Bootstrap, ClientID: "soak"}
	if s.admin, err = kafka.NewAdmin(client); err != nil {
		return err
	}
	defer s.admin.Close()
	for _, t := range s.topics {
		if err := s.admin.CreateTopic(ctx, t.Name, t.Partitions, 1, map[string]string{"retention.ms": "-1"}); err != nil {
			return err
		}
	}

	loadCtx, endLoad := context.WithCancel(ctx)
	defer endLoad()
	var loads []*load
	var wg sync.WaitGroup
	for i, t := range s.topics {
		l := &load{client: client, topic: t, rate: s.o.Rate, rnd: rand.New(rand.NewPCG(s.o.Seed, uint64(2+i)))}
		loads = append(loads, l)
		wg.Go(func() { l.run(loadCtx) })
	}
	defer func() {
		for _, a := range s.members {
			a.Kill()
		}
	}()
	err = s.events(ctx)
	s.proxy.Set(None)
	s.broker(syscall.SIGCONT)
	endLoad()
	wg.Wait()
	for _, l := range loads {
		s.f.Sent += l.sent.Load()
		s.f.Aborted += l.aborted.Load()
	}
	if err != nil {
		return err
	}
	return s.finish(ctx)
}

// finish lets the archivers archive the rest, ends them, and compares.
func (s *soak) finish(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	if err := AwaitArchived(bounded, s.admin, s.arc, s.topics); err != nil {
		return s.withLogs(err)
	}
	if err := CommitsWithinArchive(ctx, s.admin, s.arc, s.group, s.topics); err != nil {
		return err
	}
	var errs []error
	for _, a := range s.members {
		errs = append(errs, a.Stop())
		s.read(a)
	}
	s.members = nil
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c, err := Compare(ctx, s.o.Bootstrap, s.arc, s.topics)
	if err != nil {
		return err
	}
	s.f.Comparison = *c
	return c.Err()
}

func (s *soak) withLogs(err error) error {
	for _, a := range s.members {
		err = fmt.Errorf("%w\n%s:\n%s", err, a.LogPath, a.LogTail(5))
	}
	return err
}

// read counts what the log of an archiver that has ended says.
func (s *soak) read(a *Archiver) {
	log := a.LogTail(1 << 30)
	s.f.Fenced += strings.Count(log, "fenced or overtaken")
	s.f.Memberships += strings.Count(log, `"lost":true`)
}

// start adds an archiver. Each has other rotation settings: what a predecessor has half done must not depend on them.
func (s *soak) start() error {
	s.started++
	a, err := StartArchiver(s.o.Archiver, s.o.Dir, fmt.Sprintf("archiver-%04d", s.started), []string{
		"bootstrap.servers=" + s.o.Bootstrap, "store=" + s.store, "group.id=" + s.group, "topics=" + s.topics[0].Name + "," + s.topics[1].Name,
		"rest.listen=127.0.0.1:0", fmt.Sprint("session.timeout.ms=", session.Milliseconds()),
		fmt.Sprint("flush.size=", []int{50, 170, 400, 1000}[s.rnd.IntN(4)]), fmt.Sprint("rotate.age.ms=", []int{200, 500, 1000}[s.rnd.IntN(3)]),
		// The broker of the embedded stack keeps a member that was killed while it joined for this long.
		"consumer.override.max.poll.interval.ms=6000", "startup.timeout=60s",
	})
	if err != nil {
		return err
	}
	s.members = append(s.members, a)
	return nil
}

// events makes events until it is enough.
func (s *soak) events(ctx context.Context) error {
	until := time.Now().Add(s.o.Duration)
	for range fewest {
		if err := s.start(); err != nil {
			return err
		}
	}
	for {
		enough := time.Now().After(until)
		if s.o.Events > 0 {
			enough = s.f.N >= s.o.Events
		}
		if enough && s.f.Kills >= s.o.Kills {
			return nil
		}
		if err := s.sleep(ctx, time.Duration(s.rnd.Int64N(int64(s.o.Pause)+1))); err != nil {
			return err
		}
		for _, a := range s.members {
			if !a.Running() {
				return fmt.Errorf("an archiver ended by itself: %w", a.ended())
			}
		}
		s.f.N++
		if err := s.event(ctx); err != nil {
			return err
		}
		if s.f.N%10 == 0 {
			if err := CommitsWithinArchive(ctx, s.admin, s.arc, s.group, s.topics); err != nil {
				return err
			}
		}
	}
}

func (s *soak) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (s *soak) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.o.Out, "%4d "+format+"\n", append([]any{s.f.N}, args...)...)
}

// event does one thing at random. Faults of store and broker last while others happen: they are ended by the next of their kind.
func (s *soak) event(ctx context.Context) error {
	i := s.rnd.IntN(len(s.members))
	a := s.members[i]
	switch n := s.rnd.IntN(100); {
	case n < 50:
		s.say("kill -9 %s", a.ID)
		a.Kill()
		s.f.Kills++
		s.read(a)
		s.members = append(s.members[:i], s.members[i+1:]...)
		return s.start()
	case n < 60:
		d := session + time.Second + time.Duration(s.rnd.Int64N(int64(2*time.Second)))
		s.say("freeze %s for %s", a.ID, d.Round(time.Millisecond))
		a.Freeze()
		s.f.Freezes++
		err := s.sleep(ctx, d)
		a.Thaw()
		return err
	case n < 75 && len(s.members) < most:
		s.say("one archiver more")
		s.f.Grown++
		return s.start()
	case n < 75:
		s.say("SIGTERM %s", a.ID)
		s.f.Shrunk++
		s.members = append(s.members[:i], s.members[i+1:]...)
		err := a.Stop()
		s.read(a)
		return err
	case n < 93 || s.o.BrokerPID == 0:
		f := []Fault{Refuse, Stall, Swallow, Swallow}[s.rnd.IntN(4)]
		d := time.Duration(s.rnd.Int64N(int64(2 * time.Second)))
		s.say("store: %s for %s", f, d.Round(time.Millisecond))
		s.f.StoreFaults++
		s.proxy.Set(f)
		err := s.sleep(ctx, d)
		s.proxy.Set(None)
		return err
	default:
		d := time.Duration(s.rnd.Int64N(int64(2 * time.Second)))
		s.say("broker paused for %s", d.Round(time.Millisecond))
		s.f.BrokerPauses++
		s.broker(syscall.SIGSTOP)
		err := s.sleep(ctx, d)
		s.broker(syscall.SIGCONT)
		return err
	}
}

func (s *soak) broker(sig syscall.Signal) {
	if s.o.BrokerPID > 0 {
		_ = syscall.Kill(s.o.BrokerPID, sig) // SIGCONT to what runs does nothing
	}
}

// below returns the store's address with id in its prefix, and the host and port of its endpoint.
func below(store, id string) (address, endpoint string, err error) {
	base, query, _ := strings.Cut(store, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return "", "", fmt.Errorf("store %q: %w", store, err)
	}
	e, err := url.Parse(q.Get("endpoint"))
	if err != nil || e.Scheme != "http" || e.Port() == "" {
		return "", "", fmt.Errorf("store %q: want s3://… with endpoint=http://host:port, which a proxy can stand before", store)
	}
	return strings.TrimRight(base, "/") + "/" + id + "?" + query, e.Host, nil
}
