package engine

// Only keeps the results, and the late records, of the windows within [from, until) in event time (ms) and of no others. To be called before the first Feed.
//
// It is for a start in the middle of the logs. Let v be such that no record before the start has an event time beyond v (a future record does not count, it is set aside). Then
// the results of windows with start > v are those that a run from the beginning gives, as are their late records:
//
//   - none of the records before the start lies in such a window;
//   - a record is late for a window that ends at e iff e ≤ M_p − delay. What was read of p before the start has M_p ≤ v < e, and so makes no record late for the window; what
//     was read since is the same;
//   - a window closes when M_p − delay ≥ e in every partition, and again M_p ≤ v from before the start does not matter.
//
// Windows with start ≤ v may lack records, which is why from must be beyond v.
func (e *Engine) Only(from, until int64) { e.only = &only{from, until} }

type only struct{ from, until int64 }

// wanted reports whether the window that ends at end is one to be kept.
func (e *Engine) wanted(end int64) bool {
	return e.only == nil || end-e.p.Window.SizeMs >= e.only.from && end <= e.only.until
}

// Reached returns w_p of a partition: the event time below which it brings nothing more, NoTime before any.
func (e *Engine) Reached(tp TP) int64 {
	if p := e.parts[tp]; p != nil {
		return p.watermark()
	}
	return NoTime
}
