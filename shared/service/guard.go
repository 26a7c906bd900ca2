package service

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/secure"
)

// restKeys secure the HTTP listener.
func restKeys() []Key {
	return []Key{
		{Name: "rest.ssl.certificate.location", Kind: String,
			Doc: "file with the listener's certificate and its chain (PEM): serves https only; read again when it changes; empty: http"},
		{Name: "rest.ssl.key.location", Kind: String, Doc: "file with the private key of rest.ssl.certificate.location (PEM)"},
		{Name: "rest.ssl.client.ca.location", Kind: String,
			Doc: "file with CA certificates (PEM): a client must show a certificate of one of them; /healthz and /readyz stay open; empty: none asked for"},
		{Name: "rest.auth.token", Kind: String, Secret: true, Check: checkTokens,
			Doc: "a client must send it (Authorization: Bearer …), ≥ 16 characters; /healthz and /readyz stay open; empty: no token asked for"},
		{Name: "rest.auth.token.file", Kind: String,
			Doc: "file with such tokens, one a line, any of which is taken; read again when it changes, so that tokens are rotated without a restart"},
	}
}

// checkTokens refuses what could not be a token; the environment and --set carry one only.
func checkTokens(s string) error {
	if s == "" {
		return nil
	}
	_, err := secure.ParseTokens(s)
	return err
}

func secureFile(c *Config, setting string) secure.File {
	return secure.File{Setting: setting, Path: c.String(setting)}
}

// readTokens returns what gives the tokens accepted now; nil where none are asked for.
func readTokens(c *Config, warn func(error)) (func() []string, error) {
	text, file := c.String("rest.auth.token"), secureFile(c, "rest.auth.token.file")
	switch {
	case text != "" && file.Path != "":
		return nil, errors.New("rest.auth.token is also given as rest.auth.token.file; keep one")
	case file.Path != "":
		tokens, err := secure.TokenFile(file, warn)
		if err != nil {
			return nil, err
		}
		return tokens.Get, nil
	case text != "":
		tokens, err := secure.ParseTokens(text)
		if err != nil {
			return nil, fmt.Errorf("rest.auth.token: %w", err)
		}
		return func() []string { return tokens }, nil
	}
	return nil, nil
}

func scheme(c *Config) string {
	if c.String("rest.ssl.certificate.location") != "" || c.String("rest.ssl.key.location") != "" {
		return "https"
	}
	return "http"
}

// guard decides who may ask what.
type guard struct {
	tls     *tls.Config     // nil: plain HTTP
	tokens  func() []string // nil: none asked for
	clients bool            // clients need a certificate
	cross   *http.CrossOriginProtection
}

func newGuard(c *Config, log *zap.Logger) (*guard, error) {
	warn := func(err error) { log.Warn("what secures the HTTP listener was not read again", zap.Error(err)) }
	g := &guard{cross: http.NewCrossOriginProtection()}
	// A page in a browser on this host must not start or stop anything here, token or not.
	g.cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		WriteError(w, http.StatusForbidden, "a request of another site's page is not taken")
	}))
	files := secure.ServerFiles{
		Certificate: secureFile(c, "rest.ssl.certificate.location"), Key: secureFile(c, "rest.ssl.key.location"),
		ClientCA: secureFile(c, "rest.ssl.client.ca.location"),
	}
	switch {
	case scheme(c) == "https":
		var err error
		if g.tls, err = secure.ServerTLS(files, warn); err != nil {
			return nil, err
		}
	case files.ClientCA.Path != "":
		return nil, fmt.Errorf("%s has no meaning without %s", files.ClientCA.Setting, files.Certificate.Setting)
	}
	g.clients = files.ClientCA.Path != ""
	var err error
	g.tokens, err = readTokens(c, warn)
	return g, err
}

// closed reports whether anything is asked of a client.
func (g *guard) closed() bool { return g.tokens != nil || g.clients }

// open are the routes that need neither token nor certificate: an orchestrator's probes carry none. They tell yes or no.
var open = []string{"/healthz", "/readyz"}

func isOpen(r *http.Request) bool {
	for _, p := range open {
		if r.URL.Path == p && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			return true
		}
	}
	return false
}

// refusal says what is missing from a request, "" where nothing is.
func (g *guard) refusal(r *http.Request) string {
	if g.clients && !secure.VerifiedClient(r) {
		return "this needs a client certificate"
	}
	if g.tokens == nil {
		return ""
	}
	token, ok := secure.Bearer(r)
	switch {
	case !ok:
		return "this needs a token: send the header Authorization: Bearer …"
	case !secure.Accepted(token, g.tokens()):
		return "the token is not one of this service"
	}
	return ""
}

// protect stands in front of every route.
func (g *guard) protect(next http.Handler) http.Handler {
	next = g.cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOpen(r) {
			if why := g.refusal(r); why != "" {
				if g.tokens != nil {
					w.Header().Set("WWW-Authenticate", `Bearer realm="tapedeck"`)
				}
				WriteError(w, http.StatusUnauthorized, "%s", why)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// loopback reports whether only this host reaches an address.
func loopback(a net.Addr) bool {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return false
	}
	host, _, _ = strings.Cut(host, "%")
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
