// Package runtime puts the processor together: the live runs of the configured pipelines, the replay sessions, and what HTTP tells
// about them.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/processor/live"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/sessions"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/session"
)

// staleAfter is how long a live loop may not come round before the process counts as dead. It is longer than any bounded call.
const staleAfter = 3 * time.Minute

// Runtime is a processor.
type Runtime struct {
	names    []string // sorted
	running  map[string]*running
	sessions *sessions.Manager
}

type running struct {
	p      *pipeline.Pipeline
	runner *live.Runner
}

// Live makes the configuration of a pipeline's live run.
type Live func(p *pipeline.Pipeline) live.Config

// New makes a processor of these pipelines, whose names, outputs and decision topics must differ. It connects to nothing.
func New(pipelines []*pipeline.Pipeline, lv Live, sess sessions.Config) (*Runtime, error) {
	if err := CheckDistinct(pipelines); err != nil {
		return nil, err
	}
	r := &Runtime{running: map[string]*running{}}
	sess.Pipelines = map[string]*pipeline.Pipeline{}
	for _, p := range pipelines {
		runner, err := live.NewRunner(lv(p))
		if err != nil {
			return nil, err
		}
		r.names = append(r.names, p.Name)
		r.running[p.Name] = &running{p, runner}
		sess.Pipelines[p.Name] = p
	}
	sort.Strings(r.names)
	r.sessions = sessions.NewManager(sess)
	return r, nil
}

// CheckDistinct refuses pipelines that would write into one another's topics.
func CheckDistinct(pipelines []*pipeline.Pipeline) error {
	names, topics := map[string]bool{}, map[string]string{}
	for _, p := range pipelines {
		if names[p.Name] {
			return fmt.Errorf("two pipelines are named %s", p.Name)
		}
		names[p.Name] = true
		for _, topic := range writes(p) {
			other, ok := topics[topic]
			if ok && other == p.Name {
				return fmt.Errorf("pipeline %s would write topic %s for two purposes, twice; choose another output topic", p.Name, topic)
			}
			if ok {
				return fmt.Errorf("pipelines %s and %s both write topic %s", other, p.Name, topic)
			}
			topics[topic] = p.Name
		}
	}
	for _, p := range pipelines {
		for _, s := range p.Source {
			if topics[s.Topic] == p.Name {
				return fmt.Errorf("pipeline %s reads topic %s, which it writes", p.Name, s.Topic)
			}
		}
	}
	return nil
}

// Run runs every pipeline until ctx ends.
func (r *Runtime) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range r.names {
		runner := r.running[n].runner
		g.Go(func() error { return runner.Run(ctx) })
	}
	return g.Wait()
}

// Close drops the sessions from memory.
func (r *Runtime) Close() { r.sessions.Close() }

// Health reports a live loop that does not come round any more.
func (r *Runtime) Health() error {
	for _, n := range r.names {
		if since := time.Since(r.running[n].runner.Beat()); since > staleAfter {
			return fmt.Errorf("pipeline %s has not moved for %s", n, since.Round(time.Second))
		}
	}
	return nil
}

// Ready reports the pipelines that do not run yet and why. A FAILED one does not count: it waits for a person, and the process
// must stay reachable for the replay that repairs it; status and metrics tell of it.
func (r *Runtime) Ready() error {
	var why []string
	for _, n := range r.names {
		st := r.running[n].runner.Status()
		switch st.State {
		case live.Starting:
			why = append(why, fmt.Sprintf("pipeline %s is starting", n))
		case live.Retrying:
			why = append(why, fmt.Sprintf("pipeline %s is %s: %s", n, st.State, st.Error))
		}
	}
	if len(why) == 0 {
		return nil
	}
	return errors.New(strings.Join(why, "; "))
}

// PipelineStatus is the answer of GET /pipelines/{name}.
type PipelineStatus struct {
	session.Pipeline
	Keyed   bool              `json:"keyed"`
	Outputs map[string]string `json:"outputs"` // role → topic
	live.Status
}

func (r *Runtime) pipelineStatus(name string) PipelineStatus {
	u := r.running[name]
	st := PipelineStatus{
		Pipeline: session.Pipeline{Name: name, Hash: u.p.Hash, DecisionsTopic: u.p.DecisionsTopic()},
		Keyed:    u.p.Keyed, Outputs: Outputs(u.p), Status: u.runner.Status(),
	}
	st.WindowMs = u.p.Window.SizeMs
	for _, s := range u.p.Source {
		st.Inputs = append(st.Inputs, s.Topic)
		where := session.EventTimeField
		if s.EventTime.Record {
			where = session.EventTimeRecord
		}
		st.Sources = append(st.Sources, session.Source{Topic: s.Topic, EventTime: where, DelayMs: s.DelayMs, MaxFutureMs: s.MaxFutureMs})
	}
	return st
}

// Status is the processor's part of GET /status.
func (r *Runtime) Status() any {
	type line struct {
		Name     string     `json:"name"`
		State    live.State `json:"state"`
		Error    string     `json:"error,omitempty"`
		Lag      int64      `json:"lag"`
		Emitted  int64      `json:"emitted"`
		Late     int64      `json:"late"`
		Future   int64      `json:"future"`
		Poison   int64      `json:"poison"`
		Restarts int64      `json:"restarts"`
	}
	lines := make([]line, 0, len(r.names))
	for _, n := range r.names {
		st := r.running[n].runner.Status()
		l := line{Name: n, State: st.State, Error: st.Error, Emitted: st.Emitted, Late: st.Late, Future: st.Future, Poison: st.Poison, Restarts: st.Restarts}
		for _, p := range st.Partitions {
			l.Lag += p.Lag
		}
		lines = append(lines, l)
	}
	return map[string]any{"pipelines": lines, "openSessions": r.sessions.Loaded()}
}

// Routes adds the processor's calls to mux.
func (r *Runtime) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /pipelines", func(w http.ResponseWriter, _ *http.Request) {
		all := make([]PipelineStatus, 0, len(r.names))
		for _, n := range r.names {
			all = append(all, r.pipelineStatus(n))
		}
		service.WriteJSON(w, http.StatusOK, all)
	})
	mux.HandleFunc("GET /pipelines/{name}", func(w http.ResponseWriter, req *http.Request) {
		name := req.PathValue("name")
		if _, ok := r.running[name]; !ok {
			hint := ""
			if near := service.Nearest(name, r.names); near != "" {
				hint = fmt.Sprintf("; did you mean %s?", near)
			}
			service.WriteError(w, http.StatusNotFound, "pipeline %q is not configured here%s", name, hint)
			return
		}
		service.WriteJSON(w, http.StatusOK, r.pipelineStatus(name))
	})
	r.sessions.Routes(mux)
}
