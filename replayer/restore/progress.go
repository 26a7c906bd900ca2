package restore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/offsetmap"
	"tapedeck.dev/tapedeck/shared/record"
)

// Progress is kept at the target, in a compacted topic, written in the same transactions as the records. Per job and partition it is a list of
// chunks; a full chunk is never written again, so that a transaction rewrites a bounded part of the offset map only. The highest chunk has the totals.

// maxRuns bounds the runs of one chunk: some 15 KB of JSON.
const maxRuns = 500

const progressVersion = 1

// mark is the value of one record of the progress topic.
type mark struct {
	Version int    `json:"v"`
	Job     string `json:"job"`
	JobID   string `json:"jobId"`
	Epoch   int64  `json:"epoch"`

	Source     record.TopicPartition `json:"source"`
	SourceID   string                `json:"sourceId"`
	SourceFrom string                `json:"sourceCluster"`
	Target     record.TopicPartition `json:"target"`
	TargetID   string                `json:"targetId"`
	Chunk      int                   `json:"chunk"` // 0, 1, 2, …
	Runs       []offsetmap.Run       `json:"runs"`
	totals
}

// totals of one partition, over all its chunks.
type totals struct {
	Next      int64     `json:"next"`    // of the source: the planned records below this are committed
	Proof     job.Proof `json:"proof"`   // of these
	Reached   int64     `json:"reached"` // their largest timestamp, ms; −1 for none
	Commits   int64     `json:"commits"` // transactions that wrote records, and so left a marker in the target's log
	Changed   int64     `json:"timestampsChanged,omitempty"`
	Rewritten int64     `json:"rewritten,omitempty"` // records with other schema ids than in the archive
}

// claim says under which epoch a job is worked on: a replayer of a lower one, whatever its producers were granted, stops.
type claim struct {
	Version int    `json:"v"`
	Job     string `json:"job"`
	JobID   string `json:"jobId"`
	Epoch   int64  `json:"epoch"`
}

// markKey names a chunk: m/<job id>/<topic>/<partition>/<chunk>.
type markKey struct {
	jobID  string
	source record.TopicPartition
	chunk  int
}

// Format is the record's key.
func (k markKey) Format() string {
	return fmt.Sprintf("m/%s/%s/%d/%d", k.jobID, k.source.Topic, k.source.Partition, k.chunk)
}

// claimKey names a job's claim: c/<job id>.
type claimKey struct{ jobID string }

// Format is the record's key.
func (k claimKey) Format() string { return "c/" + k.jobID }

// parseKey is the reverse of both; others are nil, nil.
func parseKey(key string) (*markKey, *claimKey) {
	part := strings.Split(key, "/")
	switch {
	case len(part) == 2 && part[0] == "c":
		return nil, &claimKey{part[1]}
	case len(part) == 5 && part[0] == "m":
		p, err1 := strconv.ParseInt(part[3], 10, 32)
		chunk, err2 := strconv.Atoi(part[4])
		k := markKey{part[1], record.TopicPartition{Topic: part[2], Partition: int32(p)}, chunk}
		if err1 == nil && err2 == nil && p >= 0 && chunk >= 0 && k.Format() == key {
			return &k, nil
		}
	}
	return nil, nil
}

// partID is a partition of a job.
type partID struct {
	jobID  string
	source record.TopicPartition
}

// ledger is what the progress topic says: the newest of each key, in offset order.
type ledger struct {
	chunks map[partID]map[int]mark
	claims map[string]int64 // job id → highest epoch
}

func newLedger() *ledger {
	return &ledger{chunks: map[partID]map[int]mark{}, claims: map[string]int64{}}
}

