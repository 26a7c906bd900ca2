package run_test

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/shared/record"
)

// The target restarts when one partition has been delivered, forgets what it had not stored of it, and waits for it before it takes more of the others. No
// answer to a send says so, since nothing of that partition is being sent: who is named as needed must be asked about.
func TestATargetThatGoesBackBehindADeliveredPartition(t *testing.T) {
	a := replaytest.New()
	short, long := record.TopicPartition{Topic: topic}, record.TopicPartition{Topic: topic, Partition: 1}
	a.Segment(t, short, 10, []record.Record{replaytest.Record(short, 0, 1000), replaytest.Record(short, 9, 1100)})
	for start := int64(0); start < 40; start += 10 {
		a.Segment(t, long, start+10, []record.Record{replaytest.Record(long, start, 500_000+start), replaytest.Record(long, start+9, 500_100+start)})
	}
	a.Decide(t, "p.decisions", replaytest.Origin(topic, 2))
	rc := replaytest.NewReceiver(t, pipe())
	rc.MaxSkew = 1000
	var restarted atomic.Bool
	rc.After = func(method, _ string) bool {
		if method == "PUT" && len(rc.Taken("j", short)) == 2 && len(rc.Taken("j", long)) >= 2 && !restarted.Swap(true) {
			rc.Restart(false)
		}
		return false
	}
	if _, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, "")), client(t, rc)); err != nil {
		t.Fatal(err)
	}
	if !restarted.Load() {
		t.Error("it was never restarted: the test shows nothing")
	}
	same(t, a, rc, all)
}

// The target comes down at the same record each time, or each time it is to finish: the job is FAILED in the end, and does not go on for ever.
func TestATargetThatComesDownEachTime(t *testing.T) {
	for _, where := range []string{"/segments/", "/finish"} {
		a := replaytest.New()
		a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 60, 5)
		tp := record.TopicPartition{Topic: topic}
		rc := replaytest.NewReceiver(t, pipe())
		rc.Before = func(_, path string) int {
			if strings.Contains(path, where) && (where == "/finish" || len(rc.Taken("j", tp)) >= 40) {
				rc.Restart(false)
				return http.StatusBadGateway
			}
			return 0
		}
		r := newRunner(a)
		r.Settings.RetryTimeout = 2 * time.Second
		_, _, err := replay(t, testCtx(t), r, newJob(request(t, `,"promise":"recompute"`)), client(t, rc))
		wantFailure(t, err, "target.retry.timeout")
	}
}
