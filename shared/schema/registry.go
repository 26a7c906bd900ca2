package schema

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/riferrei/srclient"

	"tapedeck.dev/tapedeck/shared/secure"
	"tapedeck.dev/tapedeck/shared/segment"
)

var (
	// ErrNoSuchID is a definite answer of the registry: no schema has this id.
	ErrNoSuchID = errors.New("no such schema id")
	// ErrUnavailable: the registry did not answer, or not properly; ask again later.
	ErrUnavailable = errors.New("schema registry unavailable")
)

// Config of a Registry, keys as in Connect (schema.registry.url, basic.auth.user.info, …).
type Config struct {
	URL      string
	User     string // with Password, or neither
	Password string
	CAFile   string // PEM; the system's roots where empty
	// CertFile and KeyFile (PEM) are shown to a registry that asks for a client certificate; read again when they have changed.
	CertFile, KeyFile string
	Token             string // sent as a bearer token, instead of User and Password; "" for none

	// Timeout bounds one lookup with all its requests; 10 s where 0.
	Timeout time.Duration
	// NegativeTTL is how long a "no such id" is believed, since an id may be registered later; 1 minute where 0.
	NegativeTTL time.Duration
	// Refresh is how long a schema is believed before the registry is asked whether the id still means it, since a registry may be rebuilt
	// with other ids; for ever where 0.
	Refresh time.Duration
	// Rest is how long a registry that did not answer is left in peace: what is known is answered, anything else is ErrUnavailable at
	// once. No rest where 0.
	Rest time.Duration
	// Now is the clock of these three; time.Now where nil.
	Now func() time.Time
}

const (
	defaultTimeout     = 10 * time.Second
	defaultNegativeTTL = time.Minute
	maxReferences      = 1000     // of one schema, direct and indirect
	maxResponseBytes   = 64 << 20 // of one answer of the registry
)

// Registry looks schemas up by id or GUID, cached for Config.Refresh; a negative answer is cached for a bounded time. Safe for
// concurrent use.
type Registry struct {
	cfg   Config
	base  http.RoundTripper
	cache *cache
}

// NewRegistry makes a client; it does not connect.
func NewRegistry(cfg Config) (*Registry, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("schema.registry.url %q: give an http:// or https:// address", redact(cfg.URL))
	}
	if u.User != nil {
		return nil, fmt.Errorf("schema.registry.url %q: give user and password as schema.registry.basic.auth.user.info, not in the address", u.Redacted())
	}
	if (cfg.User == "") != (cfg.Password == "") {
		return nil, errors.New("schema.registry.basic.auth.user.info: give user and password, as user:password")
	}
	if cfg.Token != "" && cfg.User != "" {
		return nil, errors.New("schema.registry.bearer.auth.token: schema.registry.basic.auth.user.info is given too; keep one")
	}
	cfg.URL = strings.TrimRight(cfg.URL, "/")
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.NegativeTTL <= 0 {
		cfg.NegativeTTL = defaultNegativeTTL
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	base, err := secure.Transport(secure.ClientSettings{
		ClientFiles: secure.ClientFiles{
			CA:          secure.File{Setting: "schema.registry.ssl.ca.location", Path: cfg.CAFile},
			Certificate: secure.File{Setting: "schema.registry.ssl.certificate.location", Path: cfg.CertFile},
			Key:         secure.File{Setting: "schema.registry.ssl.key.location", Path: cfg.KeyFile},
		},
		TokenFile: secure.File{Setting: "schema.registry.bearer.auth.token"}, Token: cfg.Token,
	})
	if err != nil {
		return nil, err
	}
	return &Registry{cfg: cfg, base: base, cache: newCache(cfg)}, nil
}

// redact drops what may be a password from an address that cannot be parsed.
func redact(s string) string {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		return "…" + s[i:]
	}
	return s
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// client returns a client whose requests end with ctx. srclient takes no context, so each call gets a client of its own, around
// the shared connections; it keeps no cache, since ours also knows what is missing.
func (r *Registry) client(ctx context.Context) *srclient.SchemaRegistryClient {
	return r.clientAt(ctx, "")
}

// clientAt returns a client whose requests go to path, where one is given: srclient does not know all routes, and the answers of those that it
// does not know have the shape of those that it knows.
func (r *Registry) clientAt(ctx context.Context, path string) *srclient.SchemaRegistryClient {
	c := srclient.NewSchemaRegistryClient(r.cfg.URL, srclient.WithClient(&http.Client{
		Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			req = req.WithContext(ctx)
			if path != "" {
				u, err := url.Parse(r.cfg.URL + path)
				if err != nil {
					return nil, err
				}
				req.URL = u
			}
			resp, err := r.base.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			if err := readWhole(resp); err != nil {
				return nil, err
			}
			return resp, nil
		}),
	}))
	c.CachingEnabled(false)
	c.SetCredentials(r.cfg.User, r.cfg.Password)
	return c
}

// readWhole replaces resp's body by its bytes, which it bounds, as srclient does not. It refuses the JSON value null, on which
// srclient panics.
func readWhole(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes+1))
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	switch {
	case err != nil:
		return fmt.Errorf("read answer: %w", err)
	case len(b) > maxResponseBytes:
		return fmt.Errorf("answer is longer than %d bytes", maxResponseBytes)
	case string(bytes.TrimSpace(b)) == "null":
		return errors.New("answer is null")
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}

