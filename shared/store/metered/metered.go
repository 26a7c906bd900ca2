// Package metered counts and times the calls of a store.
package metered

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/shared/store"
)

// Store is a store whose calls are counted.
type Store struct {
	store.Store
	ops map[string]*op
}

type op struct {
	bytes    prometheus.Counter
	seconds  prometheus.Observer
	outcomes map[string]prometheus.Counter

	calls, errs, moved atomic.Int64
}

// Counts are the plain counters of one operation since the start.
type Counts struct {
	Calls  int64 // all of them, the failed ones too
	Errors int64 // calls with an error, "exists" and "not found" included: for a chain they are answers
	Bytes  int64 // of objects written or read, in calls without an error
}

// Outcomes of a call, the values of the label.
const (
	outcomeOK         = "ok"
	outcomeExists     = "exists"
	outcomeNotFound   = "not_found"
	outcomeUnknown    = "unknown"
	outcomeNotAllowed = "not_allowed"
	outcomeInvalid    = "invalid"
	outcomeCancelled  = "cancelled"
	outcomeError      = "error"
)

var (
	opNames      = []string{store.OpCreate, store.OpGet, store.OpGetRange, store.OpList, store.OpListDirs, store.OpSweep}
	outcomeNames = []string{
		outcomeOK, outcomeExists, outcomeNotFound, outcomeUnknown, outcomeNotAllowed, outcomeInvalid, outcomeCancelled, outcomeError,
	}
)

// New wraps s and registers tapedeck_store_calls_total{op,outcome}, tapedeck_store_bytes_total{op}, the histogram
// tapedeck_store_seconds{op}, and where s tells of its HTTP requests tapedeck_store_requests_total{request,answer}. One store of a process is metered with one registerer; a second time is an error.
func New(s store.Store, reg prometheus.Registerer) (*Store, error) {
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tapedeck_store_calls_total",
		Help: "Calls of the object store by operation and outcome. A listing of directories counts once, whatever its pages.",
	}, []string{"op", "outcome"})
	moved := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tapedeck_store_bytes_total",
		Help: "Bytes of objects written (create) and read (get, get_range) by calls that succeeded.",
	}, []string{"op"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "tapedeck_store_seconds",
		Help:    "Duration of calls of the object store in seconds, retries inside reads included.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
	}, []string{"op"})
	for _, c := range []prometheus.Collector{calls, moved, seconds} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of the store %s: %w", s, err)
		}
	}
	if o, ok := s.(interface {
		Observe(func(request, answer string))
	}); ok {
		requests := prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tapedeck_store_requests_total",
			Help: "HTTP requests to the object store by name and answer (status, timeout, cancelled, none), each retry and each page of its own.",
		}, []string{"request", "answer"})
		if err := reg.Register(requests); err != nil {
			return nil, fmt.Errorf("register metrics of the store %s: %w", s, err)
		}
		o.Observe(func(request, answer string) { requests.WithLabelValues(request, answer).Inc() })
	}
	m := &Store{Store: s, ops: map[string]*op{}}
	for _, name := range opNames {
		o := &op{bytes: moved.WithLabelValues(name), seconds: seconds.WithLabelValues(name), outcomes: map[string]prometheus.Counter{}}
		for _, outcome := range outcomeNames {
			o.outcomes[outcome] = calls.WithLabelValues(name, outcome)
		}
		m.ops[name] = o
	}
	return m, nil
}

// Calls gives the counters of each operation (store.Op…).
func (m *Store) Calls() map[string]Counts {
	counts := make(map[string]Counts, len(m.ops))
	for name, o := range m.ops {
		counts[name] = Counts{Calls: o.calls.Load(), Errors: o.errs.Load(), Bytes: o.moved.Load()}
	}
	return counts
}

// Create is store.Store's.
func (m *Store) Create(ctx context.Context, key string, data []byte, with ...store.Attributes) error {
	begin := time.Now()
	err := m.Store.Create(ctx, key, data, with...)
	m.done(store.OpCreate, begin, len(data), err)
	return err
}

// Get is store.Store's.
func (m *Store) Get(ctx context.Context, key string) ([]byte, error) {
	begin := time.Now()
	data, err := m.Store.Get(ctx, key)
	m.done(store.OpGet, begin, len(data), err)
	return data, err
}

// GetRange is store.Store's.
func (m *Store) GetRange(ctx context.Context, key string, off, n int64) ([]byte, int64, error) {
	begin := time.Now()
	data, size, err := m.Store.GetRange(ctx, key, off, n)
	m.done(store.OpGetRange, begin, len(data), err)
	return data, size, err
}

// List is store.Store's.
func (m *Store) List(ctx context.Context, prefix, startAfter string, max int) ([]store.Object, bool, error) {
	begin := time.Now()
	objs, more, err := m.Store.List(ctx, prefix, startAfter, max)
	m.done(store.OpList, begin, 0, err)
	return objs, more, err
}

// ListDirs is store.Store's.
func (m *Store) ListDirs(ctx context.Context, prefix string) ([]string, error) {
	begin := time.Now()
	dirs, err := m.Store.ListDirs(ctx, prefix)
	m.done(store.OpListDirs, begin, 0, err)
	return dirs, err
}

// Sweep is store.Store's.
func (m *Store) Sweep(ctx context.Context, ours func(key string) bool) (int, error) {
	begin := time.Now()
	n, err := m.Store.Sweep(ctx, ours)
	m.done(store.OpSweep, begin, 0, err)
	return n, err
}

func (m *Store) done(name string, begin time.Time, bytes int, err error) {
	o := m.ops[name]
	o.seconds.Observe(time.Since(begin).Seconds())
	o.outcomes[outcome(err)].Inc()
	o.calls.Add(1)
	if err != nil {
		o.errs.Add(1)
		return
	}
	o.bytes.Add(float64(bytes))
	o.moved.Add(int64(bytes))
}

// outcome names the class of an error. A create cut off by its context is both cancelled and unknown, and unknown is what
// somebody has to deal with.
func outcome(err error) string {
	for _, class := range []struct {
		err  error
		name string
	}{
		{nil, outcomeOK},
		{store.ErrExists, outcomeExists},
		{store.ErrNotFound, outcomeNotFound},
		{store.ErrUnknown, outcomeUnknown},
		{store.ErrNotAllowed, outcomeNotAllowed},
		{store.ErrInvalid, outcomeInvalid},
		{context.Canceled, outcomeCancelled},
		{context.DeadlineExceeded, outcomeCancelled},
	} {
		if errors.Is(err, class.err) {
			return class.name
		}
	}
	return outcomeError
}
