package archiver

import (
	_ "embed"
	"errors"
	"net/http"
	"strconv"

	"tapedeck.dev/tapedeck/shared/service"
)

// OpenAPI describes the archiver's HTTP, as served at /openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Route is one call.
type Route struct {
	Method, Path string
	handle       http.HandlerFunc
}

// Operation is the answer to pause, resume and restart.
type Operation struct {
	What       string            `json:"what"`                // everything, a topic, or a partition
	Restarted  *int              `json:"restarted,omitempty"` // partitions
	Partitions []PartitionStatus `json:"partitions"`          // those of this process that it is about, afterwards
}

// Routes lists the archiver's own calls, in Connect's words.
func (t *Tasks) Routes() []Route {
	routes := []Route{{"GET", "/openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(OpenAPI) // a client that has gone away is no error of ours
	}}}
	for _, at := range []string{"", "/topics/{topic}", "/topics/{topic}/partitions/{partition}"} {
		routes = append(routes,
			Route{"PUT", at + "/pause", t.pausing(true)},
			Route{"PUT", at + "/resume", t.pausing(false)},
			Route{"POST", at + "/restart", t.restarting})
	}
	return routes
}

// scopeOf reads the path; false where it has answered.
func scopeOf(w http.ResponseWriter, r *http.Request) (scope, bool) {
	s := scope{topic: r.PathValue("topic"), partition: -1}
	if p := r.PathValue("partition"); p != "" {
		n, err := strconv.ParseInt(p, 10, 32)
		if err != nil || n < 0 {
			service.WriteError(w, http.StatusBadRequest, "partition %q is no number from 0 on", p)
			return s, false
		}
		s.partition = int32(n)
	}
	return s, true
}

func (t *Tasks) pausing(pause bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, ok := scopeOf(w, r)
		if !ok {
			return
		}
		err := t.command(r.Context(), func(l *loop) error { return l.setPaused(s, pause) })
		t.answer(w, s, nil, err)
	}
}

func (t *Tasks) restarting(w http.ResponseWriter, r *http.Request) {
	s, ok := scopeOf(w, r)
	if !ok {
		return
	}
	onlyFailed := false
	for name, values := range r.URL.Query() {
		b, err := strconv.ParseBool(values[0])
		if name != "onlyFailed" || err != nil {
			service.WriteError(w, http.StatusBadRequest, "%s=%s: the only query parameter is onlyFailed, true or false", name, values[0])
			return
		}
		onlyFailed = b
	}
	var n int
	err := t.command(r.Context(), func(l *loop) error {
		restarted, err := l.restart(s, onlyFailed)
		n += restarted
		return err
	})
	t.answer(w, s, &n, err)
}

func (t *Tasks) answer(w http.ResponseWriter, s scope, restarted *int, err error) {
	switch {
	case err == nil:
	case errors.Is(err, errNoSuch):
		service.WriteError(w, http.StatusNotFound, "%s", err)
		return
	case errors.Is(err, errConflict):
		service.WriteError(w, http.StatusConflict, "%s", err)
		return
	default:
		service.WriteError(w, http.StatusServiceUnavailable, "%s", err)
		return
	}
	op := Operation{What: s.String(), Restarted: restarted, Partitions: []PartitionStatus{}}
	for _, p := range t.Status().Partitions {
		if s.holds(p.TP) {
			op.Partitions = append(op.Partitions, p)
		}
	}
	service.WriteJSON(w, http.StatusAccepted, op)
}
