package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/devstack/trips"
	"tapedeck.dev/tapedeck/shared/e2e/proof"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// TestWindows: a job of some windows gives what the live run gave of them, results and late records, byte for byte, and nothing else, though it reads a part of the archive. A
// session that begins too late, past what a warm-up is for, gives something else. Windows that the archive does not close fail the job.
func TestWindows(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	o := options(t, 20_000, 0) // 500 s of event time
	p, err := proof.New(o)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(o.Dir, "fares.yaml")
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, bytes.Replace(text, []byte("delay: 10s\n"), []byte("delay: 10s\n    maxFuture: 60s\n"), 1), 0o600))
	if err := p.StartServices(ctx); err != nil {
		t.Fatal(errors.Join(err, p.StopServices()))
	}
	defer func() {
		if err := p.StopServices(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("replayer:\n%s\nprocessor:\n%s", p.Replayer.LogTail(20), p.Processor.LogTail(20))
		}
	}()
	if _, err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}

	begin := trips.DefaultStart
	from, until := begin.Add(150*time.Second).UnixMilli(), begin.Add(210*time.Second).UnixMilli()
	var plan windowsPlan
	// From and until lie inside of windows, which are not complete and so not among them.
	windows := map[string]any{"from": begin.Add(143 * time.Second).Format(time.RFC3339), "until": until + 4321}
	for _, name := range []string{"to-the-end", "in-the-middle"} {
		plan = windowsPlan{}
		lag := name == "in-the-middle"
		if lag {
			windows["maxLag"] = 90_000
		}
		if err := p.StartReplay(ctx, name, map[string]any{"promise": "recompute", "windows": windows}); err != nil {
			t.Fatal(err)
		}
		if err := p.WaitReplay(ctx, name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		must(t, proof.GetJSON(ctx, p.Replayer.URL+"/replays/"+name+"/plan", &plan))
		for _, part := range plan.Partitions {
			if part.From == 0 || part.Before == nil {
				t.Errorf("%s: %s is read from the beginning: the test's windows need everything", name, part.TopicPartition)
			}
		}
		t.Logf("%s: %d of 20000 records read, %+v", name, plan.Totals.Records, plan.Windows)
		if w := plan.Windows; w.First.Start != from || w.Last.End != until || w.WarmUp.Segments < 1 {
			t.Errorf("%s: planned windows %+v, want [%d, %d) and a warm-up", name, w, from, until)
		}
		if lag && plan.Totals.Records > 14_000 {
			t.Errorf("%s reads %d records", name, plan.Totals.Records)
		}
		if n, late, diff := compareWindows(ctx, t, p, name, from, until); diff != "" {
			t.Errorf("%s: %s", name, diff)
		} else if n < 400 || late < 10 {
			t.Errorf("%s: %d results and %d late records show little", name, n, late)
		}
	}

	// The same session from a segment later in each partition, told that nothing was left out.
	req := session.Request{Pipeline: p.Pipeline, Sender: "short", Epoch: 1, Promise: session.Recompute, EndMode: session.Hold, Windows: &session.Windows{From: from, Until: until}}
	for i := range plan.Partitions {
		part := &plan.Partitions[i]
		for len(part.Segments) > 0 && part.Segments[0].MinTimestamp < from+5000 {
			part.Segments = part.Segments[1:]
		}
		part.From = part.Segments[0].Start
		// Refused with what is true, and the receiver believes what is not.
		truth := from + 5000
		part.Before = &truth
		req.Ranges = append(req.Ranges, part.Range)
	}
	if code, answer := put(ctx, t, p.Processor.URL+"/sessions/short", req); code != http.StatusUnprocessableEntity || !strings.Contains(answer, "could be incomplete") {
		t.Errorf("a start that is too late: %d %s", code, answer)
	}
	none := int64(-1)
	for i := range req.Ranges {
		req.Ranges[i].Before = &none
	}
	if code, answer := put(ctx, t, p.Processor.URL+"/sessions/short", req); code/100 != 2 {
		t.Fatalf("open: %d %s", code, answer)
	}
	st, err := storeurl.Open(ctx, p.StoreURL)
	must(t, err)
	defer func() { _ = st.Close() }()
	for i := 0; slices.ContainsFunc(plan.Partitions, func(part plannedPart) bool { return len(part.Segments) > i }); i++ {
		for _, part := range plan.Partitions {
			if len(part.Segments) <= i {
				continue
			}
			data, err := st.Get(ctx, part.Segments[i].Key)
			must(t, err)
			url := fmt.Sprintf("%s/sessions/short/segments/%s/%d/%d?epoch=1", p.Processor.URL, part.Topic, part.Partition, part.Segments[i].Start)
			if code, answer := send(ctx, t, http.MethodPut, url, data); code/100 != 2 {
				t.Fatalf("%s: %d %s", url, code, answer)
			}
		}
	}
	if code, answer := send(ctx, t, http.MethodPost, p.Processor.URL+"/sessions/short/finish?epoch=1", nil); code/100 != 2 {
		t.Fatalf("finish: %d %s", code, answer)
	}
	if _, _, diff := compareWindows(ctx, t, p, "short", from, until); diff == "" {
		t.Error("a session that begins too late gives the same: the comparison sees nothing")
	} else {
		t.Logf("begun too late: %s", diff)
	}

	// Windows that the archive does not close.
	beyond := map[string]any{"from": from, "until": begin.Add(time.Hour).UnixMilli()}
	must(t, p.StartReplay(ctx, "beyond", map[string]any{"promise": "recompute", "windows": beyond}))
	if err := p.WaitReplay(ctx, "beyond"); err == nil || !strings.Contains(err.Error(), "FAILED: windows until 2026-01-01T01:00:00Z are not complete") {
		t.Errorf("windows beyond the archive: %v", err)
	}
	must(t, p.StartReplay(ctx, "drained", map[string]any{"promise": "recompute", "windows": beyond, "endMode": "drain"}))
	if err := p.WaitReplay(ctx, "drained"); err != nil {
		t.Errorf("windows beyond the archive, drained: %v", err)
	}
}

