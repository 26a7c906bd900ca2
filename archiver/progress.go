package archiver

import (
	"time"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// stableOffsets are the offsets up to which the partitions can be read now.
type stableOffsets map[kafka.TP]int64

// progress watches whether a partition's position moves where it could.
type progress struct {
	stable   int64 // as last seen; 0 before that
	position int64
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
