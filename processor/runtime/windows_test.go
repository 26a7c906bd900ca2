package runtime_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/processor/sessions"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

// A session of some windows that begins in the middle gives their results and late records as a replay of everything does, crashes in between included; and it tells how far
// each partition has come.
func TestSessionOfWindows(t *testing.T) {
	for _, eventTime := range []string{"{field: t, unit: ms}\n    maxFuture: 200ms", "record"} {
		t.Run(strings.Fields(eventTime)[0], func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			rng := rand.New(rand.NewPCG(5, 4))
			topic, name := unique("trips"), unique("fares")
			p := parse(t, fmt.Sprintf(`
name: %s
sources: [{topic: %s, format: json, eventTime: %s, delay: 2s}]
groupBy: [user]
window: {tumbling: {size: 1s}}
aggregates: {total: sum(price), n: count()}
output: {topic: %[1]s-out, partitions: 3}
`, name, topic, strings.Replace(eventTime, "\n    ", ", ", 1)))
			e.topic(topic, 3)
			e.produce(trips(31, topic, 3, 250)...)
			a := e.archive(p, rng)
			a.req.Promise = session.Recompute
			r := e.receiver(func(c *sessions.Config) { c.CommitInterval = time.Hour; c.CommitRecords = 40 }, p)
			r.mustOpen("full", a.req)
			r.send("full", 1, a, rng, nil)
			if _, code, text := r.finish("full", 1); code != http.StatusOK {
				t.Fatalf("finish: %d %s", code, text)
			}

			from, until := int64(base+15_000), int64(base+25_000)
			future := int64(0)
			if !p.Source[0].EventTime.Record {
				future = p.Source[0].MaxFutureMs
			}
			some := a
			some.req.Windows = &session.Windows{From: from, Until: until}
			some.req.Ranges = nil
			for _, rng := range a.req.Ranges {
				before := int64(-1)
				for _, s := range a.segs[rng.TopicPartition] {
					most := before
					for _, rec := range a.recs[rng.TopicPartition] {
						if rec.Offset < s.next {
							most = max(most, rec.Timestamp)
						}
					}
					if most+future >= from {
						break
					}
					rng.From, before = s.next, most
				}
				if rng.From == 0 {
					t.Fatal("the test's windows need everything")
				}
				rng.Before = &before
				some.req.Ranges = append(some.req.Ranges, rng)
			}
			st := r.mustOpen("some", some.req)
			r.send("some", 1, some, rng, func(i int) {
				if i < 20 && i%5 == 4 { // a few: after each it is read again from the oldest open window
					r.down()
					r.up()
				}
			})
			st, code, text := r.finish("some", 1)
			if code != http.StatusOK || st.State != session.Finished {
				t.Fatalf("finish: %d %s", code, text)
			}
			for _, q := range st.Progress {
				if q.Watermark == nil || *q.Watermark < until || q.Count == 0 {
					t.Errorf("%s is done at %v after %d records", q.TopicPartition, q.Watermark, q.Count)
				}
			}
			lines := func(suffix string) (out map[string][]string, late int) {
				out = map[string][]string{}
				for role, topic := range map[string]string{"results": p.Output.Topic, "late": p.Output.Topic + ".late"} {
					for n, recs := range e.read(topic + ".replay." + suffix) {
						for _, rec := range recs {
							if start := windowStart(t, &rec); start < from || start >= until {
								if suffix == "some" {
									t.Errorf("%s holds window %d, which was not asked for", topic, start)
								}
								continue
							}
							if role == "late" {
								late++
							}
							at := fmt.Sprint(role, n)
							out[at] = append(out[at], line(rec))
						}
					}
				}
				return out, late
			}
			want, late := lines("full")
			got, _ := lines("some")
			results := 0
			for _, ls := range want {
				results += len(ls)
			}
			if results-late < 20 || future > 0 && late == 0 { // by its timestamps no record is late
				t.Fatalf("%d results, %d late records", results-late, late)
			}
			if d := diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func windowStart(t *testing.T, rec *record.Record) int64 {
	t.Helper()
	for _, h := range rec.Headers {
		if h.Key == "tapedeck-window-start" {
			var n int64
			if _, err := fmt.Sscan(string(h.Value), &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	var v struct {
		Start *int64 `json:"window_start"`
	}
	if err := json.Unmarshal(rec.Value, &v); err != nil || v.Start == nil {
		t.Fatalf("%s: %v", rec.Value, err)
	}
	return *v.Start
}
