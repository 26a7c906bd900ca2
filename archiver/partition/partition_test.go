package partition

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

var (
	tp = kafka.TP{Topic: "t", Partition: 1}
	id = segment.LogIdentity{ClusterID: "c", TopicID: "id1", Topic: "t", Partition: 1, Isolation: "read_committed"}
)

func config() Config {
	return Config{Rule: segment.CutRule{FlushSize: 10}, RotateAge: time.Minute, Codec: "null", Gap: GapStop}
}

func rec(offset int64) record.Record {
	return record.Record{Topic: "t", Partition: 1, Offset: offset, Timestamp: 1000 + offset, Value: fmt.Appendf(nil, "v%d", offset), LeaderEpoch: record.NoEpoch}
}

func recs(from, to int64) Records {
	var r Records
	for o := from; o < to; o++ {
		r.Records = append(r.Records, rec(o))
	}
	return r
}

// put closes a sealed segment as the put worker does.
func put(t *testing.T, s *Sealed) archive.Tail {
	t.Helper()
	data, h, err := s.Writer.Close(s.Next, s.Chain, nil)
	if err != nil {
		t.Fatal(err)
	}
	return archive.Tail{Header: h, Size: int64(len(data))}
}

// tail makes the tail of a chain that holds [0, next) with records up to last.
func tail(t *testing.T, last, next int64, epoch int32) *archive.Tail {
	t.Helper()
	w, err := segment.NewWriter(id, 0, "null")
	if err != nil {
		t.Fatal(err)
	}
	for o := range last + 1 {
		r := rec(o)
		r.LeaderEpoch = epoch
		if _, err := w.Append(&r); err != nil {
			t.Fatal(err)
		}
	}
	data, h, err := w.Close(next, segment.First(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &archive.Tail{Header: h, Size: int64(len(data))}
}

func started(t *testing.T, cfg Config, r Recovered) (*Partition, []Action) {
	t.Helper()
	p, acts := New(tp, cfg)
	if d := cmp.Diff([]Action{Recover{}}, acts); d != "" {
		t.Fatal(d)
	}
	if r.Identity == (segment.LogIdentity{}) {
		r.Identity = id
	}
	return p, p.On(0, r)
}

// only returns the actions of one type.
func only[A Action](acts []Action) (out []A) {
	for _, a := range acts {
		if a, ok := a.(A); ok {
			out = append(out, a)
		}
	}
	return out
}

func TestRecovery(t *testing.T) {
	none := kafka.CommitOffset{Offset: -1}
	other := id
	other.TopicID = "id2"
	for _, tt := range []struct {
		name   string
		cfg    func(*Config)
		r      Recovered
		state  State
		reason Reason
		fetch  *Fetch
		lost   *LostRange
		note   string
	}{
		{name: "new chain", r: Recovered{Committed: none, Log: kafka.LogRange{Start: 0, End: 5}}, state: Fetching, fetch: &Fetch{0, -1}},
		{name: "new chain, start lost", r: Recovered{Committed: none, Log: kafka.LogRange{Start: 3, End: 5}}, state: Fetching, fetch: &Fetch{3, -1}, lost: &LostRange{0, 3}},
		{name: "group ahead of nothing", r: Recovered{Committed: kafka.CommitOffset{Offset: 7}, Log: kafka.LogRange{End: 9}}, state: Stopped, reason: NoTail},
		{name: "group at 0 of nothing", r: Recovered{Committed: kafka.CommitOffset{Offset: 0}, Log: kafka.LogRange{End: 9}}, state: Fetching, fetch: &Fetch{0, -1}},
		{name: "group ahead of the chain", r: Recovered{Tail: tail(t, 9, 10, 2), Committed: kafka.CommitOffset{Offset: 30}, Log: kafka.LogRange{End: 40}},
			state: Checking, fetch: &Fetch{9, 2}, note: "ahead of the archive"},
		{name: "another topic id", r: Recovered{Identity: other, Tail: tail(t, 9, 10, 2), Committed: none, Log: kafka.LogRange{End: 40}}, state: Stopped, reason: OtherLog},
		{name: "last record gone, next follows it", r: Recovered{Tail: tail(t, 9, 10, 2), Committed: none, Log: kafka.LogRange{Start: 10, End: 40}},
			state: Fetching, fetch: &Fetch{10, 2}},
		{name: "last record gone, markers follow it: their epoch is unknown", r: Recovered{Tail: tail(t, 9, 12, 2), Committed: none, Log: kafka.LogRange{Start: 10, End: 40}},
			state: Fetching, fetch: &Fetch{12, -1}},
		{name: "no record ever", r: Recovered{Tail: tail(t, -1, 12, 0), Committed: none, Log: kafka.LogRange{End: 40}}, state: Fetching, fetch: &Fetch{12, -1}},
		{name: "retention, stop", r: Recovered{Tail: tail(t, 9, 10, 2), Committed: none, Log: kafka.LogRange{Start: 11, End: 40}}, state: Stopped, reason: Gap},
		{name: "retention, record", cfg: func(c *Config) { c.Gap = GapRecord }, r: Recovered{Tail: tail(t, 9, 10, 2), Committed: none, Log: kafka.LogRange{Start: 11, End: 40}},
			state: Fetching, fetch: &Fetch{11, -1}, lost: &LostRange{10, 11}},
		{name: "beyond the end, at first", r: Recovered{Tail: tail(t, 9, 10, 2), Committed: none, Log: kafka.LogRange{End: 9}}, state: Recovering},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config()
			if tt.cfg != nil {
				tt.cfg(&cfg)
			}
			p, acts := started(t, cfg, tt.r)
			if p.State() != tt.state || p.reason != tt.reason {
				t.Errorf("state %s %s (%s)", p.State(), p.reason, p.lastErr)
			}
			want := []Fetch(nil)
			if tt.fetch != nil {
				want = []Fetch{*tt.fetch}
			}
			if d := cmp.Diff(want, only[Fetch](acts)); d != "" {
				t.Error(d)
			}
			var lost []LostRange
			if tt.lost != nil {
				lost = []LostRange{*tt.lost}
			}
			if d := cmp.Diff(lost, only[LostRange](acts)); d != "" {
				t.Error(d)
			}
			if tt.note != "" {
				if n := only[Note](acts); len(n) == 0 || !strings.Contains(n[0].Text, tt.note) {
					t.Errorf("notes %+v", n)
				}
			}
		})
	}
}

