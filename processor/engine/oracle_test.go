package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"sort"

	"tapedeck.dev/tapedeck/shared/murmur2"
)

// The oracle states the rules of docs/semantics.md once more, as a function of whole logs: no interleaving, no batches, no incremental state.
// It follows the reference model's tumbling part.

type event struct {
	T    *int64  `json:"t"`
	K    string  `json:"k"`
	V    int64   `json:"v"`
	F    float64 `json:"f"`
	Drop bool    `json:"drop"`
}

type oracleWindow struct {
	end    int64
	key    string
	part   int // keyed only
	events []event
}

type oracleResult struct {
	windows    []oracleWindow  // those that are closed at the frontier, in output order
	open       []oracleWindow  // the others
	late       map[int][]int64 // offsets by partition
	future     map[int][]int64
	poison     map[int][]int64
	lateEvents []event
	kept       map[string]int // records per window and key, late ones included
}

func (w *world) oracle() *oracleResult {
	res := &oracleResult{late: map[int][]int64{}, future: map[int][]int64{}, poison: map[int][]int64{}, kept: map[string]int{}}
	const none = -1 << 60
	all := map[string]*oracleWindow{}
	closedAt := make([]int64, len(w.logs)) // w_p at the frontier
	for p, log := range w.logs[:w.initial] {
		maxT := int64(none)
		// wp is the watermark before the record at offset.
		wp := func(offset int64) int64 {
			v := int64(none)
			if maxT > none {
				v = maxT - w.delay
			}
			for _, f := range w.floors {
				if f.TP == tpOf(p) && f.Offset <= offset && f.W > v {
					v = f.W
				}
			}
			return v
		}
		for _, r := range log {
			if r.Offset >= w.frontier[p] {
				break
			}
			var e event
			if json.Unmarshal(r.Value, &e) != nil || e.T == nil {
				res.poison[p] = append(res.poison[p], r.Offset)
				continue
			}
			if *e.T > r.Timestamp+w.maxFut {
				res.future[p] = append(res.future[p], r.Offset)
				continue
			}
			end := (*e.T/w.size + 1) * w.size
			switch {
			case e.Drop:
			case end <= wp(r.Offset):
				res.late[p] = append(res.late[p], r.Offset)
				res.lateEvents = append(res.lateEvents, e)
				res.kept[fmt.Sprint(end, e.K)]++
			default:
				part := 0
				if w.keyed {
					part = p
				}
				id := fmt.Sprint(end, " ", part, " ", e.K)
				if all[id] == nil {
					key, _ := json.Marshal(map[string]string{"k": e.K})
					all[id] = &oracleWindow{end: end, key: string(key), part: part}
				}
				all[id].events = append(all[id].events, e)
				res.kept[fmt.Sprint(end, e.K)]++
			}
			maxT = max(maxT, *e.T)
		}
		closedAt[p] = wp(w.frontier[p])
	}
	merged := slices.Min(closedAt[:w.initial])
	for _, id := range slices.Sorted(maps.Keys(all)) {
		o := all[id]
		limit := merged
		if w.keyed {
			limit = closedAt[o.part]
		}
		if o.end <= limit {
			res.windows = append(res.windows, *o)
		} else {
			res.open = append(res.open, *o)
		}
	}
	sort.SliceStable(res.windows, func(i, j int) bool {
		a, b := res.windows[i], res.windows[j]
		return cmp.Or(cmp.Compare(a.part, b.part), cmp.Compare(a.end, b.end), cmp.Compare(a.key, b.key)) < 0
	})
	return res
}

// value renders the result that a window must give.
func (o *oracleWindow) value(size int64) string {
	var total int64
	exact := new(big.Float).SetPrec(4000)
	lo, hi := o.events[0].V, o.events[0].F
	for _, e := range o.events {
		total += e.V
		exact.Add(exact, new(big.Float).SetFloat64(e.F))
		lo, hi = min(lo, e.V), max(hi, e.F)
	}
	sum, _ := exact.Float64()
	num := func(f float64) string { b, _ := json.Marshal(f + 0); return string(b) }
	return fmt.Sprintf(`{"window_start":%d,"window_end":%d,%s,"n":%d,"total":%d,"lo":%d,"hi":%s,"exact":%s}`,
		o.end-size, o.end, o.key[1:len(o.key)-1], len(o.events), total, lo, num(hi), num(sum))
}

// differs compares with what an engine gave, as sequences.
func (res *oracleResult) differs(out []Output, w *world) string {
	want := map[string][]string{}
	for _, o := range res.windows {
		part := int32(o.part)
		if !w.keyed {
			part = murmur2.Partition([]byte(o.key), w.p.Output.Partitions)
		}
		want[fmt.Sprintf("out-%d", part)] = append(want[fmt.Sprintf("out-%d", part)], o.key+" "+o.value(w.size))
	}
	for kind, side := range map[Kind]map[int][]int64{Late: res.late, Future: res.future, Poison: res.poison} {
		for p, offsets := range side {
			for _, o := range offsets {
				k := fmt.Sprintf("out.%s-%d", kind, p)
				want[k] = append(want[k], fmt.Sprint(o))
			}
		}
	}
	got := map[string][]string{}
	for _, o := range out {
		k := fmt.Sprintf("%s-%d", o.Record.Topic, o.Record.Partition)
		if o.Kind == Result {
			got[k] = append(got[k], string(o.Record.Key)+" "+string(o.Record.Value))
		} else {
			got[k] = append(got[k], header(o, HeaderOffset))
		}
	}
	for _, m := range []map[string][]string{want, got} {
		for k := range m {
			if !slices.Equal(want[k], got[k]) {
				return fmt.Sprintf("%s:\nwant %q\n got %q", k, want[k], got[k])
			}
		}
	}
	return ""
}
