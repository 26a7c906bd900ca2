package partition

import (
	"errors"
	"fmt"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// recovered decides where a partition goes on, from the archive first: it is the truth.
func (p *Partition) recovered(now time.Duration, e Recovered) []Action {
	if p.bounded && p.id.TopicID != "" && p.id.TopicID != e.Identity.TopicID {
		return p.stop(OtherLog, fmt.Errorf("%w while this run was to archive to offset %d: run it again for the new log", errTopicID, p.end))
	}
	p.id, p.logStart, p.logEnd, p.lastErr = e.Identity, e.Log.Start, e.Log.End, ""
	p.incarnation = max(1, e.Incarnation)
	if e.Tail == nil {
		if e.Committed.Offset > 0 {
			return p.stop(NoTail, fmt.Errorf("the group is at offset %d, but the archive holds no segment of %s: the tail expired, or store or topics.dir is wrong; "+
				"to begin a new archive use another group.id, or reset the group's offsets", e.Committed.Offset, p.name()))
		}
		p.firstNext = max(p.firstNext, 0)
		p.haveTail, p.tail, p.chain, p.confirmed, p.lastEpoch = false, archive.Tail{}, segment.First(), 0, record.NoEpoch
		return p.beginChain(now, e.Begin, e.Log)
	}
	if err := archive.CheckLog(e.Tail.Header, p.id); err != nil {
		return p.stop(OtherLog, fmt.Errorf("%w; archive it under another prefix of the store", err))
	}
	if p.firstNext < 0 {
		p.firstNext = e.Tail.Header.Next
	}
	var acts []Action
	next := e.Tail.Header.Next
	p.owed = e.Committed.Offset < next
	if e.Committed.Offset > next {
		acts = append(acts, Note{"warn", fmt.Sprintf("the group is at offset %d, ahead of the archive: going back to %d", e.Committed.Offset, next), nil})
	}
	p.adoptTail(*e.Tail)
	return append(acts, p.begin(now, e.Log)...)
}

// commitOwed brings the group's position to the chain's end where it was left behind: the owner before may have lost the partition, or died,
// between a confirmed segment and its commit, and a quiet partition has no next segment. It waits until the log is known to be the archived one.
func (p *Partition) commitOwed() []Action {
	if !p.owed || p.state != Fetching {
		return nil
	}
	p.owed = false
	return []Action{Commit{Offset: p.confirmed, Metadata: FormatHint(p.Hint(p.tail))}}
}

// adoptTail makes t the end of the chain.
func (p *Partition) adoptTail(t archive.Tail) {
	p.haveTail, p.tail = true, t
	p.chain = segment.After(t.Header, t.Size)
	p.confirmed = t.Header.Next
	p.lastEpoch = t.Header.LastEpoch
}

// begin starts a partition behind its chain's tail.
func (p *Partition) begin(now time.Duration, log kafka.LogRange) []Action {
	h := p.tail.Header
	p.position = h.Next
	p.openAt(h.Next)
	switch {
	case h.Next > log.End:
		p.tries++
		err := fmt.Errorf("the archive ends at offset %d, but the log in Kafka at %d: it was truncated or written anew; the archive is left as it is", h.Next, log.End)
		if p.tries >= beyondEndTries {
			return p.stop(Diverged, err)
		}
		return p.restart(beyondEndPause, err)
	case h.Next < log.Start:
		p.state, p.tries = Fetching, 0
		return p.lost(now, log.Start)
	case h.LastOffset >= log.Start && len(h.LastHash) > 0:
		p.state, p.tries, p.checked = Checking, 0, false
		return []Action{Fetch{Offset: h.LastOffset, Epoch: h.LastEpoch}}
	}
	p.state, p.tries = Fetching, 0
	return []Action{p.fetchNext()}
}

// fetchNext fetches from the position. The archive knows the epoch of its last record only. Markers behind that record may be of a later
// epoch, and then the broker would take a right position for a truncated log; so the epoch goes along only where the position directly
// follows the record.
func (p *Partition) fetchNext() Fetch {
	f := Fetch{Offset: p.position, Epoch: record.NoEpoch}
	if p.haveTail && p.open != nil && p.open.records == 0 && len(p.sealed) == 0 && p.position == p.tail.Header.LastOffset+1 {
		f.Epoch = p.tail.Header.LastEpoch
	}
	return f
}

// lost handles that Kafka's log begins behind the position.
func (p *Partition) lost(now time.Duration, logStart int64) []Action {
	err := fmt.Errorf("offsets %d to %d of %s were removed from Kafka before they were archived; set gap.policy to record to go on and record them as lost",
		p.position, logStart-1, p.tp)
	if p.cfg.Gap != GapRecord {
		// What was fetched before is worth keeping: Kafka may lose it too.
		var acts []Action
		if p.open != nil && p.open.holding {
			acts = p.seal(p.position, CauseGap)
		}
		p.open = nil
		p.state, p.reason, p.lastErr = Stopped, Gap, err.Error()
		return append(acts, StopFetch{}, Note{"error", "partition stopped", err})
	}
	return p.skipTo(now, logStart, segment.Lost)
}

// skipTo records [position, to) in the open segment and fetches from to.
func (p *Partition) skipTo(now time.Duration, to int64, class segment.Class) []Action {
	if to <= p.position {
		return []Action{p.fetchNext()}
	}
	acts, ok := p.skip(now, to, class)
	if !ok {
		return acts
	}
	return append([]Action{Fetch{Offset: to, Epoch: record.NoEpoch}}, acts...)
}

// skip records [position, to) in the open segment; ok is false where the partition stopped.
func (p *Partition) skip(now time.Duration, to int64, class segment.Class) (acts []Action, ok bool) {
	from := p.position
	w, err := p.writer()
	if err == nil {
		err = w.Skip(from, to, class)
	}
	if err != nil {
		return p.stop(Refused, err), false
	}
	p.position = to
	p.holdSomething(now)
	switch class {
	case segment.Lost:
		p.lostOffsets += to - from
		acts = append(acts, LostRange{from, to}, Note{"error", fmt.Sprintf("offsets %d to %d were removed from Kafka before they were archived: recorded as lost", from, to-1), nil})
	case segment.NotArchived:
		acts = append(acts, Note{"info", fmt.Sprintf("offsets %d to %d are recorded as not archived", from, to-1), nil})
	}
	return acts, true
}

// stop ends the partition and drops what it holds.
func (p *Partition) stop(why Reason, err error) []Action {
	p.drop()
	p.state, p.reason, p.lastErr = Stopped, why, err.Error()
	return []Action{StopFetch{}, Abandon{}, Note{"error", "partition stopped", fmt.Errorf("%s: %w", why, err)}}
}

// restart drops what the partition holds and recovers it after a pause.
func (p *Partition) restart(after time.Duration, err error) []Action {
	p.drop()
	p.state, p.reason, p.lastErr = Recovering, "", err.Error()
	return []Action{StopFetch{}, Abandon{}, Note{"warn", "partition begins again", err}, Recover{After: after}}
}

// drop forgets the buffers. The answer of a put under way is not for this state any more (Abandon).
func (p *Partition) drop() {
	p.open, p.sealed, p.putting, p.settle = nil, nil, false, false
}

// fetchFailed begins again, more and more slowly; a log that stays truncated is another one.
func (p *Partition) fetchFailed(err error) []Action {
	if errors.Is(err, kafka.ErrTruncated) {
		if p.truncated++; p.truncated >= beyondEndTries {
			return p.stop(Diverged, fmt.Errorf("%w; the archive is left as it is", err))
		}
	}
	pause := min(afterErrorPause<<min(p.failures, 10), maxErrorPause)
	p.failures++
	return p.restart(pause, err)
}

// name is the chain's, for people.
func (p *Partition) name() string {
	return fmt.Sprintf("%s-%d", segment.Incarnation(p.tp.Topic, p.incarnation), p.tp.Partition)
}

// again recovers a partition that had stopped.
func (p *Partition) again(why string) []Action {
	p.drop()
	p.state, p.reason, p.lastErr, p.tries, p.truncated, p.failures = Recovering, "", "", 0, 0, 0
	return []Action{Abandon{}, Note{"info", why, nil}, Recover{}}
}

// refused ends a put that repeating does not cure. Where the topic was created again and the next incarnation is wanted, the recovery opens it.
func (p *Partition) refused(why Reason, err error) []Action {
	if why == OtherLog && p.cfg.Recreated == RecreatedIncarnation {
		return p.restart(afterErrorPause, err)
	}
	return p.stop(why, err)
}

var errTopicID = errors.New("the topic was deleted and created again")

// onTopicID compares the topic's id in Kafka with the one that is archived. What is buffered is dropped: nobody can tell of which of the two logs
// it is.
func (p *Partition) onTopicID(id string) []Action {
	switch {
	case id == "" || p.state == Recovering || p.state == Finished:
		return nil
	case p.state == Stopped:
		switch {
		case p.reason == Gone:
			return p.again("the topic is there again")
		case p.reason == Diverged && id != p.id.TopicID && p.cfg.Recreated == RecreatedIncarnation:
			// Its records were seen before its id.
			return p.again("the topic was created again: the next incarnation follows")
		}
		return nil
	case id == p.id.TopicID:
		return nil
	case p.cfg.Recreated == RecreatedIncarnation:
		return p.restart(0, fmt.Errorf("%w (id %s, archived %s): the next incarnation follows", errTopicID, id, p.id.TopicID))
	}
	return p.stop(OtherLog, fmt.Errorf("%w (id %s, archived %s): set topic.recreated to incarnation to archive it as the topic's next one, or archive it under another prefix of the store",
		errTopicID, id, p.id.TopicID))
}
