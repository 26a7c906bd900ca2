package archiver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/metered"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

const (
	shutdownBound  = 8 * time.Second // within the 10 s that a container has by default
	lastCommit     = 5 * time.Second
	clientID       = "tapedeck-archiver"
	minCreateRetry = 200 * time.Millisecond
	maxCreateRetry = 10 * time.Second
)

// Run is the archiver as a service: it checks what it needs, then archives until ctx ends.
func Run(ctx context.Context, f *service.Frame) error {
	return prepared(ctx, f, func(t *Tasks) error {
		t.Register(f.Mux)
		f.Ready, f.Health, f.Status = t.Ready, t.Health, func() any { return t.Status() }
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return f.Serve(ctx) })
		g.Go(func() error { return t.Archive(ctx) })
		return g.Wait()
	})
}

// prepared makes the archivers of a configuration, checks what they need, and calls run with them.
func prepared(ctx context.Context, f *service.Frame, run func(*Tasks) error) (err error) {
	set, err := ReadSettings(f.Config)
	if err != nil {
		return err
	}
	opened, err := storeurl.Open(ctx, f.Config.String("store"))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	st, err := metered.New(opened, f.Metrics)
	if err != nil {
		return err
	}
	registry, err := openRegistry(f.Config)
	if err != nil {
		return err
	}
	t, err := NewTasks(set, Parts{Store: st, TopicsDir: f.Config.String("topics.dir"), Registry: registry, Log: f.Log, Metrics: f.Metrics})
	if err != nil {
		return err
	}
	a := t.all[0]
	if err := a.checkClients(); err != nil {
		return err
	}
	if registry != nil {
		if err := f.AtStart(ctx, "schema.registry.url", registry.Ping); err != nil {
			return err
		}
	}
	if err := f.AtStart(ctx, "store", a.CheckStore); err != nil {
		return err
	}
	if err := f.AtStart(ctx, "bootstrap.servers", a.CheckKafka); err != nil {
		return err
	}
	f.Log.Info("memory", zap.Int64("memory.max.bytes", set.MaxMemory), zap.Int("tasks", len(t.all)), zap.Int64("segments", share(set.MaxMemory).buffers),
		zap.Int64("fetchedAhead", share(set.MaxMemory).queue), zap.Int64("goMemoryLimit", service.LimitHeap(share(set.MaxMemory).heap)))
	return run(t)
}

// openRegistry returns nil where none is configured.
func openRegistry(c *service.Config) (*schema.Registry, error) {
	url := c.String("schema.registry.url")
	if url == "" {
		return nil, nil
	}
	user, password, _ := strings.Cut(c.String("schema.registry.basic.auth.user.info"), ":")
	r, err := schema.NewRegistry(schema.Config{URL: url, User: user, Password: password, CAFile: c.String("schema.registry.ssl.ca.location"),
		CertFile: c.String("schema.registry.ssl.certificate.location"), KeyFile: c.String("schema.registry.ssl.key.location"), Token: c.String("schema.registry.bearer.auth.token"),
		Rest: registryRest, Refresh: registryRefresh, NegativeTTL: registryMissing})
	if err != nil {
		return nil, err // it begins with the setting
	}
	return r, nil
}

// Parts are what an Archiver works with. Registry may be nil.
type Parts struct {
	Store     store.Store
	TopicsDir string
	Registry  *schema.Registry
	Log       *zap.Logger
	Metrics   prometheus.Registerer
}

// Archiver copies topics to one archive.
type Archiver struct {
	set   Settings
	parts Parts
	arc   *archive.Archive
	m     *metrics

	loop atomic.Pointer[loop]
}

// New makes an archiver; it connects to nothing.
func New(set Settings, p Parts) (*Archiver, error) {
	if p.TopicsDir == "" {
		return nil, errors.New("topics.dir must not be empty")
	}
	return &Archiver{set: set, parts: p, arc: archive.Open(newTurnstile(p.Store), p.TopicsDir), m: newMetrics(p.Metrics)}, nil
}

// CheckStore probes the store and refuses a prefix with foreign objects or of another topics.dir.
func (a *Archiver) CheckStore(ctx context.Context) error {
	err := archive.Probe(ctx, a.parts.Store)
	if err == nil {
		err = a.arc.CheckForeign(ctx)
	}
	if err == nil {
		err = a.arc.Claim(ctx)
	}
	if errors.Is(err, archive.ErrForeign) || errors.Is(err, archive.ErrOtherDir) || errors.Is(err, store.ErrInvalid) {
		return service.Permanent(err)
	}
	if err == nil {
		a.sweep(ctx)
	}
	return err
}

