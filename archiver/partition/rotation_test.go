package partition

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// cut is what a sealed segment tells about its rotation.
type cut struct {
	Start, Next, Records int64
	Cause                Cause
}

// driver feeds a partition, answers its puts, and notes the cuts.
type driver struct {
	t    *testing.T
	p    *Partition
	cuts []cut
	puts []*Sealed // handed out and not answered: one at most
	segs []archived
}

type archived struct {
	header *segment.Header
	data   []byte
	cause  Cause
}

func (d *driver) on(now time.Duration, ev Event) {
	d.t.Helper()
	for _, a := range d.p.On(now, ev) {
		switch a := a.(type) {
		case Put:
			d.puts = append(d.puts, a.Segment)
			d.cuts = append(d.cuts, cut{a.Segment.Start, a.Segment.Next, a.Segment.Records, a.Segment.Cause})
			if len(d.puts) > 1 {
				d.t.Fatal("two creates in flight")
			}
		case Note, StopFetch, Recover:
			d.t.Fatalf("%T %+v", a, a)
		}
	}
}

// confirm answers the put under way and those that follow it.
func (d *driver) confirm(now time.Duration, all bool) {
	d.t.Helper()
	for len(d.puts) > 0 {
		s := d.puts[0]
		d.puts = nil
		data, h, err := s.Writer.Close(s.Next, s.Chain, nil)
		if err != nil {
			d.t.Fatal(err)
		}
		d.segs = append(d.segs, archived{h, data, s.Cause})
		d.on(now, PutDone{Tail: archive.Tail{Header: h, Size: int64(len(data))}})
		if !all {
			return
		}
	}
}

