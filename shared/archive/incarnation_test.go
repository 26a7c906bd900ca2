package archive

import (
	"context"
	"errors"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// createAs grows the chain of an incarnation of trips-0; its records carry Kafka's topic name.
func createAs(t testing.TB, a *Archive, topic, topicID string, tail *Tail, next int64) *Tail {
	t.Helper()
	id := identity(trips)
	id.TopicID = topicID
	h, data := encode(t, trips, tail, cut{next: next, id: &id})
	out, err := a.CreateAs(context.Background(), topic, h, data, RetryPolicy{})
	if err != nil {
		t.Fatal(err)
	}
	return &out.Tail
}

func TestFindIncarnation(t *testing.T) {
	a, st := open(t)
	ctx := context.Background()
	find := func(topicID string, open bool) (int, error) {
		id := identity(trips)
		id.TopicID = topicID
		return a.FindIncarnation(ctx, id, open)
	}
	want := func(what string, wantN int, wantErr error) func(n int, err error) {
		return func(n int, err error) {
			t.Helper()
			if n != wantN || !errors.Is(err, wantErr) {
				t.Errorf("%s: %d, %v", what, n, err)
			}
		}
	}
	want("nothing archived", 1, nil)(find("one", false))
	want("nothing archived, and to be opened", 1, nil)(find("one", true))
	createAs(t, a, "trips", "one", nil, 10)
	want("the first log", 1, nil)(find("one", true))
	want("another log", 0, ErrRecreated)(find("two", false))
	want("another log is an other log", 0, ErrOtherLog)(find("two", false))
	if keys := strings.Join(st.Keys(), " "); strings.Contains(keys, "incarnations") {
		t.Errorf("an incarnation was opened: %s", keys)
	}
	want("the second is opened", 2, nil)(find("two", true))
	want("the second is there, before it has a segment", 2, nil)(find("two", false))
	want("the first again: a broker that is behind", 0, ErrStaleTopic)(find("one", true))
	want("the third is opened", 3, nil)(find("three", true))
	want("the second again", 0, ErrStaleTopic)(find("two", true))
	want("the third", 3, nil)(find("three", true))
	id := identity(record.TopicPartition{Topic: "trips", Partition: 7}) // not in any folder: the topic decides
	id.TopicID = "three"
	want("a partition that is new", 3, nil)(a.FindIncarnation(ctx, id, true))
	id.ClusterID = "another"
	want("another cluster", 0, ErrOtherLog)(a.FindIncarnation(ctx, id, true))
	for _, prefix := range []string{"trip", "trips-2", "trips.x"} {
		if ns, err := a.Incarnations(ctx, prefix); len(ns) > 0 || err != nil {
			t.Errorf("%s: %v, %v", prefix, ns, err)
		}
	}
	st.Put("_tapedeck/incarnations/trips/x", nil)
	want("a foreign name", 0, ErrForeign)(find("three", true))
}

// Two writers saw two logs: each gets a number of its own, and the older of the two is told that it is.
func TestTwoWritersOpenTheNextIncarnation(t *testing.T) {
	a, st := open(t)
	createAs(t, a, "trips", "one", nil, 10)
	id := identity(trips)
	id.TopicID = "three"
	raced := false
	st.SetBefore(func(_ context.Context, op, key string) error {
		if op == "create" && strings.Contains(key, "incarnations") && !raced {
			raced = true
			if n, err := a.FindIncarnation(context.Background(), func() segment.LogIdentity { i := id; i.TopicID = "two"; return i }(), true); n != 2 || err != nil {
				t.Errorf("the other writer: %d, %v", n, err)
			}
		}
		return nil
	})
	if n, err := a.FindIncarnation(context.Background(), id, true); n != 3 || err != nil || !raced {
		t.Errorf("%d, %v", n, err)
	}
}

// Chains of incarnations are chains like any: tail, index, plan, inspect, gaps and verify; and their objects are no one else's.
func TestTheChainOfAnIncarnation(t *testing.T) {
	a, st := open(t)
	ctx := context.Background()
	one := createAs(t, a, "trips", "one", nil, 10)
	second := record.TopicPartition{Topic: "trips~2"}
	if n, err := a.FindIncarnation(ctx, func() segment.LogIdentity { i := identity(trips); i.TopicID = "two"; return i }(), true); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	var tail *Tail
	for next := int64(1); next <= segment.IndexEvery+3; next++ {
		tail = createAs(t, a, "trips~2", "two", tail, next)
	}
	if tail.TP() != second || tail.Header.Topic != "trips" {
		t.Errorf("%s of %s", tail.TP(), tail.Header.Topic)
	}
	found, err := a.Tail(ctx, "trips~2", 0, -1)
	if err != nil || found.TP() != second || found.Header.Next != segment.IndexEvery+3 || found.Header.TopicID != "two" {
		t.Fatalf("%+v, %v", found, err)
	}
	if first, err := a.Tail(ctx, "trips", 0, -1); err != nil || first.Header.Next != one.Header.Next {
		t.Errorf("%+v, %v", first, err)
	}
	names, err := a.indexNames(ctx, second)
	if err != nil || len(names) != 1 {
		t.Errorf("%d index objects, %v", len(names), err)
	}
	p, err := a.Plan(ctx, Request{TP: second, From: Bound{Kind: Earliest}, Until: Bound{Kind: End}})
	if err != nil || len(p.Segments) != segment.IndexEvery+3 || p.TopicID != "two" || p.TopicPartition != trips || p.Incarnation != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	info, err := a.Inspect(ctx, second)
	if err != nil || info.Incarnation != 2 || info.Records != segment.IndexEvery+3 {
		t.Errorf("%+v, %v", info, err)
	}
	if info, err := a.Inspect(ctx, trips); err != nil || info.Incarnation != 1 || info.Records != 10 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, r := range records(t, st, second) {
		if r.Topic != "trips" {
			t.Fatalf("the record's topic is %s", r.Topic)
		}
	}
	mustBeClean(t, a)
	// An object of one log in the folder of the other is found.
	data, err := st.Get(ctx, a.key(second, 10))
	if err != nil {
		t.Fatal(err)
	}
	st.Put(a.key(trips, 10), data)
	if r := mustVerify(t, a, "trips"); len(r.Findings) == 0 || r.Findings[0].Kind != KindIdentity {
		t.Errorf("%+v", r.Findings)
	}
	if r := mustVerify(t, a, "trips~2"); len(r.Findings) != 0 {
		t.Errorf("%+v", r.Findings)
	}
}
