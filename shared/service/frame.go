package service

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// Bounds of the HTTP server.
const (
	defaultMaxBody    = 128 << 20
	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	shutdownGrace     = 5 * time.Second // running requests may finish for so long
	shutdownCancel    = 5 * time.Second // then their contexts end, and they get this long again
)

// Frame is what a running service gets.
type Frame struct {
	Name    string
	Config  *Config
	Log     *zap.Logger
	Metrics *prometheus.Registry // served at /metrics
	Mux     *http.ServeMux       // the service's own routes; /healthz, /readyz, /metrics, /status are the frame's
	MaxBody int64                // largest request body in bytes; 0: 128 MiB. A handler may set a lower one for itself
	// Health, Ready and Status are set by the service before Serve, and may be called from many goroutines at once. Ready nil error =
	// ready. Status is rendered as JSON. A nil Health or Ready is taken for healthy and for not ready.
	Health func() error
	Ready  func() error
	Status func() any

	level   *zap.AtomicLevel // of Log; nil: it cannot be changed
	started time.Time
}

// NewFrame makes a frame with a fresh registry (Go and process collectors, tapedeck_build_info) and mux.
func NewFrame(name string, cfg *Config, log *zap.Logger) *Frame {
	f := &Frame{Name: name, Config: cfg, Log: log, Metrics: prometheus.NewRegistry(), Mux: http.NewServeMux(), started: time.Now()}
	b := BuildInfo()
	f.Metrics.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "tapedeck_build_info",
			Help:        "What binary this is; the value is always 1.",
			ConstLabels: prometheus.Labels{"service": name, "version": b.Version, "revision": b.Revision, "go": b.Go},
		}, func() float64 { return 1 }),
	)
	return f
}

// StatusReport is the body of /status.
type StatusReport struct {
	Name string `json:"name"`
	Build
	UptimeSeconds int64  `json:"uptimeSeconds"`
	Ready         bool   `json:"ready"`
	NotReady      string `json:"notReady,omitempty"` // why
	Status        any    `json:"status,omitempty"`   // the service's own
}

func (f *Frame) ready() error {
	if f.Ready == nil {
		return errors.New("starting")
	}
	return f.Ready()
}

func (f *Frame) health() error {
	if f.Health == nil {
		return nil
	}
	return f.Health()
}

