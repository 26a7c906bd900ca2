package run_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
)

// windowed is a pipeline with windows of 10 s and a delay of 5 s.
func windowed(eventTime string, maxFuture int64) session.Pipeline {
	p := pipe()
	p.WindowMs = 10_000
	p.Sources = []session.Source{{Topic: topic, EventTime: eventTime, DelayMs: 5000, MaxFutureMs: maxFuture}}
	return p
}

// What is planned for some windows is what they need, record by record, and no segment more; every planning of the job asks the target the same.
func TestWindowsPlan(t *testing.T) {
	for name, c := range map[string]struct {
		eventTime string
		maxFuture int64
		lag       string
		warm      int64 // records from this long before the first window are needed
		reach     int64 // and until one of this is reached; 0: all
	}{
		"by timestamp":           {session.EventTimeRecord, -1, "", 0, 75_000},
		"by a field":             {session.EventTimeField, 12_000, "", 12_000, 0},
		"by a field, with a lag": {session.EventTimeField, 12_000, `,"maxLag":3000`, 12_000, 78_000},
		"without maxFuture":      {session.EventTimeField, -1, "", 1 << 40, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := replaytest.New()
			a.Fill(t, rand.New(rand.NewPCG(5, 1)), topic, 3, 100, 6)
			rc := replaytest.NewReceiver(t, windowed(c.eventTime, c.maxFuture))
			rc.Lie = closedAt(70_000)
			dest := client(t, rc)
			r := newRunner(a)
			j := newJob(request(t, `,"promise":"recompute","windows":{"from":35001,"until":79999`+c.lag+`}`))
			out, _, err := replay(t, testCtx(t), r, j, dest)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := r.Prepare(testCtx(t), j, dest) // of the stored one
			if err != nil {
				t.Fatal(err)
			}
			if w := plan.Windows; w == nil || w.SizeMs != 10_000 || w.First != (job.Window{Start: 40_000, End: 50_000}) || w.Last != (job.Window{Start: 60_000, End: 70_000}) || w.Count != 3 {
				t.Errorf("windows %+v", w)
			}
			if !slices.ContainsFunc(out.Progress, func(p session.Progress) bool { return p.Watermark != nil }) {
				t.Error("the outcome has no watermark")
			}
			req := rc.Opened()[0]
			if req.Windows == nil || *req.Windows != (session.Windows{From: 40_000, Until: 70_000}) {
				t.Errorf("the session's windows: %+v", req.Windows)
			}
			var warm job.Amount
			for i, rng := range req.Ranges {
				recs := a.Records[rng.TopicPartition]
				before := int64(-1)
				for _, rec := range recs {
					if rec.Offset < rng.From {
						before = max(before, rec.Timestamp)
					}
				}
				if before >= max(0, 40_000-c.warm) {
					t.Errorf("%s begins at %d, behind timestamp %d", rng.TopicPartition, rng.From, before)
				}
				if (rng.From > 0) != (rng.Before != nil) || rng.From > 0 && *rng.Before != before || rng.From == 0 && c.warm < 20_000 {
					t.Errorf("%s begins at %d, said to be after %v: it is after %d", rng.TopicPartition, rng.From, rng.Before, before)
				}
				// Neither the first nor the last segment could be left out.
				segs := plan.Partitions[i].Segments
				first, last := segs[0], segs[len(segs)-1]
				if rng.From > 0 && first.MaxTimestamp < 40_000-c.warm {
					t.Errorf("%s begins with %+v", rng.TopicPartition, first)
				}
				most := int64(0)
				for _, s := range segs[:len(segs)-1] {
					most = max(most, s.MaxTimestamp)
				}
				if c.reach > 0 && (max(most, last.MaxTimestamp) < c.reach || most >= c.reach && last.MinTimestamp >= 70_000) || c.reach == 0 && rng.Until != a.Header(rng.TopicPartition).Next {
					t.Errorf("%s ends with %+v", rng.TopicPartition, last)
				}
				for _, s := range segs {
					if s.Count > 0 && s.MaxTimestamp >= 40_000 {
						break
					}
					warm.Segments, warm.Records, warm.Bytes = warm.Segments+1, warm.Records+s.Count, warm.Bytes+s.Bytes
				}
			}
			if plan.Windows.WarmUp != warm || (warm.Segments > 0) != (c.warm > 0) {
				t.Errorf("warm-up %+v, want %+v", plan.Windows.WarmUp, warm)
			}
			if a, b := asJSON(t, plan.Pin()), asJSON(t, j.Plan); a != b {
				t.Errorf("planned again: %s, was %s", a, b)
			}
			same(t, a, rc, func(rec *record.Record) bool {
				i := slices.IndexFunc(req.Ranges, func(r session.Range) bool {
					return r.TopicPartition == record.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}
				})
				return rec.Offset >= req.Ranges[i].From && rec.Offset < req.Ranges[i].Until
			})
		})
	}
}

