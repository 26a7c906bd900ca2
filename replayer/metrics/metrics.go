// Package metrics holds every metric of the replayer. Labels have few values: states, outcomes and kinds, never job or topic names.
package metrics

import "github.com/prometheus/client_golang/prometheus"

// Metrics of one replayer.
type Metrics struct {
	Segments   prometheus.Counter     // accepted by a target
	Bytes      prometheus.Counter     // of these
	Records    prometheus.Counter     // read from the archive and in range
	Sent       prometheus.Counter     // records of the segments that a target has accepted
	Waited     *prometheus.CounterVec // seconds in which nothing was on its way to the target, by what was waited for: rate, speed, skew, target
	Retries    *prometheus.CounterVec // by call: load, send, open, finish, cancel, pipeline, store
	Busy       prometheus.Counter     // "at its limit" answers of targets
	Rewinds    prometheus.Counter     // targets that wanted older offsets again
	Takeovers  prometheus.Counter
	Ended      *prometheus.CounterVec // jobs that ended here, by state
	Jobs       *prometheus.GaugeVec   // jobs known, by state
	Running    prometheus.Gauge       // jobs that this replayer works on
	LeaseFails prometheus.Counter     // renewals that could not be written
}

// New registers the metrics with reg.
func New(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "tapedeck", Subsystem: "replayer", Name: name, Help: help})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tapedeck", Subsystem: "replayer", Name: name, Help: help}, []string{label})
	}
	m := &Metrics{
		Segments: counter("segments_sent_total", "Segments that a target has accepted; those that were cut for speed, rates or order count by part."),
		Bytes:    counter("sent_bytes_total", "Bytes of the segments that a target has accepted."),
		Records:  counter("records_read_total", "Records read from the archive that were in a job's range."),
		Sent:     counter("records_sent_total", "Records that a target has accepted; sent again after the target's restart, they count again."),
		Waited: counters("waited_seconds_total", "Time in which a job had something to send and nothing was on its way, "+
			"by what it waited for: rate (recordsPerSecond, bytesPerSecond), speed, skew (order event-time), target (busy, or it did not answer).", "for"),
		Retries:    counters("retries_total", "Calls to the store or a target that had to be repeated.", "call"),
		Busy:       counter("target_busy_total", "Segments that a target refused for the moment, at its limit."),
		Rewinds:    counter("rewinds_total", "Times that a target asked for older offsets again, as after its restart."),
		Takeovers:  counter("takeovers_total", "Jobs taken over from another replayer, or from before a restart."),
		Ended:      counters("jobs_ended_total", "Jobs that ended here, by state.", "state"),
		LeaseFails: counter("lease_renewal_errors_total", "Lease renewals that could not be written to the store."),
		Jobs: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tapedeck", Subsystem: "replayer", Name: "jobs",
			Help: "Jobs in the archive, by state, as last seen by this replayer."}, []string{"state"}),
		Running: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "tapedeck", Subsystem: "replayer", Name: "jobs_owned",
			Help: "Jobs that this replayer works on."}),
	}
	reg.MustRegister(m.Segments, m.Bytes, m.Records, m.Sent, m.Waited, m.Retries, m.Busy, m.Rewinds, m.Takeovers, m.Ended, m.LeaseFails, m.Jobs, m.Running)
	return m
}
