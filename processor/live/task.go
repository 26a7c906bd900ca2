package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/processor/schemas"
	"tapedeck.dev/tapedeck/processor/sink"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// Bounds on single calls, so that a broker that went away is noticed and the group is polled again.
const (
	initTimeout  = 60 * time.Second // includes waiting for a predecessor's transaction to end
	adminTimeout = 30 * time.Second
)

// task is one run from committed state on. After any error it is thrown away: what it held in memory follows from what is
// committed, and rebuilding is simpler to get right than repairing.
type task struct {
	cfg      *Config
	board    *board
	fetch    *kafka.Consumer // reads the inputs
	member   *kafka.Consumer // is in the group; keyed pipelines: the same as fetch
	producer *kafka.Producer

	eng     *engine.Engine
	src     *schemas.Source
	parts   map[kafka.TP]*part
	pending []decision.Entry           // to be written with the next transaction
	extra   map[kafka.TP]engine.Commit // positions of partitions that are not ours, with the origin
	fresh   []kafka.TP                 // merged: partitions that wait for their floor
	topics  map[string]kafka.Topic

	idleAfter map[string]time.Duration // by topic; none: its partitions are never passed by
	idleLook  time.Time                // at the log ends of partitions that seem idle

	full       bool  // the state: partitions that are ahead are held back (limit.go)
	peak       int64 // the largest state, in bytes
	fed        int   // records since the last commit
	lastCommit time.Time
	allStored  time.Time // when every position was last stored; zero: not in this run
	lastLook   time.Time // at topics and log ends
	unsure     bool      // something was read since the topics' ids were last looked at
	lastShown  time.Time
}

// part is one partition that the task reads.
type part struct {
	goal      int64         // committed position at the start: below it nothing is handed out
	committed engine.Commit // as stored
	logEnd    int64         // −1 unknown
	held      held

	lastRecord time.Time // when one was last taken, or the partition was begun
	idle       bool      // as passIdle last found it
}

// newTask makes the producer and fences the predecessor. Positions and decisions must not be read before.
func newTask(ctx context.Context, cfg *Config, b *board, fetch, member *kafka.Consumer) (*task, error) {
	txID := cfg.transactionalID()
	producer, err := kafka.NewProducer(cfg.Producer, txID, cfg.TxTimeout)
	if err != nil {
		return nil, fmt.Errorf("make producer %s: %w", txID, err)
	}
	bounded, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	if err := producer.InitTransactions(bounded); err != nil {
		producer.Close()
		return nil, fmt.Errorf("begin transactions as %s: %w", txID, err)
	}
	idleAfter := map[string]time.Duration{}
	for _, s := range cfg.Pipeline.Source {
		if s.IdleAfterMs > 0 {
			idleAfter[s.Topic] = time.Duration(s.IdleAfterMs) * time.Millisecond
		}
	}
	return &task{cfg: cfg, board: b, fetch: fetch, member: member, producer: producer, src: schemas.New(), parts: map[kafka.TP]*part{},
		idleAfter: idleAfter}, nil
}

// close ends the producer; an open transaction is aborted by the next InitTransactions, or by its timeout.
func (t *task) close() { t.producer.Close() }