// A group that was left behind the chain is brought up once the log is known to be the archived one, and once.
func TestAnOwedCommit(t *testing.T) {
	for _, tt := range []struct {
		name      string
		committed int64
		want      []Commit
	}{
		{"behind", 4, []Commit{{10, "segment=0"}}},
		{"no position", -1, []Commit{{10, "segment=0"}}},
		{"at the end", 10, nil},
		{"ahead", 30, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, acts := started(t, config(), Recovered{Tail: tail(t, 9, 10, 2), Committed: kafka.CommitOffset{Offset: tt.committed}, Log: kafka.LogRange{End: 10}})
			if got := only[Commit](acts); p.State() != Checking || got != nil {
				t.Fatalf("%s: %v before the log is checked", p.State(), got)
			}
			if d := cmp.Diff(tt.want, only[Commit](p.On(0, End{10}))); d != "" || p.State() != Fetching {
				t.Error(p.State(), d)
			}
			if got := only[Commit](p.On(0, Tick{})); got != nil {
				t.Errorf("again: %v", got)
			}
		})
	}
	p, _ := started(t, config(), Recovered{Tail: tail(t, 9, 10, 2), Committed: kafka.CommitOffset{Offset: -1}, Log: kafka.LogRange{End: 10}})
	another := recs(9, 10)
	another.Records[0].Value = []byte("another")
	if got := only[Commit](p.On(0, another)); p.State() != Stopped || got != nil {
		t.Errorf("%s: %v of a log that is another one", p.State(), got)
	}
}

