package secure

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

func firstCertificate(data []byte) (*x509.Certificate, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errNoCertificate
		}
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
}

// MinToken is the fewest characters of a token: what can be guessed is no protection.
const MinToken = 16

// ParseTokens reads one token a line; blank lines and lines that begin with # are left out. Errors name no token.
func ParseTokens(text string) ([]string, error) {
	var out []string
	n := 0
	for line := range strings.Lines(text) {
		n++
		t := strings.TrimSpace(line)
		if t == "" || strings.HasPrefix(t, "#") {
			continue
		}
		if len(t) < MinToken {
			return nil, fmt.Errorf("the token in line %d has %d characters: give at least %d", n, len(t), MinToken)
		}
		if strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("the token in line %d holds blanks or characters other than printable ASCII, which a header cannot carry", n)
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return nil, errors.New("holds no token")
	}
	return out, nil
}

// TokenFile reads the tokens of a file, again whenever it has changed. The first is the one that a client shows; a server takes any.
func TokenFile(f File, warn func(error)) (*Reloaded[[]string], error) {
	return NewReloaded(func() ([]string, error) {
		b, err := f.read()
		if err != nil {
			return nil, err
		}
		tokens, err := ParseTokens(string(b))
		if err != nil {
			return nil, fmt.Errorf("%s (%s): %w", f.Setting, f.Path, err)
		}
		return tokens, nil
	}, warn, f.Path)
}

// Bearer returns the token of a request's Authorization header.
func Bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}

// Accepted reports whether shown is one of the tokens. How long it takes depends neither on where they differ nor on which one it is.
func Accepted(shown string, tokens []string) bool {
	h := sha256.Sum256([]byte(shown))
	ok := 0
	for _, t := range tokens {
		want := sha256.Sum256([]byte(t))
		ok |= subtle.ConstantTimeCompare(h[:], want[:])
	}
	return ok == 1
}

type bearer struct {
	base  http.RoundTripper
	token func() string
}

// WithToken adds a bearer token to every request, asked for at each.
func WithToken(base http.RoundTripper, token func() string) http.RoundTripper {
	return bearer{base, token}
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token())
	return b.base.RoundTrip(r)
}

// CloseIdleConnections frees those of the transport below.
func (b bearer) CloseIdleConnections() {
	if c, ok := b.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// ClientSettings are what an HTTP client of a service is secured by.
type ClientSettings struct {
	ClientFiles
	TokenFile File   // the first token of it is shown; its Setting names Token too
	Token     string // shown where there is no TokenFile; "": none
	// IdlePerHost bounds the idle connections kept to one host; 0: Go's default of 2.
	IdlePerHost int
}

// Transport makes a client's transport: a copy of Go's default with TLS and token.
func Transport(s ClientSettings) (http.RoundTripper, error) {
	tr := http.DefaultTransport.(*http.Transport).Clone()
	if s.IdlePerHost > 0 {
		tr.MaxIdleConnsPerHost = s.IdlePerHost
	}
	conf, err := ClientTLS(s.ClientFiles)
	if err != nil {
		return nil, err
	}
	tr.TLSClientConfig = conf
	switch {
	case s.TokenFile.Path != "":
		tokens, err := TokenFile(s.TokenFile, nil)
		if err != nil {
			return nil, err
		}
		return WithToken(tr, func() string { return tokens.Get()[0] }), nil
	case s.Token != "":
		tokens, err := ParseTokens(s.Token)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.TokenFile.Setting, err)
		}
		return WithToken(tr, func() string { return tokens[0] }), nil
	}
	return tr, nil
}
