package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
)

// Requests that a schema tester would make up: what the document allows is not refused as a bad request, what it does not allow is, and every answer is one that it
// declares (the handler of the rig checks that).
func TestGeneratedRequests(t *testing.T) {
	n := 400
	if testing.Short() {
		n = 100
	}
	g := newRig(t)
	gen := g.doc.Generator(1)
	seen := map[int]int{}
	for i := range n {
		req := gen.Valid("Request", map[string]any{"name": fmt.Sprintf("g%d", i), "target": "proc"})
		makeSense(req)
		if !g.doc.Allows("Request", req) {
			t.Fatalf("the generator made what the document does not allow: %s", text(t, req))
		}
		path := "/replays?dryRun=true"
		if i%4 == 0 {
			path = "/replays"
		}
		code, v := g.call("POST", path, text(t, req))
		seen[code]++
		if code == http.StatusBadRequest {
			t.Errorf("the document allows what is refused: %s: %v", text(t, req), v["message"])
		}
		how, ok := gen.Spoil("Request", req)
		if !ok {
			continue
		}
		switch code, v := g.call("POST", "/replays?dryRun=true", text(t, req)); code {
		case http.StatusBadRequest:
			if m, _ := v["message"].(string); m == "" {
				t.Errorf("%s: no reason", how)
			}
		default:
			t.Errorf("%s: HTTP %d: %s", how, code, text(t, req))
		}
	}
	if seen[200] == 0 || seen[201] == 0 || seen[422] == 0 {
		t.Errorf("the generated requests are all of a kind: %v", seen)
	}
	for i := range 20 { // whatever they came to
		name := fmt.Sprintf("/replays/g%d", 4*i)
		g.call("GET", name, "")
		g.call("GET", name+"/plan", "")
		g.call("POST", name+"/pause", "")
		replaytest.Until(t, "the job has ended or stands", func() bool {
			_, v := g.call("GET", name, "")
			return v["state"] != "STARTING" && v["state"] != "RUNNING"
		})
		g.call("POST", name+"/cancel", "")
	}
	g.call("GET", "/replays", "")
}

// Bodies that are no request at all, and odd paths and queries.
func TestMalformedCalls(t *testing.T) {
	g := newRig(t)
	for _, body := range []string{"", "null", "1", `"x"`, "[]", "{", `{"name":"a","target":"proc"}{}`, "{\"name\":\"a\",\"target\":\"proc\",\"topics\":[\"\xff\"]}",
		strings.Repeat("[", 100_000), `{"name":"a","target":"proc","bounds":` + strings.Repeat(`{"a/1":`, 5000) + strings.Repeat("}", 5001)} {
		if code, v := g.call("POST", "/replays", body); code != http.StatusBadRequest {
			t.Errorf("%.80q: HTTP %d %v", body, code, v)
		}
	}
	for _, path := range []string{"/replays/A", "/replays/a.b", "/replays/%00", "/replays/" + strings.Repeat("a", 65), "/replays/ä"} {
		if code, v := g.call("GET", path, ""); code != http.StatusNotFound {
			t.Errorf("%s: HTTP %d %v", path, code, v)
		}
	}
}

// makeSense holds a request to the rules between fields, which the document tells in words.
func makeSense(req map[string]any) {
	for _, field := range []string{"topicMapping", "partitionMapping", "createTopics", "replicationFactor", "ifNotEmpty", "provenanceHeaders", "groups", "registry"} {
		delete(req, field) // of another type of target
	}
	if req["order"] != "event-time" {
		delete(req, "maxSkew")
	}
	req["promise"] = "recompute" // the only one that every bound, filter and window goes with
	nothing := func(m map[string]any) {
		if bound(m["from"]) == "end" {
			delete(m, "from")
		}
		if bound(m["until"]) == "earliest" {
			delete(m, "until")
		}
		for _, end := range []string{"from", "until"} {
			if o, ok := m[end].(map[string]any); ok {
				if k := o["kind"]; k == "offset" || k == "timestamp" {
					if o["value"] == nil {
						o["value"] = 1.0
					}
				} else {
					delete(o, "value")
				}
			}
		}
	}
	nothing(req)
	if bounds, ok := req["bounds"].(map[string]any); ok {
		proper := map[string]any{}
		for _, e := range bounds {
			ends, _ := e.(map[string]any)
			if nothing(ends); len(ends) > 0 {
				proper["trips/1"] = ends
			}
		}
		req["bounds"] = proper
	}
	if w, ok := req["windows"].(map[string]any); ok {
		w["from"], w["until"] = "1970-01-01T00:00:10Z", 20000.0
		delete(req, "from")
		delete(req, "until")
		delete(req, "bounds")
	}
	for _, field := range []string{"topics", "exclude"} {
		list, _ := req[field].([]any)
		said := map[string]bool{}
		var keep []any
		for _, e := range list {
			if o, ok := e.(map[string]any); ok {
				if o["pattern"] != nil {
					o["pattern"] = "tr.*"
				}
				o["partitions"] = []any{1.0}
			}
			name, _ := json.Marshal(e)
			log := strings.Contains(string(name), "~")
			if key := strings.ReplaceAll(string(name), `,"partitions":[1]`, ""); !said[key] && !(log && field == "exclude") {
				said[key] = true
				keep = append(keep, e)
			}
		}
		req[field] = keep
		if len(keep) == 0 {
			delete(req, field)
		}
	}
	if f, ok := req["filter"].(map[string]any); ok {
		f["keys"] = []any{"k1", map[string]any{"base64": "/w=="}, nil}
		if list, ok := f["headers"].([]any); ok && len(list) > 1 {
			f["headers"] = list[:1]
		}
	}
}

func bound(v any) any {
	if o, ok := v.(map[string]any); ok {
		return o["kind"]
	}
	return v
}

func text(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