// A leader that has just taken over may be behind for a moment (field fault 20); a log that stays short was truncated.
func TestATailBeyondTheEndIsAskedThreeTimes(t *testing.T) {
	r := Recovered{Identity: id, Tail: tail(t, 9, 10, 2), Committed: kafka.CommitOffset{Offset: 10}, Log: kafka.LogRange{End: 9}}
	p, acts := started(t, config(), r)
	for i := range 2 {
		if again := only[Recover](acts); len(again) != 1 || again[0].After <= 0 || p.State() != Recovering {
			t.Fatalf("try %d: %s %+v", i, p.State(), acts)
		}
		acts = p.On(0, r)
	}
	if p.State() != Stopped || p.reason != Diverged {
		t.Errorf("%s %s", p.State(), p.reason)
	}
	// With an end that has come back in time it goes on, and the count begins anew.
	p, _ = started(t, config(), r)
	p.On(0, r)
	r.Log.End = 10
	if p.On(0, r); p.State() != Checking || p.tries != 0 {
		t.Errorf("%s after %d tries", p.State(), p.tries)
	}
}

func TestCheckOfTheLastRecord(t *testing.T) {
	other := rec(9)
	other.Value = []byte("rewritten")
	for name, tt := range map[string]struct {
		ev    Event
		state State
		pos   int64
	}{
		"equal":                         {Records{[]record.Record{rec(9)}}, Checking, 12},
		"equal, and more":               {Records{[]record.Record{rec(9), rec(12)}}, Fetching, 13},
		"another record":                {Records{[]record.Record{other}}, Stopped, 12},
		"gone by compaction":            {Records{[]record.Record{rec(12), rec(13)}}, Fetching, 14},
		"a record where there was none": {Records{[]record.Record{rec(10)}}, Stopped, 12},
		"the end":                       {End{12}, Fetching, 12},
		"an end before the position":    {End{10}, Checking, 12},
		"retention moved on":            {OutOfRange{LogStart: 11, LogEnd: 40}, Fetching, 12},
		"retention moved past":          {OutOfRange{LogStart: 13, LogEnd: 40}, Stopped, 12},
		"a broker that erred":           {OutOfRange{LogStart: 0, LogEnd: 40}, Checking, 12},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := started(t, config(), Recovered{Tail: tail(t, 9, 12, record.NoEpoch), Committed: kafka.CommitOffset{Offset: 12}, Log: kafka.LogRange{End: 40}})
			if p.State() != Checking {
				t.Fatal(p.State())
			}
			p.On(0, tt.ev)
			if p.State() != tt.state || p.position != tt.pos {
				t.Errorf("%s at %d (%s), want %s at %d", p.State(), p.position, p.lastErr, tt.state, tt.pos)
			}
		})
	}
}

func fetching(t *testing.T, cfg Config) *Partition {
	t.Helper()
	p, _ := started(t, cfg, Recovered{Committed: kafka.CommitOffset{Offset: -1}, Log: kafka.LogRange{End: 1000}})
	if p.State() != Fetching {
		t.Fatal(p.State())
	}
	return p
}

