package trips

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Defaults of GenerateOptions.
const (
	DefaultUsers     = 200
	DefaultInterval  = 25 * time.Millisecond
	DefaultDisorder  = 8 * time.Second
	DefaultLateShare = 0.01

	// lateBy and lateSpread: a late trip's pickup lies this much, up to this much more, before its arrival. With the disorder
	// kept below, that is behind a window of 10 s and a delay of 10 s.
	lateBy     = 20 * time.Second
	lateSpread = 60 * time.Second
)

// DefaultStart is the arrival of the first generated trip.
var DefaultStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// GenerateOptions describe generated trips. A field's zero value is its default.
type GenerateOptions struct {
	Seed      uint64
	Count     int
	First     int           // index of the first trip: [First, First+Count) of one endless sequence
	Start     time.Time     // arrival of trip 0; DefaultStart
	Interval  time.Duration // between arrivals, ≥ 1 ms; DefaultInterval
	Users     int           // DefaultUsers; few of them take most trips
	Disorder  time.Duration // a pickup lies up to this much before its arrival; DefaultDisorder
	LateShare float64       // share of trips that come later than lateBy after Disorder, 0 to 1; DefaultLateShare; negative: none
}

func (o GenerateOptions) withDefaults() GenerateOptions {
	if o.Start.IsZero() {
		o.Start = DefaultStart
	}
	if o.Interval <= 0 {
		o.Interval = DefaultInterval
	}
	if o.Users <= 0 {
		o.Users = DefaultUsers
	}
	if o.Disorder <= 0 {
		o.Disorder = DefaultDisorder
	}
	if o.LateShare == 0 {
		o.LateShare = DefaultLateShare
	}
	return o
}

// Generate yields o.Count trips.
func Generate(o GenerateOptions) Source {
	o = o.withDefaults()
	return func(yield func(Trip, error) bool) {
		for i := o.First; i < o.First+o.Count; i++ {
			if !yield(o.trip(i), nil) {
				return
			}
		}
	}
}

// trip makes the i-th trip; it depends on nothing but the options and i.
func (o GenerateOptions) trip(i int) Trip {
	r := rand.New(rand.NewPCG(o.Seed, uint64(i)))
	// The least of three equal draws: user 0 takes most, the last almost none.
	user := min(r.IntN(o.Users), r.IntN(o.Users), r.IntN(o.Users))
	cents := 300 + r.IntN(1200) + r.IntN(4000)*r.IntN(3)/2
	arrival := o.Start.UnixMilli() + int64(i)*max(1, o.Interval.Milliseconds())
	lag := r.Int64N(o.Disorder.Milliseconds() + 1)
	if r.Float64() < o.LateShare {
		lag = (o.Disorder + lateBy).Milliseconds() + r.Int64N(lateSpread.Milliseconds())
	}
	return Trip{
		UserID:      fmt.Sprintf("user-%04d", user),
		Price:       float64(cents) / 100,
		PickupMs:    arrival - lag,
		Distance:    float64(30+r.IntN(2000)) / 100,
		Passengers:  int32(1 + min(r.IntN(6), r.IntN(6))),
		PickupZone:  zones[r.IntN(len(zones))],
		DropoffZone: zones[r.IntN(len(zones))],
		ArrivalMs:   arrival,
	}
}

var zones = []string{
	"Astoria", "Battery Park", "Bedford", "Bloomingdale", "Central Harlem", "Central Park", "Chelsea", "Clinton Hill",
	"East Village", "Financial District", "Flatiron", "Gramercy", "Greenpoint", "Jackson Heights", "Kips Bay", "Lenox Hill",
	"Midtown East", "Morningside Heights", "Murray Hill", "Park Slope", "Sunnyside", "Tribeca", "Union Square", "Yorkville",
}
