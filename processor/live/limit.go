package live

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// state.max.bytes, by what happens to a partition whose records come (docs/processor.md, "State in memory"):
//
//	the partition                                  state below 1/2   above 1/2 (until below 3/8)   above the limit
//	below its committed position                   read              read                          read; FAILED above 5/4 of it
//	at it or beyond, others still below theirs     held back         held back                     held back
//	ahead of the one that holds W by an open
//	window's end (merged)                          read              held back                     held back
//	holds W; any of a keyed pipeline               read              read                          closings are written; if that is not enough: FAILED
//
// So there is always a partition that is read: the one that holds W is held back by nobody, and one below its committed position neither. The half
// that those ahead may fill leaves the other half for what the ones behind add before the first window closes: where all partitions in step need
// less than that, no skew fails the pipeline.

const (
	// chunkRecords is how many records are fed before the state is weighed again.
	chunkRecords = 200
	// chunkShare of the limit is the most that one chunk holds of keys and values: with the records above it keeps what comes between two looks small.
	chunkShare = 20
)

// chunk is how many of recs to feed before the state is weighed again, at least one.
func (t *task) chunk(recs []record.Record) int {
	bytes := int64(0)
	for i := range recs {
		bytes += int64(len(recs[i].Key) + len(recs[i].Value))
		if i > 0 && (i >= chunkRecords || bytes > t.cfg.MaxStateBytes/chunkShare) {
			return i
		}
	}
	return len(recs)
}

// stateBytes is what open windows and side outputs take, about.
func (t *task) stateBytes() int64 {
	st := t.eng.Stats()
	return st.StateBytes + st.SideBytes
}

// weigh looks at the size of the state. An error ends the pipeline: nothing that it could do would make the state smaller.
func (t *task) weigh(ctx context.Context, tp kafka.TP) error {
	limit := t.cfg.MaxStateBytes
	t.setFull()
	if t.stateBytes() <= limit {
		return nil
	}
	if t.cfg.Pipeline.Keyed || t.caughtUp() {
		if err := t.commit(ctx); err != nil {
			return err
		}
		t.setFull()
	}
	if !t.caughtUp() {
		// What was committed fitted, under the same limit; nearly all else is held back until everybody is there.
		if t.stateBytes() <= limit+limit/4 {
			return nil
		}
		return t.tooLarge("they are needed to go on at the committed positions, so that the limit was higher when those were committed")
	}
	if t.stateBytes() <= limit || t.holdReason(tp) != "" {
		return nil
	}
	return t.tooLarge(fmt.Sprintf("no window can be closed before more is read (%s holds the watermark back)", tp))
}

func (t *task) tooLarge(why string) error {
	st := t.eng.Stats()
	return refuse("pipeline %s: %d open windows hold %d bytes, state.max.bytes is %d: %s; nothing is lost, the positions stay: "+
		"raise state.max.bytes (the process needs about twice as much memory) and start again; or, under a new name, take a smaller delay or window, or fewer groups",
		t.cfg.Pipeline.Name, st.OpenWindows, t.stateBytes(), t.cfg.MaxStateBytes, why)
}

// setFull begins to hold partitions back above half the limit, and ends below three eighths: not a pause and a resume for each window.
func (t *task) setFull() {
	n, limit := t.stateBytes(), t.cfg.MaxStateBytes
	if n > t.peak {
		t.peak = n
		t.board.update(func(st *Status) { st.StatePeak = max(st.StatePeak, n) })
	}
	switch {
	case !t.full && n > limit/2:
		t.full = true
		_, by := t.eng.Watermark(kafka.TP{})
		t.cfg.Log.Warn("partitions ahead of the one that holds the watermark back wait for it", zap.String("pipeline", t.cfg.Pipeline.Name),
			zap.Int64("stateBytes", n), zap.Int64("stateMaxBytes", limit), zap.Stringer("heldBy", by))
	case t.full && n < limit/8*3:
		t.full = false
		t.cfg.Log.Info("all partitions are read again", zap.String("pipeline", t.cfg.Pipeline.Name), zap.Int64("stateBytes", n))
	}
}

// holdReason says why tp must not be read on now; "" where it may.
func (t *task) holdReason(tp kafka.TP) string {
	if t.cfg.Pipeline.Keyed || t.eng.Position(tp) < t.parts[tp].goal {
		return ""
	}
	if !t.caughtUp() {
		return "waits until every partition is at its committed position again"
	}
	if !t.full {
		return ""
	}
	w, _ := t.eng.PartitionWatermark(tp)
	low, by := t.eng.Watermark(kafka.TP{})
	if w <= low || !t.eng.Waits(w) {
		return "" // no window waits for others that this one would have closed: what it brings next is as near as anything
	}
	return fmt.Sprintf("held back by state.max.bytes: open windows hold %d bytes of %d, and %s holds the watermark back", t.stateBytes(), t.cfg.MaxStateBytes, by)
}

// stuck says that partitions are held back for one that has nothing more to read; "" where that is not so.
func (t *task) stuck() string {
	if !t.full || t.cfg.Pipeline.Keyed || !t.caughtUp() {
		return ""
	}
	_, by := t.eng.Watermark(kafka.TP{})
	p, ok := t.parts[by]
	if !ok || p.idle || p.held.waiting() || p.logEnd < 0 || t.eng.Position(by) < p.logEnd {
		return ""
	}
	for tp := range t.parts {
		if t.parts[tp].held.full {
			return fmt.Sprintf("open windows hold %d bytes (state.max.bytes is %d), and %s, which holds the watermark back, has no more records: the others wait for it; "+
				"let idle partitions be passed by (idleness of the source), or raise state.max.bytes", t.stateBytes(), t.cfg.MaxStateBytes, by)
		}
	}
	return ""
}