// begin starts the pipeline (merged: assigned is nil) or the given partitions of it (keyed). wait means that another process
// has to write the origin first.
func (t *task) begin(ctx context.Context, assigned []kafka.TP) (wait bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	p := t.cfg.Pipeline
	topics, err := inputTopics(ctx, t.cfg)
	if err != nil {
		return false, err
	}
	all := partitionsOf(topics)
	logs, err := t.cfg.Admin.Offsets(ctx, all)
	if err != nil {
		return false, fmt.Errorf("read log ends of the inputs: %w", err)
	}
	committed, log, err := t.readStored(ctx, all)
	if err != nil {
		return false, err
	}
	if log.Origin != nil && !complete(committed, all) {
		// Another process may have written the origin, and the positions with it, after we had read positions and before we read the
		// log. Read again, they are there if they ever were.
		if committed, log, err = t.readStored(ctx, all); err != nil {
			return false, err
		}
	}
	plan, err := MakePlan(Found{
		Pipeline: p.Name, Hash: p.Hash, Group: t.cfg.group(), Keyed: p.Keyed, FirstSource: p.Source[0].Topic, StartLatest: t.cfg.StartLatest,
		Topics: topics, Logs: logs, Committed: committed, Log: log, Assigned: assigned,
	})
	if err != nil {
		return false, err
	}
	if plan.Wait {
		return true, nil
	}
	if err := t.ensureOutputs(ctx, topics); err != nil {
		return false, err
	}
	if t.eng == nil {
		if t.eng, err = engine.New(p, t.src, nil); err != nil {
			return false, refuse("pipeline %s: %v", p.Name, err)
		}
	}
	// The whole log each time: another owner of a partition may have added to it since. A known floor is ignored.
	for _, f := range log.Floors {
		t.eng.AddFloor(engine.Floor{TP: f.TopicPartition, Offset: f.Offset, W: f.W})
	}
	for at := range log.Unknown {
		t.src.Decide(at.TopicPartition, at.Offset)
	}
	t.topics, t.fresh = topics, plan.New
	for _, tp := range sortedTPs(plan.Begin) {
		t.add(tp, plan.Begin[tp], logs[tp].End)
	}
	if plan.Origin != nil {
		t.pending = append(t.pending, plan.Origin)
		t.extra = plan.Starts
		if err := t.commit(ctx); err != nil {
			return false, err
		}
	}
	for _, tp := range sortedTPs(plan.Begin) {
		if err := t.start(tp, plan.Begin[tp].Low); err != nil {
			return false, err
		}
	}
	t.cfg.Log.Info("pipeline begins", zap.String("pipeline", p.Name), zap.Bool("fresh", plan.Origin != nil), zap.Int("partitions", len(plan.Begin)))
	return false, nil
}

// readStored reads positions, waiting for transactions that hold some, and then decisions: once the positions that a transaction holds are
// visible, its decisions are below the log end that ReadLog asks for.
func (t *task) readStored(ctx context.Context, all []kafka.TP) (map[kafka.TP]kafka.CommitOffset, *decision.Log, error) {
	committed, err := t.member.Committed(ctx, all)
	if err != nil {
		return nil, nil, fmt.Errorf("read positions of group %s: %w", t.cfg.group(), err)
	}
	topic := t.cfg.Pipeline.DecisionsTopic()
	recs, err := sink.ReadLog(ctx, t.cfg.Consumer, t.cfg.Admin, kafka.TP{Topic: topic})
	if err != nil {
		return nil, nil, err
	}
	log, err := decision.ParseLog(sink.Values(recs))
	if err != nil {
		return nil, nil, refuse("topic %s: %v", topic, err)
	}
	return committed, log, nil
}

// complete reports whether there is a position of each partition.
func complete(committed map[kafka.TP]kafka.CommitOffset, all []kafka.TP) bool {
	for _, tp := range all {
		if o, ok := committed[tp]; !ok || o.Offset < 0 {
			return false
		}
	}
	return true
}

func (t *task) ensureOutputs(ctx context.Context, topics map[string]kafka.Topic) error {
	counts := map[string]int32{}
	var limits []int64
	for n, topic := range topics {
		counts[n] = topic.Partitions
		limit, err := maxMessage(ctx, t.cfg.Admin, n)
		if err != nil {
			return err
		}
		limits = append(limits, limit)
	}
	specs := sink.Specs(sink.Outputs(t.cfg.Pipeline, counts))
	for i := range specs {
		specs[i].MinMessage = sink.MinMessage(limits...)
	}
	_, err := sink.Ensure(ctx, t.cfg.Admin, specs, t.cfg.Replication)
	return refuseUnfit(err)
}

// maxMessage returns an input topic's max.message.bytes; 0 where the broker does not tell, or not us.
func maxMessage(ctx context.Context, admin *kafka.Admin, topic string) (int64, error) {
	config, err := admin.TopicConfig(ctx, topic)
	if err != nil && !errors.Is(err, kafka.ErrUnauthorized) {
		return 0, fmt.Errorf("read configuration of topic %s: %w", topic, err)
	}
	n, err := strconv.ParseInt(config["max.message.bytes"], 10, 64)
	if err != nil {
		return 0, nil
	}
	return n, nil
}

