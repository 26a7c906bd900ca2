package target

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/secure/securetest"
)

const token = "0123456789abcdef"

// TestSecuredTarget: a target over TLS that asks for a token and for a certificate gets both.
func TestSecuredTarget(t *testing.T) {
	ca := securetest.NewCA(t, "ca")
	server, mine := ca.Issue("processor"), ca.Issue("replayer")
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = w.Write([]byte("{}"))
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{server.TLS}, ClientCAs: ca.Pool, ClientAuth: tls.RequireAndVerifyClientCert}
	srv.StartTLS()
	defer srv.Close()
	all := map[string]string{
		"a.url": srv.URL, "a.pipeline": "p", "a.token": token,
		"a.ssl.ca.location": ca.File, "a.ssl.certificate.location": mine.Certificate, "a.ssl.key.location": mine.Key,
	}
	for without, want := range map[string]string{
		"": "", "a.token": "HTTP 401", "a.ssl.ca.location": "certificate", "a.ssl.certificate.location": "give the certificate too, as targets.a.ssl.certificate.location",
	} {
		settings := map[string]string{}
		for k, v := range all {
			if k != without {
				settings[k] = v
			}
		}
		confs, err := ParseConfig(settings)
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewClient(confs["a"], time.Minute)
		if err == nil {
			_, err = c.Pipeline(t.Context())
			c.Close()
		}
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("without %q: %v; want %q", without, err, want)
		}
	}
}
