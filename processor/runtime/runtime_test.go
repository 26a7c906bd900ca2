package runtime_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/runtime"
)

// What HTTP, readiness and metrics tell of a live run.
func TestTells(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := fares(t, unique("fares"), topic, false)
	e.topic(topic, 2)
	e.produce(trips(41, topic, 2, 100)...)
	r := e.receiver(nil, p)
	if err := r.rt.Ready(); err == nil || !strings.Contains(err.Error(), "starting") {
		t.Errorf("ready before the start: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.rt.Run(ctx) }()
	e.untilRead(p)
	var st runtime.PipelineStatus
	e.until("the status", func() bool {
		if code, text := r.call("GET", "/pipelines/"+p.Name, nil, &st); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
		all := len(st.Partitions) == 2
		for _, s := range st.Partitions {
			all = all && s.Position == 100 && s.LogEnd == 100 && s.Lag == 0
		}
		return all
	})
	if st.Name != p.Name || st.Hash != p.Hash || len(st.Inputs) != 1 || st.Inputs[0] != topic || st.DecisionsTopic != p.Name+".decisions" || st.Outputs["late"] != p.Output.Topic+".late" {
		t.Errorf("%+v", st.Pipeline)
	}
	if st.Emitted == 0 || st.Late == 0 || st.Poison == 0 || st.Future == 0 || st.Watermark == nil || st.HeldBy == nil || st.OpenWindows == 0 {
		t.Errorf("%+v", st.Status)
	}
	e.until("ready", func() bool { return r.rt.Ready() == nil })
	if err := r.rt.Health(); err != nil {
		t.Error(err)
	}
	if code, text := r.call("GET", "/pipelines/"+p.Name+"x", nil, nil); code != http.StatusNotFound || !strings.Contains(text, "did you mean "+p.Name) {
		t.Errorf("%d %s", code, text)
	}
	reg := prometheus.NewPedanticRegistry()
	if err := r.rt.Register(reg); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	series := map[string]int{}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	if series["tapedeck_processor_lag_records"] != 2 || series["tapedeck_processor_outputs_total"] != 4 {
		t.Errorf("%v; want one of each of 2 partitions and 4 kinds", series)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestCheckDistinct(t *testing.T) {
	a := &pipeline.Pipeline{Name: "a", Source: []pipeline.Source{{Topic: "in"}}, Output: pipeline.Output{Topic: "out"}}
	for name, c := range map[string]struct {
		b    pipeline.Pipeline
		want string
	}{
		"fine":            {pipeline.Pipeline{Name: "b", Source: a.Source, Output: pipeline.Output{Topic: "out2"}}, ""},
		"reads a's":       {pipeline.Pipeline{Name: "b", Source: []pipeline.Source{{Topic: "out"}}, Output: pipeline.Output{Topic: "out2"}}, ""},
		"same name":       {pipeline.Pipeline{Name: "a", Source: a.Source, Output: pipeline.Output{Topic: "out2"}}, "two pipelines"},
		"same output":     {pipeline.Pipeline{Name: "b", Source: a.Source, Output: pipeline.Output{Topic: "out"}}, "both write topic out"},
		"another's side":  {pipeline.Pipeline{Name: "b", Source: a.Source, Output: pipeline.Output{Topic: "out.late"}}, "both write topic out.late"},
		"decisions":       {pipeline.Pipeline{Name: "b", Source: a.Source, Output: pipeline.Output{Topic: "a.decisions"}}, "both write topic a.decisions"},
		"reads its own":   {pipeline.Pipeline{Name: "b", Source: []pipeline.Source{{Topic: "b-out"}}, Output: pipeline.Output{Topic: "b-out"}}, "which it writes"},
		"its own results": {pipeline.Pipeline{Name: "b", Source: a.Source, Output: pipeline.Output{Topic: "b.sessions"}}, "twice"},
	} {
		err := runtime.CheckDistinct([]*pipeline.Pipeline{a, &c.b})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}
