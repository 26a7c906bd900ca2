package archiver

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// call makes one call to r's routes.
func (r *running) call(want int, method, path string) Operation {
	r.e.t.Helper()
	mux := http.NewServeMux()
	(&Tasks{[]*Archiver{r.Archiver}}).Register(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(r.e.ctx(), method, path, nil))
	if w.Code != want {
		r.e.t.Fatalf("%s %s: %d, want %d: %s", method, path, w.Code, want, w.Body)
	}
	var op Operation
	if err := json.Unmarshal(w.Body.Bytes(), &op); err != nil && want < 300 {
		r.e.t.Fatalf("%s %s: %v", method, path, err)
	}
	return op
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 2)
	s := e.settings("trips")
	s.Partition.RotateAge = 100 * time.Millisecond
	r := e.start(s)
	e.fill("trips", 0, 0, 10)
	e.awaitArchived("trips", 0, 10)
	e.await("both fetched", func() bool {
		a, b := r.state("trips", 0), r.state("trips", 1)
		return a != nil && b != nil && a.State == partition.Fetching && b.State == partition.Fetching
	})
	if op := r.call(http.StatusAccepted, "PUT", "/topics/trips/partitions/1/pause"); len(op.Partitions) != 1 || op.Partitions[0].State != Paused {
		t.Fatalf("%+v", op)
	}
	e.fill("trips", 0, 10, 10)
	e.fill("trips", 1, 0, 10)
	e.awaitArchived("trips", 0, 20) // the other goes on
	if n := len(e.objects("trips", 1)); n != 0 {
		t.Errorf("%d objects of the paused one", n)
	}
	e.await("degraded", func() bool {
		return strings.Contains(strings.Join(r.Status().Degraded, "; "), "1 of 2 partitions are paused")
	})
	// A rebalance gives the partition away and back: it is still paused here.
	b := e.start(s)
	e.await("shared", func() bool { return len(r.Status().Partitions) == 1 && len(b.Status().Partitions) == 1 })
	b.call(http.StatusAccepted, "PUT", "/pause") // so that it archives nothing meanwhile
	b.end()
	e.await("back", func() bool {
		s := r.state("trips", 1)
		return s != nil && len(r.Status().Partitions) == 2 && s.State == Paused
	})
	r.call(http.StatusAccepted, "PUT", "/pause")
	r.call(http.StatusConflict, "PUT", "/topics/trips/partitions/1/resume") // the process is paused
	if op := r.call(http.StatusAccepted, "PUT", "/resume"); len(op.Partitions) != 2 || op.Partitions[0].State == Paused || op.Partitions[1].State == Paused {
		t.Errorf("%+v", op)
	}
	e.awaitArchived("trips", 1, 10)
	r.call(http.StatusNotFound, "PUT", "/topics/other/pause")
	r.call(http.StatusBadRequest, "PUT", "/topics/trips/partitions/x/pause")
	r.call(http.StatusNotFound, "POST", "/topics/trips/partitions/7/restart")
	r.call(http.StatusBadRequest, "POST", "/restart?onlyfailed=true")
	r.end()
	for part := range int32(2) {
		e.checkEqual("trips", part, e.log("trips", part))
	}
	e.checkClean()
}

// A stopped partition begins again without a restart of the process, and a running one may be restarted at any moment.
func TestRestartOnRequest(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 50)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 7
	s.Partition.RotateAge = 100 * time.Millisecond
	foreign := "topics/trips/partition=0/what.txt"
	e.store.Put(foreign, []byte("x"))
	r := e.start(s)
	r.awaitStopped("trips", 0, partition.BrokenChain)
	if op := r.call(http.StatusAccepted, "POST", "/restart?onlyFailed=true"); op.Restarted == nil || *op.Restarted != 1 {
		t.Fatalf("%+v", op)
	}
	r.awaitStopped("trips", 0, partition.BrokenChain) // it is still there
	e.store.Delete(foreign)
	r.call(http.StatusAccepted, "POST", "/topics/trips/partitions/0/restart")
	e.awaitArchived("trips", 0, 50)
	if op := r.call(http.StatusAccepted, "POST", "/restart?onlyFailed=true"); *op.Restarted != 0 {
		t.Errorf("%+v", op)
	}
	for i := range 5 { // in the middle of the work
		e.fill("trips", 0, 50+i*40, 40)
		r.call(http.StatusAccepted, "POST", "/restart")
	}
	e.awaitArchived("trips", 0, 250)
	r.end()
	e.checkEqual("trips", 0, e.log("trips", 0))
	e.checkClean()
}