// checkClients makes the Kafka clients once, so that a setting that librdkafka refuses is named before anything is waited for.
func (a *Archiver) checkClients() error {
	admin, err := kafka.NewAdmin(a.adminClient())
	if err != nil {
		return a.blame(err)
	}
	admin.Close()
	cons, err := kafka.NewConsumer(a.consumerConfig())
	if err != nil {
		return a.blame(err)
	}
	return cons.Close()
}

// blame names the setting that an error of librdkafka's configuration is about: it quotes its own name of it.
func (a *Archiver) blame(err error) error {
	for _, key := range slices.Sorted(maps.Keys(a.set.Consumer)) {
		if !strings.Contains(err.Error(), strconv.Quote(key)) {
			continue
		}
		if _, common := a.set.Admin[key]; !common || a.set.Admin[key] != a.set.Consumer[key] {
			key = "consumer.override." + key
		}
		return fmt.Errorf("%s: %w", key, err)
	}
	return err
}

// CheckKafka waits until a broker answers.
func (a *Archiver) CheckKafka(ctx context.Context) (err error) {
	admin, err := kafka.NewAdmin(a.adminClient())
	if err != nil {
		return service.Permanent(err)
	}
	defer admin.Close()
	return admin.Ping(ctx)
}

func (a *Archiver) adminClient() kafka.Client {
	return kafka.Client{Bootstrap: a.set.Bootstrap, ClientID: clientID, Overrides: a.set.Admin, Log: a.parts.Log.Named("kafka")}
}

// Archive joins the group and archives until ctx ends. Creates in flight may finish for a bounded time then; no new one is begun.
func (a *Archiver) Archive(ctx context.Context) error {
	return a.archive(ctx, func(ctx context.Context, l *loop, _ *watcher) error { return l.run(ctx) })
}

