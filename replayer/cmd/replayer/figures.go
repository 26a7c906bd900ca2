package main

import (
	"fmt"
	"io"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/service"
)

// figuresTable writes what a plan says beside its ranges. What is not known is said.
func figuresTable(w io.Writer, p *run.Plan) error {
	for _, g := range p.Gaps {
		fmt.Fprintf(w, "gaps: %d offsets %s, in %d ranges\n", g.Offsets, g.Class, g.Ranges)
	}
	planning := "not counted"
	if c := p.Calls.Planning; c != nil {
		planning = fmt.Sprintf("%d LIST, %d GET", c.List, c.Get)
	}
	fmt.Fprintf(w, "store calls: %s for this plan; %d GET to run it\n", planning, p.Calls.Reading.Get)
	if e := p.Estimate; e != nil {
		fmt.Fprintf(w, "takes at least %s, by %s\n", (time.Duration(e.Seconds * float64(time.Second))).Round(time.Millisecond), e.By)
	} else {
		fmt.Fprintln(w, "time: not known, as fast as store and target are")
	}
	switch {
	case !p.Looked:
		fmt.Fprintln(w, "objects: not looked for")
	case len(p.Unreadable) == 0:
		fmt.Fprintln(w, "objects: all are there, of their size, none in cold storage")
	default:
		rows := [][]any{{"UNREADABLE IN", "FROM", "TO", "WHY", "CLASS", "OBJECT"}}
		for _, u := range p.Unreadable {
			rows = append(rows, []any{u.TopicPartition, u.Start, u.Next, u.Why, u.Class, u.Key})
		}
		return table(w, rows)
	}
	return nil
}

// unreadable is the outcome of a plan whose objects are known not to be readable, where the request does not pass over such.
func unreadable(p *run.Plan) error {
	u := p.Unreadable[0]
	return &service.ExitError{Code: exitOutcome, Err: fmt.Errorf("%d planned objects cannot be read now, the first is %s (%s); restore or repair them, or pass over them with --on-unreadable skip",
		len(p.Unreadable), u.Key, u.Why)}
}

// passes reports whether a request passes over what cannot be read.
func passes(body []byte) bool {
	r, err := job.ParseRequest(body)
	return err == nil && r.OnUnreadable == job.UnreadableSkip
}
