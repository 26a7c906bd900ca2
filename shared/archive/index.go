package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// IndexName is the key of an index object:
//
//	_tapedeck/index/<topic>/<p>/<ordinal>+<start>+<next>+<min ts>+<max ts>
//
// Each number has 20 characters, padded with zeros, a minus sign included. So the names of a partition sort by ordinal,
// and a listing of names alone tells which index objects a range of offsets or timestamps needs.
type IndexName struct {
	Topic     string
	Partition int32
	Ordinal   int64 // of the last segment in the block; ≡ 255 (mod 256)
	Start     int64 // of the block, inclusive
	Next      int64 // of the block, exclusive
	// MinTimestamp and MaxTimestamp are over the block's records, ms; 0 and −1 where the block holds no record.
	MinTimestamp int64
	MaxTimestamp int64
}

const indexDigits = 20

// Format returns the key.
func (n IndexName) Format() string {
	return fmt.Sprintf("%s%0*d+%0*d+%0*d+%0*d+%0*d", indexPrefix(n.TP()),
		indexDigits, n.Ordinal, indexDigits, n.Start, indexDigits, n.Next, indexDigits, n.MinTimestamp, indexDigits, n.MaxTimestamp)
}

// TP returns the log whose segments the block holds.
func (n IndexName) TP() record.TopicPartition {
	return record.TopicPartition{Topic: n.Topic, Partition: n.Partition}
}

// empty reports whether the block holds no record.
func (n IndexName) empty() bool { return n.MinTimestamp > n.MaxTimestamp }

// ParseIndexName is the inverse of Format; any other key is an error.
func ParseIndexName(key string) (IndexName, error) {
	n, err := parseIndexName(key)
	if err != nil {
		return IndexName{}, fmt.Errorf("parse index name %q: %w", key, err)
	}
	return n, nil
}

func parseIndexName(key string) (IndexName, error) {
	rest, ok := strings.CutPrefix(key, indexDir)
	if !ok {
		return IndexName{}, fmt.Errorf("not below %q", indexDir)
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || !segment.ValidTopic(parts[0]) {
		return IndexName{}, errors.New("want <topic>/<p>/<numbers>")
	}
	p, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil || p < 0 {
		return IndexName{}, fmt.Errorf("partition %q", parts[1])
	}
	fields := strings.Split(parts[2], "+")
	if len(fields) != 5 {
		return IndexName{}, fmt.Errorf("%d numbers, want 5", len(fields))
	}
	var v [5]int64
	for i, f := range fields {
		if v[i], err = strconv.ParseInt(f, 10, 64); err != nil {
			return IndexName{}, fmt.Errorf("number %q", f)
		}
	}
	n := IndexName{parts[0], int32(p), v[0], v[1], v[2], v[3], v[4]}
	switch {
	case n.Ordinal < 0 || n.Ordinal%segment.IndexEvery != segment.IndexEvery-1:
		return IndexName{}, fmt.Errorf("ordinal %d does not end a block", n.Ordinal)
	case n.Start < 0 || n.Next <= n.Start:
		return IndexName{}, fmt.Errorf("range [%d, %d)", n.Start, n.Next)
	case n.empty() && (n.MinTimestamp != 0 || n.MaxTimestamp != -1):
		return IndexName{}, fmt.Errorf("timestamps %d to %d", n.MinTimestamp, n.MaxTimestamp)
	case n.Format() != key: // one spelling per name: widths, signs, leading zeros
		return IndexName{}, fmt.Errorf("want %q", n.Format())
	}
	return n, nil
}

// indexVersion is the version of an index object's content. A reader refuses a higher one.
const indexVersion = 1

// index is the content of an index object: one row for each of the IndexEvery segments of a block. It is derived from
// the header of the block's last segment alone, so whoever writes it writes the same bytes.
type index struct {
	Version   int           `json:"version"`
	ClusterID string        `json:"clusterId"`
	TopicID   string        `json:"topicId"`
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Ordinal   int64         `json:"ordinal"` // of the last row's segment
	Next      int64         `json:"next"`    // of the last row's segment
	Rows      []segment.Row `json:"rows"`
}

// endsBlock reports whether the segment is the one whose writer creates an index object.
func endsBlock(h *segment.Header) bool { return h.Ordinal%segment.IndexEvery == segment.IndexEvery-1 }

// rowsWith returns the rows of t's block up to and including t itself.
func rowsWith(t *Tail) []segment.Row {
	rows := make([]segment.Row, 0, len(t.Header.Rows)+1)
	return append(append(rows, t.Header.Rows...), t.Header.Row(t.Size))
}

// indexOf returns the name and content of the index object of the block that t ends.
func indexOf(t *Tail) (IndexName, []byte) {
	h := t.Header
	rows := rowsWith(t)
	topic := t.TP().Topic
	name := IndexName{Topic: topic, Partition: h.Partition, Ordinal: h.Ordinal, Start: rows[0].Start, Next: h.Next, MaxTimestamp: -1}
	for _, r := range rows {
		if r.Count == 0 {
			continue
		}
		if name.empty() {
			name.MinTimestamp, name.MaxTimestamp = r.MinTimestamp, r.MaxTimestamp
		}
		name.MinTimestamp = min(name.MinTimestamp, r.MinTimestamp)
		name.MaxTimestamp = max(name.MaxTimestamp, r.MaxTimestamp)
	}
	data, err := json.Marshal(index{indexVersion, h.ClusterID, h.TopicID, topic, h.Partition, h.Ordinal, h.Next, rows})
	if err != nil {
		panic(err) // numbers and strings only
	}
	return name, append(data, '\n')
}

// parseIndex reads the content of an index object and holds it against its name.
func parseIndex(n IndexName, data []byte) ([]segment.Row, error) {
	var x index
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&x); err != nil {
		return nil, fmt.Errorf("%w: index object %s: %w", ErrBroken, n.Format(), err)
	}
	if x.Version > indexVersion || x.Version < 1 {
		return nil, fmt.Errorf("%w: index object %s has version %d, this program knows %d", ErrBroken, n.Format(), x.Version, indexVersion)
	}
	if x.Topic != n.Topic || x.Partition != n.Partition || x.Ordinal != n.Ordinal || x.Next != n.Next ||
		len(x.Rows) != segment.IndexEvery || x.Rows[0].Start != n.Start {
		return nil, fmt.Errorf("%w: index object %s does not hold what its name says", ErrBroken, n.Format())
	}
	for i, r := range x.Rows {
		if next := rowNext(x.Rows, i, x.Next); r.Start >= next || r.Count < 0 || r.Count > next-r.Start || r.Bytes <= 0 {
			return nil, fmt.Errorf("%w: index object %s: row %d does not tile", ErrBroken, n.Format(), i)
		}
	}
	return x.Rows, nil
}

