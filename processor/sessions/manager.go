package sessions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/schemas"
	"tapedeck.dev/tapedeck/processor/sink"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

// initTimeout bounds the start of transactions, which waits for those of a predecessor to end.
const initTimeout = 60 * time.Second

// Config of a Manager. Zero counts and durations mean the defaults named.
type Config struct {
	Pipelines       map[string]*pipeline.Pipeline
	Consumer        kafka.Client // with consumer.override.*
	Producer        kafka.Client // with producer.override.*
	Admin           *kafka.Admin
	Lookup          schemas.Lookup // in the schema registry; nil: none is configured
	GroupPrefix     string         // transactional ids begin with it; "tapedeck"
	MaxStateBytes   int64          // open windows per session, about; 256 MiB
	MaxSegmentBytes int64          // one segment object; 1 GiB
	MaxUploadBytes  int64          // all segments being received or fed at one time; at least MaxSegmentBytes, its default
	CommitInterval  time.Duration  // 1 s
	CommitRecords   int            // 100,000
	TxRecords       int            // 100,000: outputs in one transaction, about
	TxBytes         int64          // 64 MiB: the same in bytes
	TxTimeout       time.Duration  // 60 s
	Replication     int            // of topics that are created; ≤ 0: the broker's default
	Log             *zap.Logger

	decoded *semaphore.Weighted // bytes of records that are kept while their segments are fed, of all sessions
}

// Manager holds the sessions of this process. Safe for concurrent use.
type Manager struct {
	cfg     Config
	uploads *semaphore.Weighted

	mu    sync.Mutex
	slots map[string]*slot
}

// slot is the place of one name. Its mutex is held while a session is opened, rebuilt or ended, not while it is fed.
type slot struct {
	mu sync.Mutex
	s  *open
}

// NewManager makes a Manager; it connects to nothing.
func NewManager(cfg Config) *Manager {
	if cfg.GroupPrefix == "" {
		cfg.GroupPrefix = "tapedeck"
	}
	setDefault(&cfg.MaxStateBytes, 256<<20)
	setDefault(&cfg.MaxSegmentBytes, 1<<30)
	setDefault(&cfg.CommitInterval, time.Second)
	setDefault(&cfg.CommitRecords, 100_000)
	setDefault(&cfg.TxRecords, 100_000)
	setDefault(&cfg.TxBytes, 64<<20)
	setDefault(&cfg.TxTimeout, time.Minute)
	cfg.MaxUploadBytes = max(cfg.MaxUploadBytes, cfg.MaxSegmentBytes)
	cfg.decoded = semaphore.NewWeighted(cfg.MaxUploadBytes / 4)
	return &Manager{cfg: cfg, uploads: semaphore.NewWeighted(cfg.MaxUploadBytes), slots: map[string]*slot{}}
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Close drops every session from memory; what was not stored is computed again at the next call, here or elsewhere.
func (m *Manager) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, sl := range m.slots {
		sl.mu.Lock()
		if sl.s != nil {
			sl.s.close(errors.New("the processor stops"))
		}
		sl.mu.Unlock()
	}
}

func (m *Manager) slot(name string) *slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	sl, ok := m.slots[name]
	if !ok {
		sl = &slot{}
		m.slots[name] = sl
	}
	return sl
}

// live returns the session of a slot while what is in memory is of use. The slot's mutex is held.
func (sl *slot) live() *open {
	if sl.s != nil && sl.s.isBroken() {
		sl.s = nil
	}
	return sl.s
}

// action is what PUT /sessions/{name} does.
type action int

const (
	actOpen     action = iota // a new session
	actTakeOver               // the same request: go on, with this epoch
	actReport                 // it has ended: tell how
)

// decideOpen compares a request with what is stored under its name; nil: nothing.
func decideOpen(name string, st *Stored, req session.Request) (action, error) {
	switch {
	case st == nil:
		return actOpen, nil
	case !sameRequest(st.Request, req):
		return 0, conflict("session %s exists with another request, or is another sender's; choose another name", name)
	case req.Epoch < st.Epoch:
		return 0, checkNotReplaced(name, *st, req.Epoch)
	case st.State != session.Open:
		return actReport, nil
	}
	return actTakeOver, nil
}

// Open opens a session or takes it over.
func (m *Manager) Open(ctx context.Context, name string, req session.Request) (session.Status, error) {
	if err := CheckName(name); err != nil {
		return session.Status{}, err
	}
	sl := m.slot(name)
	sl.mu.Lock()
	defer sl.mu.Unlock()
	st, err := m.find(ctx, sl, name)
	if err != nil {
		return session.Status{}, err
	}
	act, err := decideOpen(name, st, req)
	if err != nil {
		return session.Status{}, err
	}
	switch act {
	case actReport:
		return m.report(ctx, name, *st)
	case actOpen:
		if err := m.openNew(ctx, sl, name, req); err != nil {
			return session.Status{}, err
		}
	case actTakeOver:
		s, err := m.load(ctx, sl, name, st.Request.Pipeline)
		if err != nil {
			return session.Status{}, err
		}
		if err := s.takeOver(ctx, req.Epoch); err != nil {
			return session.Status{}, err
		}
	}
	return sl.s.status(), nil
}

