package sessions

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
)

func tp(p int32) record.TopicPartition { return record.TopicPartition{Topic: "trips", Partition: p} }

var (
	fares  = &pipeline.Pipeline{Name: "fares", Hash: "h1", Source: []pipeline.Source{{Topic: "trips"}}, Output: pipeline.Output{Topic: "out", Partitions: 2}}
	origin = &decision.Origin{PipelineHash: "h1", Topics: map[string]decision.OriginTopic{"trips": {ID: "id1", Start: map[int32]int64{0: 5, 1: 0}}}}
	floor  = decision.Floor{TopicPartition: tp(2), W: 7}
)

func raw(es ...decision.Entry) []json.RawMessage {
	var out []json.RawMessage
	for _, e := range es {
		out = append(out, decision.Format(e))
	}
	return out
}

func rng(p int32, from, until int64) session.Range {
	return session.Range{TopicPartition: tp(p), TopicID: "id1", Isolation: "read_committed", From: from, Until: until}
}

// request is one that is accepted.
func request() session.Request {
	return session.Request{Pipeline: "fares", Epoch: 1, Promise: session.Reproduce, EndMode: session.Hold,
		Ranges: []session.Range{rng(0, 5, 100), rng(1, 0, 50), rng(2, 0, 0)}, Decisions: raw(origin, floor)}
}