func TestOneCreateInFlight(t *testing.T) {
	p := fetching(t, config())
	puts := only[Put](p.On(0, recs(0, 35)))
	if len(puts) != 1 || len(p.sealed) != 3 || !p.Held() {
		t.Fatalf("%d puts, %d sealed, held %t", len(puts), len(p.sealed), p.Held())
	}
	var next int64
	for i := range 3 {
		s := puts[0].Segment
		if s.Start != next || s.Chain.Ordinal != int64(i) {
			t.Errorf("put %d starts at %d with ordinal %d", i, s.Start, s.Chain.Ordinal)
		}
		tl := put(t, s)
		next = tl.Header.Next
		acts := p.On(0, PutDone{Tail: tl})
		if d := cmp.Diff([]Commit{{next, FormatHint(Hint{s.Start, 1})}}, only[Commit](acts)); d != "" {
			t.Error(d)
		}
		puts = only[Put](acts)
		if wantPuts := min(1, 2-i); len(puts) != wantPuts {
			t.Fatalf("%d puts after %d", len(puts), i)
		}
	}
	if p.Held() || p.Putting() || p.confirmed != 30 || p.position != 35 || p.open.records != 5 {
		t.Errorf("%+v", p)
	}
}

func TestAdoptionDropsAndBeginsBehindTheWinner(t *testing.T) {
	p := fetching(t, config())
	s := only[Put](p.On(0, recs(0, 25)))[0].Segment
	if s.Next != 10 {
		t.Fatal(s.Next)
	}
	acts := p.On(0, PutDone{Adopted: true, Tail: *tail(t, 13, 14, record.NoEpoch)})
	if d := cmp.Diff([]Fetch{{13, record.NoEpoch}}, only[Fetch](acts)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Commit{{14, FormatHint(Hint{0, 1})}}, only[Commit](acts)); d != "" {
		t.Error(d)
	}
	if p.State() != Checking || len(p.sealed) != 0 || p.Putting() || p.position != 14 || len(only[Put](acts)) != 0 {
		t.Errorf("%s, %d sealed, at %d", p.State(), len(p.sealed), p.position)
	}
	puts := only[Put](p.On(0, recs(13, 24)))
	if len(puts) != 1 || puts[0].Segment.Start != 14 || puts[0].Segment.Chain.Ordinal != 1 {
		t.Errorf("%+v", puts)
	}
}

// A winner that ends where one of our segments starts costs nothing but the segments that it covers: what lies behind it may be gone
// from Kafka by now.
func TestAdoptionKeepsWhatLiesBehindTheWinner(t *testing.T) {
	for _, c := range []struct {
		next    int64
		wantPut int64 // start of the put that follows; −1: none, the open segment goes on
	}{{10, 10}, {20, 20}, {30, -1}} {
		p := fetching(t, config())
		p.On(0, recs(0, 35))
		acts := p.On(0, PutDone{Adopted: true, Tail: *tail(t, c.next-1, c.next, record.NoEpoch)})
		if f := only[Fetch](acts); len(f) != 0 {
			t.Errorf("winner to %d: fetches again from %v", c.next, f)
		}
		if d := cmp.Diff([]Commit{{c.next, FormatHint(Hint{0, 1})}}, only[Commit](acts)); d != "" {
			t.Error(d)
		}
		puts := only[Put](acts)
		switch {
		case c.wantPut < 0:
			if len(puts) != 0 || len(p.sealed) != 0 {
				t.Errorf("winner to %d: %d puts, %d sealed", c.next, len(puts), len(p.sealed))
			}
		case len(puts) != 1 || puts[0].Segment.Start != c.wantPut || puts[0].Segment.Chain.Ordinal != 1:
			t.Errorf("winner to %d: puts %+v", c.next, puts)
		}
		if p.State() != Fetching || p.position != 35 || p.open.start != 30 || p.open.records != 5 {
			t.Errorf("winner to %d: %s at %d", c.next, p.State(), p.position)
		}
	}
}

