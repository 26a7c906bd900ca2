package api_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/manager"
)

// stream reads a job's events until until returns true or the stream ends; comments come with an empty kind.
func stream(t *testing.T, g *rig, name string, until func(kind string, v *manager.View) bool) {
	t.Helper()
	resp, err := http.Get(g.URL + "/replays/" + name + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	kind := ""
	for sc.Scan() {
		line := sc.Text()
		if strings.HasPrefix(line, ":") && until("", nil) {
			return
		}
		if k, ok := strings.CutPrefix(line, "event: "); ok {
			kind = k
		}
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			v := new(manager.View)
			if err := json.Unmarshal([]byte(d), v); err != nil {
				t.Fatal(err)
			}
			if until(kind, v) {
				return
			}
		}
	}
	if err := sc.Err(); err != nil {
		t.Error(err)
	}
}

// Progress events carry what a progress bar needs, to whoever connects while the job runs.
func TestEventsForAProgressBar(t *testing.T) {
	g := newRig(t)
	g.want(201, "", "POST", "/replays", strings.Replace(one, "}", `,"recordsPerSecond":120}`, 1)) // 180 records: a second and a half
	replaytest.Until(t, "some has gone", func() bool {
		_, v := g.call("GET", "/replays/one", "")
		return v["totals"].(map[string]any)["recordsSent"] != 0.0
	})
	var first *manager.View
	var kinds []string
	var rate float64
	var last *manager.View
	waits := map[string]bool{}
	states := map[string]bool{}
	stream(t, g, "one", func(kind string, v *manager.View) bool {
		if first == nil {
			first = v
		}
		kinds = append(kinds, kind)
		if last != nil && (v.Totals.RecordsSent < last.Totals.RecordsSent || v.Totals.Bytes < last.Totals.Bytes) {
			t.Errorf("went back from %+v to %+v", last.Totals, v.Totals)
		}
		last = v
		if v.Live != nil {
			rate = max(rate, v.Live.RecordsPerSecond)
			waits[v.Live.Waiting] = true
		}
		for _, p := range v.Partitions {
			states[p.State] = true
			if p.RecordsPlanned != 60 || p.RecordsSent > 60 || p.BytesPlanned == 0 {
				t.Errorf("%+v", p)
			}
		}
		return false
	})
	if first.Totals.RecordsPlanned != 180 || first.Totals.BytesPlanned == 0 || kinds[0] != "state" {
		t.Errorf("who connects late gets %q %+v first", kinds[0], first.Totals)
	}
	if last.State != job.Completed || last.Totals.RecordsSent != 180 || last.Totals.Bytes != last.Totals.BytesPlanned || last.Totals.PartitionsDone != 3 || last.Live != nil {
		t.Errorf("ends as %s %+v %+v", last.State, last.Totals, last.Live)
	}
	if rate == 0 || !waits["rate"] || !states["done"] {
		t.Errorf("rate %v, waited for %v, partitions were %v", rate, waits, states)
	}
	// Of a job that has ended, one event tells all, and the stream ends.
	n := 0
	stream(t, g, "one", func(kind string, v *manager.View) bool {
		n++
		if kind != "state" || v.State != job.Completed || v.Totals.RecordsSent != 180 {
			t.Errorf("of an ended job: %s %s %+v", kind, v.State, v.Totals)
		}
		return false
	})
	if n != 1 {
		t.Errorf("%d events of an ended job", n)
	}
}

// A stream that has nothing to tell says so, so that proxies and clients do not take it for dead.
func TestEventsHeartbeat(t *testing.T) {
	g := newRig(t)
	g.gate.Store(true)
	g.want(201, "", "POST", "/replays", one)
	replaytest.Until(t, "it runs", func() bool { _, v := g.call("GET", "/replays/one", ""); return v["state"] == "RUNNING" })
	g.want(200, "", "POST", "/replays/one/pause", "")
	g.api.SetHeartbeat(time.Millisecond)
	beats := 0
	stream(t, g, "one", func(kind string, _ *manager.View) bool {
		if kind == "" {
			beats++
		}
		return beats == 3
	})
	if beats != 3 {
		t.Errorf("%d heartbeats", beats)
	}
}

// Who goes away does not keep the stream's handler: the server can close.
func TestEventsOfAClientThatGoesAway(t *testing.T) {
	g := newRig(t)
	g.gate.Store(true)
	g.want(201, "", "POST", "/replays", one)
	resp, err := http.Get(g.URL + "/replays/one/events")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	g.Server.Close() // waits for handlers
}

// smallBuffers are connections whose kernel keeps little of what the other side does not read.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4096)
	}
	return c, err
}

// Who connects and then reads nothing does not keep the stream's handler either.
func TestEventsOfAClientThatReadsNothing(t *testing.T) {
	g := newRig(t)
	g.gate.Store(true)
	g.api.SetStalled(100 * time.Millisecond)
	big := strings.Replace(one, "}", `,"filter":{"keys":["`+strings.Repeat("k", 900_000)+`"]}}`, 1)
	g.want(201, "", "POST", "/replays", big)
	mux := http.NewServeMux()
	g.api.Register(mux)
	server := httptest.NewUnstartedServer(mux)
	server.Listener = smallBuffers{server.Listener}
	server.Start()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /replays/one/events HTTP/1.1\r\nHost: here\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 10)); err != nil { // it has begun
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		server.Close() // waits for handlers
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(2 * time.Minute):
		t.Error("the stream's handler is still there")
		_ = c.Close()
		<-closed
	}
}
