package partition

import (
	"errors"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// bounded starts a partition that is to end at end.
func bounded(t *testing.T, end int64, r Recovered) (*Partition, []Action) {
	t.Helper()
	p, _ := New(tp, config())
	if acts := p.On(0, EndAt{end}); len(acts) > 0 {
		t.Fatalf("%v", acts)
	}
	r.Identity = id
	return p, p.On(0, r)
}

func hasStop(acts []Action) bool {
	for _, a := range acts {
		if _, ok := a.(StopFetch); ok {
			return true
		}
	}
	return false
}

func putOf(acts []Action) *Sealed {
	for _, a := range acts {
		if p, ok := a.(Put); ok {
			return p.Segment
		}
	}
	return nil
}

// Whatever brings the position to the end, the last segment ends exactly there and nothing behind it is taken.
func TestEndsExactly(t *testing.T) {
	for name, c := range map[string]struct {
		end    int64
		events []Event
		next   []int64 // of the segments sealed
		from   int64   // next of the chain before
	}{
		"a record just before the end":       {end: 4, events: []Event{recs(0, 4)}, next: []int64{4}},
		"records beyond it in the batch":     {end: 4, events: []Event{recs(0, 9)}, next: []int64{4}},
		"the cut rule falls on the end":      {end: 10, events: []Event{recs(0, 12)}, next: []int64{10}},
		"several segments":                   {end: 14, events: []Event{recs(0, 30)}, next: []int64{10, 14}},
		"no record at the end: compaction":   {end: 8, events: []Event{recs(0, 4), recs(20, 22)}, next: []int64{8}},
		"an end of partition behind it":      {end: 8, events: []Event{recs(0, 4), End{11}}, next: []int64{8}},
		"an end of partition before it":      {end: 8, events: []Event{recs(0, 4), End{6}, End{8}}, next: []int64{8}},
		"markers alone":                      {end: 3, events: []Event{End{3}}, next: []int64{3}},
		"an empty log":                       {end: 0},
		"a chain that is there already":      {end: 10, from: 10, events: []Event{End{10}}},
		"a chain behind it":                  {end: 10, from: 13, events: []Event{End{13}}},
		"a chain, checked, and more records": {end: 15, from: 13, events: []Event{recs(12, 20)}, next: []int64{15}},
	} {
		t.Run(name, func(t *testing.T) {
			r := Recovered{Log: kafka.LogRange{End: 40}}
			if c.from > 0 {
				r.Tail = tail(t, c.from-1, c.from, 1)
			}
			p, acts := bounded(t, c.end, r)
			all := acts
			for _, ev := range c.events {
				all = append(all, p.On(0, ev)...)
			}
			if p.State() != Finished || !hasStop(all) {
				t.Fatalf("%s, %v", p.State(), all)
			}
			for _, want := range c.next {
				s := p.sealed[0]
				if s.Next != want {
					t.Errorf("sealed to %d, want %d", s.Next, want)
				}
				if p.Done() {
					t.Error("done before its put")
				}
				all = append(all, p.On(0, PutDone{Tail: put(t, s)})...)
			}
			if !p.Done() || p.Status().Archived != max(c.end, c.from) {
				t.Errorf("done %v, archived %d", p.Done(), p.Status().Archived)
			}
			if p.Status().Begin != c.from {
				t.Errorf("begin %d, want %d", p.Status().Begin, c.from)
			}
			// Nothing moves it any more.
			for _, ev := range []Event{recs(20, 25), End{40}, Tick{}, Squeeze{}, FetchFailed{errors.New("x")}, TopicID{"other"}, OutOfRange{0, 40}} {
				if acts := p.On(time.Hour, ev); len(acts) > 0 || p.State() != Finished {
					t.Fatalf("%T: %v", ev, acts)
				}
			}
		})
	}
}

// A chain that began at the log's end leaves out up to the end that was frozen, not up to what has come since.
func TestEndsExactlyWithStartLatest(t *testing.T) {
	p, acts := bounded(t, 5, Recovered{Begin: Begin{Offset: 9, Source: "latest"}, Log: kafka.LogRange{End: 9}})
	s := putOf(acts)
	if s == nil || s.Next != 5 || p.State() != Finished {
		t.Fatalf("%v, %s", acts, p.State())
	}
}

// Offsets that were lost up to behind the end: recorded as far as they are lost.
func TestEndInALostRange(t *testing.T) {
	cfg := config()
	cfg.Gap = GapRecord
	p, _ := New(tp, cfg)
	p.On(0, EndAt{5})
	acts := p.On(0, Recovered{Identity: id, Log: kafka.LogRange{Start: 7, End: 9}})
	if s := putOf(acts); s == nil || s.Next != 7 || p.State() != Finished || p.Status().Lost != 7 {
		t.Fatalf("%v, %s, %d lost", acts, p.State(), p.Status().Lost)
	}
}

// Another archiver is faster: what it wrote counts, and what is left to the end is still archived.
func TestOvertakenOnTheWayToTheEnd(t *testing.T) {
	winner := func(next int64) archive.Tail {
		tl := tail(t, next-1, next, 1)
		return *tl
	}
	for name, c := range map[string]struct {
		next  int64
		state State
	}{
		"its segment ends where ours does": {10, Finished},
		"before the end":                   {7, Checking},
		"at the end":                       {14, Finished},
		"behind the end":                   {16, Finished},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := bounded(t, 14, Recovered{Log: kafka.LogRange{End: 40}})
			p.On(0, recs(0, 20))
			if p.State() != Finished || len(p.sealed) != 2 {
				t.Fatalf("%s, %d sealed", p.State(), len(p.sealed))
			}
			p.On(0, PutDone{Adopted: true, Tail: winner(c.next)})
			if p.State() != c.state {
				t.Fatalf("%s", p.State())
			}
			switch {
			case c.state == Checking:
				p.On(0, recs(c.next-1, 20))
				if p.State() != Finished || len(p.sealed) != 1 || p.sealed[0].Start != c.next || p.sealed[0].Next != 14 {
					t.Fatalf("%s, %+v", p.State(), p.sealed)
				}
				p.On(0, PutDone{Tail: put(t, p.sealed[0])})
			case c.next == 10:
				s := p.sealed[0]
				if s.Start != 10 || s.Chain.Ordinal != 1 {
					t.Fatalf("%+v", s)
				}
				p.On(0, PutDone{Tail: put(t, s)})
			}
			if !p.Done() || p.Status().Archived != max(c.next, 14) {
				t.Errorf("done %v, archived %d", p.Done(), p.Status().Archived)
			}
		})
	}
}

