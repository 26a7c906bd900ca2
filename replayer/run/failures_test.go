package run_test

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// What is not there, or not whole, fails with its reason and never with a silent success.
func TestReasons(t *testing.T) {
	tp := record.TopicPartition{Topic: topic}
	fill := func(t *testing.T) *replaytest.Archive {
		a := replaytest.New()
		a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 60, 6)
		return a
	}
	tests := []struct {
		name    string
		request string
		archive func(*testing.T) *replaytest.Archive
		want    []string
	}{
		{"missing topic", `,"topics":["trps"],"promise":"recompute"`, fill, []string{"no topic trps", "holds trips"}},
		{"wrong prefix", `,"promise":"recompute"`, func(*testing.T) *replaytest.Archive { return replaytest.New() },
			[]string{"no topics at all", "prefix", "topics.dir"}},
		{"missing partition", `,"topics":[{"name":"trips","partitions":[5]}],"promise":"recompute"`, fill, []string{"no partition 5 of topic trips"}},
		{"bounds of another partition", `,"promise":"recompute","bounds":{"trips/9":{"from":{"kind":"offset","value":1}}}`, fill, []string{"trips/9"}},
		{"empty window of offsets", `,"promise":"recompute","from":{"kind":"offset","value":9},"until":{"kind":"offset","value":9}`, fill,
			[]string{"nothing to replay", "empty"}},
		{"empty window in time", `,"promise":"recompute","from":{"kind":"timestamp","value":99000000}`, fill, []string{"nothing to replay"}},
		{"beyond the archive", `,"promise":"recompute","until":{"kind":"offset","value":99999}`, fill, []string{"beyond the end of the archive", "99999"}},
		{"no decision log", ``, fill, []string{"archive the topic p.decisions too", "recompute"}},
		{"lost", `,"promise":"recompute"`, func(t *testing.T) *replaytest.Archive {
			a := fill(t)
			h := a.Header(tp)
			a.Segment(t, tp, h.Next+10, []record.Record{replaytest.Record(tp, h.Next+9, 1)}, segment.Skip{From: h.Next, To: h.Next + 9, Class: segment.Lost})
			return a
		}, []string{"are lost", "trips-0", "onLost"}},
		{"damaged", `,"promise":"recompute"`, func(t *testing.T) *replaytest.Archive {
			a := fill(t)
			a.Damage(t, a.Keys(tp)[3])
			return a
		}, []string{"damaged", "trips+0+", "at byte"}},
		{"decision log damaged", ``, func(t *testing.T) *replaytest.Archive {
			a := fill(t)
			a.Decide(t, "p.decisions", replaytest.Origin(topic, 2))
			a.Damage(t, a.Keys(record.TopicPartition{Topic: "p.decisions"})[0])
			return a
		}, []string{"damaged", "p.decisions+0+", "at byte"}},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			a := c.archive(t)
			rc := replaytest.NewReceiver(t, pipe())
			_, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, c.request)), client(t, rc))
			wantFailure(t, err, c.want...)
			if strings.Contains(c.name, "damaged") {
				key := a.Keys(tp)[3]
				if c.name != "damaged" {
					key = a.Keys(record.TopicPartition{Topic: "p.decisions"})[0]
				}
				if !strings.Contains(err.Error(), key) {
					t.Errorf("%q does not name %s", err, key)
				}
			}
		})
	}
}

func TestLostIsAllowedOnRequest(t *testing.T) {
	a := replaytest.New()
	tp := record.TopicPartition{Topic: topic}
	a.Segment(t, tp, 3, []record.Record{replaytest.Record(tp, 0, 1), replaytest.Record(tp, 2, 1)})
	a.Segment(t, tp, 10, []record.Record{replaytest.Record(tp, 9, 1)}, segment.Skip{From: 3, To: 9, Class: segment.Lost})
	rc := replaytest.NewReceiver(t, pipe())
	if _, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, `,"promise":"recompute","onLost":"allow"`)), client(t, rc)); err != nil {
		t.Fatal(err)
	}
	same(t, a, rc, all)
	if g := rc.Opened()[0].Ranges[0].Gaps; len(g) != 1 || g[0] != (segment.Skip{From: 3, To: 9, Class: segment.Lost}) {
		t.Errorf("the session was told of the gaps %v", g)
	}
}

// Retention before the archiver's first record is where the earliest record is, and no loss inside the range.
func TestEarliestIsAfterTheLeadingLoss(t *testing.T) {
	a := replaytest.New()
	tp := record.TopicPartition{Topic: topic}
	a.Segment(t, tp, 10, []record.Record{replaytest.Record(tp, 9, 1)}, segment.Skip{From: 0, To: 9, Class: segment.Lost})
	rc := replaytest.NewReceiver(t, pipe())
	if _, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, `,"promise":"recompute"`)), client(t, rc)); err != nil {
		t.Fatal(err)
	}
	if r := rc.Opened()[0].Ranges[0]; r.From != 9 || r.Until != 10 {
		t.Errorf("range [%d, %d)", r.From, r.Until)
	}
}

func TestUnknownPipelineAndRefusals(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 60, 6)
	rc := replaytest.NewReceiver(t, pipe())
	r := newRunner(a)
	refuse := func(where string, code int) *job.Job {
		rc.Before = func(_, path string) int {
			if strings.HasPrefix(path, where) {
				return code
			}
			return 0
		}
		return newJob(request(t, `,"promise":"recompute"`))
	}
	_, _, err := replay(t, testCtx(t), r, refuse("/pipelines/", http.StatusNotFound), client(t, rc))
	wantFailure(t, err, "no pipeline p", "targets.proc.pipeline")
	_, _, err = replay(t, testCtx(t), r, refuse("/sessions/j", http.StatusUnprocessableEntity), client(t, rc))
	wantFailure(t, err, "refuses to open the session", "as the test wants")
	_, _, err = replay(t, testCtx(t), r, refuse("/sessions/j/segments", http.StatusUnprocessableEntity), client(t, rc))
	wantFailure(t, err, "the target refuses topics/trips/", "as the test wants")
}

// An object that was swapped for a sound one of another place is not the planned one.
func TestSwappedObject(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 60, 6)
	keys := a.Keys(record.TopicPartition{Topic: topic})
	data, err := a.Mem.Get(t.Context(), keys[2])
	if err != nil {
		t.Fatal(err)
	}
	a.Mem.Put(keys[1], data)
	rc := replaytest.NewReceiver(t, pipe())
	_, _, err = replay(t, testCtx(t), newRunner(a), newJob(request(t, `,"promise":"recompute"`)), client(t, rc))
	wantFailure(t, err, keys[1], "not the planned one")
}

// An object that is gone when its turn comes fails the job; it is not passed over.
func TestVanishedObject(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 1, 60, 6)
	key := a.Keys(record.TopicPartition{Topic: topic})[2]
	rc := replaytest.NewReceiver(t, pipe())
	rc.Before = func(_, path string) int {
		if path == "/sessions/j" {
			a.Mem.Delete(key)
		}
		return 0
	}
	_, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, `,"promise":"recompute"`)), client(t, rc))
	wantFailure(t, err, key, "gone")
}
