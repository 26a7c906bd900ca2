package sessions

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/schemas"
	"tapedeck.dev/tapedeck/processor/sink"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

// storeTimeout bounds one transaction. It does not end with the request that caused it: half a transaction is of no use.
const storeTimeout = 60 * time.Second

// open is a session with its engine in this process.
type open struct {
	cfg    *Config
	name   string
	p      *pipeline.Pipeline
	roles  map[string]string // role → topic
	byLive map[string]string // live topic → the session's
	parts  map[kafka.TP]*part
	req    session.Request // as opened; only stored.Epoch changes

	mu       sync.Mutex // guards all below, and part.proof
	producer *kafka.Producer
	eng      *engine.Engine
	src      *schemas.Source
	stored   Stored // as in Kafka
	fed      int    // records since the last commit
	last     time.Time
	broken   error // set when what is in memory is of no use any more; the next call makes the session anew
}

// part is one range of the session.
type part struct {
	rng     session.Range
	goal    int64      // stored position when the session was made: below it nothing is counted or handed out
	feeding sync.Mutex // one segment of a partition at a time; taken before open.mu
	proof   proof

	// Of whoever holds feeding.
	preparer *engine.Preparer
	batch    engine.Batch
	schemas  schemas.View // as of the segment that is fed
}

// proof counts the records taken inside the range, each once.
type proof struct {
	count, first, last int64
	sum                uint64
}

func (p *proof) add(offset int64, checksum uint64) {
	if p.count == 0 {
		p.first = offset
	}
	p.count, p.last, p.sum = p.count+1, offset, p.sum+checksum
}

// newOpen builds the engine from what is stored.
func newOpen(cfg *Config, name string, p *pipeline.Pipeline, log *decision.Log, stored Stored, roles, byLive map[string]string, producer *kafka.Producer) (*open, error) {
	floors := make([]engine.Floor, len(log.Floors))
	for i, f := range log.Floors {
		floors[i] = engine.Floor{TP: f.TopicPartition, Offset: f.Offset, W: f.W}
	}
	s := &open{cfg: cfg, name: name, p: p, roles: roles, byLive: byLive, parts: map[kafka.TP]*part{}, req: stored.Request, producer: producer,
		src: schemas.New(), stored: stored, last: time.Now()}
	for at := range log.Unknown {
		s.src.Decide(at.TopicPartition, at.Offset)
	}
	var err error
	if s.eng, err = engine.New(p, s.src, floors); err != nil {
		return nil, fmt.Errorf("session %s: %w", name, err)
	}
	if w := stored.Request.Windows; w != nil {
		s.eng.Only(w.From, w.Until)
	}
	for i, sp := range stored.Parts {
		sum, err := parseSum(sp.Checksum)
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", name, err)
		}
		preparer, err := s.eng.NewPreparer(sp.TopicPartition)
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", name, err)
		}
		s.parts[sp.TopicPartition] = &part{rng: stored.Request.Ranges[i], goal: sp.Position, proof: proof{sp.Count, sp.First, sp.Last, sum}, preparer: preparer}
		s.eng.AddPartition(sp.TopicPartition, sp.commit())
		s.delivered(sp.TopicPartition)
	}
	return s, nil
}

// close ends the producer. What was not stored is computed again.
func (s *open) close(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked(why)
}

func (s *open) closeLocked(why error) {
	if s.broken == nil {
		s.broken = why
		s.producer.Close()
	}
}

func (s *open) isBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken != nil
}

// usable answers why a call with this epoch cannot go on; nil where it can.
func (s *open) usable(epoch int64) error {
	if s.broken != nil {
		return later("session %s begins again from what is stored (%v); repeat the call", s.name, s.broken)
	}
	return checkEpoch(s.name, s.stored, epoch)
}

