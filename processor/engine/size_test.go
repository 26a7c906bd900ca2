package engine

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

// What is told as the state's size is what it takes, about: it decides whether a process lives.
func TestStateBytesAreHonest(t *testing.T) {
	for _, c := range []struct {
		name, aggregates string
		key              int // bytes
		price            string
		windows, groups  int
	}{
		{"one aggregate", "n: count()", 8, "1", 3, 20_000},
		{"four aggregates", "n: count(), a: sum(p), b: min(p), c: max(p)", 8, "1", 3, 10_000},
		{"exact sums of floats", "a: sum(p), b: sum(p*2.0)", 8, "1.5", 3, 10_000},
		{"large keys", "n: count()", 1000, "1", 3, 5_000},
		{"small windows", "n: count()", 8, "1", 20_000, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := mustParse(t, "name: x\nsources: [{topic: in, format: json, eventTime: {field: t, unit: ms}, delay: 0s}]\ngroupBy: [k]\n"+
				"window: {tumbling: {size: 10ms}}\naggregates: {"+c.aggregates+"}\noutput: {topic: out, partitions: 1}\n")
			e, err := New(p, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			e.AddPartition(tpOf(0), fresh())
			e.AddPartition(tpOf(1), fresh()) // never has a record: nothing closes
			heap := func() int64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			before, offset := heap(), int64(0)
			for w := range c.windows {
				for g := range c.groups {
					key := fmt.Sprintf("%0*d", c.key, g)
					rec := []record.Record{{Topic: "in", Offset: offset, Timestamp: 1, Value: fmt.Appendf(nil, `{"t":%d,"k":%q,"p":%s}`, w*10, key, c.price)}}
					if _, err := e.Feed(tpOf(0), rec); err != nil {
						t.Fatal(err)
					}
					offset++
				}
			}
			real, told := heap()-before, e.Stats().StateBytes
			runtime.KeepAlive(e)
			t.Logf("%d bytes, told as %d (%.2f)", real, told, float64(told)/float64(real))
			if told < real*8/10 || told > real*16/10 {
				t.Errorf("%d bytes are told as %d", real, told)
			}
		})
	}
}

// Every byte that is added goes when the windows go.
func TestStateBytesGo(t *testing.T) {
	p := mustParse(t, "name: x\nsources: [{topic: in, format: json, eventTime: {field: t, unit: ms}, delay: 0s}]\ngroupBy: [k]\n"+
		"window: {tumbling: {size: 10ms}}\naggregates: {a: sum(p)}\noutput: {topic: out, partitions: 1}\n")
	e, err := New(p, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.AddPartition(tpOf(0), fresh())
	for i := range 200 {
		v := fmt.Appendf(nil, `{"t":%d,"k":%q,"p":%v}`, i, strings.Repeat("k", i%7), 1e-300*float64(i)+1e300)
		if _, err := e.Feed(tpOf(0), []record.Record{{Topic: "in", Offset: int64(i), Timestamp: 1, Value: v}}); err != nil {
			t.Fatal(err)
		}
	}
	if e.Stats().StateBytes == 0 {
		t.Fatal("no state")
	}
	e.NoMore(tpOf(0)) // drops the last window, which cannot close
	e.Take()
	if st := e.Stats(); st.StateBytes != 0 || st.OpenWindows != 0 {
		t.Errorf("%+v", st)
	}
}
