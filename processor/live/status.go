package live

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// State of a live pipeline (docs/processor.md).
type State string

// States.
const (
	Starting   State = "STARTING"
	Standby    State = "STANDBY"
	CatchingUp State = "CATCHING_UP"
	Running    State = "RUNNING"
	Blocked    State = "BLOCKED"
	Retrying   State = "RETRYING"
	Failed     State = "FAILED"
)

// PartitionStatus is one partition that this process reads.
type PartitionStatus struct {
	record.TopicPartition
	Position  int64  `json:"position"`            // committed: everything below it has had its effect on the outputs
	Read      int64  `json:"readPosition"`        // next offset to read
	LogEnd    int64  `json:"logEnd"`              // −1 where not known yet
	Lag       int64  `json:"lag"`                 // LogEnd − Position, at least 0
	Watermark *int64 `json:"watermark,omitempty"` // ms, keyed pipelines only; absent for none
	Waiting   string `json:"waiting,omitempty"`   // what the partition waits for
	Idle      bool   `json:"idle,omitempty"`      // read to its end, and no record for its source's idleness: nobody waits for it
	PassedBy  bool   `json:"passedBy,omitempty"`  // a decided floor, not its records, gives its watermark
}

// Status of a live pipeline in this process. Counters count what this process has committed.
type Status struct {
	State       State                  `json:"state"`
	Error       string                 `json:"error,omitempty"`
	Watermark   *int64                 `json:"watermark,omitempty"` // ms, merged pipelines; absent for none
	HeldBy      *record.TopicPartition `json:"heldBy,omitempty"`    // the partition that holds the watermark back
	OpenWindows int64                  `json:"openWindows"`
	StateBytes  int64                  `json:"stateBytes"`     // of open windows and side outputs that are not written yet, about
	StatePeak   int64                  `json:"statePeakBytes"` // the most that it has been since the process started; before closings are written, it is above stateMaxBytes by up to 200 records
	StateMax    int64                  `json:"stateMaxBytes"`  // state.max.bytes
	Emitted     int64                  `json:"emitted"`
	Late        int64                  `json:"late"`
	Future      int64                  `json:"future"`
	Poison      int64                  `json:"poison"`
	Commits     int64                  `json:"commits"`  // transactions that brought something new
	Restarts    int64                  `json:"restarts"` // times everything in memory was dropped after an error
	Partitions  []PartitionStatus      `json:"partitions"`
}

// board holds the status for readers in other goroutines.
type board struct {
	mu   sync.Mutex
	st   Status
	beat time.Time // of the loop, for liveness

	outage kafka.Repeats // outlives tasks and consumers, which an outage makes anew again and again
}

// groupError writes an error that the consumers report beside their work: each of them several a second while no broker answers.
func (b *board) groupError(log *zap.Logger, err error) {
	held, write := b.outage.Line(err.Error(), time.Now())
	if !write {
		return
	}
	fields := []zap.Field{zap.Error(err)}
	if held > 0 {
		fields = append(fields, zap.Int64("heldBack", held))
	}
	log.Warn("kafka consumer", fields...)
}

func (b *board) update(f func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.st)
}

func (b *board) alive(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beat = now
}

func (b *board) setState(s State, err error) {
	b.update(func(st *Status) {
		st.State, st.Error = s, ""
		if err != nil {
			st.Error = err.Error()
		}
		if s != CatchingUp && s != Running && s != Blocked {
			st.Partitions, st.Watermark, st.HeldBy, st.OpenWindows, st.StateBytes = nil, nil, nil, 0, 0
		}
	})
}

// count adds committed outputs.
func (st *Status) count(outs []engine.Output) {
	for i := range outs {
		switch outs[i].Kind {
		case engine.Result:
			st.Emitted++
		case engine.Late:
			st.Late++
		case engine.Future:
			st.Future++
		case engine.Poison:
			st.Poison++
		}
	}
}

// timeOrNil hides engine.NoTime.
func timeOrNil(ms int64) *int64 {
	if ms <= engine.NoTime {
		return nil
	}
	return &ms
}

// showEvery bounds how often the task computes its status.
const showEvery = 200 * time.Millisecond

// show publishes what the task knows.
func (t *task) show() {
	now := time.Now()
	t.board.alive(now)
	if now.Sub(t.lastShown) < showEvery {
		return
	}
	t.lastShown = now
	state, caught := Running, t.caughtUp()
	var why string
	parts := make([]PartitionStatus, 0, len(t.parts))
	for _, tp := range sortedTPs(t.parts) {
		p := t.parts[tp]
		s := PartitionStatus{TopicPartition: tp, Position: max(p.committed.Position, 0), Read: t.eng.Position(tp), LogEnd: p.logEnd}
		s.Lag = max(0, p.logEnd-s.Position)
		w, raised := t.eng.PartitionWatermark(tp)
		s.Idle, s.PassedBy = p.idle, raised
		if t.cfg.Pipeline.Keyed {
			s.Watermark = timeOrNil(w)
		}
		if p.held.why != nil {
			state, why, s.Waiting = Blocked, p.held.why.Error(), p.held.why.Error()
		}
		if p.held.full {
			s.Waiting = t.holdReason(tp)
		}
		parts = append(parts, s)
	}
	if state == Running && !caught {
		state = CatchingUp
	}
	if stuck := t.stuck(); state == Running && stuck != "" {
		state, why = Blocked, stuck
	}
	stats := t.eng.Stats()
	t.board.update(func(st *Status) {
		st.State, st.Error, st.Partitions = state, why, parts
		st.OpenWindows, st.StateBytes, st.StateMax = stats.OpenWindows, t.stateBytes(), t.cfg.MaxStateBytes
		if !t.cfg.Pipeline.Keyed {
			w, by := t.eng.Watermark(record.TopicPartition{})
			st.Watermark, st.HeldBy = timeOrNil(w), nil
			if by.Topic != "" {
				st.HeldBy = &by
			}
		}
	})
}
