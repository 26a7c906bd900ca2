package archive

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

func TestKeepTopic(t *testing.T) {
	ctx := t.Context()
	st := mem.New()
	a := Open(st, "topics")
	one := TopicInfo{ClusterID: "c", Topic: "trips", TopicID: "id-1", Partitions: 3, ReplicationFactor: 2, Config: map[string]string{"b": "2", "a": "1"}}
	grown := one
	grown.Partitions = 6
	anew := TopicInfo{ClusterID: "c", Topic: "trips", TopicID: "id-2", Partitions: 1, ReplicationFactor: 1}
	keep := func(info TopicInfo, want bool) {
		t.Helper()
		if wrote, err := a.KeepTopic(ctx, info); err != nil || wrote != want {
			t.Fatalf("wrote %v, %v; want %v", wrote, err, want)
		}
	}
	if _, err := a.Topic(ctx, "trips", ""); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	keep(one, true)
	keep(one, false)
	keep(grown, true)
	keep(anew, true)
	st.ResetCounts()
	keep(anew, false)
	if c := st.Counts(); c["list"] != 1 || c["get"] != 1 || c["create"] != 0 {
		t.Errorf("calls of a keep without news: %v", c)
	}
	keep(TopicInfo{Topic: "trips2", TopicID: "x", Partitions: 1}, true)
	for _, c := range []struct {
		id   string
		want TopicInfo
	}{{"", anew}, {"id-1", grown}, {"id-2", anew}} {
		if got, err := a.Topic(ctx, "trips", c.id); err != nil || !got.Equal(c.want) {
			t.Errorf("%q: %+v, %v", c.id, got, err)
		}
	}
	if _, err := a.Topic(ctx, "trips", "id-3"); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	all, err := a.Topics(ctx)
	if err != nil || len(all) != 2 || !all[0].Equal(anew) || all[1].Topic != "trips2" {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestKeepTopicRaces: many writers with the same news write it once.
func TestKeepTopicRaces(t *testing.T) {
	st := mem.New()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 3 {
				if _, err := Open(st, "topics").KeepTopic(t.Context(), TopicInfo{Topic: "trips", TopicID: "x", Partitions: 1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if keys := st.Keys(); len(keys) != 1 {
		t.Errorf("%v", keys)
	}
}

func TestDamagedTopics(t *testing.T) {
	for key, data := range map[string]string{
		"_tapedeck/topics/trips/7":     "{}",
		TopicName{"trips", 0}.Format(): `{"version":1,"topic":"other","partitions":1}`,
		TopicName{"trips", 1}.Format(): `{"version":2,"topic":"trips","partitions":1}`,
		TopicName{"trips", 2}.Format(): `{"version":1,`,
		TopicName{"trips", 3}.Format(): `{"version":1,"topic":"trips","partitions":0}`,
	} {
		st := mem.New()
		st.Put(key, []byte(data))
		if _, err := Open(st, "topics").Topic(t.Context(), "trips", ""); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func FuzzTopicName(f *testing.F) {
	f.Add(TopicName{"trips", 7}.Format())
	f.Add("_tapedeck/topics/../00000000000000000001")
	f.Add("_tapedeck/topics/trips/-0000000000000000001")
	f.Fuzz(func(t *testing.T, key string) {
		n, err := ParseTopicName(key)
		if err == nil && (n.Format() != key || n.N < 0) {
			t.Fatalf("%q is not %q", key, n.Format())
		}
		if err != nil && !errors.Is(err, ErrForeign) {
			t.Fatal(err)
		}
	})
}
