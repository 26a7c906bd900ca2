package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// plainAvro begins as an Avro container file of some other program does: the magic, and a map with two entries.
func plainAvro() []byte {
	b := []byte("Obj\x01\x04\x14avro.codec\x08null\x16avro.schema\x0a\"int\"\x00")
	return append(b, make([]byte, 16)...)
}

func TestCheckForeign(t *testing.T) {
	for name, c := range map[string]struct {
		key  string
		data []byte
		bad  bool
	}{
		"nothing":                        {},
		"another sink's object":          {"topics/t/partition=0/t+0+0000000000.avro", plainAvro(), true},
		"another sink's, JSON":           {"topics/t/partition=0/t+0+0000000000.json", []byte("{}"), true},
		"its names, padded to 20 digits": {"topics/t/partition=0/t+0+00000000000000000000.avro", plainAvro(), true},
		"no Avro under our name":         {"topics/t/partition=0/t+0+00000000000000000000.avro", []byte("x"), true},
		"an empty object":                {"topics/t/partition=0/t+0+00000000000000000000.avro", nil, true},
		"beside our segments":            {"topics/trips/partition=0/trips+0+0000000100.avro", plainAvro(), true},
		"a stray file":                   {"topics/trips/partition=0/_SUCCESS", nil, true},
		"a folder below the partition":   {"topics/trips/partition=0/old/x", nil, true},
		"a partition of another shape":   {"topics/t/partition=00/t+0+00000000000000000000.avro", nil, true},
		"a partition's name":             {"topics/t/partition=x/t", nil, true},
		"partitioned by time":            {"topics/t/year=2015/month=12/t+0+0000000000.avro", plainAvro(), false},
		"an object in the topics folder": {"topics/README.md", []byte("x"), false},
		"another folder":                 {"other/t/partition=0/t+0+0000000000.avro", plainAvro(), false},
		"a console's folder object":      {"topics/trips/partition=0/", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, st := open(t)
			grow(t, a, trips, nil, 3, 10)
			if c.key != "" {
				st.Put(c.key, c.data)
			}
			err := a.CheckForeign(context.Background())
			if c.bad != errors.Is(err, ErrForeign) || c.bad != (err != nil) {
				t.Fatalf("error %v", err)
			}
			if c.bad && !strings.Contains(err.Error(), "partition=") {
				t.Errorf("names no object: %v", err)
			}
		})
	}
}

// The check of a start is bounded: an archive of 300 partitions costs no more than one of 100.
func TestCheckForeignIsBounded(t *testing.T) {
	a, st := open(t)
	for topic := range 3 {
		for p := range int32(100) {
			tp := record.TopicPartition{Topic: fmt.Sprintf("t%d", topic), Partition: p}
			_, data := encode(t, tp, nil, cut{next: 1})
			st.Put(a.key(tp, 0), data)
		}
	}
	st.ResetCounts()
	if err := a.CheckForeign(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := st.Counts(); n[store.OpList] != foreignPartitions || n[store.OpGetRange] != foreignPartitions || n[store.OpListDirs] > 2 || n[store.OpCreate] != 0 {
		t.Errorf("calls %v", n)
	}
}

func TestCheckForeignErrorsOfTheStore(t *testing.T) {
	for _, op := range []string{store.OpListDirs, store.OpList, store.OpGetRange} {
		a, st := open(t)
		grow(t, a, trips, nil, 1, 1)
		st.SetBefore(func(_ context.Context, o, _ string) error {
			if o == op {
				return err403
			}
			return nil
		})
		if err := a.CheckForeign(context.Background()); !errors.Is(err, store.ErrNotAllowed) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

func TestList(t *testing.T) {
	a, st := open(t)
	if tps, err := a.List(context.Background()); len(tps) != 0 || err != nil {
		t.Fatalf("%v, %v", tps, err)
	}
	var want []record.TopicPartition
	for _, topic := range []string{"trips", "a", "a.b", "a-b", "trips~2"} {
		for _, p := range []int32{11, 2, 0} {
			tp := record.TopicPartition{Topic: topic, Partition: p}
			grow(t, a, tp, nil, 1, 1)
			want = append(want, tp)
		}
	}
	st.Put("topics/not a topic/partition=0/x", nil)
	st.Put("topics/t/year=2015/x", nil)
	sortTPs(want)
	tps, err := a.List(context.Background())
	if err != nil || !slices.Equal(tps, want) {
		t.Fatalf("%v, %v", tps, err)
	}
	tps, err = a.List(context.Background(), "trips~2", "none", "a")
	if want := []record.TopicPartition{{Topic: "a", Partition: 0}, {Topic: "a", Partition: 2}, {Topic: "a", Partition: 11},
		{Topic: "trips~2", Partition: 0}, {Topic: "trips~2", Partition: 2}, {Topic: "trips~2", Partition: 11}}; err != nil || !slices.Equal(tps, want) {
		t.Fatalf("%v, %v", tps, err)
	}
}

// topics.dir may hold slashes; and the wrong one is noticed.
func TestTopicsDir(t *testing.T) {
	st := mem.New()
	a, b := Open(st, "data/kafka"), Open(st, "data")
	grow(t, a, trips, nil, 300, 2)
	if b.TopicsDir() != "data" || a.Store() != store.Store(st) {
		t.Error("store or topics dir")
	}
	if tail, err := b.Tail(context.Background(), "trips", 0, -1); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "topics.dir") {
		// The index object of the other directory is seen, and its segments are not there: no second chain is begun.
		t.Errorf("%+v, %v", tail, err)
	}
	mustBeClean(t, a)
	if !slices.ContainsFunc(st.Keys(), func(k string) bool {
		return k == "data/kafka/trips/partition=0/trips+0+00000000000000000000.avro"
	}) {
		t.Error(st.Keys()[0])
	}
}

// A segment of ours that was cut off inside its header is called damaged, with its byte, and not somebody else's.
func TestDamagedSegmentIsNotForeign(t *testing.T) {
	for _, size := range []int{60, 200} {
		a, st := open(t)
		grow(t, a, trips, nil, 3, 10)
		key := a.key(trips, 20)
		whole, err := st.Get(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		st.Put(key, whole[:size])
		_, err = a.Tail(context.Background(), trips.Topic, trips.Partition, -1)
		if !errors.Is(err, ErrDamaged) || !errors.Is(err, ErrBroken) || errors.Is(err, ErrForeign) {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if want := fmt.Sprintf("damaged segment %s at byte %d", key, size); !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
		// The first segment damaged: no reason to refuse the whole prefix.
		st.Put(a.key(trips, 0), whole[:size])
		if err := a.CheckForeign(context.Background()); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
