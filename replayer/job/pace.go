package job

import (
	"encoding/json"
	"errors"
	"fmt"

	"tapedeck.dev/tapedeck/replayer/pace"
)

// OrderEventTime holds partitions back that are further ahead in record time than maxSkew.
const OrderEventTime = "event-time"

// DefaultMaxSkew is how far a partition may be ahead of the furthest behind in order "event-time", in ms of record time.
const DefaultMaxSkew = 60_000

// Speed is a factor of the original pace, by record timestamps; 0 is as fast as possible, and "max" in JSON.
type Speed float64

// Bounds of a factor: a thousandth of the original pace to a million times.
const (
	minSpeed = 0.001
	maxSpeed = 1_000_000
)

const maxWord = "max"

// MarshalJSON writes "max" or the factor.
func (s Speed) MarshalJSON() ([]byte, error) {
	if s == 0 {
		return json.Marshal(maxWord)
	}
	return json.Marshal(float64(s))
}

// UnmarshalJSON reads either form.
func (s *Speed) UnmarshalJSON(data []byte) error {
	var word string
	var factor float64
	switch {
	case json.Unmarshal(data, &word) == nil && word == maxWord:
		*s = 0
	case json.Unmarshal(data, &factor) == nil && factor >= minSpeed && factor <= maxSpeed:
		*s = Speed(factor)
	default:
		return fmt.Errorf(`speed %.80s: give "max", or a factor of the original pace from %v to %d (0.5 is half of it, 2 twice)`, data, minSpeed, maxSpeed)
	}
	return nil
}

// Limits are what the request allows at most.
func (r *Request) Limits() pace.Limits {
	l := pace.Limits{Speed: float64(r.Speed)}
	if r.RecordsPerSecond != nil {
		l.RecordsPerSecond = *r.RecordsPerSecond
	}
	if r.BytesPerSecond != nil {
		l.BytesPerSecond = *r.BytesPerSecond
	}
	return l
}

// Skew is how far ahead a partition may be, in ms of record time; ordered is false where partitions do not wait for each other.
func (r *Request) Skew() (ms int64, ordered bool) {
	if r.Order != OrderEventTime {
		return 0, false
	}
	if r.MaxSkew == nil {
		return DefaultMaxSkew, true
	}
	return *r.MaxSkew, true
}

// checkPace checks speed, rates and order, and fills in what order "event-time" leaves open.
func (r *Request) checkPace() error {
	for _, f := range []struct {
		name  string
		value *int64
	}{{"recordsPerSecond", r.RecordsPerSecond}, {"bytesPerSecond", r.BytesPerSecond}} {
		if f.value != nil && *f.value < 1 {
			return fmt.Errorf("%s %d: give a whole number from 1, or leave it out for no limit", f.name, *f.value)
		}
	}
	switch {
	case r.Order != OrderEventTime && r.MaxSkew != nil:
		return fmt.Errorf(`maxSkew holds for order %q only; set the order, or leave maxSkew out`, OrderEventTime)
	case r.MaxSkew != nil && *r.MaxSkew < 0:
		return errors.New("maxSkew is negative: give milliseconds of record time from 0")
	case r.Order == OrderEventTime && r.MaxSkew == nil:
		ms := int64(DefaultMaxSkew)
		r.MaxSkew = &ms
	}
	return nil
}