// handler is everything between the listener and the routes. g stands before all of them, so that no route can be forgotten.
func (f *Frame) handler(g *guard) http.Handler {
	probe := func(check func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if err := check(); err != nil {
				if g.refusal(r) != "" {
					// The reason may name topics and addresses.
					WriteError(w, http.StatusServiceUnavailable, "no; ask with the token for the reason")
					return
				}
				WriteError(w, http.StatusServiceUnavailable, "%s", err)
				return
			}
			WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", probe(f.health))
	mux.HandleFunc("GET /readyz", probe(f.ready))
	mux.Handle("GET /metrics", promhttp.HandlerFor(f.Metrics, promhttp.HandlerOpts{Registry: f.Metrics}))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		s := StatusReport{Name: f.Name, Build: BuildInfo(), UptimeSeconds: int64(time.Since(f.started).Seconds()), Ready: true}
		if err := f.ready(); err != nil {
			s.Ready, s.NotReady = false, err.Error()
		}
		if f.Status != nil {
			s.Status = f.Status()
		}
		WriteJSON(w, http.StatusOK, s)
	})
	if f.level != nil {
		loggers{*f.level, f.Log}.register(mux)
	}
	mux.Handle("/", f.Mux)
	routed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The muxes' own answers to what they have no route for are plain text.
		_, pattern := mux.Handler(r)
		if pattern == "/" {
			_, pattern = f.Mux.Handler(r)
		}
		if pattern == "" {
			mux.ServeHTTP(&jsonRefusal{ResponseWriter: w, r: r}, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	limit := f.MaxBody
	if limit <= 0 {
		limit = defaultMaxBody
	}
	return g.protect(http.MaxBytesHandler(routed, limit))
}

// jsonRefusal writes a mux's 404 or 405 as other errors are written. Its headers (Allow) stay.
type jsonRefusal struct {
	http.ResponseWriter
	r       *http.Request
	refused bool
}

func (j *jsonRefusal) WriteHeader(status int) {
	if status < http.StatusBadRequest {
		j.ResponseWriter.WriteHeader(status)
		return
	}
	j.refused = true
	text := "there is nothing at %s %s"
	if status == http.StatusMethodNotAllowed {
		text = "the method %s is not allowed at %s"
	}
	j.Header().Del("Content-Length")
	WriteError(j.ResponseWriter, status, text, j.r.Method, j.r.URL.Path)
}

func (j *jsonRefusal) Write(b []byte) (int, error) {
	if j.refused {
		return len(b), nil // the mux's text
	}
	return j.ResponseWriter.Write(b)
}

// listen opens rest.listen and tells the address that it got.
func (f *Frame) listen(ctx context.Context, g *guard) (net.Listener, error) {
	addr := f.Config.String("rest.listen")
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("rest.listen: %w", err)
	}
	if file := f.Config.String("rest.port.file"); file != "" {
		if err := writeFileAtOnce(file, l.Addr().String()+"\n"); err != nil {
			return nil, errors.Join(fmt.Errorf("rest.port.file: %w", err), l.Close())
		}
	}
	f.Log.Info("serving HTTP", zap.String("address", l.Addr().String()), zap.Bool("tls", g.tls != nil), zap.Bool("authentication", g.closed()))
	if !g.closed() && !loopback(l.Addr()) {
		f.Log.Warn("whoever reaches rest.listen may use it: set rest.auth.token.file, and rest.ssl.certificate.location and rest.ssl.key.location",
			zap.String("address", l.Addr().String()))
	}
	if g.tls != nil {
		return tls.NewListener(l, g.tls), nil
	}
	return l, nil
}

// writeFileAtOnce never shows a half-written file to a reader that waits for it.
func writeFileAtOnce(path, content string) error {
	t, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = io.WriteString(t, content)
	err = errors.Join(err, t.Chmod(0o644), t.Close())
	if err == nil {
		err = os.Rename(t.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(t.Name()))
	}
	return nil
}

// Serve listens on rest.listen and serves until ctx ends, then shuts down gracefully within a bound. It returns once no
// request is running.
func (f *Frame) Serve(ctx context.Context) error {
	g, err := newGuard(f.Config, f.Log)
	if err != nil {
		return err
	}
	l, err := f.listen(ctx, g)
	if err != nil {
		return err
	}
	// Requests outlive ctx for a moment: that is what makes the shutdown graceful.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stdlog, err := zap.NewStdLogAt(f.Log.Named("http"), zap.DebugLevel)
	if err != nil {
		return errors.Join(fmt.Errorf("make the server's logger: %w", err), l.Close())
	}
	// http.Server.Close drops connections without waiting for their handlers; the group waits for them.
	var running sync.WaitGroup
	h := f.handler(g)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Done()
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          stdlog,
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	err = shutdown(srv, cancel)
	<-served // http.ErrServerClosed
	running.Wait()
	return err
}

func shutdown(srv *http.Server, cancelRequests func()) error {
	grace, done := context.WithTimeout(context.Background(), shutdownGrace)
	defer done()
	if srv.Shutdown(grace) == nil {
		return nil
	}
	// Streams that wait for the client end only with their request's context.
	cancelRequests()
	last, done2 := context.WithTimeout(context.Background(), shutdownCancel)
	defer done2()
	if srv.Shutdown(last) == nil {
		return nil
	}
	if err := srv.Close(); err != nil {
		return fmt.Errorf("close HTTP connections: %w", err)
	}
	return nil
}
