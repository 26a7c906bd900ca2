package job

import (
	"fmt"
	"strconv"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
)

// Job is everything that is stored about one job.
type Job struct {
	ID       string     `json:"id,omitempty"` // random; tells its session at the target from one of the same name that another archive's job opened
	Request  Request    `json:"request"`
	State    State      `json:"state"`
	Error    string     `json:"error,omitempty"` // why FAILED
	Epoch    int64      `json:"epoch"`           // rises with every owner that begins to work; the target refuses lower ones
	Owner    string     `json:"owner,omitempty"` // the replayer at work; none: free to take where a state needs one
	LeaseMs  int64      `json:"leaseMs"`         // the owner's lease, in ms
	Plan     *Pinned    `json:"plan,omitempty"`
	Progress []Progress `json:"progress,omitempty"` // by topic, partition
	Target   *Outcome   `json:"target,omitempty"`   // what the target said when it had finished

	// For people only; nothing is decided by them.
	CreatedAt  time.Time  `json:"createdAt"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
}

// Pinned is the plan without its list of segments: archives never change, so the offsets fix the segments.
type Pinned struct {
	Ranges       []Range `json:"ranges"` // by topic, partition
	Pipeline     string  `json:"pipeline"`
	PipelineHash string  `json:"pipelineHash,omitempty"`
	// Decisions is the part of the decision log that the session gets; nil: none.
	Decisions *Range `json:"decisions,omitempty"`
	// Kafka is for a target Kafka; nil: another target.
	Kafka *KafkaPlan `json:"kafka,omitempty"`
	// Windows of a request that asks for some; nil: all.
	Windows *WindowsPlan `json:"windows,omitempty"`
}

// Range is one partition's part of a plan: offsets [From, Until), and of these the records with timestamps in
// [FromTimestamp, UntilTimestamp) ms (−1: no such bound).
type Range struct {
	record.TopicPartition
	Incarnation    int            `json:"incarnation,omitempty"` // of the topic, where it is not the first
	TopicID        string         `json:"topicId"`
	ClusterID      string         `json:"clusterId"`
	Isolation      string         `json:"isolation"`
	From           int64          `json:"from"`
	Until          int64          `json:"until"`
	FromTimestamp  int64          `json:"fromTimestamp"`
	UntilTimestamp int64          `json:"untilTimestamp"`
	Before         *int64         `json:"before,omitempty"` // archive.PartitionPlan's
	Gaps           []segment.Skip `json:"gaps,omitempty"`
	Segments       int            `json:"segments"`
	Records        int64          `json:"records,omitempty"` // of the whole objects
	Bytes          int64          `json:"bytes"`             // of the whole objects
}

// PinRange keeps what a stored plan needs of p.
func PinRange(p *archive.PartitionPlan) Range {
	r := Range{
		TopicPartition: p.TopicPartition, Incarnation: p.Incarnation, TopicID: p.TopicID, ClusterID: p.ClusterID, Isolation: p.Isolation,
		From: p.From, Until: p.Until, FromTimestamp: p.FromTimestamp, UntilTimestamp: p.UntilTimestamp, Before: p.Before, Gaps: p.Gaps,
		Segments: len(p.Segments),
	}
	for _, s := range p.Segments {
		r.Records += s.Count
		r.Bytes += s.Bytes
	}
	return r
}

// Holds reports whether rec is one of the records to replay.
func (r *Range) Holds(rec *record.Record) bool {
	return rec.Offset >= r.From && rec.Offset < r.Until &&
		(r.FromTimestamp < 0 || rec.Timestamp >= r.FromTimestamp) && (r.UntilTimestamp < 0 || rec.Timestamp < r.UntilTimestamp)
}

// Proof is what must agree between what the archive holds and what the target took.
type Proof struct {
	Count    int64  `json:"count"`
	First    int64  `json:"first"`    // offset of the first record, −1 for none
	Last     int64  `json:"last"`     // −1 for none
	Checksum string `json:"checksum"` // 16 hex digits: sum of segment.Checksum over the records, modulo 2^64
}

// EmptyProof is that of no record.
func EmptyProof() Proof { return Proof{First: -1, Last: -1, Checksum: Hex(0)} }

// Hex writes a checksum as it is compared.
func Hex(sum uint64) string { return fmt.Sprintf("%016x", sum) }

// Join appends the proof of the records that follow.
func (p *Proof) Join(q Proof) error {
	a, err := strconv.ParseUint(p.Checksum, 16, 64)
	if err != nil {
		return fmt.Errorf("read stored checksum %q: %w", p.Checksum, err)
	}
	b, err := strconv.ParseUint(q.Checksum, 16, 64)
	if err != nil {
		return fmt.Errorf("read checksum %q: %w", q.Checksum, err)
	}
	if q.Count == 0 {
		return nil
	}
	if p.Count == 0 {
		p.First = q.First
	}
	p.Count += q.Count
	p.Last = q.Last
	p.Checksum = Hex(a + b)
	return nil
}

// ProofOf is the target's side.
func ProofOf(p session.Progress) Proof {
	return Proof{Count: p.Count, First: p.First, Last: p.Last, Checksum: p.Checksum}
}

// Progress of one partition.
type Progress struct {
	record.TopicPartition
	Expected int64 `json:"expected"` // next offset that the target wants; the range's Until when done
	Segments int   `json:"segments"` // planned objects that the target has accepted to their end
	// Records and Bytes of these, and of what the target has accepted of the next.
	Records int64 `json:"records,omitempty"`
	Bytes   int64 `json:"bytes"`
	// Verified is the first offset that the proof below does not cover yet (a segment's border, or Until).
	Verified int64 `json:"verified"`
	Proof    Proof `json:"proof"` // of the archive's records in [From, Verified)
	// Unreadable are the objects that were passed over, in the order in which they were met.
	Unreadable []Unreadable `json:"unreadable,omitempty"`
}

// Outcome is what a finished target reported.
type Outcome struct {
	Progress []session.Progress `json:"progress"`
	Outputs  map[string]string  `json:"outputs,omitempty"`
	Emitted  int64              `json:"emitted"`
	Late     int64              `json:"late"`
	Future   int64              `json:"future"`
	Poison   int64              `json:"poison"`
	// DecisionsCompared is that of session.Status.
	DecisionsCompared bool `json:"decisionsCompared"`
	// Restored is a target Kafka's; nil: another target.
	Restored *Restored `json:"restored,omitempty"`
}
