package e2e

import (
	"encoding/json"
	"fmt"
	"math/big"
	"testing"

	"github.com/twmb/avro"

	"tapedeck.dev/tapedeck/shared/devstack/trips"
	"tapedeck.dev/tapedeck/shared/e2e/proof"
)

const (
	windowMs = 10_000
	delayMs  = 10_000
)

type windowKey struct {
	Start, End int64
	User       string
}

type windowValue struct {
	Sum   float64
	Max   float64
	Trips int64
}

// oracle computes, from what a plain consumer saw, what the pipeline must emit and how many records are late: slowly,
// with rational sums, and with nothing of the processor's code.
func oracle(t *testing.T, input map[int32]proof.Sequence) (map[windowKey]windowValue, int) {
	t.Helper()
	schema, err := avro.Parse(trips.Schema)
	if err != nil {
		t.Fatal(err)
	}
	type open struct {
		sum   *big.Rat
		max   float64
		trips int64
	}
	windows := make(map[windowKey]*open)
	late := 0
	var globalW int64 = 1 << 62
	for p := range int32(len(input)) {
		const none = -1 << 62
		maxEvent := int64(none)
		for i := range input[p] {
			var trip trips.Trip
			if _, err := schema.Decode(input[p][i].Value[5:], &trip); err != nil {
				t.Fatalf("decode %d-%d: %v", p, i, err)
			}
			start := trip.PickupMs - trip.PickupMs%windowMs
			key := windowKey{start, start + windowMs, trip.UserID}
			isLate := maxEvent != none && key.End <= maxEvent-delayMs
			maxEvent = max(maxEvent, trip.PickupMs)
			if isLate {
				late++
				continue
			}
			w := windows[key]
			if w == nil {
				w = &open{sum: new(big.Rat), max: trip.Price}
				windows[key] = w
			}
			w.sum.Add(w.sum, new(big.Rat).SetFloat64(trip.Price))
			w.max = max(w.max, trip.Price)
			w.trips++
		}
		globalW = min(globalW, maxEvent-delayMs)
	}
	want := make(map[windowKey]windowValue)
	for k, w := range windows {
		if k.End <= globalW {
			sum, _ := w.sum.Float64()
			want[k] = windowValue{Sum: sum, Max: w.max, Trips: w.trips}
		}
	}
	return want, late
}

// checkAgainstOracle compares the live results, value by value.
func checkAgainstOracle(t *testing.T, input map[int32]proof.Sequence, r *proof.Result) {
	t.Helper()
	want, late := oracle(t, input)
	if late != r.LateLive {
		t.Errorf("late records: %d, the oracle says %d", r.LateLive, late)
	}
	got := make(map[windowKey]windowValue)
	for p := range int32(len(r.Live)) {
		previous := ""
		for _, rec := range r.Live[p] {
			var v struct {
				Start int64   `json:"window_start"`
				End   int64   `json:"window_end"`
				User  string  `json:"user_id"`
				Sum   float64 `json:"sum_price"`
				Max   float64 `json:"max_price"`
				Trips int64   `json:"trips"`
			}
			if err := json.Unmarshal(rec.Value, &v); err != nil {
				t.Fatalf("result %q: %v", rec.Value, err)
			}
			key := windowKey{v.Start, v.End, v.User}
			if _, twice := got[key]; twice {
				t.Errorf("window %v emitted twice", key)
			}
			got[key] = windowValue{v.Sum, v.Max, v.Trips}
			order := fmt.Sprintf("%020d %020d %s", v.End, v.Start, rec.Key)
			if order <= previous {
				t.Errorf("partition %d is not in (end, start, key) order at %s", p, order)
			}
			previous = order
			if rec.Timestamp != v.End-1 {
				t.Errorf("window %v has timestamp %d, want %d", key, rec.Timestamp, v.End-1)
			}
		}
	}
	for k, w := range want {
		if g, ok := got[k]; !ok {
			t.Errorf("window %v is missing", k)
		} else if g != w {
			t.Errorf("window %v = %v, the oracle says %v", k, g, w)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("window %v was emitted, the oracle has none", k)
		}
	}
}