// Each rule alone, and all of them at once: the first that holds ends the segment.
func TestRotation(t *testing.T) {
	one := recs(0, 1)
	size := int64(segment.Size(&one.Records[0]))
	all := Config{RotateAge: time.Minute, Codec: "null",
		Rule: segment.CutRule{FlushSize: 10, SegmentBytes: 8 * size, RotateIntervalMs: 6}}
	with := func(f func(*Config)) Config { c := Config{Codec: "null"}; f(&c); return c }
	type step struct {
		at time.Duration
		ev Event
	}
	const s = time.Second
	for _, tt := range []struct {
		name  string
		cfg   Config
		steps []step
		want  []cut
	}{
		{"flush.size", with(func(c *Config) { c.Rule.FlushSize = 4 }), []step{{0, recs(0, 9)}}, []cut{{0, 4, 4, CauseRecords}, {4, 8, 4, CauseRecords}}},
		{"segment.bytes", with(func(c *Config) { c.Rule.SegmentBytes = 3 * size }), []step{{0, recs(0, 5)}}, []cut{{0, 3, 3, CauseBytes}}},
		{"rotate.interval.ms", with(func(c *Config) { c.Rule.RotateIntervalMs = 3 }), []step{{0, recs(0, 7)}}, []cut{{0, 3, 3, CauseInterval}, {3, 6, 3, CauseInterval}}},
		{"rotate.age.ms", with(func(c *Config) { c.RotateAge = time.Minute }), []step{{5 * s, recs(0, 2)}, {64 * s, Tick{}}, {65 * s, Tick{}}}, []cut{{0, 2, 2, CauseAge}}},
		{"rotate.schedule.interval.ms", with(func(*Config) {}), []step{{0, recs(0, 2)}, {0, Boundary{}}, {0, Boundary{}}, {0, recs(2, 3)}, {0, Boundary{}}},
			[]cut{{0, 2, 2, CauseSchedule}, {2, 3, 1, CauseSchedule}}},
		{"a boundary finds nothing", with(func(*Config) {}), []step{{0, Boundary{}}, {0, End{0}}, {0, Boundary{}}}, nil},
		{"a boundary takes markers alone", with(func(*Config) {}), []step{{0, End{3}}, {0, Boundary{}}}, []cut{{0, 3, 0, CauseSchedule}}},
		{"all: bytes come first", all, []step{{0, recs(0, 5)}, {0, recs(5, 6)}, {0, recs(6, 7)}}, []cut{{0, 6, 6, CauseInterval}}},
		{"all: age", all, []step{{0, recs(0, 5)}, {60 * s, Tick{}}, {60 * s, Boundary{}}}, []cut{{0, 5, 5, CauseAge}}},
		{"all: boundary, then the age counts anew", all, []step{{0, recs(0, 5)}, {50 * s, Boundary{}}, {55 * s, recs(5, 6)}, {60 * s, Tick{}}, {115 * s, Tick{}}},
			[]cut{{0, 5, 5, CauseSchedule}, {5, 6, 1, CauseAge}}},
		{"all: two in one batch, then age", all, []step{{0, recs(0, 15)}, {60 * s, Tick{}}},
			[]cut{{0, 6, 6, CauseInterval}, {6, 12, 6, CauseInterval}, {12, 15, 3, CauseAge}}},
		{"a quiet partition after its last record", all, []step{{0, recs(0, 2)}, {30 * s, End{2}}, {60 * s, Tick{}}, {600 * s, Tick{}}, {700 * s, Boundary{}}},
			[]cut{{0, 2, 2, CauseAge}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &driver{t: t, p: fetching(t, tt.cfg)}
			for _, st := range tt.steps {
				d.on(st.at, st.ev)
				d.confirm(st.at, true)
			}
			if diff := cmp.Diff(tt.want, d.cuts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Random rules, batches, ticks, boundaries, ends and answers of the store, in any order: the segments tile, hold each record once, each cut is
// explained by the rule that it names, and their bytes are a function of records and cuts alone.
func TestRotationHoldsWhateverComes(t *testing.T) {
	seeds := uint64(120)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 7))
		pick := func(vs ...int64) int64 { return vs[rnd.IntN(len(vs))] }
		cfg := Config{RotateAge: time.Duration(pick(0, 5, 50)) * time.Second, Codec: "null",
			Rule: segment.CutRule{FlushSize: pick(0, 1, 7, 40), SegmentBytes: pick(0, 1, 200, 2000), RotateIntervalMs: pick(0, 1, 9, 100)}}
		d := &driver{t: t, p: fetching(t, cfg)}
		var (
			now     time.Duration
			next    int64
			ts      int64 = 1000
			log     []record.Record
			held    time.Duration = -1 // when the open segment first held something
			bounded bool               // a boundary came since then
		)
		opened := func(before int) { // after an event at now: what is open began now if a cut came
			if len(d.p.sealed)+len(d.segs) != before {
				held, bounded = -1, false
			}
			if held < 0 && d.p.open.holding {
				held = now
			}
		}
		type seal struct {
			held, now time.Duration
			boundary  bool
		}
		seals := map[int64]seal{} // by the cut's next
		for range 100 {
			now += time.Duration(rnd.IntN(3000)) * time.Millisecond
			before, was := len(d.p.sealed)+len(d.segs), held
			var ev Event = Tick{}
			switch rnd.IntN(8) {
			case 0, 1, 2, 3:
				var b Records
				for range 1 + rnd.IntN(20) {
					next += int64(max(0, rnd.IntN(12)-10)) // a hole now and then
					ts += int64(rnd.IntN(7)) - 2
					r := rec(next)
					r.Timestamp = ts
					r.Value = make([]byte, rnd.IntN(40))
					b.Records = append(b.Records, r)
					next++
				}
				log = append(log, b.Records...)
				ev = b
			case 4:
				next += int64(rnd.IntN(2))
				ev = End{next}
			case 5:
				ev, bounded = Boundary{}, true
			}
			d.on(now, ev)
			if n := len(d.p.sealed); len(d.p.sealed)+len(d.segs) > before {
				seals[d.p.sealed[n-1].Next] = seal{was, now, bounded}
			}
			opened(before)
			switch rnd.IntN(3) {
			case 0:
				d.confirm(now, false)
			case 1:
				d.confirm(now, true)
			}
		}
		d.confirm(now, true)

		var at int64
		i := 0
		for n, a := range d.segs {
			h := a.header
			if h.Start != at || h.Ordinal != int64(n) {
				t.Fatalf("seed %d: segment %d is [%d,%d), want start %d", seed, h.Ordinal, h.Start, h.Next, at)
			}
			at = h.Next
			mine := log[i:]
			if j := slices.IndexFunc(mine, func(r record.Record) bool { return r.Offset >= h.Next }); j >= 0 {
				mine = mine[:j]
			}
			i += len(mine)
			if int64(len(mine)) != h.Count {
				t.Fatalf("seed %d: segment %d holds %d records, want %d", seed, n, h.Count, len(mine))
			}
			var bytes int64
			for _, r := range mine {
				bytes += int64(segment.Size(&r))
			}
			following := func() (r record.Record, size int64) {
				if i == len(log) {
					t.Fatalf("seed %d: segment %d was cut by %s before a record, and none follows", seed, n, a.cause)
				}
				return log[i], int64(segment.Size(&log[i]))
			}
			ok, s := false, seals[h.Next]
			switch a.cause {
			case CauseRecords:
				ok = h.Count == cfg.Rule.FlushSize
			case CauseBytes:
				ok = bytes >= cfg.Rule.SegmentBytes
				if !ok {
					_, size := following()
					ok = bytes+size > cfg.Rule.SegmentBytes
				}
			case CauseInterval:
				r, _ := following()
				ok = r.Timestamp-mine[0].Timestamp >= cfg.Rule.RotateIntervalMs
			case CauseAge:
				ok = cfg.RotateAge > 0 && s.held >= 0 && s.now-s.held >= cfg.RotateAge
			case CauseSchedule:
				ok = s.boundary
			}
			if !ok {
				t.Fatalf("seed %d: segment %d [%d,%d) of %d records, %d bytes: %s does not explain it (%+v)", seed, n, h.Start, h.Next, h.Count, bytes, a.cause, s)
			}
			if cfg.Rule.FlushSize > 0 && h.Count > cfg.Rule.FlushSize || cfg.Rule.SegmentBytes > 0 && bytes > cfg.Rule.SegmentBytes && h.Count > 1 {
				t.Fatalf("seed %d: segment %d is too large: %d records, %d bytes", seed, n, h.Count, bytes)
			}
			for _, r := range mine {
				if cfg.Rule.RotateIntervalMs > 0 && r.Timestamp-mine[0].Timestamp >= cfg.Rule.RotateIntervalMs {
					t.Fatalf("seed %d: segment %d spans too much record time", seed, n)
				}
			}
			// The same records, cut at the same places, far from any clock.
			w, err := segment.NewWriter(id, h.Start, cfg.Codec)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range mine {
				if _, err := w.Append(&r); err != nil {
					t.Fatal(err)
				}
			}
			chain := segment.First()
			if n > 0 {
				chain = segment.After(d.segs[n-1].header, int64(len(d.segs[n-1].data)))
			}
			data, _, err := w.Close(h.Next, chain, nil)
			if err != nil || !slices.Equal(data, a.data) {
				t.Fatalf("seed %d: segment %d has other bytes than its records give (%v)", seed, n, err)
			}
		}
		if open := int64(len(log) - i); d.p.open.records != open {
			t.Fatalf("seed %d: %d records open, want %d", seed, d.p.open.records, open)
		}
	}
}
