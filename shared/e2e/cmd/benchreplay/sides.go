package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/shared/devstack/trips"
	"tapedeck.dev/tapedeck/shared/e2e/proof"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// pollEvery is how often an end is looked for; it is what a measured time may be too long by.
const pollEvery = 10 * time.Millisecond

// service writes a service's configuration into a folder of its own and returns the process with that folder.
func (b *bench) service(name string, sets []string, lines ...string) (*proof.Process, string, error) {
	dir, err := os.MkdirTemp(b.dir, name+"-")
	if err != nil {
		return nil, "", err
	}
	port, err := proof.FreePort()
	if err != nil {
		return nil, "", err
	}
	lines = append(lines, fmt.Sprintf("rest.listen: 127.0.0.1:%d", port))
	for _, s := range sets {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, "", fmt.Errorf("setting %q of the %s: give key=value", s, name)
		}
		lines = append(lines, fmt.Sprintf("%s: %q", key, value))
	}
	p, err := proof.NewProcess(b.bin, dir, name, fmt.Sprintf("http://127.0.0.1:%d", port), strings.Join(lines, "\n")+"\n", nil)
	return p, dir, err
}

// processor starts one with one pipeline. Results are committed every 200 ms on both sides, so that what the live side waits for at its end
// is small.
func (b *bench) processor(pipeline string) (*proof.Process, string, error) {
	text, err := proof.Pipeline(pipeline, b.topic, b.partitions, trips.Schema)
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(b.dir, pipeline+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, "", err
	}
	return b.service("processor", b.processorSets, fmt.Sprintf("bootstrap.servers: %q", b.bootstrap), fmt.Sprintf("schema.registry.url: %q", b.registry),
		fmt.Sprintf("pipelines: [%q]", file), "commit.interval.ms: 200", "instance.id: bench")
}

// live runs a pipeline that has never run over the whole topic. Its time is from the assignment of the partitions, as the processor's log has
// it, until the positions of all of them are committed at the ends, and with them the outputs.
func (b *bench) live(ctx context.Context, pipeline string) (t took, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p, dir, err := b.processor(pipeline)
	if err != nil {
		return t, err
	}
	if err := p.Start(ctx); err != nil {
		_ = p.Kill() // it may be up and not ready
		return t, err
	}
	end, err := b.committed(ctx, "tapedeck."+pipeline)
	if stop := p.Stop(); err == nil {
		err = stop
	}
	if err != nil {
		return t, err
	}
	began, err := logged(filepath.Join(dir, "processor.log"), "pipeline begins")
	return took{seconds: end.Sub(began).Seconds(), cpu: map[string]time.Duration{"processor": p.CPU()}}, err
}

// committed waits until a group has committed the end of every partition, and returns when that was seen.
func (b *bench) committed(ctx context.Context, group string) (time.Time, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var tps []kafka.TP
	for tp := range b.ends {
		tps = append(tps, tp)
	}
	for {
		offsets, err := b.admin.CommittedOffsets(ctx, group, tps)
		done := err == nil // at the beginning the group is not there
		for tp, end := range b.ends {
			done = done && offsets[tp].Offset >= end
		}
		if done {
			return time.Now(), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for group %s to reach the ends: %w; committed %v, last error %v", group, ctx.Err(), offsets, err)
		}
	}
}

// logged returns the time of the first line with a message in a service's log.
func logged(file, message string) (time.Time, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, err
	}
	for line := range bytes.Lines(data) {
		var l struct {
			Time    string `json:"ts"`
			Message string `json:"msg"`
		}
		if json.Unmarshal(line, &l) == nil && l.Message == message {
			return time.Parse("2006-01-02T15:04:05.000Z0700", l.Time)
		}
	}
	return time.Time{}, fmt.Errorf("no line %q in %s", message, file)
}

// jobView is what is read of a job.
type jobView struct {
	State, Error          string
	CreatedAt, FinishedAt time.Time
	Totals                struct{ Records int }
}

// replay runs one job into the first pipeline, with a replayer and a processor of its own. Its time is the job's, from the request to
// COMPLETED: planning, opening the session, reading, checking, sending, the outputs and the proof.
func (b *bench) replay(ctx context.Context, name string) (t took, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	proc, _, err := b.processor(b.first)
	if err != nil {
		return t, err
	}
	rep, repDir, err := b.service("replayer", b.replayerSets, fmt.Sprintf("store: %q", b.store), "targets:",
		fmt.Sprintf("  proc: {type: processor, url: %q, pipeline: %q}", proc.URL, b.first))
	if err != nil {
		return t, err
	}
	stop := func() (err error) {
		for _, p := range []*proof.Process{rep, proc} {
			if stopErr := p.Stop(); err == nil {
				err = stopErr
			}
		}
		return err
	}
	for _, p := range []*proof.Process{proc, rep} {
		if err := p.Start(ctx); err != nil {
			_ = stop()
			return t, err
		}
	}
	// The live run of this pipeline is at its end and reads its last windows again: not while it is measured.
	if err = running(ctx, proc.URL+"/pipelines/"+b.first); err == nil {
		var j jobView
		if j, err = b.job(ctx, rep.URL, map[string]any{"name": name, "target": "proc"}); err == nil {
			t, err = phases(&j, filepath.Join(repDir, "replayer.log"), [][2]string{{"plan and open", "session open"}, {"send", "everything delivered"}}, "finish and compare")
		}
	}
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	t.cpu = map[string]time.Duration{"processor": proc.CPU(), "replayer": rep.CPU()}
	return t, err
}

// phases splits a job's time by what the replayer has logged: each ends with the message beside its name, the last with the job.
func phases(j *jobView, log string, until [][2]string, last string) (t took, err error) {
	t.seconds = j.FinishedAt.Sub(j.CreatedAt).Seconds()
	begin := j.CreatedAt
	say := func(name string, end time.Time) {
		t.phases = append(t.phases, fmt.Sprintf("%s %.2f s", name, end.Sub(begin).Seconds()))
		begin = end
	}
	for _, p := range until {
		end, err := logged(log, p[1])
		if err != nil {
			return t, err
		}
		say(p[0], end)
	}
	say(last, j.FinishedAt)
	return t, nil
}

// job runs a job to its end, which must be COMPLETED.
func (b *bench) job(ctx context.Context, url string, request map[string]any) (j jobView, err error) {
	name := request["name"].(string)
	body, err := json.Marshal(request)
	if err != nil {
		return j, err
	}
	if err := call(ctx, http.MethodPost, url+"/replays", body, &j); err != nil {
		return j, err
	}
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		if err := call(ctx, http.MethodGet, url+"/replays/"+name, nil, &j); err != nil {
			tick.Stop()
			return j, err
		}
		if !j.FinishedAt.IsZero() {
			tick.Stop()
			break
		}
		<-tick.C
	}
	if j.State != "COMPLETED" || j.Totals.Records != b.records {
		return j, fmt.Errorf("job %s is %s with %d of %d records: %s", name, j.State, j.Totals.Records, b.records, j.Error)
	}
	return j, nil
}

// running waits until a live pipeline reads new records.
func running(ctx context.Context, url string) error {
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		var p struct {
			State, Error string
		}
		err := call(ctx, http.MethodGet, url, nil, &p)
		if err == nil && p.State == "RUNNING" {
			tick.Stop()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("wait for the pipeline to run: %w: state %s %s, last error %v", ctx.Err(), p.State, p.Error, err)
		}
	}
}

func call(ctx context.Context, method, url string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, url, err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, bytes.TrimSpace(answer))
	}
	return json.Unmarshal(answer, into)
}
