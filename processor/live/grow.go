package live

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/processor/sink"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

const noEpoch = record.NoEpoch

// inputTopics describes the pipeline's inputs; all must be there.
func inputTopics(ctx context.Context, cfg *Config) (map[string]kafka.Topic, error) {
	names := cfg.inputs()
	topics, err := cfg.Admin.Topics(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe input topics %s: %w", strings.Join(names, ", "), err)
	}
	for _, n := range names {
		if _, ok := topics[n]; !ok {
			return nil, fmt.Errorf("input topic %s: %w; waiting for somebody to create it", n, kafka.ErrNotFound)
		}
	}
	return topics, nil
}

// look asks Kafka for new partitions and log ends.
func (t *task) look(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	topics, err := inputTopics(bounded, t.cfg)
	if err == nil {
		if err := t.compare(topics); err != nil {
			return err
		}
		t.unsure = false
		var logs map[kafka.TP]kafka.LogRange
		if logs, err = t.cfg.Admin.Offsets(bounded, sortedTPs(t.parts)); err == nil {
			for tp, l := range logs {
				if p, ok := t.parts[tp]; ok {
					p.logEnd = max(p.logEnd, l.End)
				}
			}
			return nil
		}
	}
	// Reading goes on by itself as long as it can; a topic that is gone shows there.
	t.cfg.Log.Warn("look at the input topics", zap.String("pipeline", t.cfg.Pipeline.Name), zap.Error(err))
	return nil
}

// makeSure looks at the topics' ids again if anything was read since the last look. A topic that is deleted and created again may have records
// at the very offsets that come next, and ids never come back: where they are still the same, what was read is of the topics it should be of.
func (t *task) makeSure(ctx context.Context) error {
	if !t.unsure {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	topics, err := inputTopics(bounded, t.cfg)
	if err != nil {
		return err
	}
	if err := t.compare(topics); err != nil {
		return err
	}
	t.unsure = false
	return nil
}

// compare finds partitions that have appeared.
func (t *task) compare(now map[string]kafka.Topic) error {
	for name, was := range t.topics {
		topic := now[name]
		if topic.ID != was.ID {
			return refuse("topic %s was re-created while pipeline %s was reading it (id %s, now %s); give the pipeline a new name to begin anew",
				name, t.cfg.Pipeline.Name, was.ID, topic.ID)
		}
		if topic.Partitions <= was.Partitions {
			continue
		}
		if t.cfg.Pipeline.Keyed {
			return refuse("topic %s has grown from %d to %d partitions; a keyed pipeline cannot follow, since keys have moved between partitions; "+
				"give the pipeline a new name to begin anew", name, was.Partitions, topic.Partitions)
		}
		for p := was.Partitions; p < topic.Partitions; p++ {
			t.fresh = append(t.fresh, kafka.TP{Topic: name, Partition: p})
		}
	}
	t.topics = now
	return nil
}

// admit takes new partitions in. Each gets floor(p, log start, W): it begins at the watermark that the others have
// reached, or had reached before a restart, so that it cannot reopen what is closed. The floors are in the next transaction, with the closings up to this W,
// and that transaction comes before any record of the partitions counts.
func (t *task) admit(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	logs, err := t.cfg.Admin.Offsets(bounded, t.fresh)
	if err != nil {
		return fmt.Errorf("read log starts of new partitions: %w", err)
	}
	if err := t.ensureOutputs(bounded, t.topics); err != nil {
		return err
	}
	w, _ := t.eng.Watermark(kafka.TP{})
	w = max(w, t.eng.HandedOut()) // after a kill within a closing results are out that the watermark has not reached again
	admitted := t.fresh
	for _, tp := range admitted {
		at := logs[tp].Start
		t.add(tp, fresh(at), logs[tp].End)
		t.eng.AddFloor(engine.Floor{TP: tp, Offset: at, W: w})
		// committed is one that no engine returns, so that the position is stored with the floor even where nothing moved.
		t.parts[tp].committed = engine.Commit{Position: -1}
		t.pending = append(t.pending, decision.Floor{TopicPartition: tp, Offset: at, W: w})
	}
	t.fresh = nil
	if err := t.commit(ctx); err != nil {
		return err
	}
	for _, tp := range admitted {
		if err := t.start(tp, logs[tp].Start); err != nil {
			return err
		}
		t.cfg.Log.Info("new partition", zap.Stringer("partition", tp), zap.Int64("floor", w))
	}
	return nil
}

func refuseUnfit(err error) error {
	var unfit *sink.UnfitError
	if errors.As(err, &unfit) {
		return refuse("%v", err)
	}
	return err
}

func decisionRecord(topic string, e decision.Entry, now time.Time) *record.Record {
	return &record.Record{Topic: topic, Timestamp: now.UnixMilli(), Value: decision.Format(e)}
}
