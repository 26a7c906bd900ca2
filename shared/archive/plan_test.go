package archive

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

func offset(v int64) Bound    { return Bound{AtOffset, v} }
func timestamp(v int64) Bound { return Bound{AtTimestamp, v} }

var (
	earliest = Bound{Kind: Earliest}
	end      = Bound{Kind: End}
)

func plan(a *Archive, from, until Bound) (*PartitionPlan, error) {
	return a.Plan(context.Background(), Request{TP: trips, From: from, Until: until})
}

func mustPlan(t *testing.T, a *Archive, from, until Bound) *PartitionPlan {
	t.Helper()
	p, err := plan(a, from, until)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func starts(p *PartitionPlan) []int64 {
	var s []int64
	for _, seg := range p.Segments {
		s = append(s, seg.Start)
	}
	return s
}

// gappy is a chain of these segments, the timestamp of a record being 1,000 ms × offset:
//
//	[0, 100)    lost
//	[100, 110)  records, but 103 no data
//	[110, 115)  no data
//	[115, 130)  not archived up to 120, then records
//	[130, 150)  records up to 140, then lost
//	[150, 170)  lost up to 160, then records
//	[170, 180)  records
func gappy(t *testing.T) (*Archive, *mem.Store) {
	a, st := open(t)
	skip := func(from, to int64, c segment.Class) []segment.Skip {
		return []segment.Skip{{From: from, To: to, Class: c}}
	}
	var tail *Tail
	for _, c := range []cut{
		{next: 100, skips: skip(0, 100, segment.Lost)},
		{next: 110, without: func(o int64) bool { return o == 103 }},
		{next: 115, without: func(int64) bool { return true }},
		{next: 130, skips: skip(115, 120, segment.NotArchived)},
		{next: 150, skips: skip(140, 150, segment.Lost)},
		{next: 170, skips: skip(150, 160, segment.Lost)},
		{next: 180},
	} {
		tail = create(t, a, trips, tail, c)
	}
	return a, st
}

func TestPlan(t *testing.T) {
	a, _ := gappy(t)
	lost := func(from, to int64) segment.Skip { return segment.Skip{From: from, To: to, Class: segment.Lost} }
	notArchived := segment.Skip{From: 115, To: 120, Class: segment.NotArchived}
	for name, c := range map[string]struct {
		from, until Bound
		wantFrom    int64
		wantUntil   int64
		starts      []int64
		gaps        []segment.Skip
	}{
		"everything that is there":  {earliest, end, 100, 180, []int64{100, 110, 115, 130, 150, 170}, []segment.Skip{notArchived, lost(140, 160)}},
		"from offset 0":             {offset(0), end, 0, 180, []int64{0, 100, 110, 115, 130, 150, 170}, []segment.Skip{lost(0, 100), notArchived, lost(140, 160)}},
		"one offset":                {offset(104), offset(105), 104, 105, []int64{100}, nil},
		"a segment":                 {offset(170), offset(180), 170, 180, []int64{170}, nil},
		"across a border":           {offset(169), offset(171), 169, 171, []int64{150, 170}, nil},
		"from inside a lost gap":    {offset(145), end, 145, 180, []int64{130, 150, 170}, []segment.Skip{lost(145, 160)}},
		"until inside a lost gap":   {offset(135), offset(152), 135, 152, []int64{130, 150}, []segment.Skip{lost(140, 152)}},
		"no data is no gap":         {offset(102), offset(115), 102, 115, []int64{100, 110}, nil},
		"timestamps, inclusive":     {timestamp(109_000), timestamp(120_001), 100, 130, []int64{100, 110, 115}, []segment.Skip{notArchived}},
		"timestamps, exclusive":     {timestamp(109_001), timestamp(120_001), 115, 130, []int64{115}, []segment.Skip{notArchived}},
		"from a timestamp":          {timestamp(165_000), end, 150, 180, []int64{150, 170}, []segment.Skip{lost(150, 160)}},
		"from earliest to a time":   {earliest, timestamp(101_000), 100, 110, []int64{100}, nil},
		"an offset, then a time":    {offset(105), timestamp(108_000), 105, 110, []int64{100}, nil},
		"a time, then an offset":    {timestamp(105_000), offset(108), 100, 108, []int64{100}, nil},
		"a time before everything":  {timestamp(0), offset(108), 100, 108, []int64{100}, nil},
		"until after everything":    {offset(172), timestamp(1 << 60), 172, 180, []int64{170}, nil},
		"offset 0 until a time":     {offset(0), timestamp(102_000), 0, 110, []int64{0, 100}, []segment.Skip{lost(0, 100)}},
		"the whole range as a time": {timestamp(0), timestamp(1 << 60), 100, 180, []int64{100, 110, 115, 130, 150, 170}, []segment.Skip{notArchived, lost(140, 160)}},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustPlan(t, a, c.from, c.until)
			if p.From != c.wantFrom || p.Until != c.wantUntil || !slices.Equal(starts(p), c.starts) || !slices.Equal(p.Gaps, c.gaps) {
				t.Errorf("[%d, %d) by %v with gaps %v", p.From, p.Until, starts(p), p.Gaps)
			}
			if p.Gaps == nil {
				t.Error("gaps are null, not empty")
			}
			for _, b := range []struct {
				bound Bound
				got   int64
			}{{c.from, p.FromTimestamp}, {c.until, p.UntilTimestamp}} {
				want := int64(-1)
				if b.bound.Kind == AtTimestamp {
					want = b.bound.Value
				}
				if b.got != want {
					t.Errorf("timestamp bound %d, want %d", b.got, want)
				}
			}
			if id := identity(trips); p.TopicID != id.TopicID || p.ClusterID != id.ClusterID || p.Isolation != id.Isolation || p.TopicPartition != trips {
				t.Errorf("identity %+v", p)
			}
			for _, s := range p.Segments {
				if outside := s.Start == 110 && (c.from.Kind == AtTimestamp || c.until.Kind == AtTimestamp); s.Outside != outside && s.Start != 0 {
					t.Errorf("segment %d outside: %t", s.Start, s.Outside)
				}
			}
		})
	}
}

