package groups

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

func tp(topic string, p int32) record.TopicPartition {
	return record.TopicPartition{Topic: topic, Partition: p}
}

func snapshot() *archive.GroupSnapshot {
	pos := func(topic string, p int32, offset int64) archive.GroupPosition {
		return archive.GroupPosition{Topic: topic, Partition: p, Offset: offset, LeaderEpoch: 5, Metadata: "m"}
	}
	return &archive.GroupSnapshot{ClusterID: "old", Time: 1000, Topics: map[string]string{"trips": "T", "users": "U", "again": "A2"}, Groups: []archive.GroupPositions{
		{Group: "audit", Positions: []archive.GroupPosition{pos("users", 0, 3)}},
		{Group: "billing", Positions: []archive.GroupPosition{pos("again", 0, 9), pos("trips", 0, 12), pos("trips", 1, 4), pos("trips", 2, 1), pos("users", 0, 3)}},
	}}
}

func logs() []Log {
	return []Log{
		{Source: tp("trips", 0), TopicID: "T", ClusterID: "old", Target: tp("trips-2", 0)},
		{Source: tp("trips", 1), TopicID: "T", ClusterID: "old", Target: tp("trips-2", 1)},
		{Source: tp("again", 0), TopicID: "A1", ClusterID: "old", Target: tp("again", 0)}, // an earlier log of that name
	}
}

func TestChoose(t *testing.T) {
	p, err := choose(snapshot(), &job.Groups{Names: []string{"billing"}, Mapping: map[string]string{"billing": "billing-2"}}, logs())
	if err != nil || p.Snapshot != 1000 || !slices.Equal(p.Groups, []job.GroupPlan{{Group: "billing", To: "billing-2", Positions: 2}}) || len(p.Notes) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = choose(snapshot(), &job.Groups{Pattern: ".*i.*"}, logs())
	if err != nil || len(p.Groups) != 2 || p.Groups[0].Positions != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	for name, want := range map[string]*job.Groups{
		"group nobody has no positions":                      {Names: []string{"billing", "nobody"}},
		`no group of the snapshot of 1000 ms matches "bill"`: {Pattern: "bill"}, // the full name
		"would both be one":                                  {Pattern: ".*", Mapping: map[string]string{"audit": "one", "billing": "one"}},
	} {
		if _, err := choose(snapshot(), want, logs()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMovesAndSettle(t *testing.T) {
	maps := map[record.TopicPartition]*Map{
		tp("trips", 0): newMap([]run{{10, 0, 10}}, 10, 10), tp("trips", 1): newMap([]run{{0, 0, 4}}, 0, 4), tp("again", 0): newMap(nil, 0, 0),
	}
	ms := moves(snapshot(), "billing", logs(), maps)
	there := map[kafka.TP]kafka.CommitOffset{tp("trips-2", 1): {Offset: 7}}
	set := settle(ms, there)
	if want := (kafka.CommitOffset{Offset: 2, LeaderEpoch: record.NoEpoch, Metadata: "m"}); len(set) != 1 || set[tp("trips-2", 0)] != want {
		t.Errorf("set %v", set)
	}
	var got []string
	for _, m := range ms {
		got = append(got, m.TopicPartition.String()+" "+m.Note)
	}
	for i, want := range []string{otherLog, "", "stays there", notPart} {
		if !strings.HasSuffix(ms[i].Note, want) || (ms[i].New < 0) != (i == 0 || i == 3) {
			t.Errorf("%d: %+v, want %q", i, ms[i], want)
		}
	}
	if len(ms) != 4 { // users is another job's
		t.Errorf("%v", got)
	}
	// What is set already is not set again; what is lower moves on.
	for cur, sets := range map[int64]int{1: 1, 2: 0, 3: 0} {
		ms := moves(snapshot(), "billing", logs()[:1], maps)
		if n := len(settle(ms, map[kafka.TP]kafka.CommitOffset{tp("trips-2", 0): {Offset: cur}})); n != sets {
			t.Errorf("at %d: %d positions set, want %d", cur, n, sets)
		}
	}
}
