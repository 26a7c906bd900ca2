package main

import (
	"fmt"
	"io"

	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/shared/service"
)

// gapsLeft is the outcome of a COMPLETED job: what was passed over is a finding, however much somebody asked for it.
func gapsLeft(v *manager.View) error {
	if len(v.Gaps) == 0 {
		return nil
	}
	g := v.Gaps[0]
	return &service.ExitError{Code: exitOutcome, Err: fmt.Errorf("job %s is COMPLETED with gaps: %d objects could not be read and were passed over; the first is %s [%d, %d): %s",
		v.Name, len(v.Gaps), g.TopicPartition, g.From, g.To, g.Reason)}
}

func gapsTable(w io.Writer, v *manager.View) error {
	if len(v.Gaps) == 0 {
		return nil
	}
	rows := [][]any{{"GAP IN", "FROM", "TO", "CLASS", "BYTE", "OBJECT"}}
	for _, g := range v.Gaps {
		at := "-"
		if g.Byte >= 0 {
			at = fmt.Sprint(g.Byte)
		}
		rows = append(rows, []any{g.TopicPartition, g.From, g.To, g.Class, at, g.Key})
	}
	return table(w, rows)
}
