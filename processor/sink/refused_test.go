package sink

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

func TestRefused(t *testing.T) {
	aside := func(offset string, value int, more ...record.Header) engine.Output {
		return engine.Output{Kind: engine.Late, Record: record.Record{Topic: "out.late", Partition: 3, Timestamp: 1, Value: make([]byte, value),
			Headers: append(more, record.Header{Key: engine.HeaderTopic, Value: []byte("in")},
				record.Header{Key: engine.HeaderPartition, Value: []byte("3")}, record.Header{Key: engine.HeaderOffset, Value: []byte(offset)})}}
	}
	result := engine.Output{Kind: engine.Result, Record: record.Record{Topic: "out", Partition: 1, Timestamp: 1,
		Value: []byte(`{"window_start":10,"window_end":20,"k":"` + strings.Repeat("é", 500) + `"}`)}}
	for _, c := range []struct {
		name string
		outs []engine.Output
		want string
	}{
		{"the largest", []engine.Output{aside("7", 10), aside("8", 5000), result}, "late record of in-3@8 ("},
		{"a result", []engine.Output{aside("7", 10), result}, `the result {"window_start":10,"window_end":20,"k":"é`},
		{"one that this client cannot send", []engine.Output{aside("8", 5000), aside("9", 1, record.Header{Key: "a\x00"})}, "in-3@9 ("},
		{"a copy of our own headers in the source", []engine.Output{aside("8", 1, record.Header{Key: engine.HeaderOffset, Value: []byte("1")})}, "in-3@8 ("},
		{"no output", nil, "a decision"},
	} {
		err := Refused(fmt.Errorf("commit: %w", kafka.ErrCannotProduce), c.outs)
		var refused *RefusedError
		if !errors.As(err, &refused) || !errors.Is(err, kafka.ErrCannotProduce) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if len(err.Error()) > 600 {
			t.Errorf("%s: the message has %d bytes", c.name, len(err.Error()))
		}
	}
	for _, err := range []error{nil, kafka.ErrFenced, kafka.ErrAbortable, kafka.ErrUnreachable, errors.New("x")} {
		if got := Refused(err, []engine.Output{result}); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}