// archive makes what the poll loop needs, lets drive turn it, and ends it.
func (a *Archiver) archive(ctx context.Context, drive func(context.Context, *loop, *watcher) error) (err error) {
	admin, err := kafka.NewAdmin(a.adminClient())
	if err != nil {
		return err
	}
	defer admin.Close()
	cluster, err := admin.ClusterID(ctx)
	switch {
	case ctx.Err() != nil:
		return nil // ended before it began
	case err != nil:
		return fmt.Errorf("read the cluster's id: %w", err)
	}
	if cluster == "" {
		return errors.New("no cluster id: this Kafka cannot be archived")
	}
	cons, err := kafka.NewConsumer(a.consumerConfig())
	if err != nil {
		return err
	}
	// Leaves the group; members left take over at once instead of after the session's end.
	defer func() { err = errors.Join(err, cons.Close()) }()

	jobCtx, endJobs := context.WithCancel(context.WithoutCancel(ctx))
	defer endJobs()
	var owned atomic.Pointer[[]kafka.TP]
	box := &inbox{}
	com := newCommitter(cons, a.parts.Log, a.m)
	first := &firstLook{}
	w := &workers{
		cons: cons, admin: admin, arc: a.arc, schemas: newSchemas(a.parts.Registry, a.arc, a.parts.Log, a.m), clusterID: cluster, isolation: a.set.Isolation, start: a.set.Start, first: first, recreated: a.set.Partition.Recreated,
		policy: archive.RetryPolicy{Min: orDefault(a.set.MinRetry, minCreateRetry), Max: orDefault(a.set.MaxRetry, maxCreateRetry)},
		log:    a.parts.Log, m: a.m, trouble: &trouble{},
		recoveries: semaphore.NewWeighted(parallelRecoveries),
		closing:    semaphore.NewWeighted(a.set.budget().closing), closingBytes: a.set.budget().closing,
	}
	l := &loop{
		set: a.set, log: a.parts.Log, m: a.m, cons: cons, work: w, com: com, inbox: box, owned: &owned, began: time.Now(),
		mem:   memory{budget: a.set.budget()},
		limit: newLimiter(a.set.Limit),
		parts: map[kafka.TP]*assigned{}, alarms: map[time.Duration]*alarm{}, pauses: pauses{}, lastJob: map[kafka.TP]chan struct{}{},
		newAssignment: func() (context.Context, context.CancelFunc) { return context.WithCancel(jobCtx) },
	}
	l.pub.cond.turned, l.pub.cond.kafka = time.Now(), time.Now() // the cluster's id was just answered
	l.pub.cond.strangerAfter, l.pub.cond.stalledAfter = orDefault(a.set.StrangerAfter, strangerAfter), orDefault(a.set.StalledAfter, stalledAfter)
	l.pub.cond.status = Status{Group: a.set.Group, ClusterID: cluster, Store: a.parts.Store.String(), Missing: []string{}, Partitions: []PartitionStatus{}}
	a.loop.Store(l)

	var helpers sync.WaitGroup
	helpCtx, endHelpers := context.WithCancel(context.WithoutCancel(ctx))
	wat := &watcher{admin: admin, store: a.parts.Store, sel: a.set.Topics, every: a.set.Refresh, log: a.parts.Log, inbox: box, owned: &owned, answered: l.kafkaAnswered, first: first,
		target: map[string]bool{}, isolation: a.set.Isolation, member: cons.IsMember, seen: l.memberSeen}
	keeper := &topicKeeper{admin: admin, arc: a.arc, clusterID: cluster, owned: &owned, log: a.parts.Log, m: a.m, every: a.set.Refresh}
	groups := &groupKeeper{admin: admin, arc: a.arc, clusterID: cluster, own: a.set.Group, sel: a.set.Groups, tick: a.set.Refresh, owned: &owned, log: a.parts.Log, m: a.m}
	levels := &levelKeeper{registry: a.parts.Registry, arc: a.arc, leads: groups.leads, every: orDefault(a.set.LevelsEvery, registryRefresh), tick: a.set.Refresh, log: a.parts.Log, m: a.m}
	wat.keeper, wat.groups = keeper, groups
	helpers.Go(func() { wat.run(helpCtx) })
	l.events = newEmitter(a.set.Events, a.parts.Store.String(), a.parts.TopicsDir, admin, a.adminClient(), a.parts.Log, a.m)
	helpers.Go(func() { com.run(helpCtx) })
	helpers.Go(func() { l.events.run(helpCtx) })
	helpers.Go(func() { w.schemas.run(helpCtx) })
	helpers.Go(func() { keeper.run(helpCtx) })
	helpers.Go(func() { groups.run(helpCtx) })
	helpers.Go(func() { levels.run(helpCtx) })

	err = drive(ctx, l, wat)
	l.finish(endJobs, orDefault(a.set.ShutdownIn, shutdownBound))
	endHelpers()
	helpers.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCommit)
	defer cancel()
	if !com.flush(last) {
		a.parts.Log.Info("the newest positions were not stored in the group; the archive holds them")
	}
	// A run that ended before the helpers came to it keeps what belongs to its segments all the same.
	w.schemas.flush(last)
	keeper.look(last, time.Now())
	groups.finish(last)
	if err := l.events.flush(last); err != nil {
		a.parts.Log.Warn("the newest segments were not told of on events.topic; the next start tells of the last one of each partition", zap.Error(err))
	}
	levels.finish(last) // the last one: a registry that does not answer takes nothing from the others' time
	return err
}

func orDefault(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}

func (a *Archiver) consumerConfig() kafka.ConsumerConfig {
	b := a.set.budget()
	over := map[string]string{
		// New partitions are found as fast as new topics.
		"topic.metadata.refresh.interval.ms": fmt.Sprint(max(a.set.Refresh.Milliseconds(), 100)),
	}
	for k, v := range a.set.Consumer {
		over[k] = v
	}
	return kafka.ConsumerConfig{
		Client:         kafka.Client{Bootstrap: a.set.Bootstrap, ClientID: clientID, Overrides: over, Log: a.parts.Log.Named("kafka")},
		GroupID:        a.set.Group,
		Isolation:      a.set.Isolation,
		SessionTimeout: a.set.Session,
		ShareMemory:    true, // records are encoded as they come
		QueuedMaxBytes: int(b.queue),
		MaxPollBytes:   int(b.poll),
	}
}

// Status says what the archiver does.
func (a *Archiver) Status() Status {
	l := a.loop.Load()
	if l == nil {
		return Status{Degraded: []string{"starting"}}
	}
	c := l.condition()
	c.status.Degraded = c.degraded(time.Now())
	return c.status
}

// Ready reports that Kafka answers, that partitions were assigned (or that no topic matches yet) and do not all stand still, and that
// nothing waits for the store.
func (a *Archiver) Ready() error {
	l := a.loop.Load()
	if l == nil {
		return errors.New("starting")
	}
	return l.condition().ready(time.Now())
}

// Health fails where the poll loop does not turn, or the group goes on without this process.
func (a *Archiver) Health() error {
	l := a.loop.Load()
	if l == nil {
		return nil
	}
	return l.condition().health(time.Now())
}
