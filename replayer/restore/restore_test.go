package restore

import (
	"testing"

	"tapedeck.dev/tapedeck/shared/kafka"
)

// Everything awkward, in three partitions and lanes, comes back as it was, and the offset map says where.
func TestRestoreKeepsEverything(t *testing.T) {
	g := newRig(t)
	g.fill("trips", 3, 200, 1)
	to := g.topic(3)
	j := g.job(value(`"topics":["trips"],"topicMapping":{"trips":%q}`, to))
	out, err := g.run(g.d, j)
	g.must(err)
	g.check(j, "trips", to, 3)
	for p := range 3 {
		r := out.Restored.Parts[p]
		if r.Records != 200 || r.To.Topic != to || r.TopicID == "" || out.Progress[p].Count != 200 {
			t.Errorf("the outcome says %+v", r)
		}
	}
}

// A range that begins and ends inside segments takes exactly its records, and a second job from there takes the rest: none is missing, none twice.
func TestRestoreOfRangesInsideSegments(t *testing.T) {
	g := newRig(t)
	g.even("trips", 2, 100, 30, 10)
	to := g.topic(2)
	restore := func(bounds string) {
		t.Helper()
		_, err := g.run(g.d, g.job(value(`"topics":["trips"],"topicMapping":{"trips":%q},"ifNotEmpty":"append",%s`, to, bounds)))
		g.must(err)
	}
	// Segments begin at 0, 30, 60 and 90.
	restore(`"from":{"kind":"offset","value":17},"until":{"kind":"offset","value":41},"bounds":{"trips/1":{"until":{"kind":"offset","value":73}}}`)
	g.same(kafka.TP{Topic: to, Partition: 0}, g.records("trips", 0)[17:41])
	g.same(kafka.TP{Topic: to, Partition: 1}, g.records("trips", 1)[17:73])
	restore(`"from":{"kind":"offset","value":41},"bounds":{"trips/1":{"from":{"kind":"offset","value":73}}}`)
	g.same(kafka.TP{Topic: to, Partition: 0}, g.records("trips", 0)[17:])
	g.same(kafka.TP{Topic: to, Partition: 1}, g.records("trips", 1)[17:])
}
