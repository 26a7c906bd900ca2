package runtime

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/processor/live"
)

// Register adds the processor's metrics to reg. They are read from the status at each scrape; labels are pipelines, their states and kinds
// of output, and the partitions that this process reads.
func (r *Runtime) Register(reg prometheus.Registerer) error { return reg.Register(collector{r}) }

var (
	perPipeline  = []string{"pipeline"}
	perPartition = []string{"pipeline", "topic", "partition"}

	stateDesc     = prometheus.NewDesc("tapedeck_processor_state", "1 for the state that the pipeline's live run is in.", []string{"pipeline", "state"}, nil)
	outputDesc    = prometheus.NewDesc("tapedeck_processor_outputs_total", "Records written and committed by live runs since the process started.", []string{"pipeline", "kind"}, nil)
	commitDesc    = prometheus.NewDesc("tapedeck_processor_commits_total", "Transactions committed that brought something new.", perPipeline, nil)
	restartDesc   = prometheus.NewDesc("tapedeck_processor_restarts_total", "Times a live run began again from committed state after an error.", perPipeline, nil)
	watermarkDesc = prometheus.NewDesc("tapedeck_processor_watermark_seconds", "Event time through which a merged pipeline's windows are closed, since the Unix epoch.", perPipeline, nil)
	windowsDesc   = prometheus.NewDesc("tapedeck_processor_open_windows", "Windows not closed yet.", perPipeline, nil)
	bytesDesc     = prometheus.NewDesc("tapedeck_processor_state_bytes", "Memory held by open windows and side outputs that are not written yet, about.", perPipeline, nil)
	peakDesc      = prometheus.NewDesc("tapedeck_processor_state_peak_bytes", "The most that tapedeck_processor_state_bytes has been since the process started, also between two scrapes.", perPipeline, nil)
	maxDesc       = prometheus.NewDesc("tapedeck_processor_state_max_bytes", "state.max.bytes: above half of it partitions that are ahead are held back.", perPipeline, nil)
	positionDesc  = prometheus.NewDesc("tapedeck_processor_position", "Committed position (offset).", perPartition, nil)
	lagDesc       = prometheus.NewDesc("tapedeck_processor_lag_records", "Log end minus committed position.", perPartition, nil)
	heldDesc      = prometheus.NewDesc("tapedeck_processor_holds_watermark", "1 for the partition that holds a merged pipeline's watermark back.", perPartition, nil)
	idleDesc      = prometheus.NewDesc("tapedeck_processor_idle", "1 where the partition has had no record for its source's idleness, so that nobody waits for it.", perPartition, nil)
	passedDesc    = prometheus.NewDesc("tapedeck_processor_passed_by", "1 where a decided floor, not the partition's own records, gives its watermark.", perPartition, nil)
	waitingDesc   = prometheus.NewDesc("tapedeck_processor_waiting", "1 where the partition waits: for the schema registry, or held back by state.max.bytes.", perPartition, nil)
	sessionsDesc  = prometheus.NewDesc("tapedeck_processor_open_sessions", "Replay sessions held in memory.", nil, nil)
)

type collector struct{ r *Runtime }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{stateDesc, outputDesc, commitDesc, restartDesc, watermarkDesc, windowsDesc, bytesDesc, peakDesc, maxDesc, positionDesc, lagDesc, heldDesc, idleDesc, passedDesc, waitingDesc, sessionsDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, n := range c.r.names {
		st := c.r.running[n].runner.Status()
		for _, s := range []live.State{live.Starting, live.Standby, live.CatchingUp, live.Running, live.Blocked, live.Retrying, live.Failed} {
			gauge(stateDesc, flag(s == st.State), n, string(s))
		}
		counter(outputDesc, st.Emitted, n, "results")
		counter(outputDesc, st.Late, n, "late")
		counter(outputDesc, st.Future, n, "future")
		counter(outputDesc, st.Poison, n, "poison")
		counter(commitDesc, st.Commits, n)
		counter(restartDesc, st.Restarts, n)
		gauge(windowsDesc, float64(st.OpenWindows), n)
		gauge(bytesDesc, float64(st.StateBytes), n)
		gauge(peakDesc, float64(st.StatePeak), n)
		gauge(maxDesc, float64(st.StateMax), n)
		if st.Watermark != nil {
			gauge(watermarkDesc, float64(*st.Watermark)/1000, n)
		}
		for _, p := range st.Partitions {
			labels := []string{n, p.Topic, strconv.Itoa(int(p.Partition))}
			gauge(positionDesc, float64(p.Position), labels...)
			gauge(lagDesc, float64(p.Lag), labels...)
			gauge(waitingDesc, flag(p.Waiting != ""), labels...)
			gauge(idleDesc, flag(p.Idle), labels...)
			gauge(passedDesc, flag(p.PassedBy), labels...)
			gauge(heldDesc, flag(st.HeldBy != nil && *st.HeldBy == p.TopicPartition), labels...)
		}
	}
	gauge(sessionsDesc, float64(c.r.sessions.Loaded()))
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