// checkNotReplaced refuses a replayer that another has replaced.
func checkNotReplaced(name string, st Stored, epoch int64) error {
	if epoch < st.Epoch {
		return conflict("session %s is at epoch %d: epoch %d was replaced by a newer replayer", name, st.Epoch, epoch)
	}
	return nil
}

// checkEpoch refuses a replayer that another has replaced, and one that has not taken over.
func checkEpoch(name string, st Stored, epoch int64) error {
	if epoch > st.Epoch {
		return conflict("session %s is at epoch %d: take it over first (PUT /sessions/%s with epoch %d)", name, st.Epoch, name, epoch)
	}
	return checkNotReplaced(name, st, epoch)
}

// caughtUp reports whether every partition is at its stored position again; before that nothing may be stored.
func (s *open) caughtUp() bool {
	for tp, p := range s.parts {
		if s.eng.Position(tp) < p.goal {
			return false
		}
	}
	return true
}

func (s *open) commitDue() bool {
	return s.fed >= s.cfg.CommitRecords || s.eng.Stats().SideBytes >= s.cfg.TxBytes || s.fed > 0 && time.Since(s.last) >= s.cfg.CommitInterval
}

// commit stores the engine's outputs and progress in one transaction; a closing that is larger goes out in several, of which only the last moves
// positions. change alters what is stored with the last.
func (s *open) commit(ctx context.Context, drain bool, change func(*Stored)) error {
	take := s.eng.TakeSome
	if drain {
		take = s.eng.DrainSome
	}
	bound := engine.Bound{Records: s.cfg.TxRecords, Bytes: s.cfg.TxBytes}
	for {
		outs, more, err := take(bound)
		if err != nil {
			return s.fail(ctx, err.Error()+"; replay under another name")
		}
		next := s.stored
		commits := s.eng.Commits()
		next.Parts = make([]StoredPart, len(s.stored.Parts))
		for i, sp := range s.stored.Parts {
			c, pr := commits[sp.TopicPartition], s.parts[sp.TopicPartition].proof
			if !more {
				sp.Position, sp.Low, sp.M = c.Position, c.Low, c.MaxAtLow
				sp.Count, sp.First, sp.Last, sp.Checksum = pr.count, pr.first, pr.last, formatSum(pr.sum)
			}
			sp.W, sp.Closing, sp.Watermark = c.Emitted, nil, s.reached(sp.TopicPartition)
			if c.Partial.N > 0 {
				sp.Closing = &c.Partial
			}
			next.Parts[i] = sp
		}
		for i := range outs {
			switch outs[i].Kind {
			case engine.Result:
				next.Emitted++
			case engine.Late:
				next.Late++
			case engine.Future:
				next.Future++
			case engine.Poison:
				next.Poison++
			}
			topic, ok := s.byLive[outs[i].Record.Topic]
			if !ok {
				return s.breakUp(fmt.Errorf("no topic of session %s for outputs of %s", s.name, outs[i].Record.Topic))
			}
			outs[i].Record.Topic = topic
		}
		if change != nil && !more {
			change(&next)
		}
		if err := s.write(ctx, outs, next); err != nil {
			return err
		}
		if !more {
			s.fed, s.last = 0, time.Now()
			return nil
		}
	}
}

// write stores next and outs in one transaction; where it fails, the session is broken.
func (s *open) write(ctx context.Context, outs []engine.Output, next Stored) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	recs := make([]*record.Record, 0, len(outs)+1)
	for i := range outs {
		recs = append(recs, &outs[i].Record)
	}
	recs = append(recs, progressRecord(s.p, s.name, next, time.Now()))
	if err := transact(ctx, s.producer, recs); err != nil {
		var refused *sink.RefusedError
		if err = sink.Refused(err, outs); len(outs) > 0 && errors.As(err, &refused) {
			if abortErr := s.producer.AbortTx(ctx); abortErr != nil {
				return s.breakUp(errors.Join(err, abortErr))
			}
			return s.fail(ctx, refused.Error()+" and replay under another name")
		}
		return s.breakUp(err)
	}
	s.stored = next
	return nil
}

