package archiver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
)

const (
	pollWait       = 50 * time.Millisecond // bounds how late an answer of a worker is seen
	snapshotEvery  = 200 * time.Millisecond
	groupErrorRest = 30 * time.Second // between two log lines of the same text
)

// answer of a worker.
type answer struct {
	to  *assigned
	job int
	ev  partition.Event
}

// assigned is a partition that the group gave to this process, for as long as it does.
type assigned struct {
	p      *partition.Partition
	log    *zap.Logger
	newJob func() (context.Context, context.CancelFunc) // contexts of its workers; they end when it is revoked
	cancel context.CancelFunc

	job       int                // number of the newest worker; answers of older ones are dropped
	endJob    context.CancelFunc // nil where none was started
	paused    bool               // the consumer holds it back
	fetching  bool               // the consumer was started
	progress  progress
	topic     Topic // its settings
	openStart int64 // of the segment that its turn is for
	turn      turn
	limit     limiter
	restarted bool // started or stopped since the last Poll: what that Poll returned of it is stale
}

// loop owns the consumer and the partitions. All of its methods run in one goroutine.
type loop struct {
	set    Settings
	log    *zap.Logger
	m      *metrics
	cons   *kafka.Consumer
	work   *workers
	com    *committer
	inbox  *inbox
	owned  *atomic.Pointer[[]kafka.TP]
	began  time.Time
	events *emitter           // nil: none
	pauses pauses             // what people hold
	ends   map[kafka.TP]int64 // of a run to the ends that are set; nil: a service in its group

	parts   map[kafka.TP]*assigned
	alarms  map[time.Duration]*alarm   // by rotate.schedule.interval.ms
	lastJob map[kafka.TP]chan struct{} // closed when the newest worker of the partition is gone; outlives an assignment
	jobs    sync.WaitGroup
	// newAssignment gives contexts that outlive the loop's, so that creates in flight can finish.
	newAssignment func() (context.Context, context.CancelFunc)
	ending        bool // no new puts
	topics        []string
	missing       []string
	mem           memory
	limit         limiter
	rateHolds     int64
	joins         int64     // of the consumer, seen
	everHad       bool      // the group has answered once
	outside       time.Time // since when the group owes an assignment; zero: it does not
	told          time.Time // of the newest log line about that

	groupErr   string
	groupErrAt time.Time

	pub published
}

// published is what other goroutines read.
type published struct {
	mu   sync.Mutex
	cond condition
}

// condition returns a copy of what is published.
func (l *loop) condition() condition {
	l.pub.mu.Lock()
	c := l.pub.cond
	l.pub.mu.Unlock()
	c.trouble = l.work.trouble.any()
	return c
}

// kafkaAnswered is called by the watcher.
func (l *loop) kafkaAnswered() {
	l.pub.mu.Lock()
	defer l.pub.mu.Unlock()
	l.pub.cond.kafka = time.Now()
}

// Status is the archiver's part of /status.
type Status struct {
	Group       string   `json:"group"`
	ClusterID   string   `json:"clusterId"`
	Store       string   `json:"store"`
	Degraded    []string `json:"degraded"` // why not everything is archived that is configured; empty: all is well
	Topics      []string `json:"topics"`
	Missing     []string `json:"missing"`  // named in topics, and not in Kafka
	Assigned    bool     `json:"assigned"` // the group has told this process its partitions at least once, maybe none
	MemoryBytes int64    `json:"memoryBytes"`
	MemoryHeld  bool     `json:"memoryHeld"` // fetching waits for memory
	RateHolds   int64    `json:"rateHolds"`  // how often a limit per second has held a partition back
	GroupError  string   `json:"lastGroupError,omitempty"`

	Partitions []PartitionStatus `json:"partitions"`
}

// PartitionStatus is a partition's status with what its worker waits out.
type PartitionStatus struct {
	partition.Status
	Waiting  string      `json:"waitingFor,omitempty"`
	Settings TopicStatus `json:"settings"` // that hold for its topic
	// unmoved is since when the position could move and does not; zero: it moves, or has a reason not to.
	unmoved        time.Time
	OpenAgeSeconds float64 `json:"openAgeSeconds"` // since the open segment first held something
	LagSeconds     float64 `json:"lagSeconds"`     // age of the oldest record that is not archived; see tapedeck_archiver_lag_seconds
}

func (l *loop) now() time.Duration { return time.Since(l.began) }