func (t *task) add(tp kafka.TP, c engine.Commit, logEnd int64) {
	t.eng.AddPartition(tp, c)
	t.allStored = time.Time{}
	t.parts[tp] = &part{goal: c.Position, committed: c, logEnd: logEnd, lastRecord: time.Now()}
}

func (t *task) start(tp kafka.TP, offset int64) error {
	if err := t.fetch.Start(kafka.Position{TP: tp, Offset: offset, LeaderEpoch: noEpoch}); err != nil {
		return fmt.Errorf("start to read %s at %d: %w", tp, offset, err)
	}
	return nil
}

// remove drops a partition that the group gave to another process. Nothing is committed for it.
func (t *task) remove(tp kafka.TP) {
	if _, ok := t.parts[tp]; ok {
		t.eng.RemovePartition(tp)
		delete(t.parts, tp)
	}
	keep := t.pending[:0]
	for _, e := range t.pending {
		if u, ok := e.(decision.UnknownSchema); !ok || u.TopicPartition != tp {
			keep = append(keep, e)
		}
	}
	t.pending = keep
}

// handle takes one event of the fetching consumer; membership is its owner's.
func (t *task) handle(ctx context.Context, ev kafka.Event) error {
	switch ev := ev.(type) {
	case kafka.Batch:
		t.unsure = true
		if p, ok := t.parts[ev.TP]; ok {
			p.lastRecord = time.Now()
			return t.take(ctx, ev.TP, p, ev.Records)
		}
	case kafka.EndOfPartition:
		if p, ok := t.parts[ev.TP]; ok {
			p.logEnd = max(p.logEnd, ev.Offset)
			t.advance(ev.TP, p, ev.Offset)
		}
	case kafka.OutOfRange:
		if p, ok := t.parts[ev.TP]; ok {
			return goneError(t.cfg.Pipeline.Name, ev.TP, p.committed, ev)
		}
	case kafka.PartitionError:
		if _, ok := t.parts[ev.TP]; ok {
			return fmt.Errorf("read %s: %w", ev.TP, ev.Err)
		}
	case kafka.GroupError:
		t.board.groupError(t.cfg.Log.With(zap.String("pipeline", t.cfg.Pipeline.Name)), ev.Err)
	}
	return nil
}

// tick does what is due between polls.
func (t *task) tick(ctx context.Context) error {
	t.setFull()
	if err := t.retryHeld(ctx, time.Now()); err != nil {
		return err
	}
	if time.Since(t.lastLook) >= t.cfg.MetadataInterval {
		if err := t.look(ctx); err != nil {
			return err
		}
		t.lastLook = time.Now()
	}
	if len(t.fresh) > 0 && t.caughtUp() {
		if err := t.admit(ctx); err != nil {
			return err
		}
	}
	if t.fed >= t.cfg.CommitRecords || t.eng.Stats().SideBytes >= t.cfg.TxBytes || time.Since(t.lastCommit) >= t.cfg.CommitInterval {
		if err := t.commit(ctx); err != nil {
			return err
		}
		t.fed, t.lastCommit = 0, time.Now()
	}
	t.show()
	return nil
}

// caughtUp reports whether every partition is at its committed position again. Before that, positions would go back if
// they were committed, and side outputs above them would be handed out twice.
func (t *task) caughtUp() bool {
	for tp, p := range t.parts {
		if t.eng.Position(tp) < p.goal {
			return false
		}
	}
	return true
}

// commit writes everything that follows from the positions in one transaction, if there is anything new. Now and then it stores every
// position, changed or not: Kafka forgets one that has not been stored for offsets.retention where the group does not subscribe its topic, and
// the group of a merged pipeline subscribes none of the inputs.
func (t *task) commit(ctx context.Context) error {
	due := time.Since(t.allStored) >= t.cfg.KeepInterval
	if !t.cfg.Pipeline.Keyed && !t.caughtUp() {
		if due {
			return t.keep(ctx)
		}
		return nil
	}
	if len(t.idleAfter) > 0 {
		t.passIdle(ctx, time.Now())
	}
	outs, err := t.closings(ctx)
	if err != nil {
		return err
	}
	changed := map[kafka.TP]engine.Commit{}
	for tp, c := range t.extra {
		changed[tp] = c
	}
	for tp, c := range t.eng.Commits() {
		p, ok := t.parts[tp]
		if !ok || t.eng.Position(tp) < p.goal {
			continue // keyed: this one is still catching up; it has handed out nothing
		}
		if c != p.committed {
			changed[tp] = c
		}
	}
	if len(outs) == 0 && len(t.pending) == 0 && len(changed) == 0 {
		if due {
			return t.keep(ctx)
		}
		return nil
	}
	if err := t.makeSure(ctx); err != nil {
		return err
	}
	positions := changed
	if due {
		positions = t.stored()
		maps.Copy(positions, changed)
	}
	if err := t.store(ctx, outs, positions); err != nil {
		return err
	}
	if due {
		t.allStored = time.Now()
	}
	return nil
}

