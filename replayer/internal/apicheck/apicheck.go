// Package apicheck holds an HTTP service against its OpenAPI document, in tests: what it is asked, what it answers, and what a generator of requests makes up. No
// product package imports it.
package apicheck

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
)

// Doc is a document that has been checked.
type Doc struct {
	*openapi3.T
	router routers.Router

	mu   sync.Mutex
	seen map[string]bool // "operation status" answered so far
}

// Load reads a document, and fails the test where it is not a valid one.
func Load(t testing.TB, data []byte) *Doc {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		t.Fatalf("read the OpenAPI document: %v", err)
	}
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatalf("the OpenAPI document is none: %v", err)
	}
	return &Doc{T: doc, router: router, seen: map[string]bool{}}
}

// Seen reports whether an operation has answered with a status so far.
func (d *Doc) Seen(operation string, status int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[fmt.Sprint(operation, " ", status)]
}

// Handler holds every call to next against the document: what it does not allow is not answered with success, and every answer has a status and a body that it
// declares, without a property that it does not name. Calls of paths that it does not have are passed on.
func (d *Doc) Handler(t testing.TB, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route, params, err := d.router.FindRoute(r)
		if err != nil {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%s %s: read the body: %v", r.Method, r.URL, err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		tap := &tap{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(tap, r)
		for _, problem := range d.check(r, body, route, params, tap) {
			t.Errorf("%s %s %.300s: HTTP %d %.500s: %s", r.Method, r.URL, body, tap.status, tap.data.Bytes(), problem)
		}
	})
}

func (d *Doc) check(r *http.Request, body []byte, route *routers.Route, params map[string]string, got *tap) (problems []string) {
	d.mu.Lock()
	d.seen[fmt.Sprint(route.Operation.OperationID, " ", got.status)] = true
	d.mu.Unlock()
	in := input(r, body, route, params)
	if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil && got.status < 400 {
		problems = append(problems, "the document does not allow this request, and it succeeded: "+err.Error())
	}
	response := route.Operation.Responses.Status(got.status)
	if response == nil {
		return append(problems, "the document does not declare this status")
	}
	if response.Value.Content == nil {
		return problems
	}
	kind, _, _ := strings.Cut(got.Header().Get("Content-Type"), ";")
	media := response.Value.Content.Get(kind)
	if media == nil {
		return append(problems, fmt.Sprintf("the document does not declare the content type %q", kind))
	}
	switch kind {
	case "application/json":
		problems = append(problems, d.checkJSON(media.Schema, got.data.Bytes())...)
	case "text/event-stream":
		for _, line := range strings.Split(got.data.String(), "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				problems = append(problems, d.checkJSON(d.Components.Schemas["Replay"], []byte(data))...)
			}
		}
	}
	return problems
}

func (d *Doc) checkJSON(schema *openapi3.SchemaRef, data []byte) []string {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return []string{"the answer is no JSON: " + err.Error()}
	}
	if err := schema.Value.VisitJSON(v, openapi3.VisitAsResponse()); err != nil {
		return []string{"the answer is not what the document says: " + err.Error()}
	}
	return unnamed(schema.Value, v, "")
}

// unnamed lists the properties of v that a document does not name: a client that was made from the document does not know of them.
func unnamed(s *openapi3.Schema, v any, path string) (out []string) {
	for _, alternatives := range []openapi3.SchemaRefs{s.OneOf, s.AnyOf} {
		for _, alt := range alternatives {
			if s.Properties == nil && alt.Value.VisitJSON(v) == nil {
				return unnamed(alt.Value, v, path)
			}
		}
	}
	switch v := v.(type) {
	case map[string]any:
		extra := s.AdditionalProperties.Schema
		free := s.AdditionalProperties.Has != nil && *s.AdditionalProperties.Has
		for _, name := range sorted(v) {
			switch p := s.Properties[name]; {
			case p != nil:
				out = append(out, unnamed(p.Value, v[name], path+"."+name)...)
			case extra != nil:
				out = append(out, unnamed(extra.Value, v[name], path+"."+name)...)
			case !free:
				out = append(out, fmt.Sprintf("the document does not name the property %s.%s", path, name))
			}
		}
	case []any:
		for _, item := range v {
			if s.Items != nil {
				out = append(out, unnamed(s.Items.Value, item, path+"[]")...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func sorted(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func input(r *http.Request, body []byte, route *routers.Route, params map[string]string) *openapi3filter.RequestValidationInput {
	q := r.Clone(context.Background())
	q.Body = io.NopCloser(bytes.NewReader(body))
	if route.Operation.RequestBody != nil {
		q.Header.Set("Content-Type", "application/json") // the service does not ask for it, and curl says something else
	}
	return &openapi3filter.RequestValidationInput{Request: q, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true}}
}

// Allows reports whether the document allows a body of JSON under a schema of its components.
func (d *Doc) Allows(schema string, v any) bool {
	return d.Components.Schemas[schema].Value.VisitJSON(v, openapi3.VisitAsRequest()) == nil
}

// tap passes an answer on and keeps it.
type tap struct {
	http.ResponseWriter
	status int
	data   bytes.Buffer
}

func (t *tap) WriteHeader(status int) {
	t.status = status
	t.ResponseWriter.WriteHeader(status)
}

func (t *tap) Write(p []byte) (int, error) {
	t.data.Write(p)
	return t.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController flush.
func (t *tap) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Operation is one call of a document.
type Operation struct {
	Method, Path string
	Body         bool // it takes one
}

// Operations lists every call, by path and method.
func (d *Doc) Operations() (out []Operation) {
	for _, path := range d.Paths.InMatchingOrder() {
		for method, op := range d.Paths.Value(path).Operations() {
			out = append(out, Operation{method, path, op.RequestBody != nil})
		}
	}
	slices.SortFunc(out, func(a, b Operation) int { return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method) })
	return out
}

// Answered holds one call's answer, as a client saw it, against the document.
func (d *Doc) Answered(t testing.TB, r *http.Request, body string, resp *http.Response, data []byte) {
	t.Helper()
	route, params, err := d.router.FindRoute(r)
	if err != nil {
		t.Errorf("%s %s is not in the document: %v", r.Method, r.URL.Path, err)
		return
	}
	got := &tap{ResponseWriter: headers(resp.Header), status: resp.StatusCode}
	got.data.Write(data)
	for _, problem := range d.check(r, []byte(body), route, params, got) {
		t.Errorf("%s %s %.300s: HTTP %d %.500s: %s", r.Method, r.URL, body, resp.StatusCode, data, problem)
	}
}

// headers is a ResponseWriter that has been written.
type headers http.Header

func (h headers) Header() http.Header         { return http.Header(h) }
func (h headers) Write(p []byte) (int, error) { return len(p), nil }
func (h headers) WriteHeader(int)             {}
