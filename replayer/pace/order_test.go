package pace

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Random interleavings of sends, rewinds and ends: at every send the rule holds against maxima computed anew, whoever may not send breaks it,
// and somebody may always send.
func TestOrderHoldsAtEverySend(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 9))
		n := 1 + rng.IntN(12)
		skew := []int64{0, 1, 50, 1000, math.MaxInt64}[rng.IntN(5)]
		o := NewOrder(n, skew)
		reached, left := make([]int64, n), make([]int, n)
		for i := range n {
			reached[i], left[i] = rng.Int64N(2000)-1, rng.IntN(30)
			o.Set(i, reached[i], left[i] > 0)
		}
		for {
			least, unfinished := int64(math.MaxInt64), 0
			for i := range n {
				if left[i] > 0 {
					least = min(least, reached[i])
					unfinished++
				}
			}
			if unfinished == 0 {
				break
			}
			var may []int
			for i := range n {
				want := skew == math.MaxInt64 || reached[i] <= least+skew
				if got := o.May(i); got != want {
					t.Fatalf("seed %d: partition %d at %d, least %d, skew %d: may %v", seed, i, reached[i], least, skew, got)
				}
				if left[i] > 0 && want {
					may = append(may, i)
				}
			}
			if len(may) == 0 {
				t.Fatalf("seed %d: nobody may send", seed)
			}
			if b, ok := o.Behind(); !ok || left[b] == 0 || reached[b] != least {
				t.Fatalf("seed %d: %d is said to be furthest behind", seed, b)
			}
			i := may[rng.IntN(len(may))]
			left[i]--
			reached[i] = max(reached[i], reached[i]+rng.Int64N(200)-50)
			if rng.IntN(40) == 0 { // the target forgot some of it
				left[i] += rng.IntN(3)
				reached[i] -= rng.Int64N(300)
			}
			o.Set(i, reached[i], left[i] > 0)
		}
		if _, ok := o.Behind(); ok || !o.May(0) {
			t.Fatalf("seed %d: all have finished, and somebody is held back", seed)
		}
	}
}

func TestNoOrder(t *testing.T) {
	o := NewOrder(2, -1)
	o.Set(0, 0, true)
	o.Set(1, math.MaxInt64, true)
	if !o.May(1) {
		t.Error("held back without a bound")
	}
}
