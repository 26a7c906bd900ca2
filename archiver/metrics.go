package archiver

import (
	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/archiver/partition"
)

// metrics of the archiver. Labels are topics, partitions and small fixed sets.
type metrics struct {
	records                                       *prometheus.CounterVec // topic
	segments                                      *prometheus.CounterVec // topic, cause
	bytes                                         *prometheus.CounterVec // topic
	lost                                          *prometheus.CounterVec // topic
	adopted                                       prometheus.Counter
	retries                                       prometheus.Counter
	commits                                       *prometheus.CounterVec // result
	rebalance                                     prometheus.Counter
	groupErrs                                     prometheus.Counter
	noSchema                                      prometheus.Counter
	lateSchemas, changedSchemas, forgottenSchemas prometheus.Counter
	topicsNotKept                                 prometheus.Counter
	groupSnapshots                                *prometheus.CounterVec // result
	groupsUnread                                  prometheus.Counter
	levelSnapshots                                *prometheus.CounterVec // result
	putTime                                       prometheus.Histogram

	lag                         *prometheus.GaugeVec   // topic, partition
	states                      *prometheus.GaugeVec   // state
	seconds, archived, position *prometheus.GaugeVec   // topic, partition; as lag, at most metrics.partitions.max of each
	events                      *prometheus.CounterVec // result
	staleness                   prometheus.Gauge
	unlabelled                  prometheus.Gauge
	stopped                     prometheus.Gauge
	missing                     prometheus.Gauge
	held                        prometheus.Gauge
	memory                      prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "tapedeck_archiver_" + name, Help: help}
	}
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Name: "tapedeck_archiver_" + name, Help: help}
	}
	m := &metrics{
		records:          prometheus.NewCounterVec(counter("records_total", "Records in segments that this process has confirmed in the store."), []string{"topic"}),
		segments:         prometheus.NewCounterVec(counter("segments_total", "Segments that this process has confirmed in the store, by what ended them."), []string{"topic", "cause"}),
		bytes:            prometheus.NewCounterVec(counter("segment_bytes_total", "Bytes of the segments that this process has confirmed in the store."), []string{"topic"}),
		lost:             prometheus.NewCounterVec(counter("lost_offsets_total", "Offsets that Kafka removed before they were archived, recorded as lost."), []string{"topic"}),
		adopted:          prometheus.NewCounter(counter("adopted_total", "Segments of another archiver that were found in place of ours.")),
		retries:          prometheus.NewCounter(counter("store_retries_total", "Tries to create a segment that did not succeed and are repeated.")),
		commits:          prometheus.NewCounterVec(counter("commits_total", "Commits of group positions by result."), []string{"result"}),
		rebalance:        prometheus.NewCounter(counter("rebalances_total", "Changes of the partitions that the group gave to this process.")),
		groupErrs:        prometheus.NewCounter(counter("group_errors_total", "Troubles of the consumer as a whole.")),
		noSchema:         prometheus.NewCounter(counter("schemas_missing_total", "Schemas that a segment was written without, because the registry did not answer, or was asked too often for ids that it does not know.")),
		lateSchemas:      prometheus.NewCounter(counter("schemas_late_total", "Schemas that segments were written without and that were kept in the archive afterwards.")),
		changedSchemas:   prometheus.NewCounter(counter("schemas_changed_total", "Schema ids that the registry gave another meaning.")),
		forgottenSchemas: prometheus.NewCounter(counter("schemas_forgotten_total", "Schemas that segments were written without and that are not looked for any more, since too many are.")),
		topicsNotKept:    prometheus.NewCounter(counter("topic_config_errors_total", "Times that the configuration of topics could not be read or kept in the archive.")),
		groupSnapshots:   prometheus.NewCounterVec(counter("group_snapshots_total", "Looks at the positions of consumer groups: kept, unchanged, or error."), []string{"result"}),
		groupsUnread:     prometheus.NewCounter(counter("groups_unread_total", "Consumer groups whose positions could not be read, so that a snapshot holds older ones.")),
		levelSnapshots:   prometheus.NewCounterVec(counter("compatibility_snapshots_total", "Looks at the compatibility levels of the schema registry: kept, unchanged, or error."), []string{"result"}),
		putTime: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tapedeck_archiver_put_seconds",
			Help: "Time from the start of a segment's put to its confirmation, retries included.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 16)}),
		lag:        prometheus.NewGaugeVec(gauge("lag_records", "Log end minus archived offset."), []string{"topic", "partition"}),
		events:     prometheus.NewCounterVec(counter("segment_events_total", "Events of segments on events.topic by result: sent, failed (a round that is repeated), dropped."), []string{"result"}),
		seconds:    prometheus.NewGaugeVec(gauge("lag_seconds", "Age of the oldest record that is not archived: by its timestamp once it is fetched, before that since this process saw it in the log; 0 without a lag."), []string{"topic", "partition"}),
		archived:   prometheus.NewGaugeVec(gauge("archived_offset", "Next offset of the newest confirmed segment."), []string{"topic", "partition"}),
		position:   prometheus.NewGaugeVec(gauge("position_offset", "Next offset to fetch."), []string{"topic", "partition"}),
		staleness:  prometheus.NewGauge(gauge("staleness_seconds", "The largest lag_seconds of all partitions of this process, those without series of their own included.")),
		unlabelled: prometheus.NewGauge(gauge("unlabelled_partitions", "Partitions of this process beyond metrics.partitions.max, without series of their own.")),
		states:     prometheus.NewGaugeVec(gauge("partitions", "Partitions of this process by state."), []string{"state"}),
		stopped:    prometheus.NewGauge(gauge("stopped_partitions", "Partitions that stopped and need a person; /status says why.")),
		missing:    prometheus.NewGauge(gauge("topics_missing", "Topics that are named in topics and are not in Kafka.")),
		held:       prometheus.NewGauge(gauge("held_partitions", "Partitions whose fetching waits for the store or for memory.")),
		memory:     prometheus.NewGauge(gauge("memory_bytes", "Bytes in buffered segments.")),
	}
	reg.MustRegister(m.records, m.segments, m.bytes, m.lost, m.adopted, m.retries, m.commits, m.rebalance, m.groupErrs, m.noSchema, m.lateSchemas, m.changedSchemas, m.forgottenSchemas, m.topicsNotKept, m.groupSnapshots, m.groupsUnread, m.levelSnapshots, m.putTime,
		m.lag, m.events, m.seconds, m.archived, m.position, m.staleness, m.unlabelled, m.states, m.stopped, m.missing, m.held, m.memory)
	return m
}

var allStates = []partition.State{partition.Recovering, partition.Checking, partition.Fetching, partition.Finished, partition.Stopped, Paused}