// report answers for a session that has ended. A finished one whose outputs are gone is no success.
func (m *Manager) report(ctx context.Context, name string, st Stored) (session.Status, error) {
	status := st.status(name, m.rolesOf(name, st))
	if st.State != session.Finished {
		return status, nil
	}
	if err := m.checkTopics(ctx, name, st); err != nil {
		return session.Status{}, err
	}
	return status, nil
}

// Get tells the state of a session.
func (m *Manager) Get(ctx context.Context, name string) (session.Status, error) {
	sl := m.slot(name)
	sl.mu.Lock()
	defer sl.mu.Unlock()
	if s := sl.live(); s != nil {
		return s.status(), nil
	}
	st, err := m.find(ctx, sl, name)
	if err != nil {
		return session.Status{}, err
	}
	if st == nil {
		return session.Status{}, missing("no session %s", name)
	}
	return st.status(name, m.rolesOf(name, *st)), nil
}

// List tells the state of every session, by name.
func (m *Manager) List(ctx context.Context) ([]session.Status, error) {
	all, err := m.readAll(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]session.Status, 0, len(all))
	for name, st := range all {
		out = append(out, st.status(name, m.rolesOf(name, st)))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	for i := range out {
		m.mu.Lock()
		sl := m.slots[out[i].Name]
		m.mu.Unlock()
		// A session that is being opened or rebuilt is told as it is stored: a listing waits for none.
		if sl == nil || !sl.mu.TryLock() {
			continue
		}
		if s := sl.live(); s != nil {
			out[i] = s.status()
		}
		sl.mu.Unlock()
	}
	return out, nil
}

// Segment takes one segment of a partition.
func (m *Manager) Segment(ctx context.Context, name string, epoch int64, tp kafka.TP, start int64, data []byte) (session.Ack, error) {
	s, err := m.use(ctx, name, epoch)
	if err != nil {
		return session.Ack{}, err
	}
	return s.segment(ctx, epoch, tp, start, data)
}

// Finish ends a session whose ranges are all delivered. It may be repeated.
func (m *Manager) Finish(ctx context.Context, name string, epoch int64) (session.Status, error) {
	sl := m.slot(name)
	sl.mu.Lock()
	defer sl.mu.Unlock()
	s, st, err := m.openOrEnded(ctx, sl, name, epoch, checkEpoch)
	if err != nil {
		return session.Status{}, err
	}
	if st != nil {
		if st.State == session.Finished {
			return m.report(ctx, name, *st)
		}
		return session.Status{}, ended(name, *st)
	}
	if err := s.finish(ctx, epoch); err != nil {
		return session.Status{}, err
	}
	return s.status(), nil
}

// Cancel ends a session; its topics stay. It may be repeated. A higher epoch need not take the session over first.
func (m *Manager) Cancel(ctx context.Context, name string, epoch int64) (session.Status, error) {
	sl := m.slot(name)
	sl.mu.Lock()
	defer sl.mu.Unlock()
	s, st, err := m.openOrEnded(ctx, sl, name, epoch, checkNotReplaced)
	if err != nil {
		return session.Status{}, err
	}
	if st != nil {
		if st.State == session.Cancelled {
			return st.status(name, m.rolesOf(name, *st)), nil
		}
		return session.Status{}, ended(name, *st)
	}
	if err := s.cancel(ctx, epoch); err != nil {
		return session.Status{}, err
	}
	return s.status(), nil
}

func ended(name string, st Stored) error {
	if st.Error != "" {
		return conflict("session %s is %s: %s", name, st.State, st.Error)
	}
	return conflict("session %s is %s", name, st.State)
}

// use returns an open session, rebuilt where it is not in memory.
func (m *Manager) use(ctx context.Context, name string, epoch int64) (*open, error) {
	sl := m.slot(name)
	sl.mu.Lock()
	defer sl.mu.Unlock()
	s, st, err := m.openOrEnded(ctx, sl, name, epoch, checkEpoch)
	if err == nil && st != nil {
		err = ended(name, *st)
	}
	return s, err
}

// openOrEnded returns the open session, or what is stored of one that has ended. A replaced replayer is refused; of an open session that
// is not in memory, check says who else. The slot's mutex is held.
func (m *Manager) openOrEnded(ctx context.Context, sl *slot, name string, epoch int64, check func(string, Stored, int64) error) (*open, *Stored, error) {
	if s := sl.live(); s != nil {
		return s, nil, nil
	}
	st, err := m.find(ctx, sl, name)
	if err != nil {
		return nil, nil, err
	}
	if st == nil {
		return nil, nil, missing("no session %s; open it first (PUT /sessions/%s)", name, name)
	}
	if err := checkNotReplaced(name, *st, epoch); err != nil {
		return nil, nil, err
	}
	if st.State != session.Open {
		return nil, st, nil
	}
	// Before the session is rebuilt here, which would fence the processor that has it: nobody who may not use it may do that.
	if err := check(name, *st, epoch); err != nil {
		return nil, nil, err
	}
	s, err := m.load(ctx, sl, name, st.Request.Pipeline)
	return s, nil, err
}

