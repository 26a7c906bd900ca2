package job

import (
	"errors"
	"fmt"

	"tapedeck.dev/tapedeck/shared/session"
)

// What happens to an object of the archive that cannot be read: gone, damaged, or not given out by the store.
const (
	UnreadableFails = "fail"
	UnreadableSkip  = "skip"
)

// checkContent holds the fields that leave records out, or choose them by what they hold, against themselves.
func (r *Request) checkContent() error {
	if r.OnUnreadable != "" && r.OnUnreadable != UnreadableSkip {
		return fmt.Errorf("onUnreadable %.80q is unknown; give fail or skip", r.OnUnreadable)
	}
	if r.Filter != nil {
		if err := r.Filter.check(); err != nil {
			return err
		}
	}
	if r.Windows != nil {
		if err := r.checkWindows(); err != nil {
			return err
		}
	}
	return nil
}

// contentPromise reports which of these fields a processor could not reproduce the live run with.
func (r *Request) contentPromise() error {
	if r.Promise != session.Reproduce {
		return nil
	}
	for _, c := range []struct {
		given bool
		what  string
	}{
		{r.Filter != nil, "filter leaves records out, so"},
		{r.OnUnreadable != "", `onUnreadable "skip" may leave records out, so`},
		{r.Windows != nil, "windows compute a part of the results anew, beginning in the middle, so"},
	} {
		if c.given {
			return fmt.Errorf(`%s the result cannot be what the live run had; ask for promise "recompute"`, c.what)
		}
	}
	return nil
}

// contentKafka reports which of these fields a restore into Kafka does not have.
func (r *Request) contentKafka() error {
	switch {
	case r.Windows != nil:
		return errors.New("windows are for a target of type processor: a restore knows no event time; give from and until")
	case r.OnUnreadable != "":
		return errors.New(`onUnreadable "skip" for a target of type kafka is not in this version`)
	}
	return nil
}