// errorCode returns the registry's error code, or 0 where err is not an answer of a registry.
func errorCode(err error) int {
	var e srclient.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

const codeSchemaNotFound = 40403

var errNoSchema = errors.New("answer without a schema; is this the address of a schema registry?")

// unavailable wraps err so that the reason of the context, if it has ended, is kept too.
func (r *Registry) unavailable(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return fmt.Errorf("%w at %s: %w", ErrUnavailable, r.cfg.URL, err)
}

// Ping asks the registry for some schema, once: that is what is needed of it later. Errors: ErrUnavailable.
func (r *Registry) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	got, err := r.client(ctx).GetSchema(1)
	if err == nil && got.Schema() == "" {
		err = errNoSchema
	}
	if err != nil && errorCode(err) != codeSchemaNotFound {
		return fmt.Errorf("ping: %w", r.unavailable(ctx, err))
	}
	return nil
}

func (r *Registry) lookup(ctx context.Context, ref Ref) (segment.Schema, error) {
	client, ask := r.client(ctx), r.client(ctx)
	if ref.GUID != "" {
		ask = r.clientAt(ctx, "/schemas/guids/"+ref.GUID)
	}
	got, err := ask.GetSchema(ref.ID)
	if err != nil {
		// A registry without GUIDs has no such route; it answers for ids all the same.
		if errorCode(err) == codeSchemaNotFound || ref.GUID != "" && notFound(err) {
			return segment.Schema{}, ErrNoSuchID
		}
		return segment.Schema{}, r.unavailable(ctx, err)
	}
	if got.Schema() == "" {
		return segment.Schema{}, r.unavailable(ctx, errNoSchema)
	}
	s := segment.Schema{ID: ref.ID, GUID: ref.GUID, Type: string(srclient.Avro), Text: got.Schema()}
	if t := got.SchemaType(); t != nil && *t != "" {
		s.Type = string(*t) // String of Avro is empty
	}
	resolver := resolver{client: client, seen: map[srclient.Reference]int{}}
	if err := resolver.resolve(got.References(), false); err != nil {
		return segment.Schema{}, r.unavailable(ctx, err)
	}
	s.References = resolver.out
	if ref.GUID != "" { // it follows from the text, and is the same under every subject
		return s, nil
	}
	versions, err := client.GetSubjectVersionsById(ref.ID)
	switch {
	case err == nil && len(versions) > 0:
		first := versions[0]
		for _, v := range versions[1:] {
			if cmp.Or(cmp.Compare(v.Subject, first.Subject), cmp.Compare(v.Version, first.Version)) < 0 {
				first = v
			}
		}
		s.Subject, s.Version = first.Subject, first.Version
	case err != nil && !notFound(err):
		// Leaving subject and version out for a moment's trouble would give the same records other bytes.
		return segment.Schema{}, r.unavailable(ctx, err)
	}
	return s, nil
}

// notFound reports whether err is an answer 404 of any kind: a registry may not have the route.
func notFound(err error) bool {
	if code := errorCode(err); code != 0 {
		return code == http.StatusNotFound || code/100 == http.StatusNotFound
	}
	return strings.HasPrefix(err.Error(), "404 ") // srclient keeps the status line only
}

// resolver collects the references of one schema.
type resolver struct {
	client *srclient.SchemaRegistryClient
	seen   map[srclient.Reference]int // place in out, −1 while its own references are collected
	out    []segment.Reference
}

func (r *resolver) resolve(refs []srclient.Reference, indirect bool) error {
	for _, ref := range refs {
		if at, ok := r.seen[ref]; ok {
			if at >= 0 && !indirect {
				r.out[at].Indirect = false
			}
			continue
		}
		if len(r.seen) >= maxReferences {
			return fmt.Errorf("more than %d references", maxReferences)
		}
		r.seen[ref] = -1
		got, err := r.client.GetSchemaByVersion(ref.Subject, ref.Version)
		if err != nil {
			return fmt.Errorf("reference %q to subject %s version %d: %w", ref.Name, ref.Subject, ref.Version, err)
		}
		if err := r.resolve(got.References(), true); err != nil {
			return err
		}
		x := segment.Reference{Name: ref.Name, Subject: ref.Subject, Version: ref.Version, Text: got.Schema(), Indirect: indirect}
		for _, own := range got.References() {
			x.References = append(x.References, segment.Reference{Name: own.Name, Subject: own.Subject, Version: own.Version})
		}
		r.seen[ref] = len(r.out)
		r.out = append(r.out, x)
	}
	return nil
}

// Register registers text (type AVRO, JSON or PROTOBUF) under subject and returns its id. Line ends of AVRO and JSON become spaces.
// Errors: ErrUnavailable; any other is the registry's refusal.
func (r *Registry) Register(ctx context.Context, subject, text, typ string) (int, error) {
	t := srclient.SchemaType(typ)
	if t != srclient.Avro && t != srclient.Json && t != srclient.Protobuf {
		return 0, fmt.Errorf("register schema under %s: unknown type %q: use AVRO, JSON or PROTOBUF", subject, typ)
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	s, err := r.client(ctx).CreateSchema(subject, text, t)
	if err != nil {
		switch status := errorCode(err); {
		case status == http.StatusConflict, status == http.StatusUnprocessableEntity, status/100 == http.StatusConflict, status/100 == http.StatusUnprocessableEntity:
			return 0, fmt.Errorf("register schema under %s at %s: refused: %w", subject, r.cfg.URL, err)
		}
		return 0, fmt.Errorf("register schema under %s: %w", subject, r.unavailable(ctx, err))
	}
	r.cache.registered(Ref{ID: s.ID()})
	return s.ID(), nil
}