func TestPlanErrors(t *testing.T) {
	a, _ := gappy(t)
	for name, c := range map[string]struct {
		from, until Bound
		err         error
		says        string
	}{
		"until past the frontier":    {earliest, offset(181), ErrBeyond, "the archive holds [0, 180)"},
		"from past the frontier":     {offset(181), end, ErrBeyond, "the archive holds [0, 180)"},
		"from the frontier":          {offset(180), end, ErrEmptyRange, "180"},
		"from = until":               {offset(105), offset(105), ErrEmptyRange, "exclusive"},
		"from > until":               {offset(106), offset(105), ErrEmptyRange, "exclusive"},
		"times the wrong way round":  {timestamp(7), timestamp(7), ErrEmptyRange, "exclusive"},
		"times with no record":       {timestamp(200_000), timestamp(300_000), ErrEmptyRange, "timestamp 200000"},
		"a time inside a gap":        {timestamp(141_000), timestamp(149_000), ErrEmptyRange, "timestamp 141000"},
		"a time after everything":    {timestamp(180_000), end, ErrEmptyRange, "timestamp"},
		"a time before everything":   {earliest, timestamp(100_000), ErrEmptyRange, "timestamp"},
		"only a lost range":          {offset(141), offset(159), ErrEmptyRange, "without data"},
		"only no data":               {offset(103), offset(104), ErrEmptyRange, "without data"},
		"a segment without records":  {offset(110), offset(115), ErrEmptyRange, "without data"},
		"until before earliest":      {earliest, offset(100), ErrEmptyRange, "earliest"},
		"negative offset":            {offset(-1), end, ErrBadBound, "negative"},
		"negative timestamp":         {earliest, timestamp(-5), ErrBadBound, "negative"},
		"from end":                   {end, end, ErrBadBound, "from"},
		"until earliest":             {earliest, earliest, ErrBadBound, "until"},
		"no bound":                   {Bound{}, end, ErrBadBound, "from"},
		"offset from, time conflict": {offset(170), timestamp(105_000), ErrEmptyRange, "offset 170"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := plan(a, c.from, c.until)
			if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "trips-0") {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

func TestPlanAllowEmpty(t *testing.T) {
	a, _ := gappy(t)
	for name, c := range map[string]struct {
		from, until     Bound
		wantFrom, wantU int64
		starts          []int64
		err             error
	}{
		"only a lost range":     {offset(141), offset(159), 141, 159, []int64{130, 150}, nil},
		"only no data":          {offset(103), offset(104), 103, 104, []int64{100}, nil},
		"from = until":          {offset(105), offset(105), 105, 105, nil, nil},
		"from the frontier":     {offset(180), end, 180, 180, nil, nil},
		"until before earliest": {earliest, offset(50), 100, 100, nil, nil},
		"times with no record":  {timestamp(200_000), timestamp(300_000), 100, 100, nil, nil},
		"a time with no record": {offset(120), timestamp(5), 120, 120, nil, nil},
		"with records":          {offset(100), offset(102), 100, 102, []int64{100}, nil},
		"from > until":          {offset(106), offset(105), 0, 0, nil, ErrEmptyRange},
		"past the frontier":     {offset(181), end, 0, 0, nil, ErrBeyond},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := a.Plan(context.Background(), Request{TP: trips, From: c.from, Until: c.until, AllowEmpty: true})
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v", err)
			}
			if err != nil {
				return
			}
			if p.From != c.wantFrom || p.Until != c.wantU || !slices.Equal(starts(p), c.starts) || p.TopicID == "" || p.Gaps == nil || p.Segments == nil {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestCase15PlanOfWhatIsNotThere(t *testing.T) {
	a, _ := gappy(t)
	for name, tp := range map[string]record.TopicPartition{"topic": {Topic: "none", Partition: 0}, "partition": {Topic: "trips", Partition: 1}} {
		_, err := a.Plan(context.Background(), Request{TP: tp, From: earliest, Until: end})
		if !errors.Is(err, ErrNotArchived) || !strings.Contains(err.Error(), tp.String()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wrong := Open(mem.New(), "topics")
	if _, err := wrong.Plan(context.Background(), Request{TP: trips, From: earliest, Until: end}); !errors.Is(err, ErrNotArchived) || !strings.Contains(err.Error(), "mem://") {
		t.Errorf("wrong prefix: %v", err)
	}
}

// One hour out of a long chain: a handful of calls, whatever the length of the chain, and no header of a segment without
// gaps.
func TestPlanCost(t *testing.T) {
	st := longChain(t)
	a := Open(st, "topics")
	for name, c := range map[string]struct {
		from, until Bound
		segments    int
		calls       int
	}{
		"a time in the middle":    {timestamp(10_000_000), timestamp(10_070_000), 11, 4},
		"a time over a border":    {timestamp(2550 * 7_000), timestamp(2570 * 7_000), 20, 5},
		"an offset in the middle": {offset(700), offset(770), 10, 4},
		"in the newest block":     {offset(longNext - 70), end, 10, 3},
		"a time to the end":       {timestamp((longNext - 70) * 1000), end, 10, 3},
		"earliest":                {earliest, offset(70), 10, 4},
		"everything":              {earliest, end, longSegments, 3 + longBlocks},
	} {
		t.Run(name, func(t *testing.T) {
			st.ResetCounts()
			p := mustPlan(t, a, c.from, c.until)
			n := st.Counts()
			if len(p.Segments) != c.segments {
				t.Errorf("%d segments, want %d", len(p.Segments), c.segments)
			}
			if calls(n) > c.calls || n[store.OpGetRange] != 1 {
				t.Errorf("calls %v, want at most %d", n, c.calls)
			}
		})
	}
	// Segments with gaps cost their headers, and only the planned ones.
	a, st = gappy(t)
	st.ResetCounts()
	mustPlan(t, a, offset(165), end)
	if n := st.Counts(); n[store.OpGetRange] != 2 {
		t.Errorf("calls %v", n)
	}
}

// A block between two others belongs to the plan also where its timestamps are elsewhere.
func TestPlanOverABlockOfAnotherTime(t *testing.T) {
	a, _ := open(t)
	var tail *Tail
	for i := range int64(3*segment.IndexEvery + 5) {
		tail = create(t, a, trips, tail, cut{next: i + 1, ts: func(o int64) int64 {
			if o == 10 || o == 2*segment.IndexEvery+10 {
				return 77
			}
			return 1_000_000 + o
		}})
	}
	p := mustPlan(t, a, timestamp(70), timestamp(80))
	if p.From != 10 || p.Until != 2*segment.IndexEvery+11 || int64(len(p.Segments)) != p.Until-p.From {
		t.Fatalf("[%d, %d) in %d segments", p.From, p.Until, len(p.Segments))
	}
	inside := slices.DeleteFunc(slices.Clone(p.Segments), func(s PlannedSegment) bool { return s.Outside })
	if len(inside) != 2 || inside[0].Start != 10 || inside[1].Start != 2*segment.IndexEvery+10 {
		t.Errorf("inside: %+v", inside)
	}
}

// What an index object would tell is read from headers where it is missing, and a plan is the same.
func TestPlanWithoutIndexObjects(t *testing.T) {
	whole := Open(longChain(t), "topics")
	bounds := [][2]Bound{{earliest, end}, {timestamp(10_000_000), timestamp(10_070_000)}, {offset(3*256*7 - 1), offset(5*256*7 + 1)}, {offset(5), offset(6)}}
	drop := map[string]func(i int) bool{
		"one":       func(i int) bool { return i == 5 },
		"the first": func(i int) bool { return i == 0 },
		"the last":  func(i int) bool { return i == longBlocks-1 },
		"several":   func(i int) bool { return i > 2 && i < 9 },
		"all":       func(int) bool { return true },
	}
	for name, without := range drop {
		t.Run(name, func(t *testing.T) {
			a, st := copyOf(t, longChain(t), nil)
			for i, key := range indexKeys(st.Keys()) {
				if without(i) {
					st.Delete(key)
				}
			}
			for _, b := range bounds {
				want := mustPlan(t, whole, b[0], b[1])
				if got := mustPlan(t, a, b[0], b[1]); !reflect.DeepEqual(got, want) {
					t.Errorf("%v: the plan differs: %d segments, want %d", b, len(got.Segments), len(want.Segments))
				}
			}
		})
	}
}

// A chain with a segment missing is an error, never a shorter plan.
func TestPlanOfBrokenChain(t *testing.T) {
	a, st := copyOf(t, longChain(t), noIndex)
	st.Delete(a.key(trips, 255*longSize)) // the last one of the first block, whose header has the block's rows
	if _, err := plan(a, earliest, end); !errors.Is(err, ErrBroken) {
		t.Errorf("error %v", err)
	}
	a, st = gappy(t)
	st.Delete(a.key(trips, 130))
	if _, err := plan(a, earliest, end); !errors.Is(err, ErrBroken) {
		t.Errorf("error %v", err)
	}
}

// Random chains with timestamps in any order, against a plan made by reading everything.
func TestPlanAgainstOracle(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 2))
		a, st := open(t)
		var tail *Tail
		ts := map[int64]int64{} // offset → timestamp
		var lost []segment.Skip
		next := int64(0)
		for range 256 + r.IntN(300) {
			c := cut{next: next + 1 + r.Int64N(6)}
			if r.IntN(20) == 0 {
				to := next + 1 + r.Int64N(c.next-next)
				c.skips = []segment.Skip{{From: next, To: to, Class: []segment.Class{segment.Lost, segment.NotArchived}[r.IntN(2)]}}
				lost = append(lost, c.skips[0])
			}
			out := r.IntN(10) == 0
			c.without = func(o int64) bool { return out || o%11 == 3 }
			c.ts = func(o int64) int64 {
				ts[o] = max(0, o*10+int64(r.IntN(200))-100)
				if r.IntN(300) == 0 {
					ts[o] = r.Int64N(next*20 + 1)
				}
				return ts[o]
			}
			tail = create(t, a, trips, tail, c)
			next = c.next
		}
		for _, key := range indexKeys(st.Keys()) {
			if r.IntN(4) == 0 {
				st.Delete(key)
			}
		}
		first := int64(0)
		for len(lost) > 0 && lost[0].From == 0 && slices.ContainsFunc(lost, func(s segment.Skip) bool { return s.From == first }) {
			first = lost[slices.IndexFunc(lost, func(s segment.Skip) bool { return s.From == first })].To
		}
		for range 60 {
			bound := func(kinds ...Bound) Bound {
				switch i := r.IntN(4); {
				case i == 0:
					return kinds[0]
				case i == 1:
					return offset(r.Int64N(next + 1))
				default:
					return timestamp(r.Int64N(next*10 + 200))
				}
			}
			from, until := bound(earliest), bound(end)
			inside := func(o int64) bool {
				v, ok := ts[o]
				return ok && (from.Kind != AtOffset || o >= from.Value) && (until.Kind != AtOffset || o < until.Value) &&
					(from.Kind != AtTimestamp || v >= from.Value) && (until.Kind != AtTimestamp || v < until.Value) &&
					(from.Kind != Earliest || o >= first)
			}
			wanted := map[int64]bool{}
			for o := range next {
				if inside(o) {
					wanted[o] = true
				}
			}
			p, err := plan(a, from, until)
			if err != nil {
				if len(wanted) > 0 || !errors.Is(err, ErrEmptyRange) {
					t.Fatalf("seed %d, %v to %v: %d records inside, %v", seed, from, until, len(wanted), err)
				}
				continue
			}
			checkPlan(t, p, wanted, lost, from, until)
			if t.Failed() {
				t.Fatalf("seed %d, %v to %v", seed, from, until)
			}
		}
	}
}

func checkPlan(t *testing.T, p *PartitionPlan, wanted map[int64]bool, lost []segment.Skip, from, until Bound) {
	t.Helper()
	for o := range wanted {
		if o < p.From || o >= p.Until {
			t.Errorf("record %d is outside [%d, %d)", o, p.From, p.Until)
		}
		if !slices.ContainsFunc(p.Segments, func(s PlannedSegment) bool { return s.Start <= o && o < s.Next && !s.Outside }) {
			t.Errorf("record %d is in no segment that is read", o)
		}
	}
	for i, s := range p.Segments {
		if i > 0 && s.Start != p.Segments[i-1].Next {
			t.Errorf("segments do not tile at %d", s.Start)
		}
	}
	k := len(p.Segments) - 1
	if p.Segments[0].Start > p.From || p.Segments[0].Next <= p.From || p.Segments[k].Next < p.Until || p.Segments[k].Start >= p.Until {
		t.Errorf("segments [%d, %d) for [%d, %d)", p.Segments[0].Start, p.Segments[k].Next, p.From, p.Until)
	}
	if from.Kind == AtOffset && p.From != from.Value || until.Kind == AtOffset && p.Until != until.Value {
		t.Errorf("range [%d, %d)", p.From, p.Until)
	}
	if from.Kind == AtTimestamp && p.Segments[0].Outside || until.Kind == AtTimestamp && p.Segments[k].Outside {
		t.Errorf("begins or ends with a segment that is not needed")
	}
	class := func(gaps []segment.Skip, o int64) segment.Class {
		for _, g := range gaps {
			if g.From <= o && o < g.To {
				return g.Class
			}
		}
		return ""
	}
	for o := p.From; o < p.Until; o++ {
		if class(p.Gaps, o) != class(lost, o) {
			t.Errorf("offset %d: gap %q, want %q", o, class(p.Gaps, o), class(lost, o))
		}
	}
	for i, g := range p.Gaps {
		if g.From < p.From || g.To > p.Until || i > 0 && (g.From < p.Gaps[i-1].To || g.From == p.Gaps[i-1].To && g.Class == p.Gaps[i-1].Class) {
			t.Errorf("gaps %v", p.Gaps)
		}
	}
}