// add takes a record. What is not ours is passed over: the topic may be shared. What is ours and cannot be read is an error: it may be progress.
func (l *ledger) add(rec *record.Record) error {
	mk, ck := parseKey(string(rec.Key))
	switch {
	case ck != nil:
		if rec.Value == nil {
			delete(l.claims, ck.jobID)
			return nil
		}
		var c claim
		if err := decode(rec, &c, &c.Version); err != nil {
			return err
		}
		l.claims[ck.jobID] = max(l.claims[ck.jobID], c.Epoch)
	case mk != nil:
		id := partID{mk.jobID, mk.source}
		if rec.Value == nil {
			delete(l.chunks[id], mk.chunk)
			return nil
		}
		var m mark
		if err := decode(rec, &m, &m.Version); err != nil {
			return err
		}
		if m.JobID != mk.jobID || m.Source != mk.source || m.Chunk != mk.chunk {
			return fmt.Errorf("progress record %s, offset %d: its value is of another key", rec.TP(), rec.Offset)
		}
		if l.chunks[id] == nil {
			l.chunks[id] = map[int]mark{}
		}
		l.chunks[id][mk.chunk] = m
	}
	return nil
}

func decode(rec *record.Record, into any, version *int) error {
	if err := json.Unmarshal(rec.Value, into); err != nil {
		return fmt.Errorf("progress record %s, offset %d, key %.100q: %w", rec.TP(), rec.Offset, rec.Key, err)
	}
	if *version != progressVersion {
		return fmt.Errorf("progress record %s, offset %d, key %.100q has version %d, this program knows %d: use a newer version",
			rec.TP(), rec.Offset, rec.Key, *version, progressVersion)
	}
	return nil
}

// state of one partition of a job.
type state struct {
	totals
	epoch int64
	chunk int             // the highest, −1 for none
	last  []offsetmap.Run // of that chunk
	entry offsetmap.Entry // everything; Runs over all chunks
}

// of returns the state of a partition; one that has no progress stands at from.
func (l *ledger) of(id partID, from int64) (state, error) {
	s := state{totals: totals{Next: from, Proof: job.EmptyProof(), Reached: -1}, chunk: -1}
	chunks := l.chunks[id]
	var runs []offsetmap.Run
	for n := range len(chunks) {
		m, ok := chunks[n]
		if !ok {
			return s, fmt.Errorf("the progress of job %s, %s is not whole: %d chunks, and number %d is missing", id.jobID, id.source, len(chunks), n)
		}
		runs = append(runs, m.Runs...)
		s = state{totals: m.totals, epoch: m.Epoch, chunk: n, last: m.Runs, entry: offsetmap.Entry{Job: m.Job, JobID: m.JobID,
			Source: m.Source, SourceID: m.SourceID, SourceFrom: m.SourceFrom, Target: m.Target, TargetID: m.TargetID, Next: m.Next}}
	}
	for i := 1; i < len(runs); i++ {
		if a, b := runs[i-1], runs[i]; a.Old+a.Len > b.Old || a.New+a.Len > b.New {
			return s, fmt.Errorf("the progress of job %s, %s is not in order: %v, then %v", id.jobID, id.source, a, b)
		}
	}
	s.entry.Runs = runs
	return s, nil
}

// entries returns the state of everything, by job id and partition.
func (l *ledger) entries() ([]offsetmap.Entry, error) {
	ids := make([]partID, 0, len(l.chunks))
	for id, chunks := range l.chunks {
		if len(chunks) > 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b partID) int {
		if c := strings.Compare(a.jobID, b.jobID); c != 0 {
			return c
		}
		if a.source.Less(b.source) {
			return -1
		}
		return 1
	})
	out := make([]offsetmap.Entry, 0, len(ids))
	for _, id := range ids {
		s, err := l.of(id, 0)
		if err != nil {
			return nil, err
		}
		out = append(out, s.entry)
	}
	return out, nil
}

// advance is the pure step of one transaction: runs have been produced behind s, and the totals are now t. It returns the chunks to write, in
// order, and the state after the commit. base is what does not change.
func (s state) advance(base mark, runs []offsetmap.Run, t totals) ([]mark, state) {
	next := s
	next.totals = t
	next.epoch = base.Epoch
	chunk, cur := max(s.chunk, 0), slices.Clone(s.last)
	var out []mark
	put := func() {
		m := base
		m.Chunk, m.Runs, m.totals = chunk, slices.Clone(cur), t
		out = append(out, m)
	}
	for _, r := range runs {
		joined := offsetmap.Append(cur, r)
		if len(joined) > maxRuns {
			put()
			chunk, cur = chunk+1, []offsetmap.Run{r}
			continue
		}
		cur = joined
	}
	put()
	next.chunk, next.last = chunk, cur
	return out, next
}