// store writes outs, what is pending and positions in one transaction.
func (t *task) store(ctx context.Context, outs []engine.Output, positions map[kafka.TP]engine.Commit) error {
	if err := t.transact(ctx, t.pending, outs, positions); err != nil {
		var refused *sink.RefusedError
		if err = sink.Refused(err, outs); errors.As(err, &refused) {
			return refuse("pipeline %s: %v", t.cfg.Pipeline.Name, err)
		}
		return fmt.Errorf("commit pipeline %s: %w", t.cfg.Pipeline.Name, err)
	}
	for tp, c := range positions {
		if p, ok := t.parts[tp]; ok {
			p.committed = c
		}
	}
	t.pending, t.extra = nil, nil
	t.board.update(func(st *Status) { st.count(outs); st.Commits++ })
	return nil
}

// stored returns the positions as they are stored. They are right also where a partition is still catching up.
func (t *task) stored() map[kafka.TP]engine.Commit {
	m := make(map[kafka.TP]engine.Commit, len(t.parts))
	for tp, p := range t.parts {
		if p.committed.Position >= 0 {
			m[tp] = p.committed
		}
	}
	return m
}

// keep stores the positions again as they are.
func (t *task) keep(ctx context.Context) error {
	if len(t.parts) == 0 {
		return nil
	}
	err := t.transact(ctx, nil, nil, t.stored())
	switch {
	case err == nil:
		t.allStored = time.Now()
	case errors.Is(err, kafka.ErrRebalancing):
		t.cfg.Log.Debug("positions are stored again after the rebalance", zap.Error(err)) // nothing was at stake
	default:
		return fmt.Errorf("store positions of pipeline %s again: %w", t.cfg.Pipeline.Name, err)
	}
	return nil
}

func (t *task) transact(ctx context.Context, decisions []decision.Entry, outs []engine.Output, positions map[kafka.TP]engine.Commit) (err error) {
	if err := t.producer.Begin(); err != nil {
		return err
	}
	defer func() {
		if err != nil && !errors.Is(err, kafka.ErrFenced) && ctx.Err() == nil {
			// Not needed to be right, since the next InitTransactions would do it: it spares the others a wait.
			bounded, cancel := context.WithTimeout(ctx, adminTimeout)
			defer cancel()
			if abortErr := t.producer.AbortTx(bounded); abortErr != nil {
				t.cfg.Log.Warn("abort transaction", zap.Error(abortErr))
			}
		}
	}()
	for _, e := range decisions {
		if err := t.producer.Send(ctx, decisionRecord(t.cfg.Pipeline.DecisionsTopic(), e, time.Now())); err != nil {
			return fmt.Errorf("write decision: %w", err)
		}
	}
	for i := range outs {
		if err := t.producer.Send(ctx, &outs[i].Record); err != nil {
			return fmt.Errorf("write to %s: %w", outs[i].Record.TP(), err)
		}
	}
	// Here, because what follows may report a refused record without its reason.
	if err := t.producer.Flush(ctx); err != nil {
		return err
	}
	offs := make(map[kafka.TP]kafka.CommitOffset, len(positions))
	for tp, c := range positions {
		offs[tp] = FormatCommit(c)
	}
	if len(offs) > 0 {
		gm, err := t.member.GroupMetadata()
		if err != nil {
			return fmt.Errorf("read membership of group %s: %w", t.cfg.group(), err)
		}
		if err := t.producer.SendOffsets(ctx, t.cfg.group(), gm, offs); err != nil {
			return fmt.Errorf("send positions of group %s: %w", t.cfg.group(), err)
		}
	}
	return t.producer.CommitTx(ctx)
}
