package archive

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

func TestAcceptGap(t *testing.T) {
	ctx := context.Background()
	a, st := gappy(t)
	lost := func() []string {
		var texts []string
		for _, f := range mustVerify(t, a).Findings {
			if f.Kind != KindLost || f.TopicPartition != trips {
				t.Fatalf("%+v", f)
			}
			texts = append(texts, f.Text[strings.Index(f.Text, "["):strings.Index(f.Text, ")")+1])
		}
		return texts
	}
	if got := lost(); !slices.Equal(got, []string{"[0, 100)", "[140, 160)"}) { // the second one lies in two segments
		t.Fatalf("lost %v", got)
	}
	for _, c := range []struct {
		from, to int64
		left     []string
	}{
		{0, 100, []string{"[140, 160)"}},
		{150, 155, []string{"[140, 150)", "[155, 160)"}},
		{140, 150, []string{"[155, 160)"}},
		{155, 200, nil},
	} {
		for range 2 { // again is no error
			if err := a.AcceptGap(ctx, trips, c.from, c.to); err != nil {
				t.Fatal(err)
			}
		}
		if got := lost(); !slices.Equal(got, c.left) {
			t.Fatalf("after [%d, %d): lost %v, want %v", c.from, c.to, got, c.left)
		}
	}
	if !slices.Contains(st.Keys(), "_tapedeck/gaps/trips/0/00000000000000000140") {
		t.Error(st.Keys())
	}
	if data, err := st.Get(ctx, "_tapedeck/gaps/trips/0/00000000000000000140"); err != nil || string(data) != `{"from":140,"to":150}` {
		t.Errorf("%s, %v", data, err)
	}
	if err := a.AcceptGap(ctx, trips, 140, 160); err == nil || !strings.Contains(err.Error(), "[150, 160)") {
		t.Errorf("another end: %v", err)
	}
	for _, g := range [][2]int64{{-1, 5}, {5, 5}, {6, 5}} {
		if err := a.AcceptGap(ctx, trips, g[0], g[1]); err == nil {
			t.Errorf("%v was accepted", g)
		}
	}
	st.SetBefore(func(context.Context, string, string) error { return err403 })
	if err := a.AcceptGap(ctx, trips, 1, 2); !errors.Is(err, store.ErrNotAllowed) {
		t.Error(err)
	}
}

// What is no accepted gap accepts nothing, and is said.
func TestForeignGapObjects(t *testing.T) {
	for key, data := range map[string]string{
		"_tapedeck/gaps/trips/0/0":                    `{"from":0,"to":100}`,
		"_tapedeck/gaps/trips/0/00000000000000000000": `{"from":1,"to":100}`,
		"_tapedeck/gaps/trips/0/00000000000000000001": `{"from":1,"to":1}`,
		"_tapedeck/gaps/trips/0/00000000000000000002": `x`,
	} {
		a, st := gappy(t)
		st.Put(key, []byte(data))
		if k := kinds(mustVerify(t, a)); !slices.Equal(k, []string{KindForeign, KindLost, KindLost}) {
			t.Errorf("%s: %v", key, k)
		}
	}
}

func TestSubtract(t *testing.T) {
	for _, c := range []struct {
		without []span
		want    []span
	}{
		{nil, []span{{10, 20}}},
		{[]span{{0, 10}, {20, 30}}, []span{{10, 20}}},
		{[]span{{0, 30}}, nil},
		{[]span{{10, 20}}, nil},
		{[]span{{15, 16}, {10, 12}}, []span{{12, 15}, {16, 20}}},
		{[]span{{12, 18}, {13, 14}}, []span{{10, 12}, {18, 20}}},
		{[]span{{18, 99}}, []span{{10, 18}}},
	} {
		if got := subtract(10, 20, c.without); !slices.Equal(got, c.want) {
			t.Errorf("without %v: %v, want %v", c.without, got, c.want)
		}
	}
}

func TestGapsOf(t *testing.T) {
	skips := []segment.Skip{{From: 0, To: 5, Class: segment.Lost}, {From: 5, To: 7, Class: segment.Lost}, {From: 7, To: 8, Class: segment.NotArchived},
		{From: 8, To: 9, Class: segment.NoData}, {From: 9, To: 12, Class: segment.NotArchived}}
	report := func(c segment.Class) bool { return c != segment.NoData }
	want := []segment.Skip{{From: 2, To: 7, Class: segment.Lost}, {From: 7, To: 8, Class: segment.NotArchived}, {From: 9, To: 10, Class: segment.NotArchived}}
	if got := gapsOf(skips, 2, 10, report); !slices.Equal(got, want) {
		t.Error(got)
	}
}
