package main

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/replayer/api"
	"tapedeck.dev/tapedeck/replayer/internal/apicheck"
	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/session"
)

type rig struct {
	t   *testing.T
	url string
	a   *replaytest.Archive
}

func newRig(t *testing.T) *rig {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), "trips", 2, 40, 4)
	rc := replaytest.NewReceiver(t, session.Pipeline{Name: "p", Hash: "hash", Inputs: []string{"trips"}, DecisionsTopic: "p.decisions"})
	n := replaytest.Start(t, a, rc, manager.Settings{ID: "a", Lease: time.Hour, Scan: 10 * time.Millisecond})
	mux := http.NewServeMux()
	api.New(n.Manager).Register(mux)
	srv := httptest.NewServer(apicheck.Load(t, api.OpenAPI).Handler(t, mux)) // whatever the command line calls is in the document
	t.Cleanup(srv.Close)
	return &rig{t: t, url: srv.URL, a: a}
}

// run executes the command line and returns its exit status and outputs.
func (g *rig) run(args ...string) (code int, stdout, stderr string) {
	g.t.Helper()
	cmd := root()
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = service.Main(cmd, append(args, "--url", g.url))
	return code, out.String(), errs.String()
}

func (g *rig) want(code int, inOut, inErr string, args ...string) string {
	g.t.Helper()
	got, out, errs := g.run(args...)
	if got != code || !strings.Contains(out, inOut) || !strings.Contains(errs, inErr) {
		g.t.Errorf("%q: exit %d\nstdout %s\nstderr %s\nwant %d, %q, %q", args, got, out, errs, code, inOut, inErr)
	}
	return out
}

func TestExitStatuses(t *testing.T) {
	g := newRig(t)
	start := []string{"start", "--target", "proc", "--promise", "recompute", "--name"}
	g.want(0, "total", "", "plan", "--target", "proc", "--promise", "recompute", "--name", "ok")
	g.want(1, "", "no topic none", "plan", "--target", "proc", "--name", "ok", "--topics", "none")
	g.want(2, "", "unknown; configured: [proc]", "plan", "--target", "other", "--name", "ok")
	g.want(2, "", "nothing to replay", append(start, "ok", "--from", "end")...)
	g.want(2, "", "no request", "start")
	g.want(2, "", "-o \"xml\"", "list", "-o", "xml")
	g.want(2, "", "no such job", "status", "ok")
	g.want(2, "", "no such job", "wait", "ok")

	g.want(0, "ok COMPLETED", "ok COMPLETED 100%", append(start, "ok", "--wait")...)
	g.want(0, "equal", "", "status", "ok")
	g.want(0, "ok COMPLETED", "", "wait", "ok")
	// What has run already does not run again, and that is no success of this call: its target may have been wiped since.
	for _, wait := range [][]string{nil, {"--wait"}} {
		again := append(slices.Clone(start), append([]string{"ok"}, wait...)...)
		g.want(1, "COMPLETED", "nothing was run", again...)
		g.want(1, `"existing": true`, "take another name", append(again, "-o", "json")...)
		g.want(0, "COMPLETED", "nothing was run", append(again, "--existing-ok")...)
	}
	g.want(2, "", "take another name", append(start, "ok", "--end-mode", "drain")...)
	g.want(2, "", "pause is not possible", "pause", "ok")

	// What is not there fails, and says why.
	for name, args := range map[string][]string{
		"no-topic": {"--topics", "none"},
		"empty":    {"--from", "5", "--until", "5"},
	} {
		g.want(1, name+" FAILED", "is FAILED: ", append(append(start, name, "--wait"), args...)...)
		g.want(1, "reason: ", "", "wait", name)
	}
	key := g.a.Keys(record.TopicPartition{Topic: "trips", Partition: 1})[2]
	g.a.Damage(t, key)
	g.want(1, key, "at byte", append(start, "damaged", "--wait")...)
	g.want(1, key, "nothing was run", append(start, "damaged", "--wait", "--existing-ok")...) // the flag makes no success of a failure
	g.want(0, "damaged CANCELLING", "", "cancel", "damaged")
	g.want(1, "damaged CANCELLED", "is CANCELLED", "wait", "damaged")
	g.want(0, "no-topic", "", "list")
}