// run polls until ctx ends or the consumer is beyond help.
func (l *loop) run(ctx context.Context) error {
	for {
		if err := l.turn(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// turn polls once and carries out what follows from it.
func (l *loop) turn(ctx context.Context) error {
	evs, err := l.cons.Poll(ctx, pollWait)
	if err != nil {
		return fmt.Errorf("poll kafka: %w", err)
	}
	for _, a := range l.parts {
		a.restarted = false
	}
	for _, ev := range evs {
		if err := l.event(ev); err != nil {
			return err
		}
	}
	l.joined()
	l.messages()
	l.ticks(time.Now())
	l.memory()
	l.hold()
	l.tellOutside()
	l.publish(false)
	return nil
}

func (l *loop) event(ev kafka.Event) error {
	switch e := ev.(type) {
	case kafka.Batch:
		if a := l.fresh(e.TP); a != nil {
			l.fetched(a, e.Records)
			l.on(a, partition.Records{Records: e.Records})
		}
	case kafka.EndOfPartition:
		if a := l.fresh(e.TP); a != nil {
			l.on(a, partition.End{Offset: e.Offset})
		}
	case kafka.OutOfRange:
		if a := l.fresh(e.TP); a != nil {
			a.fetching = false
			l.on(a, partition.OutOfRange{LogStart: e.LogStart, LogEnd: e.LogEnd})
		}
	case kafka.PartitionError:
		if a := l.fresh(e.TP); a != nil {
			a.fetching = false
			l.on(a, partition.FetchFailed{Err: e.Err})
		}
	case kafka.Assigned:
		l.m.rebalance.Inc()
		l.log.Info("partitions assigned", zap.Int("count", len(e.Partitions)), zap.Stringers("partitions", e.Partitions))
		for _, tp := range e.Partitions {
			l.assign(tp)
		}
		l.ownedChanged()
	case kafka.Revoked:
		l.m.rebalance.Inc()
		l.log.Info("partitions revoked", zap.Int("count", len(e.Partitions)), zap.Bool("lost", e.Lost), zap.Stringers("partitions", e.Partitions))
		for _, tp := range e.Partitions {
			l.revoke(tp)
		}
		// A membership that is lost takes all partitions with it. Those of a topic that was deleted are "lost" too, and alone: the others go on.
		if e.Lost && len(l.parts) == 0 && len(l.topics) > 0 {
			l.leftOut()
		}
		l.com.forget(e.Partitions)
		l.ownedChanged()
	case kafka.GroupError:
		return l.groupError(e.Err)
	}
	return nil
}

func (l *loop) groupError(err error) error {
	if errors.Is(err, kafka.ErrFatal) {
		return fmt.Errorf("kafka consumer: %w", err)
	}
	err = lacking(err, l.set.Group, "")
	l.m.groupErrs.Inc()
	if text := err.Error(); text != l.groupErr || time.Since(l.groupErrAt) > groupErrorRest {
		l.groupErr, l.groupErrAt = text, time.Now()
		l.log.Warn("kafka consumer in trouble; it goes on trying", zap.Error(err))
	}
	return nil
}

// fresh returns a partition whose events are to be believed: not revoked, and not started or stopped since the Poll that returned
// them. A stale batch behind a restart at a lower offset would look like a hole without data.
func (l *loop) fresh(tp kafka.TP) *assigned {
	if a := l.parts[tp]; a != nil && !a.restarted {
		return a
	}
	return nil
}

func (l *loop) assign(tp kafka.TP) {
	if l.parts[tp] != nil {
		l.revoke(tp)
	}
	ctx, cancel := l.newAssignment()
	topic := l.set.Topic(tp.Topic)
	p, acts := partition.New(tp, topic.Partition)
	a := &assigned{p: p, cancel: cancel, topic: topic, limit: newLimiter(l.set.PartitionLimit), newJob: func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
		log: l.log.With(zap.String("topic", tp.Topic), zap.Int32("partition", tp.Partition))}
	l.parts[tp] = a
	if end, ok := l.ends[tp]; ok {
		l.on(a, partition.EndAt{Offset: end})
	}
	l.do(a, acts)
}

func (l *loop) revoke(tp kafka.TP) {
	a := l.parts[tp]
	if a == nil {
		return
	}
	// The object of a create that is cut off here may still land. Whoever owns the partition next finds it at the tail, or is refused by it.
	a.cancel()
	delete(l.parts, tp)
	l.work.trouble.clear(tp)
	l.m.forget(tp)
}

func (l *loop) ownedChanged() {
	tps := make([]kafka.TP, 0, len(l.parts))
	for tp := range l.parts {
		tps = append(tps, tp)
	}
	l.owned.Store(&tps)
}

// messages takes what workers and watcher have found.
func (l *loop) messages() {
	for _, m := range l.inbox.take() {
		switch m := m.(type) {
		case answer:
			if tp := m.to.p.TP(); l.parts[tp] == m.to && m.to.job == m.job {
				l.on(m.to, m.ev)
				l.events.on(m.to, m.ev)
			}
		case stableOffsets:
			for tp, o := range m {
				if a := l.parts[tp]; a != nil {
					a.progress.stable = o
				}
			}
		case command:
			m.done <- m.do(l)
		case topicsSeen:
			l.topicsSeen(m)
		case logRanges:
			for tp, r := range m {
				if a := l.parts[tp]; a != nil {
					l.on(a, partition.LogRange{Start: r.Start, End: r.End})
				}
			}
		}
	}
}

func (l *loop) topicsSeen(m topicsSeen) {
	for tp, a := range l.parts {
		l.on(a, partition.TopicID{ID: m.ids[tp.Topic]})
	}
	if !slices.Equal(m.missing, l.missing) {
		if len(m.missing) > 0 {
			l.log.Warn("topics that are named are not in Kafka; nothing of them is archived before they are", zap.Strings("missing", m.missing), zap.Strings("before", l.missing))
		} else {
			l.log.Info("all topics that are named are in Kafka now", zap.Strings("before", l.missing))
		}
		l.missing = m.missing
		l.m.missing.Set(float64(len(m.missing)))
	}
	if l.ends != nil || l.topics != nil && slices.Equal(m.selected, l.topics) {
		return
	}
	if err := l.cons.Subscribe(m.selected); err != nil {
		l.log.Error("subscribe; trying again", zap.Error(err))
		return
	}
	l.log.Info("topics", zap.Strings("archived", m.selected), zap.Strings("before", l.topics))
	l.topics = m.selected
	switch {
	case len(l.topics) == 0:
		l.outside = time.Time{}
	case !l.everHad:
		l.leftOut()
	}
}

// joined notes that the group has answered, also where it has no partition for this process: a spare one is not left out.
func (l *loop) joined() {
	if n := l.cons.Assignments(); n != l.joins {
		l.joins, l.everHad, l.outside = n, true, time.Time{}
	}
}

// leftOut notes that the group owes an assignment.
func (l *loop) leftOut() {
	if l.outside.IsZero() {
		l.outside, l.told = time.Now(), time.Now().Add(waitingIsLong-tellWaiting)
	}
}

// tellOutside writes a line now and then while the group assigns nothing.
func (l *loop) tellOutside() {
	if l.outside.IsZero() || time.Since(l.told) < tellWaiting {
		return
	}
	l.told = time.Now()
	l.log.Info("waiting for the group to assign partitions; a member that was killed is waited for until its session ends",
		zap.String("group", l.set.Group), zap.Duration("since", time.Since(l.outside).Round(time.Second)))
}

func (l *loop) on(a *assigned, ev partition.Event) { l.do(a, a.p.On(l.now(), ev)) }

// do carries out what a partition asks for.
func (l *loop) do(a *assigned, acts []partition.Action) {
	tp := a.p.TP()
	for _, act := range acts {
		switch act := act.(type) {
		case partition.Recover:
			l.start(a, func(ctx context.Context) partition.Event { return l.work.recover(ctx, tp, act.After) })
		case partition.Put:
			l.mem.rates.learn(act.Segment.MemBytes, act.Segment.Records, act.Segment.DatumBytes)
			if !l.ending {
				l.start(a, func(ctx context.Context) partition.Event { return l.work.put(ctx, act.Segment, a.topic.Attributes) })
			}
		case partition.Abandon:
			a.job++
			if a.endJob != nil {
				a.endJob()
			}
			l.work.trouble.clear(tp)
		case partition.Fetch:
			a.restarted, a.paused = true, false
			err := l.cons.Start(kafka.Position{TP: tp, Offset: act.Offset, LeaderEpoch: act.Epoch})
			a.fetching = err == nil
			switch {
			case errors.Is(err, kafka.ErrFenced):
				a.log.Debug("not started: it is being taken back", zap.Error(err))
			case err != nil:
				l.on(a, partition.FetchFailed{Err: err})
				if a.p.State() != partition.Finished { // it fetches no more, and what it holds is still to be put
					return
				}
			}
		case partition.StopFetch:
			a.restarted, a.fetching, a.paused = true, false, false
			if err := l.cons.Stop(tp); err != nil {
				a.log.Warn("stop fetching", zap.Error(err))
			}
		case partition.Commit:
			l.com.add(tp, act.Offset, act.Metadata)
		case partition.LostRange:
			l.m.lost.WithLabelValues(tp.Topic).Add(float64(act.To - act.From))
		case partition.Note:
			note(a.log, act)
		}
	}
}

func note(log *zap.Logger, n partition.Note) {
	fields := []zap.Field{}
	if n.Err != nil {
		fields = append(fields, zap.Error(n.Err))
	}
	switch n.Level {
	case "error":
		log.Error(n.Text, fields...)
	case "warn":
		log.Warn(n.Text, fields...)
	default:
		log.Info(n.Text, fields...)
	}
}

// start runs the partition's next worker, which begins when the one before it, also of an earlier assignment, is gone: two creates of one
// partition must never be in flight.
func (l *loop) start(a *assigned, f func(context.Context) partition.Event) {
	tp := a.p.TP()
	a.job++
	job := a.job
	ctx, cancel := a.newJob()
	a.endJob = cancel
	before, done := l.lastJob[tp], make(chan struct{})
	l.lastJob[tp] = done
	l.jobs.Go(func() {
		defer close(done)
		defer cancel()
		if before != nil {
			<-before
		}
		if ev := f(ctx); ev != nil {
			l.inbox.put(answer{a, job, ev})
		}
	})
}

// publish shows other goroutines that the loop turns, and every so often what it holds.
func (l *loop) publish(now bool) {
	l.pub.mu.Lock()
	defer l.pub.mu.Unlock()
	if last := l.pub.cond.turned; !now && time.Since(last) < snapshotEvery {
		return
	}
	l.pub.cond.turned, l.pub.cond.outside = time.Now(), l.outside
	s := &l.pub.cond.status
	s.Topics, s.Missing, s.Assigned, s.GroupError = l.topics, append([]string{}, l.missing...), l.everHad, l.groupErr
	s.RateHolds = l.rateHolds
	s.Partitions = make([]PartitionStatus, 0, len(l.parts))
	counts := map[partition.State]int{}
	held := 0
	for tp, a := range l.parts {
		ps := PartitionStatus{Status: a.p.Status(), Waiting: l.work.trouble.of(tp), Settings: a.topic.status()}
		ps.Held = a.paused
		if l.pauses.has(tp) && (ps.State == partition.Fetching || ps.State == partition.Checking) {
			ps.State = Paused
		}
		ps.unmoved = a.progress.look(time.Now(), ps)
		ps.LagSeconds = a.progress.lagSeconds(time.Now(), ps.Status)
		if ps.OpenSince >= 0 {
			ps.OpenAgeSeconds = (l.now() - ps.OpenSince).Seconds()
		}
		s.Partitions = append(s.Partitions, ps)
		counts[ps.State]++
		if a.paused {
			held++
		}
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStatus) int {
		if a.Less(b.TP) {
			return -1
		}
		return 1
	})
	l.m.publish(s.Partitions, l.set.MaxLabelled)
	for _, st := range allStates {
		l.m.states.WithLabelValues(string(st)).Set(float64(counts[st]))
	}
	l.m.stopped.Set(float64(counts[partition.Stopped]))
	l.m.held.Set(float64(held))
}

// finish lets creates in flight finish within a bound, stores their positions, and drops the rest: an unfinished segment is still in Kafka.
func (l *loop) finish(endJobs context.CancelFunc, bound time.Duration) {
	l.ending = true
	for _, a := range l.parts {
		if !a.p.Putting() {
			a.cancel() // recoveries
		}
	}
	done := make(chan struct{})
	go func() { l.jobs.Wait(); close(done) }()
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		l.log.Warn("creates in flight did not finish; their objects may still land", zap.Duration("bound", bound))
	}
	endJobs()
	<-done
	// Positions only: a partition that goes on from here would fetch, or begin a put.
	for _, m := range l.inbox.take() {
		if c, is := m.(command); is {
			c.done <- fmt.Errorf("%w: the archiver is ending", errNotYet)
		}
		ans, ok := m.(answer)
		if !ok || l.parts[ans.to.p.TP()] != ans.to || ans.to.job != ans.job {
			continue
		}
		if pd, ok := ans.ev.(partition.PutDone); ok {
			l.events.on(ans.to, pd)
			l.com.add(ans.to.p.TP(), pd.Tail.Header.Next, partition.FormatHint(ans.to.p.Hint(pd.Tail)))
		}
	}
}
