package run_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

// Topics by pattern, without what is excluded.
func TestSelection(t *testing.T) {
	a := replaytest.New()
	rng := rand.New(rand.NewPCG(1, 1))
	for topic, partitions := range map[string]int32{"trips": 2, "trips-eu": 3, "trips.old": 1, "fares": 1, "again": 1, "again~2": 1} {
		for p := range partitions {
			tp := record.TopicPartition{Topic: topic, Partition: p}
			if topic == "again~2" {
				continue
			}
			a.Segment(t, tp, 1, []record.Record{replaytest.Record(tp, 0, int64(rng.IntN(9)))})
		}
	}
	a.Mem.Put("_tapedeck/incarnations/again/0000000002", []byte(`{"format":1,"clusterId":"test-cluster","topicId":"id2"}`))
	tests := []struct {
		fields string
		want   string // partitions, or the reason with ! in front
	}{
		{`,"topics":[{"pattern":"trips-.*"}]`, "trips-eu-0 trips-eu-1 trips-eu-2"},
		{`,"topics":[{"pattern":"trips"}]`, "trips-0 trips-1"}, // the whole name
		{`,"topics":[{"pattern":"trips.*"}]`, "trips-0 trips-1 trips-eu-0 trips-eu-1 trips-eu-2 trips.old-0"},
		{`,"topics":[{"pattern":"a|fares|b"}]`, "fares-0"}, // anchored as a whole, not only its first branch
		{`,"topics":[{"pattern":"trips.*","partitions":[1]}]`, "trips-1 trips-eu-1"},
		{`,"topics":[{"pattern":"trips.*","partitions":[1]},{"pattern":"trips-.*","partitions":[2,1]}]`, "trips-1 trips-eu-1 trips-eu-2"},
		{`,"topics":[{"pattern":"trips.*"},{"name":"trips","partitions":[1]}]`, "trips-1 trips-eu-0 trips-eu-1 trips-eu-2 trips.old-0"}, // a name goes before
		{`,"topics":[{"pattern":"trips.*"}],"exclude":["trips-eu"]`, "trips-0 trips-1 trips.old-0"},
		{`,"topics":[{"pattern":"trips.*"}],"exclude":[{"pattern":".*[.].*"},{"name":"trips-eu","partitions":[0,1]}]`, "trips-0 trips-1 trips-eu-2"},
		{`,"exclude":[{"name":"trips","partitions":[0]}]`, "trips-1"}, // of the pipeline's inputs
		{`,"topics":[{"pattern":".*"}],"exclude":["again"]`, "fares-0 trips-0 trips-1 trips-eu-0 trips-eu-1 trips-eu-2 trips.old-0"},
		{`,"topics":[{"pattern":".*"},"again~1"],"exclude":[{"pattern":"trips.*"}]`, "again-0 fares-0"},
		{`,"topics":[{"pattern":".*"}]`, "!again was deleted and created again, and the archive holds its logs again~1, again~2"},
		{`,"topics":[{"pattern":"nothing.*"}]`, "!matches none of the topics of the archive (the whole name must match)"},
		{`,"topics":[{"pattern":"trips.*","partitions":[7]}]`, "!has a partition of [7]"},
		{`,"topics":["trips"],"exclude":["fares"]`, "!exclude: fares takes nothing out"},
		{`,"topics":["trips"],"exclude":[{"pattern":"fa.*"}]`, "!takes nothing out"},
		{`,"topics":["trips"],"exclude":["trips"]`, "!exclude leaves nothing"},
	}
	for _, c := range tests {
		plan, err := run.MakePlan(t.Context(), a.Archive, request(t, c.fields+`,"promise":"recompute"`),
			&session.Pipeline{Name: "p", Inputs: []string{"trips"}})
		if want, refused := strings.CutPrefix(c.want, "!"); refused {
			wantFailure(t, err, want)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.fields, err)
			continue
		}
		var got []string
		for _, p := range plan.Partitions {
			got = append(got, p.TopicPartition.String())
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: got %s, want %s", c.fields, text, c.want)
		}
	}
}

// A reproduction of topics chosen by a pattern has the partitions that nothing was ever written to, as one by name has.
func TestPatternTakesPartInReproduce(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), "trips", 2, 20, 5)
	a.Decide(t, "p.decisions", replaytest.Origin("trips", 4))
	for fields, want := range map[string]int{
		`,"topics":[{"pattern":"tr.*"}]`:                                               4,
		`,"topics":[{"pattern":"tr.*"}],"exclude":[{"name":"trips","partitions":[1]}]`: 1,
	} {
		plan, err := run.MakePlan(t.Context(), a.Archive, request(t, fields), &session.Pipeline{Name: "p", Hash: "hash", Inputs: []string{"trips"}, DecisionsTopic: "p.decisions"})
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Partitions) != want {
			t.Errorf("%s: %d partitions, want %d", fields, len(plan.Partitions), want)
		}
	}
}
