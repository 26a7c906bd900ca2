package connect_test

import (
	"fmt"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/connect"
	"tapedeck.dev/tapedeck/replayer/connect/connecttest"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// Each line of a plan's fidelity begins with what it is about.
func TestFidelityIsSaid(t *testing.T) {
	keyed := func(o *connecttest.Object) { o.KeyFormat, o.HeaderFormat = ".json", ".json" }
	hour := func(h int) func(o *connecttest.Object) {
		return func(o *connecttest.Object) { o.Encoded = fmt.Sprintf("hour=%02d", h) }
	}
	for _, c := range []struct {
		name  string
		cfg   connect.Config
		write func(st *mem.Store)
		say   []string
		not   []string
	}{
		{"values only", connect.Config{}, func(st *mem.Store) { write(t, st, 0, 2) },
			[]string{"offsets: an object's first is in its name", "timestamps: neither they nor their type", "values: not the bytes that were in Kafka", "subject trips-value", "schemas: the id",
				"nulls: ", "keys: not stored", "headers: not stored", "log: cluster, topic id, leader epochs"},
			[]string{"order: ", "hole: ", "overlap: ", "tombstones: "}},
		{"a field with the timestamp", connect.Config{TimestampField: "id"}, func(st *mem.Store) { write(t, st, 0, 2) },
			[]string{"timestamps: not kept by the sink; taken from the field id", "CreateTime"}, []string{"neither they nor their type"}},
		{"keys and headers", connect.Config{}, func(st *mem.Store) { write(t, st, 0, 2, keyed) },
			[]string{"keys: as Connect's converter read them", "headers: the sink stores every value as text"}, []string{"not stored", "have none,"}},
		{"an object without those of its keys and headers", connect.Config{}, func(st *mem.Store) { write(t, st, 0, 2, keyed); write(t, st, 2, 2); write(t, st, 4, 2, keyed) },
			[]string{"1 of 3 objects have none, and their records' keys are null, the first is topics/trips/partition=0/trips+0+0000000002.avro",
				"1 of 3 objects have none, the first is topics/trips/partition=0/trips+0+0000000002.avro"}, nil},
		{"folders without a hole", connect.Config{}, func(st *mem.Store) { write(t, st, 0, 2, hour(1)); write(t, st, 2, 2, hour(2)) }, nil, []string{"order: "}},
		{"folders with a hole", connect.Config{}, func(st *mem.Store) { write(t, st, 0, 2, hour(1)); write(t, st, 3, 2, hour(2)) },
			[]string{"order: the objects lie in 2 folders", "hole: no object holds offsets [2, 3)"}, nil},
		{"as JSON", connect.Config{Values: connect.JSON}, func(st *mem.Store) { write(t, st, 0, 2) }, []string{"as JSON"}, []string{"subject"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := mem.New()
			c.write(st)
			s := open(t, st, c.cfg)
			said := strings.Join(plan(t, s, trips, earliest, end).Fidelity, "\n")
			for _, words := range c.say {
				if !strings.Contains(said, words) {
					t.Errorf("%q is not said:\n%s", words, said)
				}
			}
			for _, words := range c.not {
				if strings.Contains(said, words) {
					t.Errorf("%q is said:\n%s", words, said)
				}
			}
		})
	}
}

// However many holes and overlaps there are, a plan names some and their number.
func TestFidelityIsBounded(t *testing.T) {
	st := mem.New()
	for i := range int64(30) {
		write(t, st, 10*i, 5)
		write(t, st, 10*i+3, 3)
	}
	said := plan(t, open(t, st, connect.Config{}), trips, earliest, end).Fidelity
	count := map[string]int{}
	for _, f := range said {
		count[strings.SplitN(f, ":", 2)[0]]++
	}
	if all := strings.Join(said, "\n"); count["overlap"] != 20 || count["hole"] != 20 || !strings.Contains(all, "overlaps: 30 in all") || !strings.Contains(all, "holes: 29 in all") {
		t.Errorf("%v\n%s", count, all)
	}
}