// rowNext returns where the range of rows[i] ends, next being where the last one's does.
func rowNext(rows []segment.Row, i int, next int64) int64 {
	if i+1 < len(rows) {
		return rows[i+1].Start
	}
	return next
}

// indexNames lists the index objects of tp in order: one call per 1,000 of them, that is per 256,000 segments.
func (a *Archive) indexNames(ctx context.Context, tp record.TopicPartition) ([]IndexName, error) {
	names := []IndexName{}
	err := eachObject(ctx, a.st, indexPrefix(tp), func(o store.Object) error {
		n, err := ParseIndexName(o.Key)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrForeign, err)
		}
		if k := len(names); k > 0 && n.Start < names[k-1].Next {
			return fmt.Errorf("%w: index objects %s and %s overlap", ErrBroken, names[k-1].Format(), o.Key)
		}
		names = append(names, n)
		return nil
	})
	return names, err
}

// The index object of a block is written by whoever confirmed or adopted the block's last segment, after that segment. A
// writer that dies in between leaves it unwritten, and the segments after it carry no rows of that block. So a writer that
// finds such a segment as the tail writes the object before it extends the chain (payIndex); and it does the same where
// its own try right after the segment was not answered. The object's bytes follow from the segment's header, so any
// number of writers may try, and "exists" is success. Readers write nothing: where an index object is missing they read
// the header of the block's last segment in its place.

// noteDue remembers that the index object of the block which t ends may be missing.
func (a *Archive) noteDue(t *Tail) {
	if !endsBlock(t.Header) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.due[t.TP()] = t
}

// offerIndex tries once to write the index object after t, the segment just confirmed or adopted. A failure leaves it
// due: the segment is safe, and what waits for it (the commit of the group) must not wait for its index.
func (a *Archive) offerIndex(ctx context.Context, t *Tail, p RetryPolicy) {
	if !endsBlock(t.Header) {
		return
	}
	if err := a.createIndex(ctx, t); err != nil {
		name, _ := indexOf(t)
		p.tell(name.Format(), 1, err)
		a.noteDue(t)
	}
}

// payIndex writes the index object that is due in tp, if any, and retries until it is there.
func (a *Archive) payIndex(ctx context.Context, tp record.TopicPartition, p RetryPolicy) error {
	a.mu.Lock()
	t := a.due[tp]
	a.mu.Unlock()
	if t == nil {
		return nil
	}
	name, _ := indexOf(t)
	for attempt := 1; ; attempt++ {
		err := a.createIndex(ctx, t)
		if err == nil {
			break
		}
		if errors.Is(err, store.ErrInvalid) || ctx.Err() != nil {
			return err
		}
		p.tell(name.Format(), attempt, err)
		if err := a.wait.backoff(ctx, p, attempt, err); err != nil {
			return fmt.Errorf("create index object %s: %w", name.Format(), err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.due[tp] == t {
		delete(a.due, tp)
	}
	return nil
}

func (a *Archive) createIndex(ctx context.Context, t *Tail) error {
	name, data := indexOf(t)
	if err := a.st.Create(ctx, name.Format(), data); err != nil && !errors.Is(err, store.ErrExists) {
		return fmt.Errorf("create index object %s: %w", name.Format(), err)
	}
	return nil
}
