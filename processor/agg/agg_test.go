package agg

import (
	"math"
	"math/big"
	"math/rand"
	"testing"

	"tapedeck.dev/tapedeck/processor/value"
)

func result(t *testing.T, f Func, vs ...value.Value) (string, error) {
	t.Helper()
	var a Acc
	for _, v := range vs {
		if !f.Accepts(v) {
			t.Fatalf("%s does not accept %v", f, v.Any())
		}
		f.Add(&a, v)
	}
	v, err := f.Result(&a)
	b, _ := v.AppendJSON(nil)
	return string(b), err
}

var (
	null = value.Value{}
	num  = value.OfInt
	flt  = value.OfFloat
)

func TestResults(t *testing.T) {
	negZero, nan := flt(math.Copysign(0, -1)), flt(math.NaN())
	for _, c := range []struct {
		f    Func
		vs   []value.Value
		want string
		err  error
	}{
		{Sum, []value.Value{num(1), null, num(2)}, "3", nil},
		{Sum, []value.Value{null, null}, "null", nil},
		{Sum, nil, "null", nil},
		{Sum, []value.Value{num(math.MaxInt64), num(1), num(-2)}, "9223372036854775806", nil}, // passes over the limit and comes back
		{Sum, []value.Value{num(math.MaxInt64), num(1)}, "null", ErrOverflow},
		{Sum, []value.Value{num(math.MinInt64), num(-1)}, "null", ErrOverflow},
		{Sum, []value.Value{num(math.MinInt64)}, "-9223372036854775808", nil},
		{Sum, []value.Value{flt(.1), flt(.2), flt(.3)}, "0.6", nil}, // a naive sum gives 0.6000000000000001
		{Sum, []value.Value{flt(.5), num(1)}, "1.5", nil},
		{Sum, []value.Value{num(1 << 53), flt(.5), num(1), flt(.25)}, "9007199254740994", nil}, // 2^53+1.75 rounded once
		{Sum, []value.Value{num(math.MinInt64), num(math.MinInt64), flt(1)}, "-18446744073709552000", nil},
		{Sum, []value.Value{flt(0), num(-3)}, "-3", nil},
		{Sum, []value.Value{negZero}, "0", nil},
		{Sum, []value.Value{nan, num(1)}, `"NaN"`, nil},
		{Count, []value.Value{num(1), null, value.OfString("x"), value.OfBool(false)}, "3", nil},
		{Count, nil, "0", nil},
		{Min, []value.Value{num(3), null, flt(2.5), num(7)}, "2.5", nil},
		{Min, []value.Value{null}, "null", nil},
		{Min, []value.Value{nan, num(5)}, "5", nil},
		{Min, []value.Value{nan}, `"NaN"`, nil},
		{Max, []value.Value{nan, flt(math.Inf(1))}, `"NaN"`, nil},
		{Max, []value.Value{negZero, flt(0)}, "0", nil},
		{Max, []value.Value{flt(math.Inf(-1)), num(math.MinInt64)}, "-9223372036854775808", nil},
		{Max, []value.Value{num(1<<62 + 1), flt(1 << 62)}, "4611686018427387905", nil}, // would be equal as floats
		{Max, []value.Value{num(math.MaxInt64), flt(1 << 63)}, "9223372036854776000", nil},
	} {
		got, err := result(t, c.f, c.vs...)
		if got != c.want || err != c.err {
			t.Errorf("%s of %d values: %s, %v; want %s, %v", c.f, len(c.vs), got, err, c.want, c.err)
		}
	}
}

// The result is a function of the multiset: every order gives the same bytes, also where an integer equals a float.
func TestOrderDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	pick := []value.Value{null, num(0), num(1), num(math.MaxInt64), num(math.MinInt64), num(1 << 62), flt(1 << 62), flt(0), flt(math.Copysign(0, -1)),
		flt(1), flt(.1), flt(1e300), flt(-1e300), flt(5e-324), flt(math.NaN()), flt(math.Inf(1)), flt(math.Inf(-1)), flt(1 << 63), flt(-1 << 63)}
	for range 5000 {
		vs := make([]value.Value, 1+r.Intn(6))
		for i := range vs {
			vs[i] = pick[r.Intn(len(pick))]
		}
		for _, f := range []Func{Sum, Count, Min, Max} {
			want, wantErr := result(t, f, vs...)
			r.Shuffle(len(vs), func(i, j int) { vs[i], vs[j] = vs[j], vs[i] })
			if got, err := result(t, f, vs...); got != want || err != wantErr {
				t.Fatalf("%s: %s, %v in one order, %s, %v in another", f, want, wantErr, got, err)
			}
		}
	}
}

// Compare is a total order that agrees with exact arithmetic.
func TestCompareAgainstBig(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	draw := func() value.Value {
		switch r.Intn(4) {
		case 0:
			return num(int64(r.Uint64()))
		case 1:
			return flt(float64(int64(r.Uint64())) + r.Float64())
		case 2:
			return num(int64(r.Intn(5) - 2))
		}
		return flt(float64(r.Intn(9)-4) / 2)
	}
	exactly := func(v value.Value) *big.Float {
		if v.Kind() == value.Int {
			return new(big.Float).SetInt64(v.Int())
		}
		return new(big.Float).SetFloat64(v.Float())
	}
	for range 20000 {
		a, b := draw(), draw()
		if got, want := Compare(a, b), exactly(a).Cmp(exactly(b)); got != want {
			t.Fatalf("Compare(%v, %v) = %d, want %d", a.Any(), b.Any(), got, want)
		}
	}
	nan := flt(math.NaN())
	if Compare(nan, nan) != 0 || Compare(nan, flt(math.Inf(1))) != 1 || Compare(num(1), nan) != -1 || Compare(nan, num(math.MaxInt64)) != 1 {
		t.Error("NaN must be the greatest")
	}
}

func TestAccepts(t *testing.T) {
	for _, f := range []Func{Sum, Min, Max} {
		if f.Accepts(value.OfString("1")) || f.Accepts(value.OfBool(true)) || !f.Accepts(null) || !f.Accepts(num(1)) {
			t.Errorf("%s must take numbers and null only", f)
		}
	}
}
