package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// Finding is one thing that verify objects to.
type Finding struct {
	record.TopicPartition
	Object string `json:"object,omitempty"`
	Offset int64  `json:"bytePosition,omitempty"`
	Kind   string `json:"kind"` // corrupt, gap, overlap, off-chain, lost, index, foreign, identity
	Text   string `json:"text"`
}

func (f Finding) String() string {
	if f.Object == "" {
		return fmt.Sprintf("%s: %s: %s", f.TopicPartition, f.Kind, f.Text)
	}
	return fmt.Sprintf("%s: %s: %s at byte %d: %s", f.TopicPartition, f.Kind, f.Object, f.Offset, f.Text)
}

// Kinds of a Finding.
const (
	KindCorrupt  = "corrupt"   // an object that cannot be read in full; bytePosition says where
	KindGap      = "gap"       // no object holds these offsets
	KindOverlap  = "overlap"   // an object inside the range of another
	KindOffChain = "off-chain" // a header that contradicts the segments before it
	KindLost     = "lost"      // offsets that Kafka removed before they were archived, not accepted
	KindIndex    = "index"     // an index object missing, different or without its segments
	KindForeign  = "foreign"   // an object that is not ours
	KindIdentity = "identity"  // two logs in one chain
)

// maxFindings bounds the findings of one partition.
const maxFindings = 1000

// VerifyReport is the result of Verify.
type VerifyReport struct {
	Partitions int       `json:"partitions"`
	Segments   int64     `json:"segments"` // read in full
	Records    int64     `json:"records"`
	Bytes      int64     `json:"bytes"`
	Findings   []Finding `json:"findings"` // by topic and partition, then in the order of the chain
}

// Verify reads every segment of the topics (all where empty) in full and checks it against its chain: tiling from 0, headers, records, rows,
// running maximum, hashes, index objects. A finding is not an error; an error means it could not run: the store, or
// ErrNotArchived where there is nothing to verify (an address that is wrong must not look like an archive without faults).
//
// An archive that grows meanwhile is verified up to some segment. Memory: one object for each of a few workers.
func (a *Archive) Verify(ctx context.Context, topics ...string) (*VerifyReport, error) {
	r, err := a.verify(ctx, topics)
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	return r, nil
}

