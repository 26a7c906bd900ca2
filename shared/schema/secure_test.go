package schema

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/secure/securetest"
)

// TestSecuredRegistry: what a registry behind TLS asks for is shown to it; what is missing or wrong is an error that says so.
func TestSecuredRegistry(t *testing.T) {
	const token = "registry-0123456789"
	ca, other := securetest.NewCA(t, "ca"), securetest.NewCA(t, "other")
	server, mine, foreign := ca.Issue("registry"), ca.Issue("archiver"), other.Issue("archiver")
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, basic := r.BasicAuth()
		w.Header().Set("Content-Type", "application/json")
		if !(basic && user == "u" && password == "p:w") && r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error_code":40101,"message":"who are you"}`))
			return
		}
		_, _ = w.Write([]byte(`{"schema":"\"string\""}`))
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{server.TLS}, ClientCAs: ca.Pool, ClientAuth: tls.RequireAndVerifyClientCert}
	srv.StartTLS()
	defer srv.Close()
	good := Config{URL: srv.URL, User: "u", Password: "p:w", CAFile: ca.File, CertFile: mine.Certificate, KeyFile: mine.Key}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"basic":               {func(*Config) {}, ""},
		"token":               {func(c *Config) { c.User, c.Password, c.Token = "", "", token }, ""},
		"wrong password":      {func(c *Config) { c.Password = "wrong-secret" }, "who are you"},
		"wrong token":         {func(c *Config) { c.User, c.Password, c.Token = "", "", "wrong-secret-0123456789" }, "who are you"},
		"nothing":             {func(c *Config) { c.User, c.Password = "", "" }, "who are you"},
		"untrusted server":    {func(c *Config) { c.CAFile = other.File }, "unknown authority"},
		"no certificate":      {func(c *Config) { c.CertFile, c.KeyFile = "", "" }, "certificate required"},
		"foreign":             {func(c *Config) { c.CertFile, c.KeyFile = foreign.Certificate, foreign.Key }, "certificate"},
		"certificate, no key": {func(c *Config) { c.KeyFile = "" }, "schema.registry.ssl.certificate.location: give its private key too"},
		"both":                {func(c *Config) { c.Token = token }, "keep one"},
	} {
		conf := good
		c.change(&conf)
		r, err := NewRegistry(conf)
		if err == nil {
			err = r.Ping(t.Context())
		}
		if (c.want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "wrong-secret")) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}
