package soak

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Each fault is what it says: a proxy that passes everything would make a soak prove nothing.
func TestProxy(t *testing.T) {
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.WriteString(w, "hello")
	}))
	defer s.Close()
	p, err := NewProxy(strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	get := func(patience time.Duration) error {
		c := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := c.Get("http://" + p.Addr())
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	const long, short = 30 * time.Second, 200 * time.Millisecond
	for _, tt := range []struct {
		fault   Fault
		answers bool
		arrives bool
		wait    time.Duration
	}{
		{None, true, true, long}, {Refuse, false, false, long}, {Swallow, false, true, long}, {Stall, false, false, short}, {None, true, true, long},
	} {
		p.Set(tt.fault)
		before := requests.Load()
		if err := get(tt.wait); (err == nil) != tt.answers {
			t.Errorf("fault %q: error %v", tt.fault, err)
		}
		if arrived := requests.Load() > before; arrived != tt.arrives {
			t.Errorf("fault %q: the request arrived: %v", tt.fault, arrived)
		}
	}
}