// closedAt has a receiver's partitions all have that watermark at the end.
func closedAt(ms int64) func(*session.Status) {
	return func(s *session.Status) {
		for i := range s.Progress {
			s.Progress[i].Watermark = &ms
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A job that holds is COMPLETED only if the target says that every partition has closed the windows.
func TestWindowsThatAreNotClosed(t *testing.T) {
	low := int64(60_000)
	for name, c := range map[string]struct {
		lie  func(*session.Status)
		mode string
		want []string // none: it succeeds
	}{
		"one short":   {func(s *session.Status) { closedAt(70_000)(s); s.Progress[1].Watermark = &low }, "hold", []string{"windows until 1970-01-01T00:01:10Z are not complete", "trips-1 closes those until 1970-01-01T00:01:00Z", "drain"}},
		"one unknown": {func(s *session.Status) { closedAt(70_000)(s); s.Progress[1].Watermark = nil }, "hold", []string{"not complete", "trips-1 has brought no event time", "drain"}},
		"drained":     {nil, "drain", nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := replaytest.New()
			a.Fill(t, rand.New(rand.NewPCG(5, 1)), topic, 2, 100, 6)
			rc := replaytest.NewReceiver(t, windowed(session.EventTimeField, 0))
			rc.Lie = c.lie
			_, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, `,"promise":"recompute","endMode":"`+c.mode+`","windows":{"from":40000,"until":70000}`)), client(t, rc))
			if c.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantFailure(t, err, c.want...)
		})
	}
}

func TestWindowsThatCannotBePlanned(t *testing.T) {
	tp := record.TopicPartition{Topic: topic}
	for name, c := range map[string]struct {
		pipe    session.Pipeline
		windows string
		want    []string
	}{
		"no whole window":       {windowed(session.EventTimeRecord, -1), `{"from":41000,"until":59000}`, []string{"no whole window of 10s", "[1970-01-01T00:00:40Z, 1970-01-01T00:00:50Z)"}},
		"no word of windows":    {pipe(), `{"from":40000,"until":60000}`, []string{"windowMs"}},
		"no word of the topic":  {func() session.Pipeline { p := windowed("record", -1); p.Sources[0].Topic = "other"; return p }(), `{"from":40000,"until":60000}`, []string{"tells the time of trips"}},
		"after everything":      {windowed(session.EventTimeRecord, -1), `{"from":900000,"until":990000}`, []string{"nothing to replay", "1970-01-01T00:15:00Z"}},
		"before, and some lost": {windowed(session.EventTimeRecord, -1), `{"from":0,"until":20000}`, []string{"[0, 10) of trips-0 are lost", `onLost "allow"`}},
	} {
		t.Run(name, func(t *testing.T) {
			a := replaytest.New()
			a.Segment(t, tp, 10, nil, segment.Skip{From: 0, To: 10, Class: segment.Lost})
			for o := int64(10); o < 100; o++ {
				a.Segment(t, tp, o+1, []record.Record{replaytest.Record(tp, o, o*1000)})
			}
			r := request(t, `,"promise":"recompute","windows":`+c.windows)
			_, err := run.MakePlan(testCtx(t), a.Archive, r, &c.pipe)
			wantFailure(t, err, c.want...)
		})
	}
}
