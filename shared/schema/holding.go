package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"

	"tapedeck.dev/tapedeck/shared/segment"
)

// What a restore asks of a registry: what it holds under an id or a version, deleted or not; its modes; and to register a schema under a given id.
// srclient knows none of this, so these are requests of our own.

// ErrRefused is a definite answer of the registry: it does not do that.
var ErrRefused = errors.New("the schema registry refuses")

// ErrNoImport: the registry gives ids itself, and takes none.
var ErrNoImport = errors.New("the schema registry has no import mode")

// Use is how a registry uses an id, or a version of a subject.
type Use string

// Uses.
const (
	Free    Use = "free"
	Live    Use = "live"
	Deleted Use = "deleted" // softly: nobody finds it by its subject, and the id is not given again
)

// Draft is a schema to register, or to compare with. References holds the direct ones (Name, Subject, Version).
type Draft struct {
	Type, Text string
	References []segment.Reference
}

// Same reports whether both are the same schema: type, text (of AVRO and JSON whatever its spacing and the order of attributes), references.
func (d Draft) Same(o Draft) bool {
	if d.Type != o.Type || len(d.References) != len(o.References) {
		return false
	}
	for i, r := range d.References {
		if q := o.References[i]; r.Name != q.Name || r.Subject != q.Subject || r.Version != q.Version {
			return false
		}
	}
	return d.SameText(o)
}

// SameText is Same without the references, whose subjects and versions another registry may have differently.
func (d Draft) SameText(o Draft) bool {
	if d.Type != o.Type {
		return false
	}
	if d.Type == "PROTOBUF" {
		return strings.Join(strings.Fields(d.Text), " ") == strings.Join(strings.Fields(o.Text), " ")
	}
	var a, b any
	if json.Unmarshal([]byte(d.Text), &a) != nil || json.Unmarshal([]byte(o.Text), &b) != nil {
		return d.Text == o.Text
	}
	return reflect.DeepEqual(a, b)
}

type wireReference struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

type wireSchema struct {
	ID         int             `json:"id,omitempty"`
	Version    int             `json:"version,omitempty"`
	Schema     string          `json:"schema"`
	Type       string          `json:"schemaType,omitempty"`
	References []wireReference `json:"references,omitempty"`
}

func (w wireSchema) draft() Draft {
	d := Draft{Type: w.Type, Text: w.Schema}
	if d.Type == "" {
		d.Type = "AVRO"
	}
	for _, r := range w.References {
		d.References = append(d.References, segment.Reference{Name: r.Name, Subject: r.Subject, Version: r.Version})
	}
	return d
}

func wireOf(d Draft) wireSchema {
	w := wireSchema{Schema: d.Text}
	if d.Type != "AVRO" { // its name is left out by every client, and older registries know no other
		w.Type = d.Type
	}
	for _, r := range d.References {
		w.References = append(w.References, wireReference{r.Name, r.Subject, r.Version})
	}
	return w
}

// answer is a registry's definite answer other than success.
type answer struct {
	status  int
	Code    int    `json:"error_code"`
	Message string `json:"message"`
}

func (a *answer) Error() string {
	return fmt.Sprintf("HTTP %d, error code %d: %s", a.status, a.Code, a.Message)
}

// missing reports whether what was asked for is not there; a route that is not there has no code of its own.
func (a *answer) missing() bool {
	return a.status == http.StatusNotFound && a.Code/100 == http.StatusNotFound
}

// noRoute reports whether the registry does not know the request at all.
func (a *answer) noRoute() bool {
	return a.status == http.StatusMethodNotAllowed || a.status == http.StatusNotImplemented || a.status == http.StatusNotFound && a.Code/100 != http.StatusNotFound
}

