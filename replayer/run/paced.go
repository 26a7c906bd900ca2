package run

import (
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/pace"
)

// skewParts is into how many parts of the allowed skew a segment is cut at least: a partition passes the bound by one such part at most, or by
// the distance of one record's timestamp from those before it.
const skewParts = 4

// trackerOptions are what a run of the request may do.
func (r *Runner) trackerOptions(plan *Plan, req *job.Request) trackerOptions {
	limits := req.Limits()
	o := trackerOptions{ahead: r.Settings.Parallel, hold: r.Settings.HoldBytes, bounds: limits.Bounds(), pacer: pace.New(limits),
		backoff: r.Settings.Backoff, timeout: r.Settings.RetryTimeout}
	if skew, ordered := req.Skew(); ordered {
		o.order = pace.NewOrder(len(plan.Partitions), skew)
		o.bounds = o.bounds.Min(pace.Bounds{Millis: max(1, skew/skewParts)})
	}
	if r.Metrics != nil {
		o.waited = func(c cause, d time.Duration) { r.Metrics.Waited.WithLabelValues(string(c)).Add(d.Seconds()) }
	}
	return o
}