// windowsPlan is what the test reads of a plan.
type windowsPlan struct {
	Windows struct {
		First, Last struct{ Start, End int64 }
		WarmUp      struct{ Segments int }
	}
	Totals     struct{ Records int64 }
	Partitions []plannedPart
}

type plannedPart struct {
	session.Range
	Segments []struct {
		Key                       string
		Start, Next, MinTimestamp int64
	}
}

// compareWindows holds a replay's results and late records against those of the live run that belong to the windows of [from, until).
func compareWindows(ctx context.Context, t *testing.T, p *proof.Proof, name string, from, until int64) (results, late int, diff string) {
	t.Helper()
	for _, suffix := range []string{"", ".late"} {
		live, err := proof.ReadTopic(ctx, p.Bootstrap, p.Pipeline+suffix)
		must(t, err)
		again, err := proof.ReadTopic(ctx, p.Bootstrap, p.Pipeline+suffix+".replay."+name)
		must(t, err)
		for part, recs := range live {
			live[part] = slices.DeleteFunc(recs, func(r record.Record) bool {
				start := windowStart(t, &r)
				return start < from || start+windowMs > until
			})
		}
		if suffix == "" {
			results = proof.Count(live)
		} else {
			late = proof.Count(live)
		}
		if diff == "" {
			if diff = proof.FirstDifference(live, again); diff != "" {
				diff = p.Pipeline + suffix + ": " + diff
			}
		}
	}
	return results, late, diff
}

// windowStart is the window of a result or a late record.
func windowStart(t *testing.T, r *record.Record) (start int64) {
	t.Helper()
	for _, h := range r.Headers {
		if h.Key == "tapedeck-window-start" {
			if _, err := fmt.Sscan(string(h.Value), &start); err != nil {
				t.Fatal(err)
			}
			return start
		}
	}
	v := struct {
		Start *int64 `json:"window_start"`
	}{&start}
	if err := json.Unmarshal(r.Value, &v); err != nil || v.Start == nil {
		t.Fatalf("%s: %v", r.Value, err)
	}
	return start
}

func put(ctx context.Context, t *testing.T, url string, body any) (int, string) {
	t.Helper()
	data, err := json.Marshal(body)
	must(t, err)
	return send(ctx, t, http.MethodPut, url, data)
}

func send(ctx context.Context, t *testing.T, method, url string, data []byte) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(data))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(answer)
}
