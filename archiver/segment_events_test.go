package archiver

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/store"
)

// events reads what is on the events topic, by partition-key and start: the values of each.
func (e *env) events(topic string) map[string]map[int64][]string {
	e.t.Helper()
	out := map[string]map[int64][]string{}
	for _, r := range e.log(topic, 0) {
		var ev SegmentEvent
		if err := json.Unmarshal(r.Value, &ev); err != nil {
			e.t.Fatal(err)
		}
		if out[string(r.Key)] == nil {
			out[string(r.Key)] = map[int64][]string{}
		}
		out[string(r.Key)][ev.Start] = append(out[string(r.Key)][ev.Start], string(r.Value))
	}
	return out
}

// checkEvents demands an event for every segment, the same each time it is told, and none for anything else.
func (e *env) checkEvents(topic, of string, part int32) {
	e.t.Helper()
	got := e.events(topic)[of+"-0"]
	hs := e.headers(of, part)
	if len(got) != len(hs) {
		e.t.Fatalf("events of %d segments, there are %d", len(got), len(hs))
	}
	keys := e.objects(of, part)
	for i, h := range hs {
		var ev SegmentEvent
		values := got[h.Start]
		if len(values) == 0 {
			e.t.Fatalf("no event of segment %d", h.Start)
		}
		for _, v := range values {
			if v != values[0] {
				e.t.Errorf("two tellings of one segment differ:\n%s\n%s", v, values[0])
			}
		}
		if err := json.Unmarshal([]byte(values[0]), &ev); err != nil {
			e.t.Fatal(err)
		}
		if ev.Next != h.Next || ev.Count != h.Count || ev.TopicID != h.TopicID || !strings.HasSuffix(ev.URL, "/"+keys[i]) || *ev.MaxTimestamp != h.MaxTimestamp {
			e.t.Errorf("%+v does not say what %s holds", ev, keys[i])
		}
	}
}

func TestSegmentEvents(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 30)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	s.Events = "told"
	// The topic is not there yet: the archive goes on, and the events come when it is.
	r := e.start(s)
	e.awaitArchived("trips", 0, 30)
	e.await("refused", func() bool { return r.metric("tapedeck_archiver_segment_events_total") > 0 })
	e.topic("told", 1)
	e.await("told of all", func() bool { return len(e.events("told")["trips-0"]) == 3 })
	r.end()
	e.checkEvents("told", "trips", 0)
}

// A process that ends between the create and the event: the next one tells of the tail.
func TestTheTailIsToldAgainAtTheStart(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.topic("told", 1)
	e.fill("trips", 0, 0, 10)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 10
	hang := make(chan struct{})
	e.store.SetAfter(func(ctx context.Context, op, key string, err error) error {
		if op == store.OpCreate && strings.HasPrefix(key, "topics/") && err == nil {
			close(hang)
			<-ctx.Done()
			return ctx.Err()
		}
		return err
	})
	s.Events, s.ShutdownIn = "told", 1
	r := e.start(s)
	e.awaitClosed("the create lands and nobody hears of it", hang)
	r.end()
	e.store.SetAfter(nil)
	if n := len(e.events("told")); n != 0 {
		t.Fatalf("told of %d already: the fault did not happen", n)
	}
	for range 2 {
		r = e.start(s)
		e.await("told", func() bool {
			return len(e.events("told")["trips-0"]) == 1 && r.metric("tapedeck_archiver_segment_events_total") >= 1
		})
		r.end()
	}
	e.checkEvents("told", "trips", 0)
	if n := len(e.events("told")["trips-0"][0]); n != 2 {
		t.Errorf("told %d times", n)
	}
}

func TestEventsTopicIsNotArchived(t *testing.T) {
	for _, sel := range []string{"topics=told", "topics.regex=t.*"} {
		cfg, err := service.Load(Keys(), "", []string{"bootstrap.servers=x", "store=file:///x", "events.topic=told", sel}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSettings(cfg); err == nil || !strings.Contains(err.Error(), "events.topic") {
			t.Errorf("%s: %v", sel, err)
		}
	}
}
