package run_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// A topic that was created again is archived as two logs. A replay takes the one that is named, under Kafka's name of the topic; which one is meant
// is never guessed.
func TestIncarnations(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 1, 60, 6)
	first := record.TopicPartition{Topic: topic}
	id := segment.LogIdentity{ClusterID: replaytest.Cluster, TopicID: "the second", Topic: topic, Isolation: segment.ReadCommitted}
	n, err := a.FindIncarnation(context.Background(), id, true)
	if err != nil || n != 2 {
		t.Fatal(n, err)
	}
	w, err := segment.NewWriter(id, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	var second []record.Record
	for o := range int64(20) {
		second = append(second, replaytest.Record(first, o, 5000+o))
		if _, err := w.Append(&second[o]); err != nil {
			t.Fatal(err)
		}
	}
	data, h, err := w.Close(20, segment.First(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.CreateAs(context.Background(), "trips~2", h, data, archive.RetryPolicy{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fields string
		want   []record.Record
		fails  []string
	}{
		{fields: `,"promise":"recompute"`, fails: []string{"deleted and created again", "trips~1, trips~2"}},
		{fields: `,"promise":"recompute","topics":["trips"]`, fails: []string{"deleted and created again", "trips~1, trips~2"}},
		{fields: `,"promise":"recompute","topics":["trips~1","trips~2"]`, fails: []string{"two logs of one topic"}},
		{fields: `,"promise":"recompute","topics":["trips~3"]`, fails: []string{"no topic trips~3"}},
		{fields: `,"promise":"recompute","topics":["trips~1"]`, want: a.Records[first]},
		{fields: `,"promise":"recompute","topics":["trips~2"]`, want: second},
		{fields: `,"promise":"recompute","topics":["trips~2"],"bounds":{"trips/0":{"until":{"kind":"offset","value":7}}}`, want: second[:7]},
	} {
		t.Run(c.fields, func(t *testing.T) {
			rc := replaytest.NewReceiver(t, pipe())
			runner := newRunner(a)
			j := newJob(request(t, c.fields))
			_, _, err := replay(t, testCtx(t), runner, j, client(t, rc))
			if c.fails != nil {
				wantFailure(t, err, c.fails...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			same := func(a, b record.Record) bool { return record.Equal(&a, &b) }
			if got := rc.Taken("j", first); !slices.EqualFunc(got, c.want, same) {
				t.Errorf("%d records, want %d", len(got), len(c.want))
			}
			// The stored plan is found again.
			again, err := runner.Prepare(testCtx(t), j, client(t, rc))
			if err != nil || again.Partitions[0].TopicID != j.Plan.Ranges[0].TopicID || len(again.Partitions[0].Segments) != j.Plan.Ranges[0].Segments {
				t.Errorf("%+v, %v", again, err)
			}
		})
	}
}
