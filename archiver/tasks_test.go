package archiver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Three consumers in one process share six partitions as three processes would: each offset once, one status, one HTTP service for all.
func TestTasksShareThePartitions(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const parts = 6
	e.topic("trips", parts)
	s := e.settings("trips")
	s.Tasks = 3
	s.Partition.RotateAge = 100 * time.Millisecond
	reg := prometheus.NewRegistry()
	ts, err := NewTasks(s, Parts{Store: e.store, TopicsDir: "topics", Log: testLog(t), Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ts.Archive(ctx) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })

	shared := func() bool {
		for _, a := range ts.all {
			if len(a.Status().Partitions) != parts/3 {
				return false
			}
		}
		return true
	}
	e.await("each task has its share", shared)
	for p := range int32(parts) {
		e.fill("trips", p, 0, 40)
	}
	for p := range int32(parts) {
		e.awaitArchived("trips", p, 40)
	}
	e.await("ready", func() bool { return ts.Ready() == nil })
	if err := ts.Health(); err != nil {
		t.Error(err)
	}
	st := ts.Status()
	for i, p := range st.Partitions {
		if p.Topic != "trips" || p.Partition != int32(i) {
			t.Errorf("partition %d of the status is %s", i, p.TP)
		}
	}
	if len(st.Partitions) != parts || !st.Assigned || len(st.Topics) != 1 {
		t.Errorf("%+v", st)
	}

	mux := http.NewServeMux()
	ts.Register(mux)
	call := func(want int, method, path string) (op Operation) {
		t.Helper()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(e.ctx(), method, path, nil))
		if w.Code != want {
			t.Fatalf("%s %s: %d: %s", method, path, w.Code, w.Body)
		}
		_ = json.Unmarshal(w.Body.Bytes(), &op) // errors have no such fields
		return op
	}
	if op := call(http.StatusAccepted, "PUT", "/pause"); len(op.Partitions) != parts {
		t.Errorf("%+v", op)
	}
	e.await("all are paused", func() bool {
		st := ts.Status()
		return len(st.Partitions) == parts && !slices.ContainsFunc(st.Partitions, func(p PartitionStatus) bool { return p.State != Paused })
	})
	call(http.StatusAccepted, "PUT", "/resume")
	for p := range parts { // whichever task has it
		if op := call(http.StatusAccepted, "POST", fmt.Sprintf("/topics/trips/partitions/%d/restart", p)); op.Restarted == nil || *op.Restarted != 1 {
			t.Errorf("partition %d: %+v", p, op)
		}
	}
	call(http.StatusNotFound, "POST", "/topics/trips/partitions/77/restart")
	call(http.StatusNotFound, "PUT", "/topics/other/pause")
	if op := call(http.StatusAccepted, "POST", "/restart"); op.Restarted == nil || *op.Restarted != parts {
		t.Errorf("%+v", op)
	}
	for p := range int32(parts) {
		e.fill("trips", p, 40, 10)
	}
	for p := range int32(parts) {
		e.awaitArchived("trips", p, 50)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for p := range int32(parts) {
		e.checkEqual("trips", p, e.log("trips", p))
	}

	fams, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byTask := map[string]float64{}
	for _, f := range fams {
		if f.GetName() != "tapedeck_archiver_records_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "task" {
					byTask[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	if byTask["0"] != 100 || byTask["1"] != 100 || byTask["2"] != 100 {
		t.Errorf("records by task: %v", byTask)
	}
}

// What bounds the process bounds all tasks together.
func TestTasksShareTheBounds(t *testing.T) {
	for _, bound := range []int64{256 << 20, 512 << 20, 4 << 30} {
		one := Settings{MaxMemory: bound}.budget()
		four := Settings{MaxMemory: bound, Tasks: 4}.budget()
		if 4*four.queue > one.queue || 4*four.poll > one.poll || 4*four.buffers > one.buffers || 4*four.closing > one.closing {
			t.Errorf("%d: %+v four times is more than %+v", bound, four, one)
		}
	}
	s := Settings{Tasks: 4, Limit: Limit{Records: 10, Bytes: 0}, PartitionLimit: Limit{Records: 10}, MaxLabelled: 1000,
		Consumer: map[string]string{"group.instance.id": "here"}}
	got := s.ofTask(2)
	if got.Limit.Records != 3 || got.Limit.Bytes != 0 || got.PartitionLimit.Records != 10 || got.MaxLabelled != 250 ||
		got.Consumer["group.instance.id"] != "here-2" || s.Consumer["group.instance.id"] != "here" {
		t.Errorf("%+v", got)
	}
	if one := (Settings{Consumer: s.Consumer}).ofTask(0); one.Consumer["group.instance.id"] != "here" {
		t.Errorf("%+v", one)
	}
}
