package sessions

import (
	"context"
	"errors"
	"sort"
	"strings"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/sink"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

// producer makes the session's producer and fences whoever had it.
func (m *Manager) producer(ctx context.Context, p *pipeline.Pipeline, name string) (*kafka.Producer, error) {
	txID := m.transactionalID(p, name)
	producer, err := kafka.NewProducer(m.cfg.Producer, txID, m.cfg.TxTimeout)
	if err != nil {
		return nil, later("make producer %s: %v", txID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	if err := producer.InitTransactions(ctx); err != nil {
		producer.Close()
		return nil, later("begin transactions as %s: %v", txID, err)
	}
	return producer, nil
}

// openNew opens a session that is not stored yet. The slot's mutex is held.
// validate says whether a session with this request could be opened, whatever its name. It changes nothing.
func (m *Manager) validate(ctx context.Context, req session.Request) (p *pipeline.Pipeline, live, log *decision.Log, err error) {
	p = m.cfg.Pipelines[req.Pipeline]
	if p != nil && req.Promise == session.Reproduce {
		live = m.liveDecisions(ctx, p)
	}
	log, err = Validate(req, p, live)
	return p, live, log, err
}

func (m *Manager) openNew(ctx context.Context, sl *slot, name string, req session.Request) (err error) {
	p, live, log, err := m.validate(ctx, req)
	if err != nil {
		return err
	}
	specs, _, err := outputs(name, p, req.Ranges)
	if err != nil {
		return err
	}
	if _, err := sink.Ensure(ctx, m.cfg.Admin, []sink.Spec{sessionsSpec(p)}, m.cfg.Replication); err != nil {
		return asAnswer(err)
	}
	producer, err := m.producer(ctx, p, name)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			producer.Close()
		}
	}()
	// Again, now that no other processor can write under this name: one may have been faster.
	all, err := m.readTopic(ctx, SessionsTopic(p))
	if err != nil {
		return err
	}
	if _, ok := all[name]; ok {
		return later("session %s is being opened by another processor; repeat the call", name)
	}
	there, err := m.cfg.Admin.Topics(ctx, topicNames(specs)...)
	if err != nil {
		return later("describe the topics of session %s: %v", name, err)
	}
	if len(there) > 0 {
		var names []string
		for n := range there {
			names = append(names, n)
		}
		sort.Strings(names)
		return conflict("topics of a session %s exist already, but no such session is stored: %s; choose another name", name, strings.Join(names, ", "))
	}
	st := newStored(req, p.Hash)
	st.DecisionsCompared = tells(live, log)
	now := time.Now()
	if err := transactBounded(ctx, producer, []*record.Record{requestRecord(p, name, req, now), progressRecord(p, name, st, now)}); err != nil {
		return later("store session %s: %v; repeat the call", name, err)
	}
	return m.install(ctx, sl, name, p, log, st, producer)
}

// load rebuilds an open session from what is stored. The slot's mutex is held.
func (m *Manager) load(ctx context.Context, sl *slot, name, pipelineName string) (_ *open, err error) {
	if s := sl.live(); s != nil {
		return s, nil
	}
	p := m.cfg.Pipelines[pipelineName]
	if p == nil {
		return nil, missing("pipeline %q of session %s is not configured here", pipelineName, name)
	}
	producer, err := m.producer(ctx, p, name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			producer.Close()
		}
	}()
	// Read only now: before InitTransactions, a commit of the process that had the session could still follow.
	all, err := m.readTopic(ctx, SessionsTopic(p))
	if err != nil {
		return nil, err
	}
	st, ok := all[name]
	if !ok {
		return nil, missing("no session %s", name)
	}
	if st.State != session.Open {
		return nil, ended(name, st)
	}
	if err := checkPipeline(st, p); err != nil {
		return nil, m.failStored(ctx, p, name, st, producer, err)
	}
	log, err := Validate(st.Request, p, nil)
	if err != nil {
		return nil, m.failStored(ctx, p, name, st, producer, err)
	}
	if err := m.install(ctx, sl, name, p, log, st, producer); err != nil {
		return nil, err
	}
	m.cfg.Log.Info("session rebuilt", zap.String("session", name), zap.Int64("epoch", st.Epoch))
	return sl.s, nil
}

