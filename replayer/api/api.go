// Package api serves jobs over HTTP. openapi.yaml beside it describes every call.
package api

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/jobstore"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/store"
)

// OpenAPI is the description of the API, as served at /openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte

// API is the HTTP face of a Manager.
type API struct {
	m *manager.Manager
	// poll is how often an event stream looks at its job, and slowPoll how often where another replayer is at work on it, which
	// costs a store call.
	poll, slowPoll time.Duration
	heartbeat      time.Duration // the longest silence of a stream
	stalled        time.Duration // how long a client may take nothing of a stream before it ends
}

// New makes the API of m.
func New(m *manager.Manager) *API {
	return &API{m: m, poll: 250 * time.Millisecond, slowPoll: 2 * time.Second, heartbeat: 15 * time.Second, stalled: time.Minute}
}

// Route is one call.
type Route struct {
	Method, Path string
	handle       http.HandlerFunc
}

// Routes lists every call.
func (a *API) Routes() []Route {
	routes := []Route{
		{"GET", "/openapi.yaml", a.openAPI},
		{"POST", "/replays", a.create},
		{"GET", "/replays", a.list},
		{"GET", "/replays/{name}", a.get},
		{"GET", "/replays/{name}/plan", a.plan},
		{"GET", "/replays/{name}/events", a.events},
	}
	for _, e := range job.UserEvents {
		routes = append(routes, Route{"POST", "/replays/{name}/" + string(e), a.do(e)})
	}
	return routes
}

// Register adds every route to mux.
func (a *API) Register(mux *http.ServeMux) {
	for _, r := range a.Routes() {
		mux.HandleFunc(r.Method+" "+r.Path, r.handle)
	}
}

func (a *API) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(OpenAPI) // a client that has gone away is no error of ours
}

func (a *API) create(w http.ResponseWriter, r *http.Request) {
	for name := range r.URL.Query() {
		if name != "dryRun" { // a job that was meant as a dry run must not start because of a slip
			service.WriteError(w, http.StatusBadRequest, "unknown query parameter %q: the only one is dryRun", name)
			return
		}
	}
	dry := false
	switch q := r.URL.Query().Get("dryRun"); q {
	case "true":
		dry = true
	case "", "false":
	default:
		service.WriteError(w, http.StatusBadRequest, "dryRun=%q: give true or false", q)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, job.MaxRequestBytes))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			service.WriteError(w, http.StatusRequestEntityTooLarge, "the request has more than %d bytes", large.Limit)
			return
		}
		service.WriteError(w, http.StatusBadRequest, "read the request: %v", err)
		return
	}
	req, err := job.ParseRequest(body)
	if err != nil {
		service.WriteError(w, http.StatusBadRequest, "%s", err)
		return
	}
	if dry {
		p, err := a.m.DryRun(r.Context(), req)
		answer(w, http.StatusOK, p, err)
		return
	}
	v, created, err := a.m.Create(r.Context(), req)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		w.Header().Set("Location", "/replays/"+req.Name)
	}
	answer(w, status, v, err)
}

// Listing is the answer of GET /replays.
type Listing struct {
	Replays []*manager.View `json:"replays"`
}

func (a *API) list(w http.ResponseWriter, r *http.Request) {
	views, err := a.m.List(r.Context())
	for _, v := range views {
		v.Partitions, v.Gaps = nil, nil // a listing stays short; GET /replays/{name} has them
	}
	answer(w, http.StatusOK, Listing{views}, err)
}

func (a *API) get(w http.ResponseWriter, r *http.Request) {
	v, err := a.m.Get(r.Context(), r.PathValue("name"))
	answer(w, http.StatusOK, v, err)
}

func (a *API) plan(w http.ResponseWriter, r *http.Request) {
	p, err := a.m.Plan(r.Context(), r.PathValue("name"))
	answer(w, http.StatusOK, p, err)
}

func (a *API) do(e job.Event) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := a.m.Do(r.Context(), r.PathValue("name"), e)
		answer(w, http.StatusOK, v, err)
	}
}

// answer writes v, or what err means.
func answer(w http.ResponseWriter, status int, v any, err error) {
	if err == nil {
		service.WriteJSON(w, status, v)
		return
	}
	service.WriteError(w, statusOf(err), "%s", err)
}

func statusOf(err error) int {
	var illegal *job.IllegalError
	var failure *run.Failure
	switch {
	case errors.Is(err, jobstore.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, manager.ErrBadRequest):
		return http.StatusBadRequest
	case errors.As(err, &illegal), errors.Is(err, manager.ErrOther), errors.Is(err, manager.ErrNoPlan):
		return http.StatusConflict
	case errors.As(err, &failure):
		return http.StatusUnprocessableEntity
	case errors.Is(err, manager.ErrClosing), errors.Is(err, store.ErrUnknown), errors.Is(err, store.ErrNotAllowed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway // the store or the target does not answer as it should
}

// events streams a job as server-sent events until it has ended: "state" when the state, the owner or the reason changes, "progress" when only the
// numbers do. Each carries the whole job, so that who connects late, or again, needs none of those before. A comment breaks long silences.
func (a *API) events(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	v, err := a.m.Get(r.Context(), name)
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	say := func(text string) bool {
		// Who keeps the connection open and reads nothing would keep this handler, and the job's text, for ever: writes know no context.
		_ = control.SetWriteDeadline(time.Now().Add(a.stalled)) // where there is no deadline, there is no connection either
		_, err := io.WriteString(w, text)
		return err == nil && control.Flush() == nil
	}
	var lastData, lastState string
	id, looked, spoke := 0, time.Now(), time.Now()
	for {
		data, err := json.Marshal(v)
		if err != nil {
			return
		}
		state := fmt.Sprintf("%s %d %q %s", v.State, v.Epoch, v.Owner, v.Error)
		if string(data) != lastData {
			kind := "progress"
			if state != lastState {
				kind = "state"
			}
			id++
			if !say(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", id, kind, data)) {
				return
			}
			lastData, lastState, spoke = string(data), state, time.Now()
		} else if time.Since(spoke) >= a.heartbeat {
			if !say(": still here\n\n") {
				return
			}
			spoke = time.Now()
		}
		if v.State.Ended() {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-a.m.Closed():
			return
		case <-time.After(a.poll):
		}
		next, working := a.m.Glance(name)
		if !working && time.Since(looked) >= a.slowPoll {
			looked = time.Now()
			// Where the store does not answer now, the stream goes on with what was last known.
			if got, err := a.m.Get(r.Context(), name); err == nil {
				next = got
			}
		}
		if next == nil {
			continue
		}
		v = next
	}
}
