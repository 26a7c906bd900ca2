package partition

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/segment"
)

func TestANewChain(t *testing.T) {
	skip := func(from, to int64, c segment.Class) segment.Skip { return segment.Skip{From: from, To: to, Class: c} }
	for _, tt := range []struct {
		name    string
		gap     GapPolicy
		begin   Begin
		log     kafka.LogRange
		reason  Reason // of a stop
		fetch   int64
		skipped []segment.Skip // of its first segment, sealed at once where its start was chosen
	}{
		{name: "earliest", log: kafka.LogRange{End: 50}},
		{name: "the end of an empty log", begin: Begin{Offset: 0}, log: kafka.LogRange{}},
		{name: "the end", begin: Begin{Offset: 50}, log: kafka.LogRange{Start: 2, End: 50}, fetch: 50, skipped: []segment.Skip{skip(0, 50, segment.NotArchived)}},
		{name: "in the middle", begin: Begin{Offset: 7}, log: kafka.LogRange{End: 50}, fetch: 7, skipped: []segment.Skip{skip(0, 7, segment.NotArchived)}},
		{name: "retention has passed a time since it was looked up", begin: Begin{Offset: 7}, log: kafka.LogRange{Start: 9, End: 50}, fetch: 9,
			skipped: []segment.Skip{skip(0, 7, segment.NotArchived), skip(7, 9, segment.Lost)}},
		{name: "named, and there", begin: Begin{Offset: 7, Named: true}, log: kafka.LogRange{Start: 7, End: 50}, fetch: 7, skipped: []segment.Skip{skip(0, 7, segment.NotArchived)}},
		{name: "named, and gone: a gap", begin: Begin{Offset: 7, Named: true}, log: kafka.LogRange{Start: 9, End: 50}, reason: Gap},
		{name: "named, and gone, recorded", gap: GapRecord, begin: Begin{Offset: 7, Named: true}, log: kafka.LogRange{Start: 9, End: 50}, fetch: 9,
			skipped: []segment.Skip{skip(0, 7, segment.NotArchived), skip(7, 9, segment.Lost)}},
		{name: "at the end, named", begin: Begin{Offset: 50, Named: true}, log: kafka.LogRange{End: 50}, fetch: 50, skipped: []segment.Skip{skip(0, 50, segment.NotArchived)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config()
			cfg.Gap = tt.gap
			tt.begin.Source = "a test"
			p, acts := started(t, cfg, Recovered{Committed: kafka.CommitOffset{Offset: -1}, Log: tt.log, Begin: tt.begin})
			if tt.reason != "" {
				if p.State() != Stopped || p.reason != tt.reason || len(only[Fetch](acts)) > 0 || p.Status().Seam != nil {
					t.Fatalf("%s %s %+v", p.State(), p.reason, acts)
				}
				if !strings.Contains(p.lastErr, "offsets 7 to 8") {
					t.Error(p.lastErr)
				}
				return
			}
			if d := cmp.Diff([]Fetch{{tt.fetch, -1}}, only[Fetch](acts)); d != "" || p.State() != Fetching {
				t.Error(p.State(), d)
			}
			if d := cmp.Diff(&Seam{tt.fetch, "a test"}, p.Status().Seam); d != "" {
				t.Error(d)
			}
			puts := only[Put](acts)
			if tt.skipped == nil {
				if len(puts) > 0 {
					t.Errorf("%+v", puts)
				}
				return
			}
			if len(puts) != 1 {
				t.Fatal("what the chain leaves out is not written at once")
			}
			done := put(t, puts[0].Segment)
			if h := done.Header; h.Start != 0 || h.Next != tt.fetch || h.Count != 0 || !cmp.Equal(tt.skipped, h.Skipped) {
				t.Errorf("[%d, %d): %v", h.Start, h.Next, h.Skipped)
			}
			// Another's first segment under the name: the chain begins where that one says.
			done.Header.Next = tt.fetch + 3
			if p.On(0, PutDone{Adopted: true, Tail: done}); p.Status().Seam != nil || p.position != tt.fetch+3 {
				t.Errorf("seam %+v, position %d", p.Status().Seam, p.position)
			}
		})
	}
}

func TestAChainThatIsThereBeginsNowhereElse(t *testing.T) {
	p, acts := started(t, config(), Recovered{Tail: tail(t, 9, 10, 2), Committed: kafka.CommitOffset{Offset: -1}, Log: kafka.LogRange{End: 99}, Begin: Begin{Offset: 50, Named: true}})
	if d := cmp.Diff([]Fetch{{9, 2}}, only[Fetch](acts)); d != "" || p.State() != Checking || p.Status().Seam != nil {
		t.Error(p.State(), d)
	}
}

func TestABeginningBeyondTheEndIsAskedForAgainAndThenStops(t *testing.T) {
	r := Recovered{Identity: id, Committed: kafka.CommitOffset{Offset: -1}, Log: kafka.LogRange{End: 9}, Begin: Begin{Offset: 10, Named: true, Source: "group:x"}}
	p, acts := started(t, config(), r)
	for i := range 2 {
		if again := only[Recover](acts); len(again) != 1 || again[0].After <= 0 || p.State() != Recovering {
			t.Fatalf("try %d: %s %+v", i, p.State(), acts)
		}
		acts = p.On(0, r)
	}
	if p.State() != Stopped || p.reason != BadStart || !strings.Contains(p.lastErr, "group:x") {
		t.Errorf("%s %s %s", p.State(), p.reason, p.lastErr)
	}
	if puts := only[Put](p.On(time.Hour, Tick{})); len(puts) > 0 {
		t.Errorf("%+v", puts)
	}
}