func TestValidateAccepts(t *testing.T) {
	log, err := Validate(request(), fares, nil)
	if err != nil || len(log.Floors) != 1 || log.Origin == nil {
		t.Fatalf("%+v %v", log, err)
	}
	// No data is no gap; a gap outside the range is none either.
	r := request()
	r.Ranges[0].Gaps = []segment.Skip{{From: 7, To: 9, Class: segment.NoData}, {From: 0, To: 5, Class: segment.Lost}, {From: 100, To: 110, Class: segment.Lost}}
	if _, err := Validate(r, fares, nil); err != nil {
		t.Error(err)
	}
	// A live log of another beginning says nothing about this one; one that is ahead beyond the ranges does not matter.
	other := &decision.Log{Origin: &decision.Origin{PipelineHash: "h0"}, Floors: []decision.Floor{{TopicPartition: tp(0), Offset: 6}}}
	ahead := &decision.Log{Origin: origin, Floors: []decision.Floor{floor, {TopicPartition: tp(0), Offset: 101}}}
	for _, live := range []*decision.Log{other, ahead, {}} {
		if _, err := Validate(request(), fares, live); err != nil {
			t.Error(err)
		}
	}
	r = request()
	r.Promise, r.Decisions, r.Ranges = session.Recompute, nil, []session.Range{rng(0, 0, 9)}
	if _, err := Validate(r, fares, nil); err != nil {
		t.Errorf("recompute from 0: %v", err)
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*session.Request)
		code   int
		want   string
	}{
		"promise":                 {func(r *session.Request) { r.Promise = "guess" }, http.StatusBadRequest, "promise"},
		"end mode":                {func(r *session.Request) { r.EndMode = "stop" }, http.StatusBadRequest, "endMode"},
		"schemas":                 {func(r *session.Request) { r.Schemas = "guess" }, http.StatusBadRequest, "schemas"},
		"epoch":                   {func(r *session.Request) { r.Epoch = -1 }, http.StatusBadRequest, "epoch"},
		"no ranges":               {func(r *session.Request) { r.Ranges = nil }, http.StatusBadRequest, "ranges"},
		"range upside down":       {func(r *session.Request) { r.Ranges[0].Until = 4 }, http.StatusBadRequest, "from ≤ until"},
		"partition twice":         {func(r *session.Request) { r.Ranges[1] = r.Ranges[0] }, http.StatusBadRequest, "two ranges"},
		"no topic id":             {func(r *session.Request) { r.Ranges[0].TopicID = "" }, http.StatusBadRequest, "topicId"},
		"planned with another":    {func(r *session.Request) { r.PipelineHash = "h0" }, http.StatusConflict, "h0"},
		"another topic":           {func(r *session.Request) { r.Ranges[0].Topic = "bills" }, http.StatusUnprocessableEntity, "not an input"},
		"bad decision":            {func(r *session.Request) { r.Decisions = []json.RawMessage{[]byte(`{}`)} }, http.StatusBadRequest, "decision"},
		"no origin":               {func(r *session.Request) { r.Decisions = nil }, http.StatusUnprocessableEntity, "no origin"},
		"pipeline was changed":    {func(r *session.Request) { o := *origin; o.PipelineHash = "h0"; r.Decisions = raw(&o, floor) }, http.StatusUnprocessableEntity, "hash"},
		"topic was re-created":    {func(r *session.Request) { r.Ranges[0].TopicID = "id2" }, http.StatusUnprocessableEntity, "id2"},
		"start in the middle":     {func(r *session.Request) { r.Ranges[0].From = 6 }, http.StatusUnprocessableEntity, "starts at 6"},
		"start before the origin": {func(r *session.Request) { r.Ranges[0].From = 0 }, http.StatusUnprocessableEntity, "starts at 0"},
		"partition missing":       {func(r *session.Request) { r.Ranges = r.Ranges[:1] }, http.StatusUnprocessableEntity, "trips-1, trips-2"},
		"partition too many":      {func(r *session.Request) { r.Ranges = append(r.Ranges, rng(3, 0, 1)) }, http.StatusUnprocessableEntity, "trips-3"},
		"lost gap":                {func(r *session.Request) { r.Ranges[0].Gaps = []segment.Skip{{From: 10, To: 20, Class: segment.Lost}} }, http.StatusUnprocessableEntity, "[10, 20)"},
		"not archived": {func(r *session.Request) {
			r.Ranges[0].Gaps = []segment.Skip{{From: 0, To: 6, Class: segment.NotArchived}}
		}, http.StatusUnprocessableEntity, "not-archived"},
		"isolation":               {func(r *session.Request) { r.Ranges[0].Isolation = "read_uncommitted" }, http.StatusUnprocessableEntity, "isolation"},
		"recompute in the middle": {func(r *session.Request) { r.Promise = session.Recompute; r.Ranges[0].From = 50 }, http.StatusUnprocessableEntity, "needs windows"},
		"windows to reproduce":    {func(r *session.Request) { r.Windows = &session.Windows{From: 0, Until: 9} }, http.StatusBadRequest, "recompute alone"},
		"windows upside down":     {func(r *session.Request) { middle(r, 9, 50); r.Windows.Until = 9 }, http.StatusBadRequest, "from < until"},
		"nothing known before":    {func(r *session.Request) { middle(r, 99, 50); r.Ranges[0].Before = nil }, http.StatusUnprocessableEntity, "before is missing"},
		"a window cut in two":     {func(r *session.Request) { middle(r, 50, 50) }, http.StatusUnprocessableEntity, "could be incomplete"},
	} {
		r := request()
		c.change(&r)
		_, err := Validate(r, fares, nil)
		var e *Error
		if !errors.As(err, &e) || e.Status != c.code || !strings.Contains(e.Reason, c.want) {
			t.Errorf("%s: %v; want %d %q", name, err, c.code, c.want)
		}
	}
	if _, err := Validate(request(), nil, nil); err == nil {
		t.Error("a pipeline that is not configured was accepted")
	}
	for name, live := range map[string]*decision.Log{
		"floor at the end":   {Origin: origin, Floors: []decision.Floor{floor, {TopicPartition: tp(0), Offset: 100}}},
		"floor of a new one": {Origin: origin, Floors: []decision.Floor{floor, {TopicPartition: tp(3), Offset: 0}}},
		"unknown schema":     {Origin: origin, Floors: []decision.Floor{floor}, Unknown: map[decision.Place]decision.UnknownSchema{{TopicPartition: tp(1), Offset: 49}: {TopicPartition: tp(1), Offset: 49, ID: 3}}},
	} {
		r := request()
		r.EndMode = session.Drain
		if _, err := Validate(r, fares, live); err == nil || !strings.Contains(err.Error(), "archive it first") {
			t.Errorf("live log with a %s: %v", name, err)
		}
		r.EndMode = session.Hold // a partition that stays idle has always another floor there
		if _, err := Validate(r, fares, live); (err == nil) != (name == "floor at the end") {
			t.Errorf("live log with a %s, and hold: %v", name, err)
		}
	}
}

