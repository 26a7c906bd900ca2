package archiver

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/store/mem"
	"tapedeck.dev/tapedeck/shared/store/metered"
)

// named is a registry that notes what is registered, vectors without a series included.
type named struct {
	*prometheus.Registry
	names map[string]bool
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (n named) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := n.Register(c); err != nil {
			panic(err)
		}
	}
}

func (n named) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		if m := fqName.FindStringSubmatch(d.String()); m != nil {
			n.names[m[1]] = true
		}
	}
	return n.Registry.Register(c)
}

// Every metric that an alert rule names exists, with the labels that the rule uses, and the rules are well formed as far as can be told here.
func TestAlertRulesNameMetricsThatExist(t *testing.T) {
	data, err := os.ReadFile("../deploy/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.UnmarshalWithOptions(data, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	reg := named{prometheus.NewRegistry(), map[string]bool{}}
	newMetrics(reg)
	if _, err := metered.New(mem.New(), reg); err != nil {
		t.Fatal(err)
	}
	cfg, err := service.Load(Keys(), "", []string{"bootstrap.servers=x", "store=file:///x", "topics=x"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	fams, err := service.NewFrame("archiver", cfg, testLog(t)).Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fams {
		reg.names[f.GetName()] = true
	}
	metric := regexp.MustCompile(`\b(tapedeck_[a-z_]+)`)
	seen := map[string]bool{}
	rules := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules++
			if r.Alert == "" || seen[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("%s: no name, there twice, or without severity or summary", r.Alert)
			}
			seen[r.Alert] = true
			if r.For != "" {
				if _, err := time.ParseDuration(r.For); err != nil {
					t.Errorf("%s: for: %v", r.Alert, err)
				}
			}
			names := metric.FindAllString(r.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s names no metric: %s", r.Alert, r.Expr)
			}
			for _, n := range names {
				if !reg.names[n] {
					t.Errorf("%s: there is no metric %s", r.Alert, n)
				}
			}
			for _, pair := range []string{"()", "{}", "[]"} {
				if strings.Count(r.Expr, pair[:1]) != strings.Count(r.Expr, pair[1:]) {
					t.Errorf("%s: %s do not match: %s", r.Alert, pair, r.Expr)
				}
			}
		}
	}
	if rules < 5 {
		t.Errorf("%d rules", rules)
	}
}

func TestLagSeconds(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	status := func(lag, archived, oldestMs int64) partition.Status {
		return partition.Status{Lag: lag, Archived: archived, Detail: partition.Detail{OldestTimestamp: oldestMs}}
	}
	var p progress
	for _, c := range []struct {
		name string
		at   time.Duration
		s    partition.Status
		want float64
	}{
		{"nothing to archive", 0, status(0, 5, -1), 0},
		{"seen, not fetched", time.Second, status(3, 5, -1), 0},
		{"still not fetched", 11 * time.Second, status(3, 5, -1), 10},
		{"fetched: its own timestamp", 12 * time.Second, status(3, 5, now.Add(-48*time.Second).UnixMilli()), 60},
		{"a timestamp of the future", 21 * time.Second, status(3, 5, now.Add(time.Hour).UnixMilli()), 20},
		{"some of it archived", 30 * time.Second, status(2, 6, -1), 0},
		{"all archived", 31 * time.Second, status(0, 8, -1), 0},
		{"not known", 40 * time.Second, status(-1, 8, -1), 0},
	} {
		if got := p.lagSeconds(now.Add(c.at), c.s); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Series of partitions are bounded, and go with the partition.
func TestPartitionSeriesAreBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(reg)
	count := func() int {
		fams, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fams {
			if f.GetName() == "tapedeck_archiver_archived_offset" {
				return len(f.GetMetric())
			}
		}
		return 0
	}
	var parts []PartitionStatus
	for i := range int32(5) {
		parts = append(parts, PartitionStatus{Status: partition.Status{TP: kafka.TP{Topic: "t", Partition: i}}, LagSeconds: float64(i)})
	}
	m.publish(parts, 5)
	if n := count(); n != 5 {
		t.Errorf("%d series", n)
	}
	m.publish(parts, 3)
	if n := count(); n != 3 {
		t.Errorf("%d series, the bound is 3", n)
	}
	m.forget(parts[0].TP)
	if n := count(); n != 2 {
		t.Errorf("%d series", n)
	}
	m.publish(parts, 0)
	if n := count(); n != 0 {
		t.Errorf("%d series", n)
	}
	fams, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fams {
		if f.GetName() == "tapedeck_archiver_staleness_seconds" && f.GetMetric()[0].GetGauge().GetValue() != 4 {
			t.Errorf("staleness leaves out the partitions without series: %v", f)
		}
	}
}
