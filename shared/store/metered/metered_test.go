package metered_test

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
	"tapedeck.dev/tapedeck/shared/store/metered"
	"tapedeck.dev/tapedeck/shared/store/storetest"
)

// A metered store is a store: nothing is changed on the way.
func TestSuite(t *testing.T) {
	root := mem.New()
	storetest.Run(t, func(t *testing.T, prefix string) store.Store {
		m, err := metered.New(root.Sub(prefix), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}

func TestCounts(t *testing.T) {
	inner := mem.New()
	reg := prometheus.NewRegistry()
	m, err := metered.New(inner, reg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	errs := []error{nil, nil, store.ErrUnknown, store.ErrNotAllowed, store.ErrInvalid, errors.New("other"),
		errors.Join(context.Canceled, store.ErrUnknown), context.DeadlineExceeded}
	inner.SetBefore(func(_ context.Context, op, _ string) error {
		if op != store.OpCreate {
			return nil
		}
		err := errs[0]
		errs = errs[1:]
		return err
	})
	for range len(errs) {
		_ = m.Create(ctx, "k", []byte("12345")) // 1 created, 1 exists, and the errors above
	}
	_, _ = m.Get(ctx, "k")
	_, _ = m.Get(ctx, "missing")
	_, _, _ = m.GetRange(ctx, "k", 1, 3)
	_, _, _ = m.List(ctx, "", "", 0)
	_, _ = m.ListDirs(ctx, "")
	_, _ = m.Sweep(ctx, nil)

	want := map[string]metered.Counts{
		store.OpCreate:   {Calls: 8, Errors: 7, Bytes: 5},
		store.OpGet:      {Calls: 2, Errors: 1, Bytes: 5},
		store.OpGetRange: {Calls: 1, Bytes: 3},
		store.OpList:     {Calls: 1},
		store.OpListDirs: {Calls: 1},
		store.OpSweep:    {Calls: 1},
	}
	for op, got := range m.Calls() {
		if got != want[op] {
			t.Errorf("%s: %+v, want %+v", op, got, want[op])
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	creates, byteRows := map[string]float64{}, 0
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range metric.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case f.GetName() == "tapedeck_store_calls_total" && labels["op"] == store.OpCreate:
				creates[labels["outcome"]] = metric.GetCounter().GetValue()
			case f.GetName() == "tapedeck_store_bytes_total":
				if got, want := metric.GetCounter().GetValue(), float64(want[labels["op"]].Bytes); got != want {
					t.Errorf("%v bytes of %s, want %v", got, labels["op"], want)
				}
				byteRows++
			case f.GetName() == "tapedeck_store_seconds":
				if got, want := metric.GetHistogram().GetSampleCount(), uint64(want[labels["op"]].Calls); got != want {
					t.Errorf("%d durations of %s, want %d", got, labels["op"], want)
				}
			}
		}
	}
	for outcome, n := range map[string]float64{
		"ok": 1, "exists": 1, "unknown": 2, "not_allowed": 1, "invalid": 1, "error": 1, "cancelled": 1, "not_found": 0,
	} {
		if creates[outcome] != n {
			t.Errorf("creates %q = %v, want %v", outcome, creates[outcome], n)
		}
	}
	if byteRows != len(want) {
		t.Errorf("%d operations count bytes, want %d", byteRows, len(want))
	}
	if _, err := metered.New(inner, reg); err == nil {
		t.Error("registered twice")
	}
}
