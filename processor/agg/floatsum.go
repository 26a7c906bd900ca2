package agg

import "math"

// FloatSum is an exact sum of float64 values, rounded once, when it is read. The order of the additions cannot matter, because inside it
// adds integers: a float64 is a whole multiple of 2^-1074, and the sum is kept as such a multiple in digits of 32 bits.
//
// This is Kulisch's long accumulator in the form of R. M. Neal, "Fast exact summation using small and large superaccumulators"
// (arXiv:1505.05571, 2015): digits in int64, so that carries are settled only now and then. Only the digits in use are stored:
// sums of values of similar size need four or five of the 67.
type FloatSum struct {
	digits  []int64 // digits[i] counts 2^(32*(first+i)) units of 2^-1074
	first   int
	pending int // additions since the carries were settled
	nan     bool
	posInf  bool
	negInf  bool
}

// settleEvery bounds |digit|: each addition changes a digit by less than 2^32, so 2^29 of them stay below 2^62.
const settleEvery = 1 << 29

// Add adds x.
func (s *FloatSum) Add(x float64) {
	bits := math.Float64bits(x)
	exp := int(bits>>52) & 0x7ff
	mant := bits & (1<<52 - 1)
	switch exp {
	case 0x7ff:
		s.nan = s.nan || mant != 0
		s.posInf = s.posInf || mant == 0 && x > 0
		s.negInf = s.negInf || mant == 0 && x < 0
		return
	case 0:
		exp = 1 // subnormal, or zero
	default:
		mant |= 1 << 52
	}
	if mant == 0 {
		return
	}
	at, shift := (exp-1)>>5, uint(exp-1)&31
	lo, hi := mant<<shift, mant>>(64-shift)
	s.cover(at, at+3)
	d := s.digits[at-s.first : at-s.first+3]
	if bits>>63 == 0 {
		d[0] += int64(lo & 0xffffffff)
		d[1] += int64(lo >> 32)
		d[2] += int64(hi)
	} else {
		d[0] -= int64(lo & 0xffffffff)
		d[1] -= int64(lo >> 32)
		d[2] -= int64(hi)
	}
	if s.pending++; s.pending == settleEvery {
		s.digits = settle(s.digits)
		s.pending = 0
	}
}

// cover makes digits [from, to) addressable.
func (s *FloatSum) cover(from, to int) {
	if s.digits == nil {
		s.digits, s.first = make([]int64, to-from), from
		return
	}
	if from < s.first {
		grown := make([]int64, s.first-from+len(s.digits))
		copy(grown[s.first-from:], s.digits)
		s.digits, s.first = grown, from
	}
	for s.first+len(s.digits) < to {
		s.digits = append(s.digits, 0)
	}
}

// settle moves carries up: every digit but the last ends in [0, 2^32), the last keeps the sign.
func settle(d []int64) []int64 {
	for i := 0; i < len(d); i++ {
		carry := d[i] >> 32 // rounds down, also for negative digits
		if i+1 == len(d) {
			if carry == 0 || carry == -1 {
				break
			}
			d = append(d, 0)
		}
		d[i] -= carry << 32
		d[i+1] += carry
	}
	return d
}

// Sum returns the exact sum rounded to the nearest float64, ties to even; beyond the largest finite value that is an infinity. A NaN, or
// both infinities, give NaN.
func (s *FloatSum) Sum() float64 {
	switch {
	case s.nan || s.posInf && s.negInf:
		return math.NaN()
	case s.posInf:
		return math.Inf(1)
	case s.negInf:
		return math.Inf(-1)
	}
	d := settle(append([]int64(nil), s.digits...))
	negative := len(d) > 0 && d[len(d)-1] < 0
	if negative {
		for i := range d {
			d[i] = -d[i]
		}
		d = settle(d)
	}
	top := len(d) - 1
	for top >= 0 && d[top] == 0 {
		top--
	}
	if top < 0 {
		return 0
	}
	f := round(d[:top+1], s.first)
	if negative {
		return -f
	}
	return f
}

// round converts the positive number Σ d[i]·2^(32(first+i)−1074), digits in [0, 2^32), the last not 0.
func round(d []int64, first int) float64 {
	// bit reports bits [pos, pos+64) of the number in units of 2^-1074.
	word := func(pos int) uint64 {
		digit := func(i int) uint64 {
			if i -= first; i < 0 || i >= len(d) {
				return 0
			}
			return uint64(d[i])
		}
		i, shift := pos>>5, uint(pos)&31
		return (digit(i)|digit(i+1)<<32)>>shift | digit(i+2)<<(64-shift)
	}
	high := 32 * (first + len(d) - 1)
	for v := d[len(d)-1]; v > 1; v >>= 1 {
		high++
	}
	drop := high - 52 // bits below the 53 that are kept
	if drop <= 0 {
		// At most 53 bits of the smallest unit: exact, and the encoding of float64 is linear here.
		return math.Float64frombits(word(0))
	}
	mant := word(drop) & (1<<53 - 1)
	half := word(drop-1)&1 == 1
	if half {
		tie := true
		for i, v := range d {
			if pos := 32 * (first + i); pos >= drop-1 {
				break
			} else if pos+32 > drop-1 {
				v &= 1<<uint(drop-1-pos) - 1
				tie = tie && v == 0
			} else {
				tie = tie && v == 0
			}
		}
		if !tie || mant&1 == 1 {
			mant++
		}
	}
	if mant == 1<<53 {
		mant >>= 1
		drop++
	}
	if drop+1 >= 0x7ff {
		return math.Inf(1)
	}
	return math.Float64frombits(uint64(drop+1)<<52 | mant&(1<<52-1))
}
