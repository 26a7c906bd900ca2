// Package agg holds the aggregates. Each is commutative and associative exactly: its result is a function of the multiset of its
// arguments, never of their order.
package agg

import (
	"errors"
	"math/bits"
	"unsafe"

	"tapedeck.dev/tapedeck/processor/value"
)

// Func is an aggregate function.
type Func uint8

// The aggregate functions.
const (
	Sum   Func = iota // exact; of integers an integer, with any float among them a float rounded once
	Count             // of records, or of values that are not null
	Min               // least number; NaN is the greatest
	Max               // greatest number
)

func (f Func) String() string { return [...]string{"sum", "count", "min", "max"}[f] }

// Names lists the functions by the name they have in pipeline files.
var Names = map[string]Func{"sum": Sum, "count": Count, "min": Min, "max": Max}

// ErrOverflow says that an exact integer result does not fit 64 bits.
var ErrOverflow = errors.New("integer overflow")

// Accepts reports whether v may be an argument of f.
func (f Func) Accepts(v value.Value) bool { return f == Count || v.IsNull() || v.IsNumber() }

// Acc is the state of one aggregate over one group. The zero Acc is empty.
type Acc struct {
	count  int64     // values that were not null
	lo     uint64    // exact sum of the integers, 128 bits with sign: hi·2^64 + lo
	hi     int64     //
	floats *FloatSum // exact sum of the floats, nil before the first
	best   value.Value
}

// AccBytes is what an empty Acc takes in memory; Extra what it holds beyond that.
const AccBytes = int64(unsafe.Sizeof(Acc{}))

// Extra returns the bytes that a holds outside of itself.
func (a *Acc) Extra() int64 {
	if a.floats == nil {
		return 0
	}
	return int64(unsafe.Sizeof(FloatSum{})) + 8*int64(cap(a.floats.digits))
}

// Add adds one argument, which f must accept. Nulls are ignored. (Count of records: pass anything that is not null.)
func (f Func) Add(a *Acc, v value.Value) {
	if v.IsNull() {
		return
	}
	a.count++
	switch f {
	case Sum:
		if v.Kind() == value.Float {
			if a.floats == nil {
				a.floats = new(FloatSum)
			}
			a.floats.Add(v.Float())
			return
		}
		i := v.Int()
		lo, carry := bits.Add64(a.lo, uint64(i), 0)
		a.lo = lo
		a.hi += i>>63 + int64(carry)
	case Min:
		if a.count == 1 || before(v, a.best) {
			a.best = v
		}
	case Max:
		if a.count == 1 || after(v, a.best) {
			a.best = v
		}
	}
}

// Result returns the aggregate: null for sum, min and max of no value. The error is ErrOverflow.
func (f Func) Result(a *Acc) (value.Value, error) {
	switch {
	case f == Count:
		return value.OfInt(a.count), nil
	case a.count == 0:
		return value.Value{}, nil
	case f == Min || f == Max:
		return a.best, nil
	case a.floats == nil:
		if a.hi != int64(a.lo)>>63 {
			return value.Value{}, ErrOverflow
		}
		return value.OfInt(int64(a.lo)), nil
	}
	// Integers among the floats: the four 32-bit digits of their sum are floats without rounding, so the whole is still rounded once.
	sum := FloatSum{digits: append([]int64(nil), a.floats.digits...), first: a.floats.first, pending: a.floats.pending,
		nan: a.floats.nan, posInf: a.floats.posInf, negInf: a.floats.negInf}
	sum.Add(float64(a.lo & 0xffffffff))
	sum.Add(float64(a.lo>>32) * (1 << 32))
	sum.Add(float64(uint32(a.hi)) * (1 << 64))
	sum.Add(float64(a.hi>>32) * (1 << 96))
	return value.OfFloat(sum.Sum()), nil
}

// before and after order numbers; of an equal integer and float the integer is taken, so that the result has one form.
func before(v, best value.Value) bool {
	c := Compare(v, best)
	return c < 0 || c == 0 && v.Kind() == value.Int
}

func after(v, best value.Value) bool {
	c := Compare(v, best)
	return c > 0 || c == 0 && v.Kind() == value.Int
}

// Compare orders two numbers exactly, also an integer against a float: −1, 0 or 1. NaN equals NaN and is greater than everything else.
func Compare(a, b value.Value) int {
	switch {
	case a.Kind() == value.Int && b.Kind() == value.Int:
		return order(a.Int() < b.Int(), a.Int() > b.Int())
	case a.Kind() == value.Int:
		return compareIntFloat(a.Int(), b.Float())
	case b.Kind() == value.Int:
		return -compareIntFloat(b.Int(), a.Float())
	}
	x, y := a.Float(), b.Float()
	xNaN, yNaN := x != x, y != y
	if xNaN || yNaN {
		return order(!xNaN, !yNaN)
	}
	return order(x < y, x > y)
}

func compareIntFloat(i int64, f float64) int {
	const two63 = 1 << 63
	switch {
	case f != f || f >= two63:
		return -1
	case f < -two63:
		return 1
	}
	t := int64(f) // rounds towards zero, exact in this range
	if i != t {
		return order(i < t, i > t)
	}
	frac := f - float64(t)
	return order(frac > 0, frac < 0)
}

func order(less, greater bool) int {
	switch {
	case less && !greater:
		return -1
	case greater && !less:
		return 1
	}
	return 0
}
