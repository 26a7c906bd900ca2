package archiver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
)

const (
	registryBound   = 5 * time.Second  // per segment
	registryRest    = 10 * time.Second // after a registry that did not answer
	registryRefresh = time.Minute      // a schema is asked for again after so long: the registry may have been rebuilt
	registryMissing = time.Minute      // "no such id" is believed for so long

	doubtBurst = 64              // "no such id" of a topic at once
	doubtEvery = time.Second     // and one more in so long
	lateEvery  = 5 * time.Second // how often schemas that segments lacked are looked for

	maxLacking = 10_000 // partitions with segments that lacked schemas
)

// schemas finds the writer schemas of segments, and keeps them in the archive beside the segments: each text once, and afterwards those that
// segments were written without.
type schemas struct {
	registry *schema.Registry // nil: none; the archiver works without
	arc      *archive.Archive
	log      *zap.Logger
	m        *metrics
	wake     chan struct{} // of run; holds one

	mu      sync.Mutex
	doubts  map[string]*doubt // by topic
	meaning map[schema.Ref]string
	keep    []segment.Schema // to be kept
	lacking map[kafka.TP]*lack
}

// doubt bounds how often a topic may ask for ids that are not there: binary values that begin like the wire format by accident would ask the
// registry for any number.
type doubt struct {
	left float64 // questions
	at   time.Time
}

// lack is what segments of a partition were written without.
type lack struct {
	from, until int64 // starts of segments, [from, until)
	refs        map[schema.Ref]bool
}

func newSchemas(r *schema.Registry, arc *archive.Archive, log *zap.Logger, m *metrics) *schemas {
	return &schemas{registry: r, arc: arc, log: log, m: m, wake: make(chan struct{}, 1),
		doubts: map[string]*doubt{}, meaning: map[schema.Ref]string{}, lacking: map[kafka.TP]*lack{}}
}

// errNotAsked: the topic has asked for too many ids that are not there.
var errNotAsked = errors.New("not asked: too many ids of this topic are not in the registry")

// of finds the schemas that a segment names, and returns those that may exist and were not found within a bound. The archive goes on without
// them: records are worth more than their schemas, which can be kept later.
func (k *schemas) of(ctx context.Context, s *partition.Sealed) (found []segment.Schema, missing []schema.Ref) {
	if k.registry == nil || len(s.Schemas) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, registryBound)
	defer cancel()
	var last error
	for _, ref := range s.Schemas {
		sch, err := k.ask(ctx, s.ID.Topic, ref)
		switch {
		case err == nil:
			found = append(found, sch)
		case errors.Is(err, schema.ErrNoSuchID): // bytes that only look like the wire format
		default:
			missing = append(missing, ref)
			last = err
		}
	}
	if len(missing) > 0 {
		k.m.noSchema.Add(float64(len(missing)))
		if !errors.Is(last, errNotAsked) {
			k.log.Warn("segment is written without some of its schemas; they are kept in the archive when the registry answers", zap.String("topic", s.ID.Topic),
				zap.Stringer("schema", missing[0]), zap.Int("schemas", len(missing)), zap.Error(last))
		}
	}
	return found, missing
}

// ask asks the registry within the bound of the topic.
func (k *schemas) ask(ctx context.Context, topic string, ref schema.Ref) (segment.Schema, error) {
	doubtful := k.registry.State(ref) == schema.Unknown
	if doubtful && !k.mayAsk(topic) {
		return segment.Schema{}, errNotAsked
	}
	s, err := k.registry.Find(ctx, ref)
	switch {
	case err == nil:
		k.note(s)
	case doubtful && errors.Is(err, schema.ErrNoSuchID):
		k.mu.Lock()
		k.doubts[topic].left--
		k.mu.Unlock()
	}
	return s, err
}

// mayAsk reports whether the topic may ask for another id of which nothing is known.
func (k *schemas) mayAsk(topic string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	d := k.doubts[topic]
	if d == nil {
		d = &doubt{left: doubtBurst, at: now}
		k.doubts[topic] = d
	}
	d.left = min(doubtBurst, d.left+float64(now.Sub(d.at))/float64(doubtEvery))
	d.at = now
	return d.left >= 1
}

