package pace

import "math"

// Order is the rule of order "event-time". Partitions are numbered 0 to n−1. Each has a running maximum, the largest record timestamp that it
// has sent; one that has sent nothing yet stands at the smallest timestamp of what it will send. A partition may send while
//
//	its running maximum ≤ the least running maximum of the unfinished partitions + maxSkew
//
// A finished partition holds nobody back, nor does one that has no record left to send. The one that is furthest behind may always send,
// so the rule alone never stops everything. Not safe for concurrent use.
//
// How this goes together with a target that names the partition that it needs (HTTP 503): the need wins. Were it not so, the target could
// wait for q, which is too far ahead of p by this rule, while it refuses p: nobody would move.
type Order struct {
	maxSkew int64
	reached []int64
	open    []bool
	least   int // index of the least open one; −1 none, −2 not known
}

// NewOrder makes the rule for n partitions, all of them finished until they are Set.
func NewOrder(n int, maxSkew int64) *Order {
	return &Order{maxSkew: maxSkew, reached: make([]int64, n), open: make([]bool, n), least: -1}
}

// Set notes that partition i has reached a running maximum of ts ms, and whether it has records left to send (open). It may go back, as
// after a restart of the target.
func (o *Order) Set(i int, ts int64, open bool) {
	if o.reached[i] == ts && o.open[i] == open {
		return
	}
	o.reached[i], o.open[i] = ts, open
	o.least = -2
}

// Behind returns the partition that is furthest behind; ok is false where all have finished.
func (o *Order) Behind() (i int, ok bool) {
	if o.least == -2 {
		o.least = -1
		for i := range o.open {
			if o.open[i] && (o.least < 0 || o.reached[i] < o.reached[o.least]) {
				o.least = i
			}
		}
	}
	return o.least, o.least >= 0
}

// May reports whether partition i may send.
func (o *Order) May(i int) bool {
	if o.maxSkew < 0 {
		return true
	}
	least, ok := o.Behind()
	if !ok {
		return true
	}
	bound := o.reached[least]
	if bound > math.MaxInt64-o.maxSkew {
		return true
	}
	return o.reached[i] <= bound+o.maxSkew
}
