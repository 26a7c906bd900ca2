package archive

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"

	"tapedeck.dev/tapedeck/shared/segment"
)

// chainCheck walks the headers of one chain in order of their starts and says where they contradict each other.
type chainCheck struct {
	topic string               // as in the objects' names
	id    *segment.LogIdentity // of the first header seen
	at    int64                // every offset below is accounted for
	// sure: the following segment begins at `at`. It is not where an object before it cannot be read at all.
	sure bool
	// known: next is what the following segment must carry. It is not after a hole or a damaged object, and then the
	// following header is believed: one damage is one finding.
	known  bool
	next   segment.Chain
	lost   []segment.Skip // joined
	blocks []block
}

// block is an index object that must be there.
type block struct {
	name IndexName
	sum  [sha256.Size]byte // of its content
}

// newChainCheck begins at offset 0.
func newChainCheck(topic string) chainCheck {
	return chainCheck{topic: topic, sure: true, known: true, next: segment.First()}
}

// unreadable notes an object of which nothing but its name is known.
func (c *chainCheck) unreadable(start int64) {
	c.known, c.sure = false, false
	c.at = max(c.at, start+1)
}

// damaged notes that the object added last is not what its writer made: its size says nothing.
func (c *chainCheck) damaged() { c.known = false }

// add checks the next header, of an object of size bytes. last is the offset of its last record as read, −1 where it has
// none or could not be read to its end.
func (c *chainCheck) add(h *segment.Header, size, last int64) []Finding {
	var fs []Finding
	find := func(kind, format string, args ...any) {
		fs = append(fs, Finding{Kind: kind, Text: fmt.Sprintf(format, args...)})
	}
	if c.id == nil {
		id := h.Identity()
		c.id = &id
	} else if have := h.Identity(); have != *c.id {
		find(KindIdentity, "cluster %q, topic id %q, isolation %q, but the chain begins with cluster %q, topic id %q, isolation %q",
			have.ClusterID, have.TopicID, have.Isolation, c.id.ClusterID, c.id.TopicID, c.id.Isolation)
	}
	switch {
	case h.Start < c.at && c.sure:
		find(KindOverlap, "holds [%d, %d), and the chain already holds every offset below %d", h.Start, h.Next, c.at)
		return fs
	case h.Start > c.at && c.sure:
		find(KindGap, "no object holds offsets [%d, %d)", c.at, h.Start)
		c.known = false
	}
	if c.known {
		c.compare(h, last, find)
	}
	c.follow(h, size)
	return fs
}

// compare holds h against what the segments before it say.
func (c *chainCheck) compare(h *segment.Header, last int64, find func(kind, format string, args ...any)) {
	want := c.next
	if h.Ordinal != want.Ordinal {
		find(KindOffChain, "says that it is number %d of its chain, and is number %d", h.Ordinal, want.Ordinal)
	}
	running := want.RunningMaxTimestamp
	if h.Count > 0 {
		running = max(running, h.MaxTimestamp)
	}
	if h.RunningMaxTimestamp != running {
		find(KindOffChain, "says that the running maximum timestamp is %d, and it is %d", h.RunningMaxTimestamp, running)
	}
	switch {
	case h.Count == 0 && (h.LastOffset != want.LastOffset || h.LastEpoch != want.LastEpoch || !bytes.Equal(h.LastHash, want.LastHash)):
		find(KindOffChain, "holds no record, and says that the last one before it is %d (epoch %d), not %d (epoch %d), or another hash",
			h.LastOffset, h.LastEpoch, want.LastOffset, want.LastEpoch)
	case h.Count > 0 && last >= 0 && h.LastOffset != last:
		find(KindOffChain, "says that its last record is %d, and it is %d", h.LastOffset, last)
	}
	if !slices.Equal(h.Rows, want.Rows) {
		find(KindOffChain, "has %d rows about the segments before it that differ from these segments (%d since the last index object)", len(h.Rows), len(want.Rows))
	}
}

// follow goes on behind h. Its facts are carried as they are seen, not as it tells them, except after a hole.
func (c *chainCheck) follow(h *segment.Header, size int64) {
	rows, running := h.Rows, h.RunningMaxTimestamp
	if c.known {
		rows, running = c.next.Rows, c.next.RunningMaxTimestamp
		if h.Count > 0 {
			running = max(running, h.MaxTimestamp)
		}
	}
	seen := *h
	seen.Rows = rows
	if endsBlock(h) && len(rows) == segment.IndexEvery-1 {
		name, data := indexOf(&Tail{Topic: c.topic, Header: &seen, Size: size})
		c.blocks = append(c.blocks, block{name, sha256.Sum256(data)})
	}
	c.next = segment.After(&seen, size)
	c.next.RunningMaxTimestamp = running
	c.known, c.sure = true, true
	c.at = h.Next
	for _, s := range h.Skipped {
		if s.Class != segment.Lost {
			continue
		}
		if k := len(c.lost); k > 0 && c.lost[k-1].To == s.From {
			c.lost[k-1].To = s.To
			continue
		}
		c.lost = append(c.lost, s)
	}
}