// find returns what is stored under a name, or what the session in memory has stored; nil where there is none.
func (m *Manager) find(ctx context.Context, sl *slot, name string) (*Stored, error) {
	if s := sl.live(); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		st := s.stored
		return &st, nil
	}
	all, err := m.readAll(ctx)
	if err != nil {
		return nil, err
	}
	if st, ok := all[name]; ok {
		return &st, nil
	}
	return nil, nil
}

// SessionsTopic is where the sessions of a pipeline are stored.
func SessionsTopic(p *pipeline.Pipeline) string { return p.Name + ".sessions" }

func sessionsSpec(p *pipeline.Pipeline) sink.Spec {
	return sink.Spec{Name: SessionsTopic(p), Partitions: 1, Compact: true}
}

// readAll reads the sessions of every pipeline.
func (m *Manager) readAll(ctx context.Context) (map[string]Stored, error) {
	names := make([]string, 0, len(m.cfg.Pipelines))
	for _, p := range m.cfg.Pipelines {
		names = append(names, SessionsTopic(p))
	}
	all := map[string]Stored{}
	if len(names) == 0 {
		return all, nil
	}
	sort.Strings(names)
	there, err := m.cfg.Admin.Topics(ctx, names...)
	if err != nil {
		return nil, later("describe the sessions topics: %v", err)
	}
	for _, topic := range names {
		if _, ok := there[topic]; !ok {
			continue
		}
		sts, err := m.readTopic(ctx, topic)
		if err != nil {
			return nil, err
		}
		for name, st := range sts {
			if other, ok := all[name]; ok {
				return nil, conflict("session %s exists for the pipelines %s and %s", name, other.Request.Pipeline, st.Request.Pipeline)
			}
			all[name] = st
		}
	}
	return all, nil
}

func (m *Manager) readTopic(ctx context.Context, topic string) (map[string]Stored, error) {
	recs, err := sink.ReadLog(ctx, m.cfg.Consumer, m.cfg.Admin, kafka.TP{Topic: topic})
	if err != nil {
		return nil, later("%v", err)
	}
	sts, err := storedIn(recs)
	if err != nil {
		return nil, answer(http.StatusInternalServerError, "topic %s: %v", topic, err)
	}
	return sts, nil
}

func (m *Manager) rolesOf(name string, st Stored) map[string]string {
	roles := map[string]string{}
	if p := m.cfg.Pipelines[st.Request.Pipeline]; p != nil {
		if specs, _, err := outputs(name, p, st.Request.Ranges); err == nil {
			for role, s := range specs {
				roles[role] = s.Name
			}
		}
	}
	return roles
}

// liveDecisions reads the live decision log; nil where there is none, or it cannot be read: then it cannot be compared.
func (m *Manager) liveDecisions(ctx context.Context, p *pipeline.Pipeline) *decision.Log {
	topic := p.DecisionsTopic()
	there, err := m.cfg.Admin.Topics(ctx, topic)
	if err == nil {
		if _, ok := there[topic]; !ok {
			return nil
		}
		var recs []record.Record
		if recs, err = sink.ReadLog(ctx, m.cfg.Consumer, m.cfg.Admin, kafka.TP{Topic: topic}); err == nil {
			var log *decision.Log
			if log, err = decision.ParseLog(sink.Values(recs)); err == nil {
				return log
			}
		}
	}
	m.cfg.Log.Warn("the live decision log is not compared", zap.String("topic", topic), zap.Error(err))
	return nil
}

func requestRecord(p *pipeline.Pipeline, name string, req session.Request, now time.Time) *record.Record {
	return &record.Record{Topic: SessionsTopic(p), Timestamp: now.UnixMilli(), Key: []byte(name + requestSuffix), Value: canonical(req)}
}

func progressRecord(p *pipeline.Pipeline, name string, st Stored, now time.Time) *record.Record {
	return &record.Record{Topic: SessionsTopic(p), Timestamp: now.UnixMilli(), Key: []byte(name), Value: FormatStored(st)}
}

func (m *Manager) transactionalID(p *pipeline.Pipeline, name string) string {
	return fmt.Sprintf("%s.session.%s.%s", m.cfg.GroupPrefix, p.Name, name)
}

// Loaded counts the sessions that are held in memory. One that is being opened or rebuilt is left out.
func (m *Manager) Loaded() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, sl := range m.slots {
		if sl.mu.TryLock() {
			if sl.live() != nil {
				n++
			}
			sl.mu.Unlock()
		}
	}
	return n
}
