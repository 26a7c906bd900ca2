package run_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/metered"
)

// The store calls of the plan are those that planning and running make, whatever the request.
func TestPlannedCallsAreMade(t *testing.T) {
	for name, fields := range map[string]string{
		"reproduce": "",
		"recompute": `,"promise":"recompute"`,
		"a time":    `,"promise":"recompute","from":{"kind":"timestamp","value":100000},"until":{"kind":"timestamp","value":160000}`,
		"windows":   `,"promise":"recompute","endMode":"drain","windows":{"from":100000,"until":160000}`,
	} {
		t.Run(name, func(t *testing.T) {
			a := replaytest.New()
			a.Fill(t, rand.New(rand.NewPCG(8, 1)), topic, 3, 300, 2) // with index objects
			a.Decide(t, "p.decisions", replaytest.Origin(topic, 3))
			a.Decide(t, "p.decisions", `{"v":1,"kind":"other"}`)
			m, err := metered.New(a.Mem, prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			r := newRunner(a)
			r.Archive = archive.Open(m, "topics")
			made := func() run.Calls {
				c := m.Calls()
				return run.Calls{List: c[store.OpList].Calls + c[store.OpListDirs].Calls, Get: c[store.OpGet].Calls + c[store.OpGetRange].Calls}
			}
			rc := replaytest.NewReceiver(t, windowed("field", 0))
			dest, j := client(t, rc), newJob(request(t, fields))
			plan, err := r.Prepare(testCtx(t), j, dest)
			if err != nil {
				t.Fatal(err)
			}
			planning := made()
			if plan.Calls.Planning == nil || *plan.Calls.Planning != planning || planning.List == 0 || planning.Get == 0 {
				t.Errorf("planning took %+v, the plan says %+v", planning, plan.Calls.Planning)
			}
			j.Plan = plan.Pin()
			if _, err := r.NewRun(j, plan, dest).Execute(testCtx(t)); err != nil {
				t.Fatal(err)
			}
			if got := made(); got.Get-planning.Get != plan.Calls.Reading.Get || got.List-planning.List != plan.Calls.Reading.List || plan.Calls.Reading.Get < 10 {
				t.Errorf("running took %d GET and %d LIST, the plan says %+v", got.Get-planning.Get, got.List-planning.List, plan.Calls.Reading)
			}
			if int64(rc.Puts()) != int64(plan.Totals.Segments) {
				t.Errorf("%d segments sent, %d planned", rc.Puts(), plan.Totals.Segments)
			}
		})
	}
}

// Gaps are summed up by class, as the session is told them.
func TestPlannedGaps(t *testing.T) {
	a := replaytest.New()
	for p := range int32(2) {
		tp := record.TopicPartition{Topic: topic, Partition: p}
		skips := []segment.Skip{{From: 0, To: 10, Class: segment.Lost}, {From: 12, To: 15, Class: segment.NotArchived}, {From: 15, To: 17, Class: segment.NoData}, {From: 17, To: 20, Class: segment.Lost}}
		a.Segment(t, tp, 30, []record.Record{replaytest.Record(tp, 11, 5), replaytest.Record(tp, 25, 5)}, skips...)
	}
	r := request(t, `,"promise":"recompute","onLost":"allow","from":{"kind":"offset","value":0}`)
	p := pipe()
	plan, err := run.MakePlan(testCtx(t), a.Archive, r, &p)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(plan.Gaps), "[{lost 4 26} {not-archived 2 6}]"; got != want {
		t.Errorf("gaps %s, want %s", got, want)
	}
}

// What a listing tells is in the plan: objects that are gone, of another size, or in cold storage and not restored. It is what the run then meets.
func TestPlanLooksAtObjects(t *testing.T) {
	a := replaytest.New()
	tp := record.TopicPartition{Topic: topic}
	for o := int64(0); o < 12; o++ {
		a.Segment(t, tp, o+1, []record.Record{replaytest.Record(tp, o, o*1000)})
	}
	keys := a.Keys(tp)
	r := request(t, `,"promise":"recompute","onUnreadable":"skip"`)
	p := pipe()
	plan := func() *run.Plan {
		t.Helper()
		plan, err := run.MakePlan(testCtx(t), a.Archive, r, &p)
		if err != nil || !plan.Looked {
			t.Fatal(err)
		}
		return plan
	}
	if plan := plan(); len(plan.Unreadable) > 0 {
		t.Errorf("a sound archive: %+v", plan.Unreadable)
	}
	restored := false
	a.Mem.Move(keys[5], "DEEP_ARCHIVE")
	a.Mem.Move(keys[8], "GLACIER_IR") // which is read like any other
	a.Mem.SetBefore(func(_ context.Context, op, key string) error {
		if (op == store.OpGet || op == store.OpGetRange) && key == keys[5] && !restored {
			return errors.Join(store.ErrInvalid, store.ErrCold)
		}
		return nil
	})
	a.Mem.Delete(keys[3])
	data, err := a.Mem.Get(testCtx(t), keys[7])
	if err != nil {
		t.Fatal(err)
	}
	a.Mem.Put(keys[7], data[:len(data)-3])
	told := func(plan *run.Plan) string {
		var s []string
		for _, u := range plan.Unreadable {
			if u.TopicPartition != tp || u.Key != keys[u.Start] || u.Next != u.Start+1 {
				t.Errorf("%+v", u)
			}
			s = append(s, fmt.Sprint(u.Start, u.Why, u.Class))
		}
		return strings.Join(s, " ")
	}
	first := plan()
	if got, want := told(first), "3gone 5coldDEEP_ARCHIVE 7size"; strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("unreadable: %s, want %s", got, want)
	}
	rc := replaytest.NewReceiver(t, p)
	run1, x, err := replay(t, testCtx(t), newRunner(a), newJob(r), client(t, rc))
	if err != nil || run1 == nil {
		t.Fatal(err)
	}
	var met []int64
	for _, g := range x.Progress()[0].Unreadable {
		met = append(met, g.From)
	}
	if fmt.Sprint(met) != "[3 5 7]" {
		t.Errorf("the run met %v", met)
	}
	restored = true
	if got := strings.ReplaceAll(told(plan()), " ", ""); got != "3gone7size" {
		t.Errorf("restored for some days: %s", got)
	}
}

// What a plan cannot know it does not say.
func TestEstimateUnknown(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(8, 1)), topic, 1, 100, 5)
	p := pipe()
	for fields, want := range map[string]string{
		"":                       "",
		`,"recordsPerSecond":50`: "2 recordsPerSecond",
		`,"recordsPerSecond":50,"filter":{"keyPrefix":"k1"}`:         "",
		`,"recordsPerSecond":50,"speed":0.1`:                         "speed",
		`,"recordsPerSecond":50,"speed":1000000,"bytesPerSecond":10`: "bytesPerSecond",
	} {
		plan, err := run.MakePlan(testCtx(t), a.Archive, request(t, `,"promise":"recompute"`+fields), &p)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if plan.Estimate != nil {
			got = fmt.Sprint(plan.Estimate.Seconds, " ", plan.Estimate.By)
		}
		if !strings.HasSuffix(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", fields, got, want)
		}
	}
}
