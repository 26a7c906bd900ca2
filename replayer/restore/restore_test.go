package restore

import "testing"

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
