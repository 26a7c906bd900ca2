package partition

import (
	"testing"

	"tapedeck.dev/tapedeck/shared/kafka"
)

// A chain whose start another process might choose otherwise is written with the first that it holds, not by the usual rules; one that begins at the
// earliest offset is not.
func TestAChosenStartIsSettledByTheFirstRecord(t *testing.T) {
	for _, settle := range []bool{true, false} {
		for name, ev := range map[string]Event{"a record": recs(0, 1), "markers alone": End{3}} {
			p, _ := started(t, config(), Recovered{Identity: id, Begin: Begin{Source: "latest", Settle: settle}, Log: kafka.LogRange{}})
			s := putOf(p.On(0, ev))
			if (s != nil) != settle {
				t.Fatalf("%s, settle %t: put %+v", name, settle, s)
			}
			if !settle {
				continue
			}
			if s.Start != 0 || s.Cause != CauseStart {
				t.Errorf("%s: %+v", name, s)
			}
			p.On(0, PutDone{Tail: put(t, s)})
			if s := putOf(p.On(0, recs(s.Next, s.Next+2))); s != nil {
				t.Errorf("%s: the second segment ends early: %+v", name, s)
			}
		}
	}
}