func TestDecideOpen(t *testing.T) {
	stored := func(state session.State, epoch int64) *Stored {
		s := newStored(request(), "h1")
		s.State, s.Epoch, s.Request.Epoch = state, epoch, epoch
		return &s
	}
	higher, other, spaced, said := request(), request(), request(), request()
	higher.Epoch = 9
	other.Ranges[0].Until++
	said.Schemas = session.FromSegment
	foreign := request()
	foreign.Sender = "somebody"
	spaced.Decisions[1] = append([]byte("  "), spaced.Decisions[1]...)
	for name, c := range map[string]struct {
		st   *Stored
		req  session.Request
		want action
		bad  bool
	}{
		"nothing stored": {nil, request(), actOpen, false},
		"same":           {stored(session.Open, 1), request(), actTakeOver, false},
		"white space":    {stored(session.Open, 1), spaced, actTakeOver, false},
		"default said":   {stored(session.Open, 1), said, actTakeOver, false},
		"higher epoch":   {stored(session.Open, 1), higher, actTakeOver, false},
		"lower epoch":    {stored(session.Open, 2), request(), 0, true},
		"another body":   {stored(session.Open, 1), other, 0, true},
		"another, old":   {stored(session.Open, 2), other, 0, true}, // the body first: who asks for something else was not replaced
		"another sender": {stored(session.Open, 1), foreign, 0, true},
		"finished":       {stored(session.Finished, 1), higher, actReport, false},
		"cancelled":      {stored(session.Cancelled, 1), request(), actReport, false},
		"finished, old":  {stored(session.Finished, 2), request(), 0, true},
	} {
		got, err := decideOpen("x", c.st, c.req)
		if strings.HasPrefix(name, "another") && (err == nil || !strings.Contains(err.Error(), "another request")) {
			t.Errorf("%s: %v", name, err)
		}
		if (err != nil) != c.bad || err == nil && got != c.want {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}

func TestVerdict(t *testing.T) {
	r := rng(0, 5, 100)
	for _, c := range []struct {
		start, next, expected int64
		take, skip            bool
	}{
		{0, 10, 5, true, false},    // the range begins inside the segment
		{5, 10, 5, true, false},    // exactly next
		{0, 5, 5, false, false},    // entirely below
		{6, 10, 5, false, true},    // a skip
		{90, 200, 95, true, false}, // goes beyond the range
		{100, 200, 100, false, false},
		{150, 200, 100, false, false}, // the range is complete: ignored, no skip
		{95, 100, 98, true, false},    // after the expected offset has gone back into it
	} {
		take, err := verdict(c.start, c.next, c.expected, r)
		if take != c.take || (err != nil) != c.skip {
			t.Errorf("[%d, %d) at %d: %v %v", c.start, c.next, c.expected, take, err)
		}
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Ack == nil || e.Ack.Expected != c.expected || e.Status != http.StatusConflict) {
			t.Errorf("%v has no ack", err)
		}
	}
}

func TestOutputs(t *testing.T) {
	specs, byLive, err := outputs("again", fares, request().Ranges)
	if err != nil {
		t.Fatal(err)
	}
	if s := specs["results"]; s.Name != "out.replay.again" || s.Partitions != 2 {
		t.Errorf("results %+v", s)
	}
	if s := specs["late"]; s.Name != "out.late.replay.again" || s.Partitions != 3 || s.Grow {
		t.Errorf("late %+v", s)
	}
	if byLive["out.poison"] != "out.poison.replay.again" || len(byLive) != 4 {
		t.Errorf("%v", byLive)
	}
	long := *fares
	long.Output.Topic = strings.Repeat("x", 240)
	if _, _, err := outputs("again", &long, request().Ranges); err == nil {
		t.Error("a topic name beyond Kafka's limit")
	}
}

// middle has a request begin in the middle, for windows from an event time on; before is the greatest record timestamp ahead of it.
func middle(r *session.Request, from, before int64) {
	r.Promise, r.Windows = session.Recompute, &session.Windows{From: from, Until: from + 1000}
	r.Ranges[0].From, r.Ranges[0].Before = 50, &before
}

func TestValidateAMiddle(t *testing.T) {
	for name, c := range map[string]struct {
		from, before, maxFuture int64
		record                  bool
		want                    string
	}{
		"just beyond what was before":      {from: 3_600_051, before: 50, maxFuture: 3_600_000},
		"one that a future record reaches": {from: 3_600_050, before: 50, maxFuture: 3_600_000, want: "up to 3600050"},
		"event time is the timestamp":      {from: 51, before: 50, maxFuture: 3_600_000, record: true},
		"and not beyond it":                {from: 50, before: 50, maxFuture: -1, record: true, want: "up to 50"},
		"no bound on event times":          {from: 1 << 40, before: 50, maxFuture: -1, want: "without maxFuture"},
		"nothing was before":               {from: 7, before: -1, maxFuture: -1},
	} {
		p := *fares
		p.Source = slices.Clone(p.Source)
		p.Source[0].MaxFutureMs, p.Source[0].EventTime.Record = c.maxFuture, c.record
		r := request()
		middle(&r, c.from, c.before)
		_, err := Validate(r, &p, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