// Field fault 25: the group has dropped the member, and nobody tells it; librdkafka's heartbeats are answered as if all were well.
func TestAMembershipLostWithoutAWordFailsLiveness(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	s := e.settings("trips")
	s.Consumer = map[string]string{"session.timeout.ms": "3000", "heartbeat.interval.ms": "200", "max.poll.interval.ms": "600000"}
	s.StrangerAfter = 100 * time.Millisecond
	r := e.start(s)
	e.await("assigned", func() bool { p := r.state("trips", 0); return p != nil && p.State == partition.Fetching })
	e.await("healthy and ready", func() bool { return r.Health() == nil && r.Ready() == nil })
	var beats atomic.Int64
	e.fake.ControlKey(int16(kmsg.Heartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		beats.Add(1)
		return req.ResponseKind(), nil, true // never reaches the group, which drops the member when its session ends
	})
	var why error
	e.awaitOr("unhealthy", func() string { return "" }, func() bool { why = r.Health(); return why != nil })
	if !strings.Contains(why.Error(), "not listed this process as a member") {
		t.Errorf("%v", why)
	}
	if beats.Load() == 0 {
		t.Error("no heartbeat: the fault did not happen")
	}
	if len(r.Status().Partitions) != 1 {
		t.Error("the consumer knew that it had lost its membership: another fault than meant")
	}
}

func TestProgress(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) time.Time { return now.Add(d) }
	fetching := func(position int64) PartitionStatus {
		return PartitionStatus{Status: partition.Status{TP: kafka.TP{Topic: "t"}, State: partition.Fetching, Position: position}}
	}
	p := progress{stable: 10}
	if !p.look(at(0), fetching(3)).IsZero() {
		t.Error("stands still at the first look")
	}
	if since := p.look(at(time.Second), fetching(3)); !since.Equal(at(time.Second)) {
		t.Errorf("since %v", since)
	}
	if since := p.look(at(time.Minute), fetching(3)); !since.Equal(at(time.Second)) {
		t.Errorf("since %v", since)
	}
	for name, s := range map[string]PartitionStatus{
		"moved":   fetching(4),
		"held":    func() PartitionStatus { s := fetching(3); s.Held = true; return s }(),
		"waits":   func() PartitionStatus { s := fetching(3); s.Waiting = "store"; return s }(),
		"paused":  func() PartitionStatus { s := fetching(3); s.State = Paused; return s }(),
		"stopped": func() PartitionStatus { s := fetching(3); s.State = partition.Stopped; return s }(),
		"at what can be read, behind an open transaction": func() PartitionStatus { p := fetching(10); p.LogEnd = 99; return p }(),
	} {
		q := p
		if !q.look(at(time.Hour), s).IsZero() {
			t.Errorf("%s counts as standing still", name)
		}
	}
}

func TestOpenAPIDescribesEveryCall(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string         `yaml:"operationId"`
			Responses   map[string]any `yaml:"responses"`
		} `yaml:"paths"`
	}
	if err := yaml.Unmarshal(OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	described, ids := map[string]bool{}, map[string]bool{}
	for path, calls := range doc.Paths {
		for method, op := range calls {
			described[strings.ToUpper(method)+" "+path] = true
			if op.OperationID == "" || ids[op.OperationID] || len(op.Responses) == 0 {
				t.Errorf("%s %s: operationId %q is missing or there twice, or no responses", method, path, op.OperationID)
			}
			ids[op.OperationID] = true
		}
	}
	var schemas struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `yaml:"properties"`
			} `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(OpenAPI, &schemas); err != nil {
		t.Fatal(err)
	}
	answer, err := json.Marshal(PartitionStatus{Status: partition.Status{Reason: partition.Gap, Error: "x", Detail: partition.Detail{Last: &partition.LastSegment{}}}})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(answer, &fields); err != nil {
		t.Fatal(err)
	}
	for name := range schemas.Components.Schemas["Partition"].Properties {
		if _, ok := fields[name]; !ok {
			t.Errorf("the field %s of a partition is described and not answered", name)
		}
	}
	for _, r := range new(Tasks).Routes() {
		if !described[r.Method+" "+r.Path] {
			t.Errorf("%s %s is served and not described", r.Method, r.Path)
		}
		delete(described, r.Method+" "+r.Path)
	}
	for d := range described {
		t.Errorf("%s is described and not served", d)
	}
}

// The commands, against the binary that serves.
func TestOperateCommands(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	bin := build(t)
	url, _ := openDir(t)
	e.topic("trips", 1)
	p := e.process(bin, url, "topics=trips")
	e.awaitReady(p)
	data, err := os.ReadFile(p.addr)
	if err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimSpace(string(data))
	run := func(want int, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(e.ctx(), bin, append(args, "--url", "http://"+addr)...).CombinedOutput()
		var exit *exec.ExitError
		code := 0
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != want {
			t.Fatalf("%v: exit status %d, want %d\n%s", args, code, want, out)
		}
		return string(out)
	}
	if out := run(0, "status"); !strings.Contains(out, "trips") {
		t.Error(out)
	}
	if out := run(0, "pause", "--topic", "trips", "--partition", "0"); !strings.Contains(out, "PAUSED") {
		t.Error(out)
	}
	if out := run(1, "status"); !strings.Contains(out, "paused on request") {
		t.Error(out)
	}
	run(0, "resume", "--topic", "trips", "--partition", "0")
	if out := run(0, "restart", "-o", "json"); !strings.Contains(out, `"restarted": 1`) {
		t.Error(out)
	}
	if out := run(2, "pause", "--topic", "other"); !strings.Contains(out, "not archived by this process") {
		t.Error(out)
	}
	resp, err := http.Get("http://" + addr + "/admin/loggers/root")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v %v", resp, err)
	}
	if err == nil {
		_ = resp.Body.Close()
	}
	p.end(t)
}
