package archiver

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/archiver/partition"
)

const (
	// stuckAfter is how long the poll loop may not turn before /healthz fails.
	stuckAfter = 60 * time.Second
	// silentAfter is how long Kafka may not answer before /readyz fails.
	silentAfter = 30 * time.Second
	// outsideAfter is how long a process may be without the group's assignment, while Kafka answers, before /healthz fails: twice
	// librdkafka's max.poll.interval.ms, after which a group has gone on without any member that holds it up.
	outsideAfter = 10 * time.Minute
	// strangerAfter is how long the group may not list this process, which believes to be its member, before /healthz fails. It is asked every
	// logRangeEvery and topics.refresh.ms.
	strangerAfter = time.Minute
	// stalledAfter is how long a partition's position may stand still before /healthz fails while there is something to fetch, nothing holds
	// it back, and Kafka and the store answer.
	stalledAfter = 5 * time.Minute
	// tellWaiting is between log lines while the group assigns nothing; the first comes after waitingIsLong.
	tellWaiting   = 30 * time.Second
	waitingIsLong = 5 * time.Second
)

// condition is what /readyz, /healthz and the reasons in /status are judged by, as of one moment.
type condition struct {
	status   Status
	turned   time.Time // newest turn of the poll loop
	kafka    time.Time // newest answer of Kafka to a question about topics; before the first one, the start
	outside  time.Time // since when the group owes an assignment; zero: it does not
	trouble  error     // what workers wait out
	stranger time.Time // since when the group does not list this process; zero: it does, or does not say

	strangerAfter, stalledAfter time.Duration
}

// ready is nil where partitions are archived, or there is none to archive.
func (c condition) ready(now time.Time) error {
	s := c.status
	if d := now.Sub(c.kafka); d > silentAfter {
		return fmt.Errorf("kafka has not answered for %s", d.Round(time.Second))
	}
	switch {
	case s.Topics == nil:
		return errors.New("looking for topics")
	case len(s.Topics) > 0 && (!s.Assigned || !c.outside.IsZero()):
		return errors.New("waiting for the group to assign partitions")
	}
	if n, first := s.stopped(); n > 0 && n == len(s.Partitions) {
		return fmt.Errorf("every partition has stopped (%d); %s", n, first)
	}
	return c.trouble
}

// health is nil where a restart would not help.
func (c condition) health(now time.Time) error {
	if d := now.Sub(c.turned); d > stuckAfter {
		return fmt.Errorf("the poll loop has not turned for %s", d.Round(time.Second))
	}
	if d := now.Sub(c.outside); !c.outside.IsZero() && d > outsideAfter && now.Sub(c.kafka) <= silentAfter {
		return fmt.Errorf("kafka answers, and the group has assigned nothing for %s", d.Round(time.Second))
	}
	if now.Sub(c.kafka) > silentAfter {
		return nil
	}
	if d := now.Sub(c.stranger); !c.stranger.IsZero() && d > c.strangerAfter {
		return fmt.Errorf("the group has not listed this process as a member for %s, which was not told", d.Round(time.Second))
	}
	for _, p := range c.status.Partitions {
		if d := now.Sub(p.unmoved); !p.unmoved.IsZero() && d > c.stalledAfter && c.trouble == nil {
			return fmt.Errorf("%s stands at offset %d for %s while there is more to fetch", p.TP, p.Position, d.Round(time.Second))
		}
	}
	return nil
}

// degraded are the reasons why not everything that is configured is archived now.
func (c condition) degraded(now time.Time) []string {
	s, out := c.status, []string{}
	if err := c.health(now); err != nil {
		out = append(out, err.Error())
	}
	if d := now.Sub(c.kafka); d > silentAfter {
		out = append(out, fmt.Sprintf("kafka has not answered for %s", d.Round(time.Second)))
	}
	if n := len(s.Missing); n > 0 {
		out = append(out, fmt.Sprintf("%d topics that are named in topics are not in Kafka: %s", n, strings.Join(s.Missing, ", ")))
	}
	if len(s.Topics) > 0 && (!s.Assigned || !c.outside.IsZero()) {
		out = append(out, "waiting for the group to assign partitions")
	}
	paused := 0
	for _, p := range s.Partitions {
		if p.State == Paused {
			paused++
		}
	}
	if paused > 0 {
		out = append(out, fmt.Sprintf("%d of %d partitions are paused on request", paused, len(s.Partitions)))
	}
	if n, first := s.stopped(); n > 0 {
		out = append(out, fmt.Sprintf("%d of %d partitions have stopped; %s", n, len(s.Partitions), first))
	}
	if c.trouble != nil {
		out = append(out, c.trouble.Error())
	}
	return out
}

// stopped counts the partitions that stopped, and names the first with its reason.
func (s Status) stopped() (n int, first string) {
	for _, p := range s.Partitions {
		if p.State != partition.Stopped {
			continue
		}
		if n++; n == 1 {
			first = fmt.Sprintf("%s: %s: %s", p.TP, p.Reason, p.Error)
		}
	}
	return n, first
}
