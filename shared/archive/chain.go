package archive

import (
	"context"
	"errors"

	"tapedeck.dev/tapedeck/shared/store"
)

// The chain of a partition is a linked list of segments. A segment's name holds its start only, every object is created
// with "if nothing is there", and a writer's next start is the next of the newest segment that it has seen confirmed. So
// each start is 0 or an existing segment's next, each is taken once, and two writers that disagree about anything collide
// on one name, where exactly one of them wins and the other goes on behind it.
//
// What a writer does after an answer of the store, and after a look at the object where the answer does not settle it:
//
//	answer                                     | the object under the name            | then
//	-------------------------------------------+--------------------------------------+----------------------------------
//	created (200)                              | not looked at                        | confirm
//	exists (412, 304)                          | not looked at                        | look
//	unknown (409, time-out, reset, 5xx,        | not looked at                        | look
//	  200 with an error body, 404 on complete) |                                      |
//	not allowed (401, 403, expired)            | never looked at: nothing was written | wait, put again
//	invalid (400, 411, 501)                    | never looked at: nothing was written | stop
//	cancelled                                  | never looked at                      | stop; it may still appear
//	exists or unknown                          | our very bytes                       | confirm
//	exists or unknown                          | same log, other cut                  | adopt, go on at its next
//	exists or unknown                          | same log, other place in the chain   | stop: the chain is broken
//	exists or unknown                          | another log                          | stop: other log
//	exists or unknown                          | no segment                           | stop: foreign
//	exists or unknown                          | the look failed                      | wait, look again
//	unknown                                    | nothing                              | wait, put again
//	exists                                     | nothing                              | wait, look again; at last stop
//
// Two rows deserve their reason. After "unknown" with nothing there the try may still land: putting the same bytes again
// is safe, since whichever of the two comes second is refused. After "exists" with nothing there the object was removed,
// and the segments after it may have been removed too; a second put could be accepted far behind the real tail, so it is
// never made: a store that shows the object late is given a few looks, and then the partition stops.
//
// A 409 is not a loss to another writer: it is answered to both of two writers that met, also where neither wrote. To go
// on as after a loss would leave a hole. (All of this is checked by the simulation in sim_test.go, which finds a broken
// archive within a few runs where one of the rules is left out.)

// answer is what the store said to a create.
type answer int

const (
	created answer = iota
	exists
	unknown
	notAllowed
	invalid
	cancelled
)

// seen is what a look at the object under the name showed.
type seen int

const (
	notLooked  seen = iota
	absent          // nothing there
	ours            // our very bytes
	otherCut        // a segment of our log at our place in the chain, with another range or other bytes
	otherPlace      // a segment of our log that claims another place in the chain
	otherLog        // a segment of another log
	foreign         // not readable as a segment
	lookFailed      // the store did not answer the look
)

// action is what a writer does next.
type action int

const (
	confirm   action = iota // our segment holds the name
	adopt                   // the winner's segment holds the name: go on at its next
	look                    // read the object's header now
	putAgain                // wait, then put the same bytes again
	lookAgain               // wait, then look again
	stop                    // end with an error
)

// rule is one row of the table.
type rule struct {
	answer answer
	seen   seen
	then   action
}

// table is the table above as data. Pairs that it does not hold cannot occur.
var table = []rule{
	{created, notLooked, confirm},
	{exists, notLooked, look},
	{unknown, notLooked, look},
	{notAllowed, notLooked, putAgain},
	{invalid, notLooked, stop},
	{cancelled, notLooked, stop},

	{exists, absent, lookAgain},
	{exists, ours, confirm},
	{exists, otherCut, adopt},
	{exists, otherPlace, stop},
	{exists, otherLog, stop},
	{exists, foreign, stop},
	{exists, lookFailed, lookAgain},

	{unknown, absent, putAgain},
	{unknown, ours, confirm},
	{unknown, otherCut, adopt},
	{unknown, otherPlace, stop},
	{unknown, otherLog, stop},
	{unknown, foreign, stop},
	{unknown, lookFailed, lookAgain},
}

// decide looks up the table. A pair that is not in it stops the writer.
func decide(a answer, s seen) action {
	for _, r := range table {
		if r.answer == a && r.seen == s {
			return r.then
		}
	}
	return stop
}

// classify maps the error of a store's Create to an answer. An error that is none of the contract's says nothing about
// the object, so it is unknown.
func classify(ctx context.Context, err error) answer {
	switch {
	case err == nil:
		return created
	case errors.Is(err, store.ErrExists):
		return exists
	case errors.Is(err, store.ErrNotAllowed):
		return notAllowed
	case errors.Is(err, store.ErrInvalid):
		return invalid
	case ctx.Err() != nil:
		return cancelled
	default:
		return unknown
	}
}
