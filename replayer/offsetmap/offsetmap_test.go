package offsetmap

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

// Random restores of random parts of a gapped log, some of them overlapping: every translation is that of the plain definition.
func TestTranslateIsTheNextExistingRecord(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		at := map[int64]int64{} // old → new
		var runs []Run
		next, end := int64(0), int64(-1)
		for range 1 + rng.IntN(4) { // jobs
			from := int64(rng.IntN(100))
			var job []Run
			for old := from; old < from+int64(rng.IntN(60)); old++ {
				if rng.IntN(3) == 0 {
					continue // no record at the source
				}
				if rng.IntN(5) == 0 {
					next++ // a marker at the target
				}
				at[old] = next
				job = Append(job, Run{old, next, 1})
				next++
				end = next
			}
			next++
			runs = append(runs, job...)
		}
		rng.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
		m := New(runs)
		for old := range int64(170) {
			want, exists := end, false
			for o := old; o < 170; o++ {
				if n, ok := at[o]; ok {
					want, exists = n, true
					break
				}
			}
			if got, ok := m.Translate(old); got != want || ok != exists {
				t.Fatalf("seed %d: %d becomes %d %v, want %d %v; runs %v", seed, old, got, ok, want, exists, m.Runs())
			}
		}
	}
}

func TestOfTakesOneLogIntoOneTopic(t *testing.T) {
	tp := func(s string, p int32) record.TopicPartition { return record.TopicPartition{Topic: s, Partition: p} }
	es := []Entry{
		{Job: "a", Source: tp("t", 0), SourceID: "s", Target: tp("r", 1), TargetID: "x", Runs: []Run{{0, 0, 10}}},
		{Job: "b", Source: tp("t", 0), SourceID: "s", Target: tp("r", 1), TargetID: "x", Runs: []Run{{20, 11, 10}}},
		{Job: "wiped", Source: tp("t", 0), SourceID: "s", Target: tp("r", 1), TargetID: "old", Runs: []Run{{0, 500, 10}}},
		{Job: "other log", Source: tp("t", 0), SourceID: "s2", Target: tp("r", 1), TargetID: "x", Runs: []Run{{0, 700, 10}}},
		{Job: "other partition", Source: tp("t", 1), SourceID: "s", Target: tp("r", 0), TargetID: "x", Runs: []Run{{0, 900, 10}}},
	}
	m, target, err := Of(es, "s", tp("t", 0), "x")
	if err != nil || target != tp("r", 1) || !slices.Equal(m.Runs(), []Run{{0, 0, 10}, {20, 11, 10}}) {
		t.Errorf("%v %v %v", m, target, err)
	}
	for old, want := range map[int64]int64{0: 0, 9: 9, 10: 11, 15: 11, 25: 16, 30: 21} {
		if got, _ := m.Translate(old); got != want {
			t.Errorf("%d becomes %d, want %d", old, got, want)
		}
	}
	es[1].Target = tp("r", 2)
	if _, _, err := Of(es, "s", tp("t", 0), "x"); err == nil {
		t.Error("two targets of one partition are one map")
	}
	if m, _, err = Of(es, "none", tp("t", 0), "x"); err != nil {
		t.Error(err)
	} else if at, ok := m.Translate(3); at != -1 || ok {
		t.Error("nothing was restored")
	}
}

func TestRunJSON(t *testing.T) {
	want := []Run{{1, 2, 3}, {9, 8, 7}}
	data, err := json.Marshal(want)
	if err != nil || string(data) != "[[1,2,3],[9,8,7]]" {
		t.Fatalf("%s %v", data, err)
	}
	var got []Run
	if err := json.Unmarshal(data, &got); err != nil || !slices.Equal(got, want) {
		t.Fatalf("%v %v", got, err)
	}
	for _, bad := range []string{`[[1,2]]`, `[[1,2,0]]`, `[[-1,2,1]]`, `[[1,2,3,4]]`, `[{}]`} {
		if json.Unmarshal([]byte(bad), &got) == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