// checkPipeline refuses to go on with a session under another definition of its pipeline.
func checkPipeline(st Stored, p *pipeline.Pipeline) error {
	if st.PipelineHash == p.Hash {
		return nil
	}
	return conflict("pipeline %s was changed while the session was open: it began with hash %.12s, the configured file has %.12s; "+
		"half of each would be the result of neither; replay under another name", p.Name, st.PipelineHash, p.Hash)
}

// install creates or checks the session's topics, makes its engine and puts it into the slot.
func (m *Manager) install(ctx context.Context, sl *slot, name string, p *pipeline.Pipeline, log *decision.Log, st Stored, producer *kafka.Producer) error {
	specs, byLive, err := outputs(name, p, st.Request.Ranges)
	if err != nil {
		return err
	}
	if len(st.TopicIDs) > 0 {
		if err := m.checkTopics(ctx, name, st); err != nil {
			return m.failStored(ctx, p, name, st, producer, err)
		}
	} else {
		topics, err := sink.Ensure(ctx, m.cfg.Admin, sink.Specs(specs), m.cfg.Replication)
		if err != nil {
			return asAnswer(err)
		}
		// Nothing of this session can be in them before their ids are stored.
		if err := m.checkEmpty(ctx, topics); err != nil {
			return m.failStored(ctx, p, name, st, producer, err)
		}
		st.TopicIDs = map[string]string{}
		for n, t := range topics {
			st.TopicIDs[n] = t.ID
		}
		if err := transactBounded(ctx, producer, []*record.Record{progressRecord(p, name, st, time.Now())}); err != nil {
			return later("store session %s: %v; repeat the call", name, err)
		}
	}
	roles := map[string]string{}
	for role, s := range specs {
		roles[role] = s.Name
	}
	s, err := newOpen(&m.cfg, name, p, log, st, roles, byLive, producer)
	if err != nil {
		return refused("%v", err)
	}
	sl.s = s
	return nil
}

// checkTopics reports an *Error where an output topic is gone or is another one.
func (m *Manager) checkTopics(ctx context.Context, name string, st Stored) error {
	names := make([]string, 0, len(st.TopicIDs))
	for n := range st.TopicIDs {
		names = append(names, n)
	}
	sort.Strings(names)
	there, err := m.cfg.Admin.Topics(ctx, names...)
	if err != nil {
		return later("describe the topics of session %s: %v", name, err)
	}
	for _, n := range names {
		t, ok := there[n]
		if !ok {
			return conflict("output topic %s of session %s was deleted; replay under another name", n, name)
		}
		if t.ID != st.TopicIDs[n] {
			return conflict("output topic %s of session %s was deleted and created again; replay under another name", n, name)
		}
	}
	return nil
}

func (m *Manager) checkEmpty(ctx context.Context, topics map[string]kafka.Topic) error {
	var tps []kafka.TP
	for n, t := range topics {
		for p := range t.Partitions {
			tps = append(tps, kafka.TP{Topic: n, Partition: p})
		}
	}
	logs, err := m.cfg.Admin.Offsets(ctx, tps)
	if err != nil {
		return later("read the log ends of the session's topics: %v", err)
	}
	for _, tp := range tps {
		if logs[tp].End > 0 {
			return conflict("output %s holds records that are not the session's; choose another name", tp)
		}
	}
	return nil
}

// failStored stores that a session failed, where cause is more than a passing trouble, and returns cause.
func (m *Manager) failStored(ctx context.Context, p *pipeline.Pipeline, name string, st Stored, producer *kafka.Producer, cause error) error {
	var a *Error
	if errors.As(cause, &a) && a.Status >= 500 {
		return cause
	}
	st.State, st.Error = session.Failed, cause.Error()
	if err := transactBounded(ctx, producer, []*record.Record{progressRecord(p, name, st, time.Now())}); err != nil {
		return later("store session %s: %v; repeat the call", name, err)
	}
	return conflict("session %s failed: %s", name, st.Error)
}

func transactBounded(ctx context.Context, p *kafka.Producer, recs []*record.Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return transact(ctx, p, recs)
}

// asAnswer tells an unfit topic from a Kafka that does not answer.
func asAnswer(err error) error {
	var unfit *sink.UnfitError
	if errors.As(err, &unfit) {
		return conflict("%v", err)
	}
	return later("%v; repeat the call", err)
}

func topicNames(specs map[string]sink.Spec) []string {
	names := make([]string, 0, len(specs))
	for _, s := range specs {
		names = append(names, s.Name)
	}
	sort.Strings(names)
	return names
}
