package live

import (
	"context"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// The clock enters a pipeline here and nowhere else (docs/semantics.md, "Idle partitions"), and leaves it as a floor that is written down.

// quiet reports whether tp has had no record for its source's idleness. It may have some in Kafka that we have not seen.
func (t *task) quiet(tp kafka.TP, now time.Time) bool {
	p := t.parts[tp]
	after := t.idleAfter[tp.Topic]
	return after > 0 && now.Sub(p.lastRecord) >= after && !p.held.waiting()
}

// passIdle decides to go on without idle partitions where that closes windows. The floors go into the next transaction, before any record
// behind them is read, and with the closings that they make.
func (t *task) passIdle(ctx context.Context, now time.Time) {
	var quiet []kafka.TP
	for _, tp := range sortedTPs(t.parts) {
		if t.quiet(tp, now) {
			quiet = append(quiet, tp)
		} else {
			t.parts[tp].idle = false
		}
	}
	if len(quiet) == 0 || now.Sub(t.idleLook) < t.cfg.CommitInterval {
		return
	}
	t.idleLook = now
	// Only Kafka knows that there is nothing: a process that was stopped, or cut off, for a while has seen nothing either. The end asked for is
	// the high watermark: a transaction that is still open below it may bring records.
	bounded, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	logs, err := t.cfg.Admin.Offsets(bounded, quiet)
	if err != nil {
		t.cfg.Log.Warn("look whether partitions are idle", zap.String("pipeline", t.cfg.Pipeline.Name), zap.Error(err))
		return
	}
	for _, tp := range quiet {
		p := t.parts[tp]
		p.logEnd = max(p.logEnd, logs[tp].End)
		p.idle = t.eng.Position(tp) == logs[tp].End
	}
	for _, f := range t.eng.PassBy(func(tp kafka.TP) bool { return t.parts[tp].idle }) {
		t.eng.AddFloor(f)
		t.pending = append(t.pending, decision.Floor{TopicPartition: f.TP, Offset: f.Offset, W: f.W})
		t.unsure = true // an empty log may also be that of a topic that was created again: makeSure looks
		t.cfg.Log.Debug("idle partition is passed by", zap.Stringer("partition", f.TP), zap.Int64("offset", f.Offset), zap.Int64("floor", f.W))
	}
}
