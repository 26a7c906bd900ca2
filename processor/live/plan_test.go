package live

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/shared/kafka"
)

func tp(p int32) kafka.TP { return kafka.TP{Topic: "trips", Partition: p} }

// found is a pipeline that has begun on two partitions.
func found() Found {
	return Found{
		Pipeline: "fares", Hash: "h1", Group: "tapedeck.fares", FirstSource: "trips",
		Topics: map[string]kafka.Topic{"trips": {Name: "trips", ID: "id1", Partitions: 2}},
		Logs:   map[kafka.TP]kafka.LogRange{tp(0): {Start: 5, End: 50}, tp(1): {Start: 0, End: 60}, tp(2): {Start: 1, End: 9}},
		Committed: map[kafka.TP]kafka.CommitOffset{
			tp(0): FormatCommit(engine.Commit{Position: 40, Low: 30, MaxAtLow: 7, Emitted: 9}),
			tp(1): FormatCommit(engine.Commit{Position: 41, Low: 41, MaxAtLow: 8, Emitted: 9}),
		},
		Log: &decision.Log{Origin: &decision.Origin{PipelineHash: "h1", Topics: map[string]decision.OriginTopic{"trips": {ID: "id1", Start: map[int32]int64{0: 5, 1: 0}}}}},
	}
}

func none() map[kafka.TP]kafka.CommitOffset {
	return map[kafka.TP]kafka.CommitOffset{tp(0): {Offset: -1}, tp(1): {Offset: -1}}
}

func TestPlanRestart(t *testing.T) {
	p, err := MakePlan(found())
	if err != nil {
		t.Fatal(err)
	}
	want := map[kafka.TP]engine.Commit{tp(0): {Position: 40, Low: 30, MaxAtLow: 7, Emitted: 9}, tp(1): {Position: 41, Low: 41, MaxAtLow: 8, Emitted: 9}}
	if p.Origin != nil || p.Wait || len(p.New) != 0 || !reflect.DeepEqual(p.Begin, want) {
		t.Errorf("%+v", p)
	}
}

func TestPlanFresh(t *testing.T) {
	for _, latest := range []bool{false, true} {
		f := found()
		f.Log, f.Committed, f.StartLatest = &decision.Log{}, none(), latest
		at := map[int32]int64{0: 5, 1: 0}
		if latest {
			at = map[int32]int64{0: 50, 1: 60}
		}
		p, err := MakePlan(f)
		if err != nil {
			t.Fatal(err)
		}
		want := &decision.Origin{PipelineHash: "h1", Topics: map[string]decision.OriginTopic{"trips": {ID: "id1", Start: at}}}
		if !reflect.DeepEqual(p.Origin, want) || !reflect.DeepEqual(p.Begin, map[kafka.TP]engine.Commit{tp(0): fresh(at[0]), tp(1): fresh(at[1])}) {
			t.Errorf("latest %v: %+v", latest, p)
		}
	}
}

func TestPlanNewPartitionOfMerged(t *testing.T) {
	f := found()
	f.Topics["trips"] = kafka.Topic{Name: "trips", ID: "id1", Partitions: 3}
	p, err := MakePlan(f)
	if err != nil || !reflect.DeepEqual(p.New, []kafka.TP{tp(2)}) || len(p.Begin) != 2 {
		t.Fatalf("%+v %v", p, err)
	}
	// Once it has a floor it is a member like the others.
	f.Log.Floors = []decision.Floor{{TopicPartition: tp(2), Offset: 1, W: 9}}
	f.Committed[tp(2)] = FormatCommit(fresh(1))
	p, err = MakePlan(f)
	if err != nil || len(p.New) != 0 || p.Begin[tp(2)] != fresh(1) {
		t.Fatalf("%+v %v", p, err)
	}
}

func TestPlanKeyed(t *testing.T) {
	f := found()
	f.Keyed, f.Assigned = true, []kafka.TP{tp(1)}
	p, err := MakePlan(f)
	if err != nil || len(p.Begin) != 1 || p.Begin[tp(1)].Position != 41 {
		t.Fatalf("restart: %+v %v", p, err)
	}
	f.Log, f.Committed = &decision.Log{}, none()
	if p, err = MakePlan(f); err != nil || !p.Wait || p.Origin != nil {
		t.Fatalf("only the owner of partition 0 may write the origin: %+v %v", p, err)
	}
	f.Assigned = []kafka.TP{tp(0)}
	p, err = MakePlan(f)
	if err != nil || p.Wait || p.Origin == nil || len(p.Starts) != 2 || len(p.Begin) != 1 {
		t.Fatalf("the origin comes with the positions of all partitions: %+v %v", p, err)
	}
}

func TestPlanRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Found)
		want   string
	}{
		"another pipeline":         {func(f *Found) { f.Hash = "h2" }, "was changed"},
		"topic re-created":         {func(f *Found) { f.Topics["trips"] = kafka.Topic{Name: "trips", ID: "id2", Partitions: 2} }, "re-created"},
		"decisions deleted":        {func(f *Found) { f.Log = &decision.Log{} }, "no origin"},
		"positions gone":           {func(f *Found) { f.Committed = none() }, "no position"},
		"one position gone":        {func(f *Found) { delete(f.Committed, tp(1)) }, "no position"},
		"position of another tool": {func(f *Found) { f.Committed[tp(1)] = kafka.CommitOffset{Offset: 7} }, "another tool"},
		"a floor's position is gone": {func(f *Found) {
			f.Topics["trips"] = kafka.Topic{Name: "trips", ID: "id1", Partitions: 3}
			f.Log.Floors = []decision.Floor{{TopicPartition: tp(2)}}
		}, "no position"},
		"keyed topic has grown": {func(f *Found) {
			f.Keyed = true
			f.Topics["trips"] = kafka.Topic{Name: "trips", ID: "id1", Partitions: 3}
		}, "has grown to 3"},
		"topic has shrunk": {func(f *Found) { f.Topics["trips"] = kafka.Topic{Name: "trips", ID: "id1", Partitions: 1} }, "not in Kafka"},
	} {
		f := found()
		c.change(&f)
		p, err := MakePlan(f)
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v; want %q", name, p, err, c.want)
		}
	}
}

func TestGoneErrorNamesTheReplay(t *testing.T) {
	err := goneError("fares", tp(0), engine.Commit{Position: 40, Low: 30}, kafka.OutOfRange{TP: tp(0), Offset: 30, LogStart: 50, LogEnd: 50})
	for _, want := range []string{"30", "trips-0", "starts at 50", "POST /replays"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	err = goneError("fares", tp(0), engine.Commit{Position: 40, Low: 30}, kafka.OutOfRange{TP: tp(0), Offset: 30, LogStart: 0, LogEnd: 20})
	if !strings.Contains(err.Error(), "beyond the end") {
		t.Error(err)
	}
}
