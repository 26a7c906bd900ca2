package run

import (
	"context"
	"math"
	"sync/atomic"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// Calls of the store by the names that they are charged under. Pages of a listing of folders count once; what is repeated because the store did not answer is not in it.
type Calls struct {
	List int64 `json:"list"`
	Get  int64 `json:"get"` // ranged ones too
}

// PlannedCalls are the store calls of a job.
type PlannedCalls struct {
	// Planning is what making this plan took, counted; nil where it was not (foreign archives, restores, stored plans).
	Planning *Calls `json:"planning,omitempty"`
	// Reading is what executing it takes: each object once. A segment that is given up or read anew after a takeover counts again, and so does looking for schemas that it lacks;
	// the job's own entries come on top.
	Reading Calls `json:"reading"`
}

// GapTotal are all gaps of one class.
type GapTotal struct {
	Class   segment.Class `json:"class"`
	Ranges  int           `json:"ranges"`
	Offsets int64         `json:"offsets"`
}

// Estimate is how long sending takes at what the request asks for, if store and target are never what is waited for.
type Estimate struct {
	Seconds float64 `json:"seconds"`
	By      string  `json:"by"` // what takes the longest: recordsPerSecond, bytesPerSecond or speed
}

// Unreadable is a planned object that a look at the store finds unreadable.
type Unreadable struct {
	record.TopicPartition
	archive.Doubt
}

// sumFigures fills in what follows from the plan alone.
func (p *Plan) sumFigures() {
	p.Gaps, p.Calls.Reading = nil, Calls{}
	for i := range p.Partitions {
		p.addReading(&p.Partitions[i])
		for _, g := range p.Partitions[i].Gaps {
			p.addGap(g)
		}
	}
	if p.Decisions != nil {
		p.addReading(p.Decisions)
	}
}

func (p *Plan) addReading(pp *archive.PartitionPlan) {
	for _, s := range pp.Segments {
		p.Calls.Reading.Get++
		if s.Keys != "" {
			p.Calls.Reading.Get++
		}
		if s.Headers != "" {
			p.Calls.Reading.Get++
		}
	}
}

func (p *Plan) addGap(g segment.Skip) {
	for i := range p.Gaps {
		if t := &p.Gaps[i]; t.Class == g.Class {
			t.Ranges, t.Offsets = t.Ranges+1, t.Offsets+g.To-g.From
			return
		}
	}
	p.Gaps = append(p.Gaps, GapTotal{Class: g.Class, Ranges: 1, Offsets: g.To - g.From})
}

// estimate is nil where the request limits nothing, or a filter leaves open how much there is to send.
func (p *Plan) estimate(r *job.Request) *Estimate {
	e := &Estimate{Seconds: -1}
	longer := func(by string, seconds float64) {
		if seconds > e.Seconds {
			e.By, e.Seconds = by, seconds
		}
	}
	l := r.Limits()
	if l.RecordsPerSecond > 0 && r.Filter == nil {
		longer("recordsPerSecond", float64(p.Totals.Records)/float64(l.RecordsPerSecond))
	}
	if l.BytesPerSecond > 0 && r.Filter == nil {
		longer("bytesPerSecond", float64(p.Totals.Bytes)/float64(l.BytesPerSecond))
	}
	if l.Speed > 0 {
		begin, end := int64(math.MaxInt64), int64(noTime)
		for i := range p.Partitions {
			s := newTimesteps(&p.Partitions[i])
			if at := s.at(0); at != noTime {
				begin = min(begin, at)
			}
			end = max(end, s.reached[len(p.Partitions[i].Segments)])
		}
		if end != noTime {
			longer("speed", float64(end-begin)/1000/l.Speed)
		}
	}
	if e.Seconds < 0 {
		return nil
	}
	e.Seconds = math.Ceil(e.Seconds*1000) / 1000
	return e
}

// looker is a Source that can look at the objects of a plan without reading them.
type looker interface {
	Look(ctx context.Context, p *archive.PartitionPlan) ([]archive.Doubt, error)
}

// look fills in which of the planned objects cannot be read, as far as a listing of the store tells.
func (p *Plan) look(ctx context.Context, arch Source) error {
	l, ok := arch.(looker)
	if !ok {
		return nil
	}
	p.Looked, p.Unreadable = true, nil
	for i := range p.Partitions {
		doubts, err := l.Look(ctx, &p.Partitions[i])
		if err != nil {
			return wrapDefinite(err)
		}
		for _, d := range doubts {
			p.Unreadable = append(p.Unreadable, Unreadable{p.Partitions[i].TopicPartition, d})
		}
	}
	return nil
}

// counted is our own archive through a store that counts; any other source as it is, and no counts.
func counted(s Source) (Source, func() *Calls) {
	a, ok := s.(*archive.Archive)
	if !ok {
		return s, func() *Calls { return nil }
	}
	c := &counter{Store: a.Store()}
	return archive.Open(c, a.TopicsDir()), func() *Calls { return &Calls{List: c.lists.Load(), Get: c.gets.Load()} }
}

type counter struct {
	store.Store
	lists, gets atomic.Int64
}

func (c *counter) Get(ctx context.Context, key string) ([]byte, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *counter) GetRange(ctx context.Context, key string, off, n int64) ([]byte, int64, error) {
	c.gets.Add(1)
	return c.Store.GetRange(ctx, key, off, n)
}

func (c *counter) List(ctx context.Context, prefix, startAfter string, limit int) ([]store.Object, bool, error) {
	c.lists.Add(1)
	return c.Store.List(ctx, prefix, startAfter, limit)
}

func (c *counter) ListDirs(ctx context.Context, prefix string) ([]string, error) {
	c.lists.Add(1)
	return c.Store.ListDirs(ctx, prefix)
}
