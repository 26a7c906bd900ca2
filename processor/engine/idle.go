package engine

// PassBy returns the floors with which windows would close that idle partitions hold open, none where there are no such windows. It changes
// nothing: the caller writes the floors down, adds them, and stores the closings that they make in the same transaction.
//
// Which partitions are idle is a matter of the caller's clock. What follows from it is not:
//
//	partitions          the others go on to                   floors
//	none is idle        –                                     none: W is where it should be
//	some are idle       min w_p of those that are not          for each that is behind: (p, its position, end)
//	all are idle        max w_p: nobody is left to wait for    the same
//
// where end is the greatest end of an open window up to there. A floor higher than that would close nothing more and make more records late.
// Keyed pipelines have none: each partition closes alone.
func (e *Engine) PassBy(idle func(TP) bool) []Floor {
	s := e.merged
	if s == nil || len(s.parts) == 0 {
		return nil
	}
	w, _ := s.watermark()
	least, most, waitFor := int64(0), w, false
	for _, p := range s.parts {
		pw := p.watermark()
		most = max(most, pw)
		if !idle(p.tp) && (!waitFor || pw < least) {
			least, waitFor = pw, true
		}
	}
	to := most
	if waitFor {
		to = least
	}
	end := w
	for e := range s.windows {
		if e <= to {
			end = max(end, e)
		}
	}
	if end == w {
		return nil
	}
	var floors []Floor
	for _, p := range s.parts {
		if p.watermark() < end {
			floors = append(floors, Floor{TP: p.tp, Offset: p.pos, W: end})
		}
	}
	return floors
}

// PartitionWatermark returns w_p, and whether a floor raised it above what the partition's records say.
func (e *Engine) PartitionWatermark(tp TP) (w int64, raised bool) {
	p := e.parts[tp]
	if p == nil {
		return NoTime, false
	}
	w = p.watermark()
	return w, w > NoTime && (p.maxTime == NoTime || w > p.maxTime-p.source.DelayMs)
}
