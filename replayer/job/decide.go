package job

import (
	"fmt"
	"time"
)

// Ask is what somebody wants to happen to a job.
type Ask struct {
	Event Event // one of the table, or Renew, Release
	// By is the replayer that asks; where work begins (Resume, Cancel, Retry, Takeover), it becomes the owner.
	By string
	// Epoch is the one under which an owner asks (Started, Delivered, CancelDone, Error, Renew, Release). Others leave it 0.
	Epoch int64
	// LeaseMs is the lease that By keeps, in ms.
	LeaseMs int64
	// Elapsed is how long By has seen this very entry as the newest, on its own monotonic clock (Takeover).
	Elapsed time.Duration
	// Restarted says that By has just started, and so is not at work on what it left behind (Takeover).
	Restarted bool

	At       time.Time  // for people
	Error    string     // Error
	Plan     *Pinned    // Started
	Progress []Progress // Started, Renew, Release and the ends; nil: as it was
	Target   *Outcome   // Delivered, CancelDone
}

// Events outside the table: they change no state.
const (
	// Renew keeps the lease and stores the progress.
	Renew Event = "renew"
	// Release gives the job up for anybody to take at once.
	Release Event = "release"
)

// ActionKind says what to do next.
type ActionKind int

// Kinds of Action.
const (
	// Append: create the next entry with Action.Job; if somebody else was first, load and decide again.
	Append ActionKind = iota
	// Nothing: it is so already.
	Nothing
	// Wait: the lease is not over; ask again after Action.Wait.
	Wait
	// Fenced: somebody else owns the job now; the asker must stop working on it.
	Fenced
	// Refuse: Action.Err says why.
	Refuse
)

func (k ActionKind) String() string {
	return [...]string{"append", "nothing", "wait", "fenced", "refuse"}[k]
}

// Action is the answer of Next.
type Action struct {
	Kind ActionKind
	Job  Job           // Append
	Wait time.Duration // Wait
	Err  error         // Refuse
}

// Next decides what an ask does to a job as it is now. It is the whole rule of sharing jobs; docs/replayer.md lists the races that
// it must get right. Whatever it answers is only a wish until the next entry of the sequence has been created.
func Next(cur Job, ask Ask) Action {
	switch ask.Event {
	case Renew, Release:
		return keep(cur, ask)
	case Takeover:
		return take(cur, ask)
	case Started, Delivered, CancelDone, Error:
		// An owner's word counts under the present epoch only. PAUSED has no owner, but the last one may still tell how it ended.
		if ask.Epoch != cur.Epoch {
			return Action{Kind: Fenced}
		}
	}
	to, err := Move(cur.State, ask.Event)
	if err != nil {
		return Action{Kind: Refuse, Err: err}
	}
	if to == cur.State {
		return Action{Kind: Nothing}
	}
	next := cur
	next.State = to
	next.Error = ""
	if ask.Progress != nil {
		next.Progress = ask.Progress
	}
	switch ask.Event {
	case Started:
		next.Plan = ask.Plan
		at := ask.At
		next.StartedAt = &at
	case Delivered, CancelDone:
		next.Target = ask.Target
	case Error:
		next.Error = ask.Error
		if next.Error == "" {
			next.Error = "no reason given"
		}
	case Resume, Retry:
		next = own(next, ask)
	case Cancel:
		// A running owner closes the session itself; where nobody is at work, the asker does it.
		if !cur.State.Owned() {
			next = own(next, ask)
		}
	}
	next.FinishedAt = nil
	if to.Ended() {
		at := ask.At
		next.FinishedAt = &at
	}
	if !to.Owned() {
		next.Owner = ""
	}
	return Action{Kind: Append, Job: next}
}

// own begins work under a new epoch, so that whatever the last owner still sends is refused by the target.
func own(j Job, ask Ask) Job {
	j.Owner, j.LeaseMs = ask.By, ask.LeaseMs
	j.Epoch++
	return j
}

func keep(cur Job, ask Ask) Action {
	if ask.Epoch != cur.Epoch || ask.By != cur.Owner || !cur.State.Owned() {
		return Action{Kind: Fenced}
	}
	next := cur
	if ask.Progress != nil {
		next.Progress = ask.Progress
	}
	next.LeaseMs = ask.LeaseMs
	if ask.Event == Release {
		next.Owner = ""
	}
	return Action{Kind: Append, Job: next}
}

func take(cur Job, ask Ask) Action {
	if _, err := Move(cur.State, Takeover); err != nil {
		return Action{Kind: Refuse, Err: err}
	}
	// Nobody asks for a job that it is at work on. One that is ours by name alone (a create that arrived after its caller had given up)
	// waits for the lease like any other.
	lease := time.Duration(cur.LeaseMs) * time.Millisecond
	free := cur.Owner == "" || cur.Owner == ask.By && ask.Restarted
	if !free && ask.Elapsed < lease {
		return Action{Kind: Wait, Wait: lease - ask.Elapsed}
	}
	return Action{Kind: Append, Job: own(cur, ask)}
}

// New returns the first entry of a job.
func New(r Request, by string, leaseMs int64, at time.Time) Job {
	return Job{Request: r, State: Starting, Epoch: 1, Owner: by, LeaseMs: leaseMs, CreatedAt: at}
}

// Describe is one line for logs.
func (j *Job) Describe() string {
	return fmt.Sprintf("%s %s epoch %d owner %q", j.Request.Name, j.State, j.Epoch, j.Owner)
}