// call sends one request and decodes the answer into out. Errors: *answer for a definite one (4xx, 501), ErrUnavailable.
func (r *Registry) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, r.cfg.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/vnd.schemaregistry.v1+json, application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	}
	if r.cfg.User != "" {
		req.SetBasicAuth(r.cfg.User, r.cfg.Password)
	}
	resp, err := r.base.RoundTrip(req)
	if err == nil {
		err = readWhole(resp)
	}
	if err != nil {
		return r.unavailable(ctx, err)
	}
	data, err := io.ReadAll(resp.Body) // from memory
	if err != nil {
		return r.unavailable(ctx, err)
	}
	switch {
	case resp.StatusCode == http.StatusNotImplemented, resp.StatusCode >= 400 && resp.StatusCode < 500 &&
		resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusRequestTimeout:
		a := &answer{status: resp.StatusCode}
		if json.Unmarshal(data, a) != nil || a.Message == "" {
			a.Message = resp.Status
		}
		return a
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return r.unavailable(ctx, fmt.Errorf("%s", resp.Status))
	case out == nil:
		return nil
	case len(data) == 0:
		return &answer{status: resp.StatusCode, Message: "an empty answer"}
	}
	if err := json.Unmarshal(data, out); err != nil {
		return r.unavailable(ctx, fmt.Errorf("read answer: %w", err))
	}
	return nil
}

// refused makes a definite answer an error for callers.
func (r *Registry) refused(err error, format string, args ...any) error {
	action := fmt.Sprintf(format, args...)
	var a *answer
	if errors.As(err, &a) {
		return fmt.Errorf("%s: %w (%s): %w", action, ErrRefused, r.cfg.URL, err)
	}
	return fmt.Errorf("%s: %w", action, err)
}

// HeldID returns what the registry holds under an id. A registry that does not tell which versions have an id is taken for one that deletes nothing softly.
func (r *Registry) HeldID(ctx context.Context, id int) (Draft, Use, error) {
	var w wireSchema
	var a *answer
	err := r.call(ctx, http.MethodGet, fmt.Sprintf("/schemas/ids/%d", id), nil, &w)
	switch {
	case errors.As(err, &a) && a.missing():
		return Draft{}, Free, nil
	case err != nil:
		return Draft{}, "", r.refused(err, "look for schema id %d", id)
	}
	var versions []struct {
		Subject string `json:"subject"`
		Version int    `json:"version"`
		Deleted bool   `json:"deleted"`
	}
	err = r.call(ctx, http.MethodGet, fmt.Sprintf("/schemas/ids/%d/versions", id), nil, &versions)
	switch {
	case errors.As(err, &a) && a.missing():
		return w.draft(), Deleted, nil
	case errors.As(err, &a) && a.noRoute():
		return w.draft(), Live, nil
	case err != nil:
		return Draft{}, "", r.refused(err, "look for versions of schema id %d", id)
	case len(versions) == 0:
		return w.draft(), Deleted, nil
	}
	return w.draft(), Live, nil
}

// HeldVersion returns what the registry holds as a version of a subject.
func (r *Registry) HeldVersion(ctx context.Context, subject string, version int) (Draft, Use, error) {
	path := fmt.Sprintf("/subjects/%s/versions/%d", url.PathEscape(subject), version)
	use := Live
	var w wireSchema
	var a *answer
	err := r.call(ctx, http.MethodGet, path, nil, &w)
	if errors.As(err, &a) && a.missing() {
		use = Deleted
		err = r.call(ctx, http.MethodGet, path+"?deleted=true", nil, &w)
	}
	switch {
	case errors.As(err, &a) && a.missing():
		return Draft{}, Free, nil
	case err != nil:
		return Draft{}, "", r.refused(err, "look for version %d of subject %s", version, subject)
	}
	return w.draft(), use, nil
}

// Lookup returns id and version under which a subject holds d; ok false: it does not.
func (r *Registry) Lookup(ctx context.Context, subject string, d Draft) (id, version int, ok bool, err error) {
	var w wireSchema
	var a *answer
	err = r.call(ctx, http.MethodPost, "/subjects/"+url.PathEscape(subject), wireOf(d), &w)
	switch {
	case err == nil:
		return w.ID, w.Version, true, nil
	case errors.As(err, &a) && (a.status == http.StatusNotFound || a.status == http.StatusUnprocessableEntity):
		return 0, 0, false, nil // not there, or it refers to what is not there
	}
	return 0, 0, false, r.refused(err, "look for a schema of subject %s", subject)
}