// note sees to it that the archive keeps s, and tells when the registry gives an id another meaning.
func (k *schemas) note(s segment.Schema) {
	ref, text := schema.RefOf(s), s.Fingerprint()
	k.mu.Lock()
	defer k.mu.Unlock()
	before, known := k.meaning[ref]
	if before == text {
		return
	}
	if known {
		k.m.changedSchemas.Inc()
		k.log.Warn("the registry gives a schema id another meaning: was it rebuilt? Segments from now on hold the new one", zap.Stringer("schema", ref),
			zap.String("before", before), zap.String("now", text))
	}
	k.meaning[ref] = text
	k.keep = append(k.keep, s)
	k.ring()
}

func (k *schemas) ring() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// written takes what a segment [start, next) of the chain tp that was created lacks.
func (k *schemas) written(tp kafka.TP, start, next int64, missing []schema.Ref) {
	if len(missing) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lacking[tp]
	if l == nil {
		if len(k.lacking) >= maxLacking {
			k.m.forgottenSchemas.Add(float64(len(missing)))
			return
		}
		l = &lack{from: start, refs: map[schema.Ref]bool{}}
		k.lacking[tp] = l
	}
	l.until = next
	for _, ref := range missing {
		if len(l.refs) >= schema.MaxSeen && !l.refs[ref] {
			k.m.forgottenSchemas.Inc()
			continue
		}
		l.refs[ref] = true
	}
}

// run keeps schemas until ctx ends.
func (k *schemas) run(ctx context.Context) {
	if k.registry == nil {
		return
	}
	for {
		k.keepTexts(ctx)
		k.keepLate(ctx)
		t := time.NewTimer(lateEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		case <-k.wake:
			t.Stop()
		}
	}
}

// flush keeps once more what has come since run looked.
func (k *schemas) flush(ctx context.Context) {
	if k.registry == nil {
		return
	}
	k.keepTexts(ctx)
	k.keepLate(ctx)
}

// keepTexts keeps what note has seen; what the store refuses stays for the next time.
func (k *schemas) keepTexts(ctx context.Context) {
	k.mu.Lock()
	keep := k.keep
	k.keep = nil
	k.mu.Unlock()
	for i, s := range keep {
		if err := k.arc.KeepSchema(ctx, s); err != nil {
			if ctx.Err() == nil {
				k.log.Warn("keep a schema in the archive; trying again", zap.Error(err))
			}
			k.mu.Lock()
			k.keep = append(keep[i:len(keep):len(keep)], k.keep...)
			k.mu.Unlock()
			return
		}
	}
}

// keepLate looks for what segments lacked. A partition has one object for all that is found at once, so an outage of the registry costs one create per
// partition.
func (k *schemas) keepLate(ctx context.Context) {
	k.mu.Lock()
	todo := make(map[kafka.TP]lack, len(k.lacking))
	for tp, l := range k.lacking {
		todo[tp] = lack{l.from, l.until, maps.Clone(l.refs)}
	}
	k.mu.Unlock()
	for tp, l := range todo {
		var found []segment.Schema
		var done []schema.Ref
		for _, ref := range slices.SortedFunc(maps.Keys(l.refs), schema.CompareRefs) {
			s, err := k.ask(ctx, tp.Topic, ref)
			switch {
			case err == nil:
				found, done = append(found, s), append(done, ref)
			case errors.Is(err, schema.ErrNoSuchID):
				done = append(done, ref)
			}
		}
		if len(found) > 0 {
			if err := k.arc.KeepSchemas(ctx, tp, l.from, l.until, found); err != nil {
				if ctx.Err() == nil {
					k.log.Warn("keep schemas that segments lack; trying again", zap.Stringer("partition", tp), zap.Error(err))
				}
				continue
			}
			k.m.lateSchemas.Add(float64(len(found)))
			k.log.Info("kept schemas that segments lack", zap.Stringer("partition", tp), zap.Int64("from", l.from), zap.Int64("until", l.until),
				zap.Int("schemas", len(found)))
		}
		k.settle(tp, l.until, done)
	}
}

// settle removes what is settled for the segments before until. Where more have come meanwhile that lack the same, they stay.
func (k *schemas) settle(tp kafka.TP, until int64, done []schema.Ref) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lacking[tp]
	if l == nil || l.until != until {
		return // asked again, and kept again, for the longer range
	}
	for _, ref := range done {
		delete(l.refs, ref)
	}
	if len(l.refs) == 0 {
		delete(k.lacking, tp)
	}
}
