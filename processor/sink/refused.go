package sink

import (
	"errors"
	"fmt"
	"strings"

	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// RefusedError says that Kafka, or our client, will never take one of the outputs: doing the same again is of no use.
type RefusedError struct {
	Output string // which output it is, most likely: its topic and partition, and its source record or its window
	Err    error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s cannot be written: %v; where it is too large, raise max.message.bytes of the topic "+
		"(and message.max.bytes and batch.size of the producer, if they were set), then start again", e.Output, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Refused returns a *RefusedError where err, met while outs were written in one transaction, is a refusal for good, and err itself where it
// is not. A broker refuses batches and says neither which record nor why it was too large, so the output named is the first that
// is beyond what our client can send, else the largest.
func Refused(err error, outs []engine.Output) error {
	var already *RefusedError
	if !errors.Is(err, kafka.ErrCannotProduce) || errors.As(err, &already) {
		return err
	}
	return &RefusedError{Output: describe(suspect(outs)), Err: err}
}

func suspect(outs []engine.Output) *engine.Output {
	var worst *engine.Output
	for i := range outs {
		o := &outs[i]
		if !sendable(o) {
			return o
		}
		if worst == nil || size(o) > size(worst) {
			worst = o
		}
	}
	return worst
}

func sendable(o *engine.Output) bool {
	if ts := o.Record.Timestamp; ts < 1 || ts > engine.MaxTime {
		return false
	}
	for _, h := range o.Record.Headers {
		if strings.IndexByte(h.Key, 0) >= 0 {
			return false
		}
	}
	return true
}

func size(o *engine.Output) int {
	n := len(o.Record.Key) + len(o.Record.Value)
	for _, h := range o.Record.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

func describe(o *engine.Output) string {
	if o == nil {
		return "a decision"
	}
	to := o.Record.TP()
	if o.Kind != engine.Result {
		// A source record may have headers of the same names; the engine's own are behind them.
		from := map[string]string{}
		for _, h := range o.Record.Headers {
			from[h.Key] = string(h.Value)
		}
		return fmt.Sprintf("the %s record of %s-%s@%s (%d bytes, to %s)", o.Kind,
			from[engine.HeaderTopic], from[engine.HeaderPartition], from[engine.HeaderOffset], size(o), to)
	}
	// The value begins with the window; its key may be most of it.
	const shown = 100
	value := string(o.Record.Value)
	if len(value) > shown {
		value = strings.ToValidUTF8(value[:shown], "") + "…"
	}
	return fmt.Sprintf("the result %s (%d bytes, to %s)", value, size(o), to)
}
