package s3_test

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/metered"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

// Every request is told of by its name and its answer, the retries of a read too.
func TestObserve(t *testing.T) {
	f := newFake(t, sequence(created, s3Error(412, "PreconditionFailed"), reset, s3Error(503, "SlowDown"), status(418, ""), status(200, "x"), hang))
	s := f.store(t, s3.Options{Timeout: 300 * time.Millisecond})
	got := map[string]int{}
	var mu sync.Mutex
	s.Observe(func(request, answer string) {
		mu.Lock()
		defer mu.Unlock()
		got[request+" "+answer]++
	})
	ctx := t.Context()
	_ = s.Create(ctx, "k", nil) // 200
	_ = s.Create(ctx, "k", nil) // 412
	_ = s.Create(ctx, "k", nil) // reset (of a GET on an old connection net/http would make a second one by itself)
	_, _ = s.Get(ctx, "k")      // 503, then 418, which is not repeated
	_, _ = s.Get(ctx, "k")      // 200
	_ = s.Create(ctx, "k", nil) // no answer in time
	gone, cancel := context.WithCancel(ctx)
	time.AfterFunc(50*time.Millisecond, cancel)
	_ = s.Create(gone, "k", nil)
	want := map[string]int{
		"PutObject 200": 1, "PutObject 412": 1, "GetObject 503": 1, "PutObject none": 1, "GetObject 4xx": 1, "GetObject 200": 1,
		"PutObject timeout": 1, "PutObject cancelled": 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The metered store counts them.
func TestRequestsAreMetered(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := newFake(t, http.HandlerFunc(created))
	m, err := metered.New(f.store(t, s3.Options{}), reg)
	if err != nil {
		t.Fatal(err)
	}
	var st store.Store = m
	if err := st.Create(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "tapedeck_store_requests_total" {
			if len(family.GetMetric()) != 1 || family.GetMetric()[0].GetCounter().GetValue() != 1 {
				t.Errorf("%v", family)
			}
			return
		}
	}
	t.Error("no metric of requests")
}