// A job that passed over what it could not read has done what was asked, and is a finding all the same.
func TestGapsExitNonZero(t *testing.T) {
	g := newRig(t)
	key := g.a.Keys(record.TopicPartition{Topic: "trips", Partition: 1})[2]
	g.a.Damage(t, key)
	file := filepath.Join(t.TempDir(), "r.yaml")
	if err := os.WriteFile(file, []byte("name: gaps\ntarget: proc\npromise: recompute\nonUnreadable: skip\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.want(1, "gaps COMPLETED", "COMPLETED with gaps: 1 objects could not be read", "start", "-f", file, "--wait")
	g.want(1, key, "at byte", "wait", "gaps")
	g.want(1, "unreadable", "nothing was run", "start", "-f", file, "--existing-ok")
	g.want(0, "unreadable", "", "status", "gaps")
}

func TestReplayerThatIsNotThere(t *testing.T) {
	g := &rig{t: t, url: "http://127.0.0.1:1"}
	g.want(2, "", "no answer from the replayer", "start", "--name", "a", "--target", "p", "--wait")
	g.url = "127.0.0.1:1"
	g.want(2, "", "give http://host:port", "list")
}

func TestJSONOutput(t *testing.T) {
	g := newRig(t)
	var v manager.View
	out := g.want(0, "", "", "start", "--name", "j", "--target", "proc", "--promise", "recompute", "--wait", "-o", "json")
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.State != job.Completed || len(v.Partitions) != 2 {
		t.Errorf("%v: %s", err, out)
	}
	var list []manager.View
	if out := g.want(0, "", "", "list", "-o", "json"); json.Unmarshal([]byte(out), &list) != nil || len(list) != 1 {
		t.Errorf("%s", out)
	}
}

func TestRequestFromFileAndFlags(t *testing.T) {
	g := newRig(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	y := write("r.yaml", "name: y\ntarget: proc\npromise: recompute\ntopics: [trips]\nuntil: {kind: offset, value: 9}\nbounds:\n  trips/1: {until: end}\n")
	g.want(0, "y COMPLETED", "", "start", "-f", y, "--wait")
	j := write("r.json", `{"name":"x","target":"proc","promise":"recompute"}`)
	g.want(0, "j2 COMPLETED", "", "start", "-f", j, "--name", "j2", "--wait") // a flag goes before the file
	bad := write("bad.yaml", "name: z\ntarget: proc\ntopic: trips\n")
	g.want(2, "", `did you mean "topics"?`, "start", "-f", bad)
	g.want(2, "", "read the request", "start", "-f", filepath.Join(dir, "none.yaml"))
}

func TestParseBound(t *testing.T) {
	for in, want := range map[string]job.Bound{
		"earliest":                    {Kind: job.Earliest},
		"end":                         {Kind: job.End},
		"12":                          {Kind: job.Offset, Value: 12},
		"ms:1700000000123":            {Kind: job.Timestamp, Value: 1700000000123},
		"2023-11-14T22:13:20Z":        {Kind: job.Timestamp, Value: 1700000000000},
		"2023-11-14T23:13:20.5+01:00": {Kind: job.Timestamp, Value: 1700000000500},
		"2023-11-14T22:13:20.0001Z":   {Kind: job.Timestamp, Value: 1700000000001}, // between two milliseconds
	} {
		if got, err := parseBound(in); err != nil || got != want {
			t.Errorf("%s: %v %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "yesterday", "ms:x", "1.5", "2023-11-14"} {
		if _, err := parseBound(in); err == nil {
			t.Errorf("%q is taken", in)
		}
	}
}
