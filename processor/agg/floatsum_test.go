package agg

import (
	"math"
	"math/big"
	"math/rand"
	"testing"
)

// exact sums with math/big at a precision that loses nothing: float64 values span 2098 bits.
func exact(xs []float64) float64 {
	sum := new(big.Float).SetPrec(2300)
	for _, x := range xs {
		sum.Add(sum, new(big.Float).SetFloat64(x))
	}
	f, _ := sum.Float64()
	return f + 0 // −0 is 0
}

func sumOf(xs []float64) float64 {
	var s FloatSum
	for _, x := range xs {
		s.Add(x)
	}
	return s.Sum()
}

// draw gives finite floats of every kind: any bits, small integers, cents, values close in magnitude, subnormals, powers of two.
func draw(r *rand.Rand) float64 {
	for {
		var f float64
		switch r.Intn(8) {
		case 0:
			f = math.Float64frombits(r.Uint64())
		case 1:
			f = float64(r.Intn(2000) - 1000)
		case 2:
			f = float64(r.Intn(100000)) / 100
		case 3:
			f = (r.Float64() - .5) * 1e15
		case 4:
			f = math.Float64frombits(r.Uint64() & (1<<52 - 1)) // subnormal
		case 5:
			f = math.Ldexp(1, r.Intn(2098)-1074)
		case 6:
			f = -math.Ldexp(1+r.Float64(), r.Intn(100)-50)
		case 7:
			f = math.Float64frombits(r.Uint64()>>12 | uint64(0x7fe)<<52) // near the top
		}
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
	}
}

func TestFloatSumAgainstBig(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	infinite, cancelled := 0, 0
	for i := range 30000 {
		xs := make([]float64, r.Intn(12))
		for j := range xs {
			xs[j] = draw(r)
			if j > 0 && r.Intn(3) == 0 {
				xs[j] = -xs[r.Intn(j)] // cancels, wholly or nearly
				if r.Intn(2) == 0 {
					xs[j] = math.Nextafter(xs[j], 0)
				}
			}
		}
		want := exact(xs)
		got := sumOf(xs)
		if math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("case %d: sum of %v = %g (%x), want %g (%x)", i, xs, got, math.Float64bits(got), want, math.Float64bits(want))
		}
		if math.IsInf(want, 0) {
			infinite++
		}
		if want == 0 && len(xs) > 1 {
			cancelled++
		}
		r.Shuffle(len(xs), func(a, b int) { xs[a], xs[b] = xs[b], xs[a] })
		if again := sumOf(xs); again != got {
			t.Fatalf("case %d: %g in another order, %g before", i, again, got)
		}
	}
	if infinite < 100 || cancelled < 50 {
		t.Errorf("%d infinite and %d cancelled sums: the cases are too tame", infinite, cancelled)
	}
}

// Ties go to even, and a bit far below breaks a tie.
func TestFloatSumRounding(t *testing.T) {
	const ulp = 1.0 / (1 << 52) // of 1
	for _, c := range []struct {
		xs   []float64
		want float64
	}{
		{[]float64{1, ulp / 2}, 1},
		{[]float64{1, ulp / 2, 5e-324}, 1 + ulp},
		{[]float64{1 + ulp, ulp / 2}, 1 + 2*ulp},
		{[]float64{1 + ulp, ulp / 2, -5e-324}, 1 + ulp},
		{[]float64{2 - ulp, ulp / 2}, 2}, // carries into the next power of two
		{[]float64{math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64}, math.MaxFloat64},
		{[]float64{math.MaxFloat64, math.Ldexp(1, 969)}, math.MaxFloat64},
		{[]float64{math.MaxFloat64, math.Ldexp(1, 970)}, math.Inf(1)}, // the tie above the largest value rounds away
		{[]float64{-math.MaxFloat64, -math.MaxFloat64}, math.Inf(-1)},
		{[]float64{5e-324, 5e-324}, 1e-323},
		{[]float64{math.Copysign(0, -1), math.Copysign(0, -1)}, 0},
		{[]float64{1e300, 1, -1e300}, 1},
		{nil, 0},
	} {
		if got := sumOf(c.xs); math.Float64bits(got) != math.Float64bits(c.want) {
			t.Errorf("sum of %v = %v, want %v", c.xs, got, c.want)
		}
	}
}

func TestFloatSumSpecials(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		xs   []float64
		want float64
	}{
		{[]float64{1, inf, -5}, inf}, {[]float64{-inf, 1}, -inf}, {[]float64{inf, -inf}, nan}, {[]float64{-inf, nan, 1}, nan},
		{[]float64{math.MaxFloat64, math.MaxFloat64, -inf}, -inf},
	} {
		if got := sumOf(c.xs); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("sum of %v = %v, want %v", c.xs, got, c.want)
		}
	}
}

// Carries are settled only now and then; sums on both sides of that must agree. The test puts the counter near its end instead of adding
// half a billion values.
func TestFloatSumSettles(t *testing.T) {
	var s FloatSum
	for range 1000 {
		s.Add(math.MaxFloat64)
		s.Add(-1)
	}
	s.pending = settleEvery - 1
	s.Add(0.5)
	if s.pending != 0 {
		t.Fatalf("not settled: %d pending", s.pending)
	}
	for range 1000 {
		s.Add(-math.MaxFloat64)
	}
	if got := s.Sum(); got != -999.5 {
		t.Errorf("sum = %v, want -999.5", got)
	}
	if s.Sum() != s.Sum() {
		t.Error("reading the sum changes it")
	}
}

func FuzzFloatSum(f *testing.F) {
	f.Add(1.0, -1e300, 5e-324, 0.1)
	f.Fuzz(func(t *testing.T, a, b, c, d float64) {
		xs := []float64{a, b, c, d, a, -b}
		for _, x := range xs {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return
			}
		}
		if got, want := sumOf(xs), exact(xs); got != want {
			t.Errorf("sum of %v = %v, want %v", xs, got, want)
		}
	})
}

func BenchmarkFloatSum(b *testing.B) {
	r := rand.New(rand.NewSource(1))
	xs := make([]float64, 1024)
	for i := range xs {
		xs[i] = float64(r.Intn(100000)) / 100
	}
	var s FloatSum
	for i := 0; b.Loop(); i++ {
		s.Add(xs[i&1023])
	}
}
