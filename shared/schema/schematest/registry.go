// Package schematest is a schema registry in memory with what a restore needs and the embedded stack's lacks: modes with ids taken on import, softly
// deleted versions and ids; compatibility levels are kept, and not enforced. Its answers follow Confluent's. For tests only.
package schematest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Registry is a running one.
type Registry struct {
	URL string

	srv *httptest.Server

	mu    sync.Mutex
	mode  string
	modes map[string]string
	level string
	own   map[string]string // compatibility levels of subjects
	ids   map[int]Schema
	rows  []row
	calls []string
	hook  func(method, path string) int
}

// Schema is a registered schema.
type Schema struct {
	Schema     string      `json:"schema"`
	Type       string      `json:"schemaType,omitempty"`
	References []Reference `json:"references,omitempty"`
}

// Reference to another schema.
type Reference struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

type row struct {
	subject     string
	version, id int
	deleted     bool
}

// New starts one, empty, in mode READWRITE, with the compatibility level BACKWARD.
func New() *Registry {
	r := &Registry{mode: "READWRITE", modes: map[string]string{}, level: "BACKWARD", own: map[string]string{}, ids: map[int]Schema{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /schemas/ids/{id}", r.byID)
	mux.HandleFunc("GET /schemas/ids/{id}/versions", r.versionsOf)
	mux.HandleFunc("GET /subjects/{subject}/versions", r.versions)
	mux.HandleFunc("GET /subjects/{subject}/versions/{version}", r.byVersion)
	mux.HandleFunc("POST /subjects/{subject}/versions", r.register)
	mux.HandleFunc("POST /subjects/{subject}", r.lookup)
	mux.HandleFunc("GET /mode", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]string{"mode": r.mode}) })
	mux.HandleFunc("GET /mode/{subject}", r.getMode)
	mux.HandleFunc("PUT /mode/{subject}", r.putMode)
	mux.HandleFunc("DELETE /mode/{subject}", r.deleteMode)
	mux.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]string{"compatibilityLevel": r.level})
	})
	mux.HandleFunc("GET /config/{subject}", r.getLevel)
	mux.HandleFunc("PUT /config/{subject}", r.putLevel)
	r.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, req.Method+" "+req.URL.Path)
		if r.hook != nil {
			if status := r.hook(req.Method, req.URL.Path); status != 0 {
				w.WriteHeader(status)
				return
			}
		}
		mux.ServeHTTP(w, req)
	}))
	r.URL = r.srv.URL
	return r
}

// Close stops it.
func (r *Registry) Close() { r.srv.Close() }

// Hook is asked before each request and may answer it with a status; 0: it goes on. It must not call the Registry.
func (r *Registry) Hook(f func(method, path string) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = f
}

// Calls returns the requests so far, as "METHOD /path".
func (r *Registry) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Seed puts a schema in.
func (r *Registry) Seed(subject string, version, id int, s Schema) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[id] = s
	r.rows = append(r.rows, row{subject: subject, version: version, id: id})
}

// Delete deletes a version softly.
func (r *Registry) Delete(subject string, version int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.rows {
		if r.rows[i].subject == subject && r.rows[i].version == version {
			r.rows[i].deleted = true
		}
	}
}

// SetMode sets the registry's mode ("" as subject), or a subject's own.
func (r *Registry) SetMode(subject, mode string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if subject == "" {
		r.mode = mode
		return
	}
	r.modes[subject] = mode
}

// SetLevel sets the registry's compatibility level ("" as subject), or a subject's own; "" as level takes it away.
func (r *Registry) SetLevel(subject, level string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case subject == "":
		r.level = level
	case level == "":
		delete(r.own, subject)
	default:
		r.own[subject] = level
	}
}

