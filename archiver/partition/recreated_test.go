package partition

import (
	"errors"
	"testing"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

func TestATopicCreatedAgainBeginsItsNextIncarnation(t *testing.T) {
	cfg := config()
	cfg.Recreated = RecreatedIncarnation
	for _, ev := range []Event{TopicID{"id2"}, PutFailed{OtherLog, errors.New("another log")}} {
		p := fetching(t, cfg)
		p.On(0, recs(0, 13)) // one segment is being put, and something is open
		acts := p.On(0, ev)
		if p.State() != Recovering || p.OpenBytes()+p.SealedBytes() != 0 || len(only[Recover](acts)) != 1 || len(only[Abandon](acts)) != 1 || len(only[StopFetch](acts)) != 1 {
			t.Fatalf("%T: %s %+v", ev, p.State(), acts)
		}
		other := id
		other.TopicID = "id2"
		p.On(0, Recovered{Identity: other, Incarnation: 2, Committed: kafka.CommitOffset{Offset: -1}, Log: kafka.LogRange{End: 40}})
		puts := only[Put](p.On(0, recs(0, 10)))
		if len(puts) != 1 || puts[0].Segment.Incarnation != 2 || puts[0].Segment.ID.TopicID != "id2" || puts[0].Segment.Start != 0 || puts[0].Segment.Chain.Ordinal != 0 {
			t.Fatalf("%T: %+v", ev, puts)
		}
		commits := only[Commit](p.On(0, PutDone{Tail: put(t, puts[0].Segment)}))
		if len(commits) != 1 || commits[0] != (Commit{10, "segment=0 incarnation=2"}) || p.Status().Incarnation != 2 {
			t.Errorf("%+v", commits)
		}
	}
}

func TestATopicThatIsThereAgainBeginsAgain(t *testing.T) {
	p := fetching(t, config())
	p.On(0, FetchFailed{errors.New("unknown topic")})
	if p.On(0, RecoveryRefused{Gone, errors.New("gone")}); p.State() != Stopped || p.reason != Gone {
		t.Fatal(p.State())
	}
	if acts := p.On(0, TopicID{""}); len(acts) > 0 || p.State() != Stopped {
		t.Errorf("%+v", acts)
	}
	if acts := p.On(0, TopicID{"id1"}); len(only[Recover](acts)) != 1 || p.State() != Recovering || p.Status().Reason != "" || p.Status().Error != "" {
		t.Errorf("%s %+v", p.State(), acts)
	}
}

// Records of the new log that come before its id make the old one look rewritten. The id, when it comes, says what it was.
func TestRecordsBeforeTheNewID(t *testing.T) {
	for _, policy := range []RecreatedPolicy{RecreatedIncarnation, RecreatedStop} {
		cfg := config()
		cfg.Recreated = policy
		p, _ := started(t, cfg, Recovered{Identity: id, Tail: tail(t, 4, 5, 7), Log: kafka.LogRange{End: 9}})
		wrong := rec(4)
		wrong.Value = []byte("of the new log")
		if p.On(0, Records{[]record.Record{wrong}}); p.Status().Reason != Diverged {
			t.Fatalf("%+v", p.Status())
		}
		if p.On(0, TopicID{id.TopicID}); p.State() != Stopped {
			t.Error("the same log goes on")
		}
		p.On(0, TopicID{"id2"})
		if again := p.State() == Recovering; again != (policy == RecreatedIncarnation) {
			t.Errorf("%s: %s", policy, p.State())
		}
	}
}