// breakUp makes this object useless; the session itself goes on from what is stored.
func (s *open) breakUp(err error) error {
	s.cfg.Log.Warn("session begins again from what is stored", zap.String("session", s.name), zap.Error(err))
	s.closeLocked(err)
	if errors.Is(err, kafka.ErrFenced) {
		return later("session %s was taken by another processor; repeat the call", s.name)
	}
	return later("session %s could not store its progress: %v; repeat the call", s.name, err)
}

// fail ends the session for good.
func (s *open) fail(ctx context.Context, reason string) error {
	next := s.stored
	next.State, next.Error = session.Failed, reason
	if err := s.write(ctx, nil, next); err != nil {
		return err
	}
	s.closeLocked(errors.New(reason))
	return conflict("session %s failed: %s", s.name, reason)
}

// takeOver stores a higher epoch. Outputs and positions are left to the next commit.
func (s *open) takeOver(ctx context.Context, epoch int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.usable(epoch)
	}
	if err := checkNotReplaced(s.name, s.stored, epoch); err != nil {
		return err
	}
	if epoch == s.stored.Epoch {
		return nil
	}
	next := s.stored
	next.Epoch, next.Request.Epoch = epoch, epoch
	return s.write(ctx, nil, next)
}

// finish applies the end mode.
func (s *open) finish(ctx context.Context, epoch int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(epoch); err != nil {
		return err
	}
	for _, r := range s.req.Ranges {
		if pos := s.eng.Position(r.TopicPartition); pos < r.Until {
			e := conflict("session %s: %s is at %d, its range ends at %d", s.name, r.TopicPartition, pos, r.Until)
			tp := r.TopicPartition
			e.Ack = &session.Ack{Expected: pos, Needs: &tp, Message: e.Reason}
			return e
		}
	}
	if err := s.commit(ctx, s.req.EndMode == session.Drain, func(st *Stored) { st.State = session.Finished }); err != nil {
		return err
	}
	s.closeLocked(errors.New("the session is finished"))
	return nil
}

// cancel ends the session; its topics stay.
func (s *open) cancel(ctx context.Context, epoch int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.usable(epoch)
	}
	if err := checkNotReplaced(s.name, s.stored, epoch); err != nil {
		return err
	}
	next := s.stored
	next.State = session.Cancelled
	next.Epoch, next.Request.Epoch = epoch, epoch
	if err := s.write(ctx, nil, next); err != nil {
		return err
	}
	s.closeLocked(errors.New("the session is cancelled"))
	return nil
}

// status tells what has been taken; counts of outputs are those that are stored.
func (s *open) status() session.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stored.status(s.name, s.roles)
	if s.stored.State != session.Open || s.broken != nil {
		return st
	}
	for i := range st.Progress {
		p := &st.Progress[i]
		pr := s.parts[p.TopicPartition].proof
		p.Expected = s.eng.Position(p.TopicPartition)
		p.Count, p.First, p.Last, p.Checksum = pr.count, pr.first, pr.last, formatSum(pr.sum)
		p.Watermark = s.reached(p.TopicPartition)
	}
	return st
}

func sortProgress(ps []session.Progress) {
	sort.Slice(ps, func(i, j int) bool { return ps[i].TopicPartition.Less(ps[j].TopicPartition) })
}

// transact sends recs in one transaction.
func transact(ctx context.Context, p *kafka.Producer, recs []*record.Record) error {
	if err := p.Begin(); err != nil {
		return err
	}
	for _, r := range recs {
		if err := p.Send(ctx, r); err != nil {
			return fmt.Errorf("write to %s: %w", r.TP(), err)
		}
	}
	// Here, because the commit may report a refused record without its reason.
	if err := p.Flush(ctx); err != nil {
		return err
	}
	return p.CommitTx(ctx)
}