// Dump returns everything that is held, one line each: levels and modes of subjects, then versions.
func (r *Registry) Dump() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for s, l := range r.own {
		lines = append(lines, "level "+s+" "+l)
	}
	for s, m := range r.modes {
		lines = append(lines, "mode "+s+" "+m)
	}
	slices.Sort(lines)
	rows := slices.Clone(r.rows)
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.subject, b.subject), cmp.Compare(a.version, b.version))
	})
	for _, x := range rows {
		s := r.ids[x.id]
		line := fmt.Sprintf("%s v%d id %d %s", x.subject, x.version, x.id, s.Schema)
		for _, ref := range s.References {
			line += fmt.Sprintf(" → %s v%d", ref.Subject, ref.Version)
		}
		if x.deleted {
			line += " (deleted)"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status, code int, message string) {
	w.WriteHeader(status)
	answer(w, map[string]any{"error_code": code, "message": message})
}

func (r *Registry) byID(w http.ResponseWriter, req *http.Request) {
	id, _ := strconv.Atoi(req.PathValue("id"))
	s, ok := r.ids[id]
	if !ok {
		refuse(w, 404, 40403, "Schema not found")
		return
	}
	answer(w, s)
}

func (r *Registry) versionsOf(w http.ResponseWriter, req *http.Request) {
	id, _ := strconv.Atoi(req.PathValue("id"))
	if _, ok := r.ids[id]; !ok {
		refuse(w, 404, 40403, "Schema not found")
		return
	}
	out := []map[string]any{}
	for _, x := range r.rows {
		if x.id == id && (!x.deleted || req.URL.Query().Get("deleted") == "true") {
			out = append(out, map[string]any{"subject": x.subject, "version": x.version})
		}
	}
	answer(w, out)
}

func (r *Registry) byVersion(w http.ResponseWriter, req *http.Request) {
	version, _ := strconv.Atoi(req.PathValue("version"))
	for _, x := range r.rows {
		if x.subject == req.PathValue("subject") && x.version == version && (!x.deleted || req.URL.Query().Get("deleted") == "true") {
			answer(w, r.full(x))
			return
		}
	}
	refuse(w, 404, 40402, "Version not found")
}

func (r *Registry) versions(w http.ResponseWriter, req *http.Request) {
	var out []int
	for _, x := range r.rows {
		if x.subject == req.PathValue("subject") && !x.deleted {
			out = append(out, x.version)
		}
	}
	if len(out) == 0 {
		refuse(w, 404, 40401, "Subject not found")
		return
	}
	slices.Sort(out)
	answer(w, out)
}

func (r *Registry) full(x row) map[string]any {
	s := r.ids[x.id]
	m := map[string]any{"subject": x.subject, "version": x.version, "id": x.id, "schema": s.Schema}
	if s.Type != "" {
		m["schemaType"] = s.Type
	}
	if len(s.References) > 0 {
		m["references"] = s.References
	}
	return m
}

// same compares as the registry does: spacing of JSON does not count.
func same(a, b Schema) bool {
	if a.Type == "AVRO" {
		a.Type = ""
	}
	if b.Type == "AVRO" {
		b.Type = ""
	}
	var x, y bytes.Buffer
	if json.Compact(&x, []byte(a.Schema)) != nil || json.Compact(&y, []byte(b.Schema)) != nil {
		x.WriteString(a.Schema)
		y.WriteString(b.Schema)
	}
	return a.Type == b.Type && x.String() == y.String() && slices.Equal(a.References, b.References)
}

func (r *Registry) lookup(w http.ResponseWriter, req *http.Request) {
	var s Schema
	if json.NewDecoder(req.Body).Decode(&s) != nil {
		refuse(w, 422, 42201, "Invalid schema")
		return
	}
	for _, x := range r.rows {
		if x.subject == req.PathValue("subject") && !x.deleted && same(r.ids[x.id], s) {
			answer(w, r.full(x))
			return
		}
	}
	refuse(w, 404, 40403, "Schema not found")
}

func (r *Registry) register(w http.ResponseWriter, req *http.Request) {
	var body struct {
		Schema
		ID      *int `json:"id"`
		Version int  `json:"version"`
	}
	subject := req.PathValue("subject")
	if json.NewDecoder(req.Body).Decode(&body) != nil || body.Schema.Schema == "" {
		refuse(w, 422, 42201, "Invalid schema")
		return
	}
	mode := r.mode
	if own, ok := r.modes[subject]; ok {
		mode = own
	}
	importing := mode == "IMPORT"
	switch {
	case mode == "READONLY", (body.ID != nil) != importing:
		refuse(w, 422, 42205, "Subject "+subject+" in mode "+mode)
		return
	}
	for _, ref := range body.References {
		if !slices.ContainsFunc(r.rows, func(x row) bool { return x.subject == ref.Subject && x.version == ref.Version && !x.deleted }) {
			refuse(w, 422, 42201, "Invalid schema: no reference "+ref.Subject)
			return
		}
	}
	id, version, highest := 0, body.Version, 0
	for _, x := range r.rows {
		if x.subject != subject {
			continue
		}
		highest = max(highest, x.version)
		if !x.deleted && same(r.ids[x.id], body.Schema) && (body.ID == nil || *body.ID == x.id) {
			answer(w, map[string]int{"id": x.id})
			return
		}
	}
	if version == 0 {
		version = highest + 1
	}
	if importing {
		id = *body.ID
		if old, ok := r.ids[id]; ok && !same(old, body.Schema) {
			refuse(w, 422, 42205, fmt.Sprintf("Overwrite new schema with id %d is not permitted", id))
			return
		}
	} else {
		for other, s := range r.ids {
			id = max(id, other)
			if same(s, body.Schema) {
				id = other - 1
				break
			}
		}
		id++
	}
	r.ids[id] = body.Schema
	r.rows = slices.DeleteFunc(r.rows, func(x row) bool { return x.subject == subject && x.version == version })
	r.rows = append(r.rows, row{subject: subject, version: version, id: id})
	answer(w, map[string]int{"id": id})
}

func (r *Registry) getMode(w http.ResponseWriter, req *http.Request) {
	if m, ok := r.modes[req.PathValue("subject")]; ok {
		answer(w, map[string]string{"mode": m})
		return
	}
	if req.URL.Query().Get("defaultToGlobal") == "false" {
		refuse(w, 404, 40409, "Subject does not have subject-level mode configured")
		return
	}
	answer(w, map[string]string{"mode": r.mode})
}

func (r *Registry) putMode(w http.ResponseWriter, req *http.Request) {
	var m struct {
		Mode string `json:"mode"`
	}
	subject := req.PathValue("subject")
	if json.NewDecoder(req.Body).Decode(&m) != nil {
		refuse(w, 422, 42204, "Invalid mode")
		return
	}
	if m.Mode == "IMPORT" && req.URL.Query().Get("force") != "true" && slices.ContainsFunc(r.rows, func(x row) bool { return x.subject == subject }) {
		refuse(w, 422, 42205, "Cannot import since found existing subjects")
		return
	}
	r.modes[subject] = m.Mode
	answer(w, m)
}

func (r *Registry) deleteMode(w http.ResponseWriter, req *http.Request) {
	m, ok := r.modes[req.PathValue("subject")]
	if !ok {
		refuse(w, 404, 40409, "Subject does not have subject-level mode configured")
		return
	}
	delete(r.modes, req.PathValue("subject"))
	answer(w, map[string]string{"mode": m})
}

func (r *Registry) getLevel(w http.ResponseWriter, req *http.Request) {
	if l, ok := r.own[req.PathValue("subject")]; ok {
		answer(w, map[string]string{"compatibilityLevel": l})
		return
	}
	refuse(w, 404, 40408, "Subject does not have subject-level compatibility configured")
}

func (r *Registry) putLevel(w http.ResponseWriter, req *http.Request) {
	var l struct {
		Level string `json:"compatibility"`
	}
	if json.NewDecoder(req.Body).Decode(&l) != nil || !slices.Contains(levels, l.Level) {
		refuse(w, 422, 42203, "Invalid compatibility level")
		return
	}
	subject := req.PathValue("subject")
	if own, ok := r.modes[subject]; ok && own == "READONLY" || !ok && r.mode == "READONLY" {
		refuse(w, 422, 42205, "Subject "+subject+" is in read-only mode")
		return
	}
	r.own[subject] = l.Level
	answer(w, l)
}

var levels = []string{"NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"}
