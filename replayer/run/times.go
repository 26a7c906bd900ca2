package run

import "tapedeck.dev/tapedeck/shared/archive"

// timesteps are what a plan says of a partition's record times.
type timesteps struct {
	reached []int64 // largest timestamp of segs[:i], −1 for none
	next    []int64 // smallest timestamp of the first segment of segs[i:] that holds records
	last    int     // segs[last:] hold no records
}

// noTime is where a partition without records stands; it holds nobody back, and nothing holds it back.
const noTime = -1

func newTimesteps(pp *archive.PartitionPlan) timesteps {
	n := len(pp.Segments)
	s := timesteps{reached: make([]int64, n+1), next: make([]int64, n+1)}
	s.reached[0], s.next[n] = noTime, noTime
	clip := func(ts int64) int64 {
		if pp.UntilTimestamp >= 0 {
			ts = min(ts, pp.UntilTimestamp-1)
		}
		return max(ts, pp.FromTimestamp)
	}
	for i, ps := range pp.Segments {
		s.reached[i+1] = s.reached[i]
		if ps.Count > 0 && !ps.Outside {
			s.reached[i+1] = max(s.reached[i], clip(ps.MaxTimestamp))
			s.last = i + 1
		}
	}
	for i := n - 1; i >= 0; i-- {
		s.next[i] = s.next[i+1]
		if ps := pp.Segments[i]; ps.Count > 0 && !ps.Outside {
			s.next[i] = clip(ps.MinTimestamp)
		}
	}
	return s
}

// at is where a partition stands whose next segment is segs[i]: the running maximum of those before, or, where there are none, the smallest
// timestamp that comes.
func (s *timesteps) at(i int) int64 {
	if s.reached[i] == noTime {
		return s.next[i]
	}
	return s.reached[i]
}
