package run_test

import (
	"sync/atomic"
	"testing"

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
