package archiver

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// stableOffsets are the offsets up to which the partitions can be read now.
type stableOffsets map[kafka.TP]int64

// progress watches whether a partition's position moves where it could.
type progress struct {
	stable   int64 // as last seen; 0 before that
	position int64
	lagging  time.Time // since when there is something that is not archived; zero: there is not
	archived int64     // when lagging was set
	since    time.Time // since when it could move and does not; zero: it does
}

// look takes the partition's state and returns since when it stands still without a reason.
func (p *progress) look(now time.Time, s PartitionStatus) time.Time {
	could := s.State == partition.Fetching && !s.Held && s.Waiting == "" && s.Position < p.stable
	switch {
	case !could || s.Position != p.position:
		p.position, p.since = s.Position, time.Time{}
	case p.since.IsZero():
		p.since = now
	}
	return p.since
}

// memberSeen is called by the watcher.
func (l *loop) memberSeen(member bool) {
	l.pub.mu.Lock()
	defer l.pub.mu.Unlock()
	switch {
	case member:
		l.pub.cond.stranger = time.Time{}
	case l.pub.cond.stranger.IsZero():
		l.pub.cond.stranger = time.Now()
	}
}

// lagSeconds is how old the oldest record is that is not archived. Where it is not fetched yet nobody knows its timestamp: then it is as old as
// this process has known of it, at least.
func (p *progress) lagSeconds(now time.Time, s partition.Status) float64 {
	if s.Lag <= 0 {
		p.lagging = time.Time{}
		return 0
	}
	if p.lagging.IsZero() || s.Archived != p.archived {
		p.lagging, p.archived = now, s.Archived
	}
	known := now.Sub(p.lagging).Seconds()
	if s.OldestTimestamp < 0 {
		return known
	}
	return max(known, now.Sub(time.UnixMilli(s.OldestTimestamp)).Seconds())
}

// publish sets the series of partitions, of the first by name where there are more than the bound (0: of none).
func (m *metrics) publish(parts []PartitionStatus, bound int) {
	stale, labelled := 0.0, 0
	for _, p := range parts {
		stale = max(stale, p.LagSeconds)
		if labelled == bound {
			m.forget(p.TP)
			continue
		}
		labelled++
		number := strconv.Itoa(int(p.Partition))
		if p.Lag >= 0 {
			m.lag.WithLabelValues(p.Topic, number).Set(float64(p.Lag))
			m.seconds.WithLabelValues(p.Topic, number).Set(p.LagSeconds)
		}
		m.archived.WithLabelValues(p.Topic, number).Set(float64(p.Archived))
		m.position.WithLabelValues(p.Topic, number).Set(float64(p.Position))
	}
	m.staleness.Set(stale)
	m.unlabelled.Set(float64(len(parts) - labelled))
}

// forget drops the series of a partition that is not ours any more.
func (m *metrics) forget(tp kafka.TP) {
	number := strconv.Itoa(int(tp.Partition))
	for _, v := range []*prometheus.GaugeVec{m.lag, m.seconds, m.archived, m.position} {
		v.DeleteLabelValues(tp.Topic, number)
	}
}