func (a *Archive) verify(ctx context.Context, topics []string) (*VerifyReport, error) {
	tps, err := a.verifiable(ctx, topics)
	if err != nil {
		return nil, err
	}
	parts := make([]*partitionCheck, len(tps))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(min(parallel, 2*runtime.GOMAXPROCS(0)))
	for i, tp := range tps {
		g.Go(func() error {
			parts[i] = &partitionCheck{a: a, tp: tp, chain: newChainCheck(tp.Topic)}
			return parts[i].run(gctx)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	r := &VerifyReport{Partitions: len(tps), Findings: []Finding{}}
	for _, p := range parts {
		r.Segments += p.segments
		r.Records += p.records
		r.Bytes += p.bytes
		r.Findings = append(r.Findings, p.findings...)
	}
	return r, nil
}

// verifiable are the partitions that have segments or index objects: an index whose segments are all gone is a finding.
func (a *Archive) verifiable(ctx context.Context, topics []string) ([]record.TopicPartition, error) {
	tps, err := a.partitions(ctx, 0, topics...)
	if err != nil {
		return nil, err
	}
	indexed := topics
	if len(topics) == 0 {
		if indexed, err = a.st.ListDirs(ctx, indexDir); err != nil {
			return nil, fmt.Errorf("list %s: %w", indexDir, err)
		}
	}
	for _, topic := range indexed {
		dirs, err := a.st.ListDirs(ctx, indexDir+topic+"/")
		if err != nil {
			return nil, fmt.Errorf("list %s%s/: %w", indexDir, topic, err)
		}
		for _, d := range dirs {
			if p, err := strconv.ParseInt(d, 10, 32); err == nil {
				tps = append(tps, record.TopicPartition{Topic: topic, Partition: int32(p)})
			}
		}
	}
	sortTPs(tps)
	tps = slices.Compact(tps)
	for _, topic := range topics {
		if !slices.ContainsFunc(tps, func(tp record.TopicPartition) bool { return tp.Topic == topic }) {
			return nil, fmt.Errorf("topic %s is %w at %s below %s/", topic, ErrNotArchived, a.st, a.topicsDir)
		}
	}
	if len(tps) == 0 {
		return nil, fmt.Errorf("there is no segment at %s below %s/ (wrong address, or another topics.dir?): nothing is %w", a.st, a.topicsDir, ErrNotArchived)
	}
	return tps, nil
}

// partitionCheck verifies one partition.
type partitionCheck struct {
	a        *Archive
	tp       record.TopicPartition
	chain    chainCheck
	findings []Finding
	segments int64
	records  int64
	bytes    int64
}

func (p *partitionCheck) find(f Finding) {
	f.TopicPartition = p.tp
	switch {
	case len(p.findings) < maxFindings:
		p.findings = append(p.findings, f)
	case len(p.findings) == maxFindings:
		p.findings = append(p.findings, Finding{TopicPartition: p.tp, Kind: f.Kind, Text: fmt.Sprintf("more than %d findings; the rest is left out", maxFindings)})
	}
}

func (p *partitionCheck) run(ctx context.Context) error {
	prefix := segment.PartitionPrefix(p.a.topicsDir, p.tp.Topic, p.tp.Partition)
	err := eachObject(ctx, p.a.st, prefix, func(o store.Object) error {
		if o.Key == prefix {
			return nil
		}
		n, err := segment.ParseName(p.a.topicsDir, o.Key)
		if err != nil {
			p.find(Finding{Object: o.Key, Kind: KindForeign, Text: "not a segment's name"})
			return nil
		}
		return p.segment(ctx, o.Key, n.Start)
	})
	if err != nil {
		return err
	}
	if err := p.lost(ctx); err != nil {
		return err
	}
	return p.index(ctx)
}

// segment reads one object in full.
func (p *partitionCheck) segment(ctx context.Context, key string, start int64) error {
	data, err := p.a.st.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		p.find(Finding{Object: key, Kind: KindGap, Text: "listed, and gone when it was read"})
		p.chain.unreadable(start)
		return nil
	}
	if err != nil {
		return err
	}
	p.segments++
	p.bytes += int64(len(data))
	corrupt := func(err error) error {
		var c *segment.CorruptError
		if !errors.As(err, &c) {
			return err
		}
		p.find(Finding{Object: key, Offset: c.Offset, Kind: KindCorrupt, Text: c.Error()})
		return nil
	}
	rd, err := segment.NewReader(key, data)
	if err == nil {
		_, err = p.a.checkName(key, rd.Header())
	}
	if err != nil {
		p.chain.unreadable(start)
		return corrupt(err)
	}
	h := rd.Header()
	last := int64(-1)
	for {
		var rec record.Record
		if err = rd.Next(&rec); err != nil {
			break
		}
		last = rec.Offset
		p.records++
	}
	whole := err == io.EOF
	if !whole {
		if err := corrupt(err); err != nil {
			return err
		}
		last = -1
	}
	for _, f := range p.chain.add(h, int64(len(data)), last) {
		f.Object = key
		p.find(f)
	}
	if !whole {
		p.chain.damaged()
	}
	return ctx.Err()
}

// lost reports what was lost and is not accepted.
func (p *partitionCheck) lost(ctx context.Context) error {
	if len(p.chain.lost) == 0 {
		return nil
	}
	accepted, err := p.a.accepted(ctx, p.tp)
	if errors.Is(err, ErrForeign) {
		p.find(Finding{Kind: KindForeign, Text: err.Error()})
	} else if err != nil {
		return err
	}
	for _, l := range p.chain.lost {
		for _, g := range subtract(l.From, l.To, accepted) {
			p.find(Finding{Kind: KindLost, Text: fmt.Sprintf("offsets [%d, %d) were gone from Kafka before they were archived (archiver accept-gap --topic %s --partition %d --from %d --to %d accepts that)",
				g.From, g.To, p.tp.Topic, p.tp.Partition, g.From, g.To)})
		}
	}
	return nil
}

// index compares the index objects with what the segments say. They are listed after the segments were read, so that one
// written meanwhile is there.
func (p *partitionCheck) index(ctx context.Context) error {
	want := map[string][sha256.Size]byte{}
	for _, b := range p.chain.blocks {
		want[b.name.Format()] = b.sum
	}
	err := eachObject(ctx, p.a.st, indexPrefix(p.tp), func(o store.Object) error {
		sum, ok := want[o.Key]
		delete(want, o.Key)
		if !ok {
			return p.strange(ctx, o.Key)
		}
		got, err := p.a.st.Get(ctx, o.Key)
		if err != nil {
			return err
		}
		if sha256.Sum256(got) != sum {
			p.find(Finding{Object: o.Key, Kind: KindIndex, Text: "differs from what the segments say"})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, b := range p.chain.blocks {
		if _, missing := want[b.name.Format()]; missing {
			p.find(Finding{Object: b.name.Format(), Kind: KindIndex, Text: "missing (the next writer of this partition creates it where it belongs to the newest segment)"})
		}
	}
	return nil
}

// strange looks at an index object that follows from no segments which were read: it may cover segments that were created
// since, and then the chain goes on behind what was read.
func (p *partitionCheck) strange(ctx context.Context, key string) error {
	n, err := ParseIndexName(key)
	if err == nil && n.Next > p.chain.at {
		segs, _, err := p.a.segmentsFrom(ctx, p.tp, p.chain.at, 1)
		if err != nil && !errors.Is(err, ErrForeign) {
			return err
		}
		if len(segs) > 0 {
			return nil
		}
		p.find(Finding{Object: key, Kind: KindIndex, Text: fmt.Sprintf("names segments up to offset %d, and the chain ends at %d: they were removed", n.Next, p.chain.at)})
		return nil
	}
	p.find(Finding{Object: key, Kind: KindIndex, Text: "does not follow from the segments that could be read"})
	return nil
}