// RegisterDraft registers d as the next version of subject (as an earlier one where it holds it) and returns the id that the registry gives it. Errors:
// ErrRefused, ErrUnavailable.
func (r *Registry) RegisterDraft(ctx context.Context, subject string, d Draft) (id int, err error) {
	return r.post(ctx, subject, wireOf(d))
}

// Import registers d under id as a version of subject, 0 for the next one. The subject must be in the mode IMPORT. What comes back is the id that the
// registry has given it: a registry without that mode may pass id over in silence. ErrNoImport where it says so.
func (r *Registry) Import(ctx context.Context, subject string, d Draft, id, version int) (given int, err error) {
	w := wireOf(d)
	w.ID, w.Version = id, version
	given, err = r.post(ctx, subject, w)
	var a *answer
	if errors.As(err, &a) && unknownField.MatchString(a.Message) {
		return 0, fmt.Errorf("%w: %w", ErrNoImport, err)
	}
	return given, err
}

// unknownField is how registries without an import mode speak of a body's id.
var unknownField = regexp.MustCompile(`(?i)(unknown|unrecognized) (field|property)`)

func (r *Registry) post(ctx context.Context, subject string, w wireSchema) (int, error) {
	var got struct {
		ID *int `json:"id"`
	}
	if err := r.call(ctx, http.MethodPost, "/subjects/"+url.PathEscape(subject)+"/versions", w, &got); err != nil {
		return 0, r.refused(err, "register a schema under %s", subject)
	}
	if got.ID == nil {
		return 0, fmt.Errorf("register a schema under %s: %w at %s: an answer without an id", subject, ErrUnavailable, r.cfg.URL)
	}
	r.cache.registered(Ref{ID: *got.ID})
	return *got.ID, nil
}

// ModeImport is the mode in which a subject takes schemas with ids; "" stands for no mode of its own.
const ModeImport = "IMPORT"

type wireMode struct {
	Mode string `json:"mode"`
}

// Modes returns the registry's mode and the subject's own one, "" for none. ErrNoImport where the registry has no modes.
func (r *Registry) Modes(ctx context.Context, subject string) (all, own string, err error) {
	var m wireMode
	var a *answer
	switch err := r.call(ctx, http.MethodGet, "/mode", nil, &m); {
	case errors.As(err, &a) && a.noRoute(), err == nil && m.Mode == "":
		return "", "", ErrNoImport
	case err != nil:
		return "", "", r.refused(err, "read the mode")
	}
	all = m.Mode
	m = wireMode{}
	switch err := r.call(ctx, http.MethodGet, "/mode/"+url.PathEscape(subject)+"?defaultToGlobal=false", nil, &m); {
	case errors.As(err, &a) && a.status == http.StatusNotFound:
		return all, "", nil
	case err != nil:
		return "", "", r.refused(err, "read the mode of subject %s", subject)
	}
	return all, m.Mode, nil
}

// SetMode gives a subject a mode of its own, or, where mode is "", takes it away. Both may be repeated. ErrNoImport where the registry cannot do that.
func (r *Registry) SetMode(ctx context.Context, subject, mode string) error {
	path := "/mode/" + url.PathEscape(subject)
	var a *answer
	var err error
	if mode == "" {
		err = r.call(ctx, http.MethodDelete, path, nil, nil)
		if errors.As(err, &a) && a.status == http.StatusNotFound {
			return nil
		}
	} else {
		// With force also where the subject has schemas already.
		err = r.call(ctx, http.MethodPut, path+"?force=true", wireMode{mode}, nil)
	}
	if errors.As(err, &a) && a.noRoute() {
		return fmt.Errorf("set the mode of subject %s: %w: %w", subject, ErrNoImport, err)
	}
	if err != nil {
		return r.refused(err, "set the mode of subject %s to %q", subject, mode)
	}
	return nil
}
