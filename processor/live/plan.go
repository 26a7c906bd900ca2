package live

import (
	"fmt"
	"sort"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// Found is what a start finds in Kafka.
type Found struct {
	Pipeline    string
	Hash        string // of the pipeline as configured now
	Group       string
	Keyed       bool
	FirstSource string // keyed: the owner of its partition 0 writes the origin
	StartLatest bool   // a fresh pipeline begins at the log end
	Topics      map[string]kafka.Topic
	Logs        map[kafka.TP]kafka.LogRange     // of every partition of the topics
	Committed   map[kafka.TP]kafka.CommitOffset // of every partition of the topics, and of those that origin and floors name
	Log         *decision.Log
	Assigned    []kafka.TP // keyed: what this process was given; merged: nil
}

// Plan is what a start does.
type Plan struct {
	Wait   bool                       // keyed: another process is to write the origin; look again
	Origin *decision.Origin           // to be written with the first transaction; nil where there is one
	Starts map[kafka.TP]engine.Commit // with Origin: the positions to commit with it, of every partition, not only ours
	Begin  map[kafka.TP]engine.Commit
	New    []kafka.TP // merged: partitions that appeared since; they get a floor once we have caught up
}

// RefusedError is a state of affairs that only a person can put right.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

func refuse(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// MakePlan decides how to start. Every error is a *RefusedError.
func MakePlan(f Found) (Plan, error) {
	all := partitionsOf(f.Topics)
	if f.Log.Origin == nil {
		return planFresh(f, all)
	}
	o := f.Log.Origin
	remedy := fmt.Sprintf("give the pipeline a new name, or delete group %s, topic %s.decisions and the output topics", f.Group, f.Pipeline)
	if o.PipelineHash != f.Hash {
		return Plan{}, refuse("pipeline %s was changed: its results began with hash %.12s, the file has %.12s; %s", f.Pipeline, o.PipelineHash, f.Hash, remedy)
	}
	for _, name := range sortedTopics(f.Topics) {
		was, ok := o.Topics[name]
		if !ok {
			return Plan{}, refuse("topic %s is not in the origin of pipeline %s; %s", name, f.Pipeline, remedy)
		}
		if now := f.Topics[name]; now.ID != was.ID {
			return Plan{}, refuse("topic %s was re-created: its id is %s, the results of pipeline %s began with %s; %s", name, now.ID, f.Pipeline, was.ID, remedy)
		}
	}
	members := f.Log.Members()
	for _, tp := range sortedTPs(members) {
		if t, ok := f.Topics[tp.Topic]; !ok || tp.Partition >= t.Partitions {
			return Plan{}, refuse("partition %s is in the decision log of pipeline %s but not in Kafka; %s", tp, f.Pipeline, remedy)
		}
	}
	p := Plan{Begin: map[kafka.TP]engine.Commit{}}
	for _, tp := range all {
		if _, ok := members[tp]; ok {
			continue
		}
		if f.Keyed {
			return Plan{}, refuse("topic %s has grown to %d partitions; a keyed pipeline cannot follow, since keys have moved between partitions; %s",
				tp.Topic, f.Topics[tp.Topic].Partitions, remedy)
		}
		p.New = append(p.New, tp)
	}
	begin := sortedTPs(members)
	if f.Keyed {
		begin = f.Assigned
	}
	for _, tp := range begin {
		c, err := committedAt(f, tp)
		if err != nil {
			return Plan{}, err
		}
		p.Begin[tp] = c
	}
	return p, nil
}

func planFresh(f Found, all []kafka.TP) (Plan, error) {
	for _, tp := range all {
		if c, ok := f.Committed[tp]; ok && c.Offset >= 0 {
			return Plan{}, refuse("group %s has a position for %s, but topic %s.decisions has no origin: was it deleted? "+
				"delete the group and the output topics to begin anew, or give the pipeline a new name", f.Group, tp, f.Pipeline)
		}
	}
	starts := map[kafka.TP]engine.Commit{}
	o := &decision.Origin{PipelineHash: f.Hash, Topics: map[string]decision.OriginTopic{}}
	for name, t := range f.Topics {
		o.Topics[name] = decision.OriginTopic{ID: t.ID, Start: map[int32]int64{}}
	}
	for _, tp := range all {
		at := f.Logs[tp].Start
		if f.StartLatest {
			at = f.Logs[tp].End
		}
		o.Topics[tp.Topic].Start[tp.Partition] = at
		starts[tp] = fresh(at)
	}
	if !f.Keyed {
		return Plan{Origin: o, Starts: starts, Begin: starts}, nil
	}
	begin := map[kafka.TP]engine.Commit{}
	writer := false
	for _, tp := range f.Assigned {
		begin[tp] = starts[tp]
		writer = writer || tp == kafka.TP{Topic: f.FirstSource, Partition: 0}
	}
	if !writer {
		return Plan{Wait: true}, nil
	}
	return Plan{Origin: o, Starts: starts, Begin: begin}, nil
}

func committedAt(f Found, tp kafka.TP) (engine.Commit, error) {
	o, ok := f.Committed[tp]
	if !ok || o.Offset < 0 {
		return engine.Commit{}, refuse("group %s has no position for %s although pipeline %s has begun: did it expire, or was the group deleted? "+
			"the results so far stay right; to go on, give the pipeline a new name and replay from the archive", f.Group, tp, f.Pipeline)
	}
	c, err := ParseCommit(o)
	if err != nil {
		return engine.Commit{}, refuse("position of %s in group %s: %v; was it set by another tool? "+
			"to go on, give the pipeline a new name and replay from the archive", tp, f.Group, err)
	}
	return c, nil
}

// fresh is the Commit of a partition that begins at offset at.
func fresh(at int64) engine.Commit {
	return engine.Commit{Position: at, Low: at, MaxAtLow: engine.NoTime, Emitted: engine.NoTime}
}

// goneError says that a position is no longer in Kafka, and what repairs it.
func goneError(pipeline string, tp kafka.TP, at engine.Commit, log kafka.OutOfRange) error {
	if log.Offset > log.LogEnd {
		return refuse("position %d of %s is beyond the end of the log (%d): records were lost in Kafka after pipeline %s had read them; "+
			"reproduce its results from the archive (POST /replays with this pipeline, promise reproduce), or give it a new name", log.Offset, tp, log.LogEnd, pipeline)
	}
	return refuse("offset %d of %s is no longer in Kafka (the log starts at %d), but open windows of pipeline %s need it (position %d): "+
		"replay the range from %d from the archive to repair it (POST /replays with this pipeline, end mode continue; where this version refuses "+
		"continue: promise reproduce, end mode hold, and a new name for what follows)", log.Offset, tp, log.LogStart, pipeline, at.Position, log.Offset)
}

func partitionsOf(topics map[string]kafka.Topic) []kafka.TP {
	var all []kafka.TP
	for _, name := range sortedTopics(topics) {
		for p := int32(0); p < topics[name].Partitions; p++ {
			all = append(all, kafka.TP{Topic: name, Partition: p})
		}
	}
	return all
}

func sortedTopics(m map[string]kafka.Topic) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

func sortedTPs[V any](m map[kafka.TP]V) []kafka.TP {
	tps := make([]kafka.TP, 0, len(m))
	for tp := range m {
		tps = append(tps, tp)
	}
	sort.Slice(tps, func(i, j int) bool { return tps[i].Less(tps[j]) })
	return tps
}