// A put that is refused at the end stops the partition as ever.
func TestRefusedAtTheEnd(t *testing.T) {
	p, _ := bounded(t, 4, Recovered{Log: kafka.LogRange{End: 4}})
	p.On(0, recs(0, 4))
	p.On(0, PutFailed{Reason: BrokenChain, Err: errors.New("foreign")})
	if p.State() != Stopped || !p.Done() {
		t.Fatalf("%s", p.State())
	}
}

// A log that has become shorter than the end that was frozen never reaches it, and neither does another log: the run ends with a finding.
func TestAnEndThatIsNeverReached(t *testing.T) {
	p, _ := bounded(t, 100, Recovered{Log: kafka.LogRange{End: 100}})
	p.On(0, recs(0, 5))
	p.On(0, LogRange{End: 80})
	p.On(0, LogRange{End: 80})
	if p.On(0, LogRange{End: 100}); p.State() != Fetching {
		t.Fatal("a leader that is behind for a moment")
	}
	for range beyondEndTries {
		p.On(0, LogRange{End: 80})
	}
	if s := p.Status(); s.State != Stopped || s.Reason != Diverged || !p.Done() {
		t.Errorf("%+v", s)
	}

	cfg := config()
	cfg.Recreated = RecreatedIncarnation
	p, _ = New(tp, cfg)
	p.On(0, EndAt{100})
	p.On(0, Recovered{Identity: id, Log: kafka.LogRange{End: 100}})
	p.On(0, TopicID{"id2"})
	other := id
	other.TopicID = "id2"
	p.On(0, Recovered{Identity: other, Incarnation: 2, Log: kafka.LogRange{End: 3}})
	if s := p.Status(); s.State != Stopped || s.Reason != OtherLog {
		t.Errorf("%+v", s)
	}
}