func TestAgeCountsFromTheFirstThingHeld(t *testing.T) {
	p := fetching(t, config())
	if acts := p.On(time.Hour, Tick{}); len(acts) != 0 {
		t.Errorf("an empty segment was sealed: %+v", acts)
	}
	p.On(time.Hour, recs(0, 1))
	p.On(time.Hour+50*time.Second, recs(1, 2))
	if acts := p.On(time.Hour+59*time.Second, Tick{}); len(acts) != 0 {
		t.Errorf("too early: %+v", acts)
	}
	puts := only[Put](p.On(time.Hour+60*time.Second, Tick{}))
	if len(puts) != 1 || puts[0].Segment.Records != 2 || puts[0].Segment.Cause != CauseAge {
		t.Fatalf("%+v", puts)
	}
	p.On(time.Hour+61*time.Second, PutDone{Tail: put(t, puts[0].Segment)})
	// Markers alone also age.
	p.On(2*time.Hour, End{2})
	if acts := p.On(3*time.Hour, Tick{}); len(acts) != 0 {
		t.Errorf("nothing is new: %+v", acts)
	}
	p.On(3*time.Hour, End{7})
	puts = only[Put](p.On(3*time.Hour+time.Minute, Tick{}))
	if len(puts) != 1 || puts[0].Segment.Records != 0 || puts[0].Segment.Start != 2 || puts[0].Segment.Next != 7 {
		t.Fatalf("%+v", puts)
	}
}

// Where a segment is cut must not depend on how the records arrive.
func TestCutsDoNotDependOnBatches(t *testing.T) {
	cuts := func(step int64) (out []int64) {
		cfg := config()
		cfg.Rule = segment.CutRule{FlushSize: 7, RotateIntervalMs: 5}
		p := fetching(t, cfg)
		var acts []Action
		for o := int64(0); o < 100; o += step {
			acts = append(acts, p.On(0, recs(o, min(o+step, 100)))...)
		}
		for puts := only[Put](acts); len(puts) > 0; puts = only[Put](acts) {
			s := puts[0].Segment
			out = append(out, s.Next)
			acts = p.On(0, PutDone{Tail: put(t, s)})
		}
		return out
	}
	want := cuts(1)
	if len(want) < 10 {
		t.Fatal(want)
	}
	for _, step := range []int64{2, 3, 50, 100} {
		if d := cmp.Diff(want, cuts(step)); d != "" {
			t.Errorf("batches of %d: %s", step, d)
		}
	}
}

func TestAnEpochThatDecreasesStops(t *testing.T) {
	p := fetching(t, config())
	a, b, c := rec(0), rec(1), rec(2)
	a.LeaderEpoch, b.LeaderEpoch, c.LeaderEpoch = 4, record.NoEpoch, 3
	p.On(0, Records{[]record.Record{a, b, c}})
	if p.State() != Stopped || p.reason != Diverged || p.open != nil {
		t.Errorf("%s %s", p.State(), p.reason)
	}
}

// A segment that is confirmed late must not set the epoch back to its own.
func TestAConfirmedSegmentDoesNotSetTheEpochBack(t *testing.T) {
	p := fetching(t, config())
	old := recs(0, 10)
	for i := range old.Records {
		old.Records[i].LeaderEpoch = 4
	}
	s := only[Put](p.On(0, old))[0].Segment
	newer, older := rec(10), rec(11)
	newer.LeaderEpoch, older.LeaderEpoch = 5, 4
	p.On(0, Records{[]record.Record{newer}})
	p.On(0, PutDone{Tail: put(t, s)})
	if p.On(0, Records{[]record.Record{older}}); p.State() != Stopped || p.reason != Diverged {
		t.Errorf("%s %s", p.State(), p.reason)
	}
}

// Where the end of the partition is seen depends on the clock; cuts must not.
func TestCutsDoNotDependOnEnds(t *testing.T) {
	next := func(end bool) int64 {
		cfg := config()
		cfg.Rule = segment.CutRule{RotateIntervalMs: 5}
		p := fetching(t, cfg)
		p.On(0, recs(0, 3))
		if end {
			p.On(0, End{5})
		}
		return only[Put](p.On(0, recs(20, 21)))[0].Segment.Next
	}
	if a, b := next(false), next(true); a != 20 || b != 20 {
		t.Errorf("cut at %d without, at %d with an end in between", a, b)
	}
}

