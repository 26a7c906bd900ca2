// Package job holds what a replay job is: the request, the states with their table, and the rule by which several replayers share
// jobs. Everything here is a function of its arguments: no clock, logger, context, store or network.
package job

import (
	"fmt"
	"slices"
	"strings"
)

// State of a job.
type State string

// The states. docs/replayer.md says what each means.
const (
	Starting   State = "STARTING"
	Running    State = "RUNNING"
	Paused     State = "PAUSED"
	Cancelling State = "CANCELLING"
	Completed  State = "COMPLETED"
	Cancelled  State = "CANCELLED"
	Failed     State = "FAILED"
)

// States in the order of a job's life.
var States = []State{Starting, Running, Paused, Cancelling, Completed, Cancelled, Failed}

// Owned reports whether a job in s needs a replayer that works on it.
func (s State) Owned() bool { return s == Starting || s == Running || s == Cancelling }

// Ended reports whether nothing happens in s until a user asks for it.
func (s State) Ended() bool { return s == Completed || s == Cancelled || s == Failed }

// Final reports whether no event leads out of s.
func (s State) Final() bool { return s == Completed || s == Cancelled }

// Event is what may happen to a job.
type Event string

// The events. Started, Delivered, CancelDone and Error come from the owner; Pause, Resume, Cancel and Retry from users; Takeover
// from any replayer.
const (
	Started    Event = "started"
	Pause      Event = "pause"
	Resume     Event = "resume"
	Cancel     Event = "cancel"
	Delivered  Event = "delivered"
	CancelDone Event = "cancelled"
	Error      Event = "error"
	Retry      Event = "retry"
	Takeover   Event = "takeover"
)

// Events in the order of the table in docs/replayer.md.
var Events = []Event{Started, Pause, Resume, Cancel, Delivered, CancelDone, Error, Retry, Takeover}

// UserEvents are those that people may ask for.
var UserEvents = []Event{Pause, Resume, Cancel, Retry}

// transitions is the table: a pair that is not in it is refused; one that leads to its own state changes nothing, except for
// Takeover, which changes the owner.
var transitions = map[State]map[Event]State{
	Starting:   {Started: Running, Cancel: Cancelling, Error: Failed, Takeover: Starting},
	Running:    {Pause: Paused, Resume: Running, Cancel: Cancelling, Delivered: Completed, Error: Failed, Takeover: Running},
	Paused:     {Pause: Paused, Resume: Running, Cancel: Cancelling, Delivered: Completed, Error: Failed},
	Cancelling: {Cancel: Cancelling, Delivered: Completed, CancelDone: Cancelled, Error: Failed, Takeover: Cancelling},
	Completed:  {},
	Cancelled:  {Cancel: Cancelled},
	Failed:     {Cancel: Cancelling, Retry: Starting},
}

// Move returns the state that e leads to from s. Where e is not possible, the error is an *IllegalError.
func Move(s State, e Event) (State, error) {
	to, ok := transitions[s][e]
	if !ok {
		return s, &IllegalError{State: s, Event: e}
	}
	return to, nil
}

// IllegalError says that an event is not possible in a state, and which of the users' events are.
type IllegalError struct {
	State State
	Event Event
}

func (e *IllegalError) Error() string {
	possible := Possible(e.State)
	if len(possible) == 0 {
		return fmt.Sprintf("%s is not possible: the job is %s, which is final; to run it again, start a job with another name", e.Event, e.State)
	}
	words := make([]string, len(possible))
	for i, p := range possible {
		words[i] = string(p)
	}
	return fmt.Sprintf("%s is not possible: the job is %s; possible now: %s", e.Event, e.State, strings.Join(words, ", "))
}

// Possible lists the users' events that change something in s.
func Possible(s State) []Event {
	var out []Event
	for _, e := range UserEvents {
		if to, ok := transitions[s][e]; ok && to != s {
			out = append(out, e)
		}
	}
	return slices.Clip(out)
}
