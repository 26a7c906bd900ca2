package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"tapedeck.dev/tapedeck/replayer/api"
	"tapedeck.dev/tapedeck/replayer/internal/apicheck"
	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/shared/session"
)

type rig struct {
	*httptest.Server
	doc  *apicheck.Doc // every call of a test is held against it
	t    *testing.T
	gate atomic.Bool // closed: the receiver is at its limit
	node *replaytest.Node
	rc   *replaytest.Receiver
	api  *api.API
}

func newRig(t *testing.T) *rig {
	g := &rig{t: t}
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), "trips", 3, 60, 4)
	g.rc = replaytest.NewReceiver(t, session.Pipeline{Name: "p", Hash: "hash", Inputs: []string{"trips"}, DecisionsTopic: "p.decisions"})
	g.rc.Before = func(_, path string) int {
		if g.gate.Load() && strings.Contains(path, "/segments/") {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	g.node = replaytest.Start(t, a, g.rc, manager.Settings{ID: "a", Lease: time.Hour, Scan: 10 * time.Millisecond})
	mux := http.NewServeMux()
	g.api = api.New(g.node.Manager)
	g.api.Register(mux)
	g.doc = apicheck.Load(t, api.OpenAPI)
	g.Server = httptest.NewServer(g.doc.Handler(t, mux))
	t.Cleanup(g.Close)
	return g
}

// call returns the status and the answer.
func (g *rig) call(method, path, body string) (int, map[string]any) {
	g.t.Helper()
	req, err := http.NewRequest(method, g.URL+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		g.t.Fatalf("%s %s: %s", method, path, data)
	}
	return resp.StatusCode, v
}

func (g *rig) want(code int, message, method, path, body string) map[string]any {
	g.t.Helper()
	got, v := g.call(method, path, body)
	text, _ := v["message"].(string)
	if got != code || !strings.Contains(text, message) {
		g.t.Errorf("%s %s: %d %v, want %d with %q", method, path, got, v, code, message)
	}
	if got >= 400 && v["error_code"] != float64(code) {
		g.t.Errorf("%s %s: error_code %v", method, path, v["error_code"])
	}
	return v
}

const one = `{"name":"one","target":"proc","promise":"recompute"}`

func TestLifeOfAJobOverHTTP(t *testing.T) {
	g := newRig(t)
	g.gate.Store(true)
	plan := g.want(200, "", "POST", "/replays?dryRun=true", one)
	if plan["totals"].(map[string]any)["partitions"] != 3.0 {
		t.Errorf("plan %v", plan)
	}
	g.want(400, "dryrun", "POST", "/replays?dryrun=true", one) // a slip must not start a job
	g.want(404, "no such job", "GET", "/replays/one", "")
	if v := g.want(201, "", "POST", "/replays", one); v["existing"] != nil {
		t.Errorf("a new job is called existing: %v", v)
	}
	if v := g.want(200, "", "POST", "/replays", one); v["existing"] != true {
		t.Errorf("the second answer does not say that nothing was started: %v", v)
	}
	g.want(409, "another name", "POST", "/replays", strings.Replace(one, `}`, `,"endMode":"drain"}`, 1))
	replaytest.Until(t, "it runs", func() bool { _, v := g.call("GET", "/replays/one", ""); return v["state"] == "RUNNING" })
	g.want(409, "possible now: pause, cancel", "POST", "/replays/one/retry", "")
	if v := g.want(200, "", "POST", "/replays/one/pause", ""); v["state"] != "PAUSED" || v["possible"].([]any)[0] != "resume" {
		t.Errorf("%v", v)
	}
	if v := g.want(200, "", "POST", "/replays/one/resume", ""); v["state"] != "RUNNING" {
		t.Errorf("%v", v)
	}
	g.gate.Store(false)
	replaytest.Until(t, "it has completed", func() bool { _, v := g.call("GET", "/replays/one", ""); return v["state"] == "COMPLETED" })
	g.want(409, "final", "POST", "/replays/one/cancel", "")
	if v := g.want(200, "", "POST", "/replays", one); v["existing"] != true || v["state"] != "COMPLETED" {
		t.Errorf("started again after its end: %v", v)
	}
	if v := g.want(200, "", "GET", "/replays/one", ""); v["existing"] != nil {
		t.Errorf("only the answer to a start can tell: %v", v)
	}
	if got := g.want(200, "", "GET", "/replays/one/plan", ""); got["totals"].(map[string]any)["segments"] != plan["totals"].(map[string]any)["segments"] {
		t.Errorf("plan of the job %v", got["totals"])
	}
	list := g.want(200, "", "GET", "/replays", "")["replays"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["name"] != "one" {
		t.Errorf("list %v", list)
	}
}

func TestRefusals(t *testing.T) {
	g := newRig(t)
	g.want(400, `did you mean "topics"?`, "POST", "/replays", `{"name":"x","target":"proc","topic":[]}`)
	g.want(400, "[proc]", "POST", "/replays", `{"name":"x","target":"other"}`)
	g.want(400, "[proc]", "POST", "/replays?dryRun=true", `{"name":"x","target":"other"}`)
	g.want(400, "give true or false", "POST", "/replays?dryRun=1", one)
	g.want(413, "more than", "POST", "/replays", `{"name":"`+strings.Repeat("x", job.MaxRequestBytes)+`"}`)
	g.want(404, "no such job", "GET", "/replays/..%2fx", "")
	g.want(404, "no such job", "GET", "/replays/none/plan", "")
	g.want(404, "no such job", "GET", "/replays/none/events", "")
	g.want(404, "no such job", "POST", "/replays/none/pause", "")
	g.want(422, "no topic none", "POST", "/replays?dryRun=true", `{"name":"x","target":"proc","topics":["none"]}`)

	// Started, the same request is a job that FAILED with the reason, and that has no plan.
	g.want(201, "", "POST", "/replays", `{"name":"x","target":"proc","topics":["none"]}`)
	replaytest.Until(t, "it has failed", func() bool { _, v := g.call("GET", "/replays/x", ""); return v["state"] == "FAILED" })
	if _, v := g.call("GET", "/replays/x", ""); !strings.Contains(v["error"].(string), "no topic none") {
		t.Errorf("%v", v)
	}
	g.want(409, "no plan", "GET", "/replays/x/plan", "")

	g.node.Jobs.Cut(true)
	g.want(502, "cut off", "GET", "/replays", "")
	g.node.Jobs.Cut(false)
	g.node.Stop()
	g.want(503, "shutting down", "POST", "/replays", one)
}

func TestEvents(t *testing.T) {
	g := newRig(t)
	g.gate.Store(true)
	g.want(201, "", "POST", "/replays", one)
	resp, err := http.Get(g.URL + "/replays/one/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Errorf("content type %s", ct)
	}
	var kinds, states []string
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() { // the stream ends with the job
		if k, ok := strings.CutPrefix(sc.Text(), "event: "); ok {
			kinds = append(kinds, k)
		}
		if d, ok := strings.CutPrefix(sc.Text(), "data: "); ok {
			var v manager.View
			if err := json.Unmarshal([]byte(d), &v); err != nil {
				t.Fatal(err)
			}
			if n := len(states); n == 0 || states[n-1] != string(v.State) {
				states = append(states, string(v.State))
			}
			if v.State == job.Running {
				g.gate.Store(false)
			}
		}
	}
	if len(states) < 2 || states[len(states)-1] != "COMPLETED" || !slices.Contains(states, "RUNNING") {
		t.Errorf("states %v", states)
	}
	if len(kinds) < 2 || kinds[0] != "state" || kinds[len(kinds)-1] != "state" {
		t.Errorf("events %v", kinds)
	}
}

// A stream must not hold up the shutdown of its replayer.
func TestEventsEndWithTheReplayer(t *testing.T) {
	g := newRig(t)
	g.gate.Store(true)
	g.want(201, "", "POST", "/replays", one)
	resp, err := http.Get(g.URL + "/replays/one/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	g.node.Stop()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Error(err)
	}
}

// The description has every route, and no other; and its words are the code's.
func TestOpenAPIDescribesEveryRoute(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string         `yaml:"operationId"`
			Responses   map[string]any `yaml:"responses"`
		} `yaml:"paths"`
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Enum []string `yaml:"enum"`
				} `yaml:"properties"`
			} `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(withoutParameters(api.OpenAPI), &doc); err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	ids := map[string]bool{}
	for path, calls := range doc.Paths {
		for method, op := range calls {
			described[strings.ToUpper(method)+" "+path] = true
			if op.OperationID == "" || ids[op.OperationID] || len(op.Responses) == 0 {
				t.Errorf("%s %s: operationId %q is missing or there twice, or no responses", method, path, op.OperationID)
			}
			ids[op.OperationID] = true
		}
	}
	g := newRig(t)
	served := map[string]bool{}
	for _, r := range api.New(g.node.Manager).Routes() {
		served[r.Method+" "+r.Path] = true
		if !described[r.Method+" "+r.Path] {
			t.Errorf("%s %s is served and not described", r.Method, r.Path)
		}
	}
	for d := range described {
		if !served[d] {
			t.Errorf("%s is described and not served", d)
		}
	}
	var states []string
	for _, s := range append(slices.Clone(job.States), manager.Unreadable) {
		states = append(states, string(s))
	}
	if got := doc.Components.Schemas["Replay"].Properties["state"].Enum; !slices.Equal(got, states) {
		t.Errorf("states described %v, in the code %v", got, states)
	}
	for field := range doc.Components.Schemas["Request"].Properties {
		if _, err := job.ParseRequest([]byte(`{"` + field + `":null}`)); err != nil && strings.Contains(err.Error(), "field") {
			t.Errorf("field %s is described: %v", field, err)
		}
	}
	resp, err := http.Get(g.URL + "/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(data, api.OpenAPI) {
		t.Errorf("served description differs: %v", err)
	}
}

// withoutParameters drops the lines of path parameters, which stand among the methods of a path.
func withoutParameters(doc []byte) []byte {
	var out [][]byte
	for _, line := range bytes.Split(doc, []byte("\n")) {
		if !bytes.HasPrefix(line, []byte("    parameters: [")) {
			out = append(out, line)
		}
	}
	return bytes.Join(out, []byte("\n"))
}