func TestALogThatStartsAtThePositionHasLostNothing(t *testing.T) {
	p := fetching(t, config())
	p.On(0, recs(0, 3))
	if acts := p.On(0, OutOfRange{LogStart: 3, LogEnd: 90}); p.State() != Fetching || len(only[Fetch](acts)) != 1 {
		t.Errorf("%s %+v", p.State(), acts)
	}
}

func TestGapStopKeepsWhatWasFetched(t *testing.T) {
	p := fetching(t, config())
	first := only[Put](p.On(0, recs(0, 13)))[0].Segment
	acts := p.On(0, OutOfRange{LogStart: 50, LogEnd: 90})
	if p.State() != Stopped || p.reason != Gap || len(only[StopFetch](acts)) != 1 {
		t.Fatalf("%s %s", p.State(), p.reason)
	}
	puts := only[Put](p.On(0, PutDone{Tail: put(t, first)}))
	if len(puts) != 1 || puts[0].Segment.Start != 10 || puts[0].Segment.Next != 13 {
		t.Fatalf("%+v", puts)
	}
	p.On(0, PutDone{Tail: put(t, puts[0].Segment)})
	if p.confirmed != 13 || p.State() != Stopped {
		t.Errorf("confirmed %d", p.confirmed)
	}
}

func TestGapRecordInTheMiddleOfASegment(t *testing.T) {
	cfg := config()
	cfg.Gap = GapRecord
	p := fetching(t, cfg)
	p.On(0, recs(0, 3))
	acts := p.On(0, OutOfRange{LogStart: 50, LogEnd: 90})
	if d := cmp.Diff([]LostRange{{3, 50}}, only[LostRange](acts)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Fetch{{50, record.NoEpoch}}, only[Fetch](acts)); d != "" {
		t.Error(d)
	}
	h := put(t, only[Put](p.On(0, recs(50, 57)))[0].Segment).Header
	if d := cmp.Diff([]segment.Skip{{From: 3, To: 50, Class: segment.Lost}}, h.Skipped); d != "" || h.Count != 10 {
		t.Errorf("%d records, %s", h.Count, d)
	}
}

// Field fault 20: a broker answers out-of-range for a position that is in range.
func TestATransientOutOfRangeIsNoLoss(t *testing.T) {
	p := fetching(t, config())
	p.On(0, recs(0, 3))
	acts := p.On(0, OutOfRange{LogStart: 0, LogEnd: 90})
	if d := cmp.Diff([]Fetch{{3, record.NoEpoch}}, only[Fetch](acts)); d != "" || len(only[LostRange](acts)) > 0 || p.open.records != 3 {
		t.Errorf("%s %+v", d, acts)
	}
	acts = p.On(0, OutOfRange{LogStart: 0, LogEnd: 2})
	if p.State() != Recovering || len(only[Recover](acts)) != 1 || len(only[Abandon](acts)) != 1 {
		t.Errorf("%s %+v", p.State(), acts)
	}
}

func TestATopicIDThatChangesStops(t *testing.T) {
	p := fetching(t, config())
	p.On(0, recs(0, 3))
	for _, same := range []string{"", "id1"} {
		if acts := p.On(0, TopicID{same}); len(acts) > 0 {
			t.Errorf("id %q: %+v", same, acts)
		}
	}
	if p.On(0, TopicID{"id2"}); p.State() != Stopped || p.reason != OtherLog || p.OpenBytes() != 0 {
		t.Errorf("%s %s", p.State(), p.reason)
	}
}

