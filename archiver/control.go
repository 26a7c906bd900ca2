package archiver

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// Paused is shown in place of CHECKING and FETCHING while a person holds the partition.
const Paused partition.State = "PAUSED"

// Errors of the operations.
var (
	errNoSuch   = errors.New("not here")   // 404
	errConflict = errors.New("conflict")   // 409
	errNotYet   = errors.New("not joined") // 503
)

// scope is what an operation is about: everything, a topic, or a partition.
type scope struct {
	topic     string // "": all
	partition int32  // −1: all of the topic
}

func (s scope) String() string {
	switch {
	case s.topic == "":
		return "everything"
	case s.partition < 0:
		return "topic " + s.topic
	}
	return kafka.TP{Topic: s.topic, Partition: s.partition}.String()
}

func (s scope) holds(tp kafka.TP) bool {
	return s.topic == "" || s.topic == tp.Topic && (s.partition < 0 || s.partition == tp.Partition)
}

// pauses are what people hold, in this process. They outlive rebalances: a partition that comes back is still held.
type pauses map[scope]bool

func (p pauses) has(tp kafka.TP) bool {
	return p[scope{partition: -1}] || p[scope{tp.Topic, -1}] || p[scope{tp.Topic, tp.Partition}]
}

// resume takes s and what lies within it out. An error where something around s is paused: the partition would stay as it is.
func (p pauses) resume(s scope) error {
	for outer := range p {
		if outer != s && s.topic != "" && outer.holds(kafka.TP{Topic: s.topic, Partition: s.partition}) {
			return fmt.Errorf("%w: %s is paused: resume that", errConflict, outer)
		}
	}
	for inner := range p {
		if s.holds(kafka.TP{Topic: inner.topic, Partition: inner.partition}) {
			delete(p, inner)
		}
	}
	return nil
}

// command is something that the poll loop does for somebody else.
type command struct {
	do   func(*loop) error
	done chan error // of capacity 1
}

// command runs f in the poll loop, which takes commands at every turn.
func (a *Archiver) command(ctx context.Context, f func(*loop) error) error {
	l := a.loop.Load()
	if l == nil {
		return fmt.Errorf("%w: the archiver is starting", errNotYet)
	}
	c := command{f, make(chan error, 1)}
	l.inbox.put(c)
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the poll loop: %w", ctx.Err())
	}
}

// known refuses what this process does not archive.
func (l *loop) known(s scope) error {
	if s.topic == "" {
		return nil
	}
	for _, t := range l.topics {
		if t == s.topic {
			return nil
		}
	}
	return fmt.Errorf("%w: topic %s is not archived by this process", errNoSuch, s.topic)
}

// setPaused holds s back, or lets it go on. Membership of the group is kept; what is buffered is written as ever.
func (l *loop) setPaused(s scope, pause bool) error {
	if err := l.known(s); err != nil {
		return err
	}
	if pause {
		l.pauses[s] = true
	} else if err := l.pauses.resume(s); err != nil {
		return err
	}
	l.log.Info("paused or resumed on request", zap.Bool("pause", pause), zap.Stringer("what", s))
	l.memory() // who has his turn
	l.hold()
	l.publish(true)
	return nil
}

// restart lets the partitions of s begin from the archive. What they had buffered is fetched again. It returns how many there were.
func (l *loop) restart(s scope, onlyStopped bool) (n int, err error) {
	if err := l.known(s); err != nil {
		return 0, err
	}
	var tps []kafka.TP
	for tp, a := range l.parts {
		if s.holds(tp) && (!onlyStopped || a.p.State() == partition.Stopped) {
			tps = append(tps, tp)
		}
	}
	if len(tps) == 0 && s.partition >= 0 && l.parts[kafka.TP{Topic: s.topic, Partition: s.partition}] == nil {
		return 0, fmt.Errorf("%w: %s is not assigned to this process", errNoSuch, s)
	}
	for _, tp := range tps {
		if err := l.cons.Stop(tp); err != nil {
			return 0, err
		}
		l.log.Info("restarted on request", zap.Stringer("partition", tp))
		l.com.forget([]kafka.TP{tp})
		l.assign(tp)
	}
	l.publish(true)
	return len(tps), nil
}
