package kafka

import "tapedeck.dev/tapedeck/shared/record"

// collector gathers the events of one Poll. Records of a partition go into its open batch; an event closes the batches it
// concerns, so that it stands behind what came before it.
type collector struct {
	maxBatch int
	maxBytes int
	items    []item
	open     map[*partition]int // index in items
	records  int
	bytes    int
}

type item struct {
	event Event // nil: batch
	batch *Batch
}

func (o *collector) empty() bool { return len(o.items) == 0 }
func (o *collector) full() bool  { return o.records >= pollRecords || o.bytes >= o.maxBytes }

// add appends an event that concerns every partition.
func (o *collector) add(e Event) {
	clear(o.open)
	o.items = append(o.items, item{event: e})
}

// addFor appends an event that concerns st alone.
func (o *collector) addFor(st *partition, e Event) {
	delete(o.open, st)
	o.items = append(o.items, item{event: e})
}

func (o *collector) addRecord(st *partition, r record.Record) {
	i, ok := o.open[st]
	if !ok || len(o.items[i].batch.Records) >= o.maxBatch {
		i = len(o.items)
		o.items = append(o.items, item{batch: &Batch{TP: st.tp}})
		o.open[st] = i
	}
	b := o.items[i].batch
	b.Records = append(b.Records, r)
	o.records++
	o.bytes += len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		o.bytes += len(h.Key) + len(h.Value)
	}
}

func (o *collector) events() []Event {
	out := make([]Event, len(o.items))
	for i, it := range o.items {
		if it.batch != nil {
			out[i] = *it.batch
		} else {
			out[i] = it.event
		}
	}
	return out
}