func TestFailedFetchesBeginAgainMoreSlowly(t *testing.T) {
	p := fetching(t, config())
	r := Recovered{Identity: id, Committed: kafka.CommitOffset{Offset: -1}, Log: kafka.LogRange{End: 1000}}
	var waits []time.Duration
	for range 8 {
		again := only[Recover](p.On(0, FetchFailed{errors.New("broken")}))
		if len(again) != 1 {
			t.Fatal(p.State())
		}
		waits = append(waits, again[0].After)
		p.On(0, r)
	}
	if waits[0] != time.Second || waits[1] != 2*time.Second || waits[7] != 30*time.Second {
		t.Errorf("%v", waits)
	}
	p.On(0, recs(0, 1))
	if again := only[Recover](p.On(0, FetchFailed{errors.New("broken")})); again[0].After != time.Second {
		t.Errorf("after a record: %v", again)
	}
}

func TestALogThatStaysTruncatedStops(t *testing.T) {
	r := Recovered{Tail: tail(t, 9, 10, 2), Identity: id, Committed: kafka.CommitOffset{Offset: 10}, Log: kafka.LogRange{Start: 10, End: 40}}
	p, _ := started(t, config(), r)
	for range 2 {
		if p.On(0, FetchFailed{fmt.Errorf("x: %w", kafka.ErrTruncated)}); p.State() != Recovering {
			t.Fatal(p.State())
		}
		p.On(0, r)
	}
	if p.On(0, FetchFailed{fmt.Errorf("x: %w", kafka.ErrTruncated)}); p.State() != Stopped || p.reason != Diverged {
		t.Errorf("%s %s", p.State(), p.reason)
	}
}

func TestSqueezeSealsEarly(t *testing.T) {
	p := fetching(t, config())
	if acts := p.On(0, Squeeze{}); len(acts) > 0 {
		t.Errorf("an empty segment was sealed: %+v", acts)
	}
	p.On(0, recs(0, 3))
	if p.OpenBytes() == 0 || p.SealedBytes() != 0 {
		t.Errorf("%d open, %d sealed", p.OpenBytes(), p.SealedBytes())
	}
	if puts := only[Put](p.On(0, Squeeze{})); len(puts) != 1 || puts[0].Segment.Cause != CauseMemory || p.SealedBytes() == 0 {
		t.Errorf("%+v", puts)
	}
}

func TestAPutThatFailsStops(t *testing.T) {
	p := fetching(t, config())
	p.On(0, recs(0, 25))
	if p.On(0, PutFailed{BrokenChain, errors.New("a hole")}); p.State() != Stopped || p.reason != BrokenChain || p.SealedBytes() != 0 {
		t.Errorf("%s %s", p.State(), p.reason)
	}
	// Late answers change nothing.
	for _, ev := range []Event{PutDone{Tail: *tail(t, 9, 10, 0)}, recs(25, 30), End{99}, Tick{}, OutOfRange{LogEnd: 3}, FetchFailed{errors.New("x")}, TopicID{"id9"}, Squeeze{}, Recovered{}} {
		if acts := p.On(time.Hour, ev); len(acts) != 0 || p.State() != Stopped {
			t.Errorf("%T: %+v", ev, acts)
		}
	}
}

func TestHint(t *testing.T) {
	for _, h := range []Hint{{0, 1}, {1, 1}, {1 << 62, 1}, {0, 2}, {5, 11}} {
		if got, err := ParseHint(FormatHint(h)); err != nil || got != h {
			t.Errorf("%v: %v, %v", h, got, err)
		}
	}
	for _, bad := range []string{"", "segment=", "segment=-1", "segment=+1", "segment=01", "segment=1 ", "x", `{"v":1}`,
		"segment=1 incarnation=", "segment=1 incarnation=1", "segment=1 incarnation=0", "segment=1 incarnation=-2", "segment=1 incarnation=02", "segment=1  incarnation=2"} {
		if n, err := ParseHint(bad); err == nil {
			t.Errorf("%q is %v", bad, n)
		}
	}
}

func FuzzHint(f *testing.F) {
	f.Add("segment=5")
	f.Add("segment=5 incarnation=2")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseHint(s); err == nil && FormatHint(n) != s {
			t.Errorf("%q parses as %v", s, n)
		}
	})
}
