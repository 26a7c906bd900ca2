package manager

import (
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/jobstore"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// View is a job as people and the API see it.
type View struct {
	Name  string    `json:"name"`
	State job.State `json:"state"`
	// Existing is set in the answer of Create alone: the job was there before, and the call started nothing.
	Existing   bool            `json:"existing,omitempty"`
	Error      string          `json:"error,omitempty"` // why FAILED
	Possible   []job.Event     `json:"possible"`        // what can be asked of it now
	Epoch      int64           `json:"epoch"`
	Owner      string          `json:"owner,omitempty"` // the replayer at work
	Entry      int64           `json:"entry"`           // number of the newest entry in the job's sequence
	Pipeline   string          `json:"pipeline,omitempty"`
	Request    job.Request     `json:"request"`
	Totals     Totals          `json:"totals"`
	Live       *LiveView       `json:"live,omitempty"`       // while this replayer is sending
	Partitions []PartitionView `json:"partitions,omitempty"` // by topic, partition; after planning
	Gaps       []GapView       `json:"gaps,omitempty"`       // objects that could not be read and were passed over, as the request allowed
	Target     *TargetView     `json:"target,omitempty"`     // after the target has finished
	// Restored is what a target Kafka got, after the end of the job (CANCELLED too: what had been committed).
	Restored   *job.Restored `json:"restored,omitempty"`
	CreatedAt  time.Time     `json:"createdAt"`
	StartedAt  *time.Time    `json:"startedAt,omitempty"`
	FinishedAt *time.Time    `json:"finishedAt,omitempty"`
}

// LiveView is what only the replayer at work knows.
type LiveView struct {
	RecordsPerSecond float64 `json:"recordsPerSecond"` // accepted by the target, mean of the last ten seconds
	BytesPerSecond   float64 `json:"bytesPerSecond"`
	Waiting          string  `json:"waiting,omitempty"` // why nothing is on its way: rate, speed, skew, target
}

// Totals over the partitions. Segments, bytes and the records sent and planned are of whole objects, of which a range may take a part.
type Totals struct {
	Partitions      int   `json:"partitions"`
	PartitionsDone  int   `json:"partitionsDone"`
	Segments        int   `json:"segments"` // accepted by the target
	SegmentsPlanned int   `json:"segmentsPlanned"`
	Bytes           int64 `json:"bytes"`
	BytesPlanned    int64 `json:"bytesPlanned"`
	Records         int64 `json:"records"` // read from the archive, checked and in range
	RecordsSent     int64 `json:"recordsSent"`
	RecordsPlanned  int64 `json:"recordsPlanned"`
}

// PartitionView is one partition: its range, how far it is, and the proof.
type PartitionView struct {
	record.TopicPartition
	From            int64          `json:"from"`
	Until           int64          `json:"until"`
	Gaps            []segment.Skip `json:"gaps,omitempty"`
	Expected        int64          `json:"expected"` // next offset that the target wants; until when done
	Segments        int            `json:"segments"`
	SegmentsPlanned int            `json:"segmentsPlanned"`
	// State, where it is known: done, sending, loading, queued, or what it waits for: rate, speed, skew, target.
	State          string `json:"state,omitempty"`
	RecordsSent    int64  `json:"recordsSent"`
	RecordsPlanned int64  `json:"recordsPlanned"`
	Bytes          int64  `json:"bytes"`
	BytesPlanned   int64  `json:"bytesPlanned"`
	// Planned is the proof of what the archive holds, as far as it has been read (PlannedTo); Delivered what the target
	// took, once it has finished. A job is COMPLETED only if they are equal.
	Planned   job.Proof  `json:"planned"`
	PlannedTo int64      `json:"plannedTo"`
	Delivered *job.Proof `json:"delivered,omitempty"`
}

// TargetView is what the target reported at the end.
type TargetView struct {
	Outputs map[string]string `json:"outputs,omitempty"` // role → topic
	Emitted int64             `json:"emitted"`
	Late    int64             `json:"late"`
	Future  int64             `json:"future"`
	Poison  int64             `json:"poison"`
	// DecisionsCompared is that of session.Status.
	DecisionsCompared bool `json:"decisionsCompared"`
}

// view renders an entry; live is the progress of a run in this process, and now what only that run knows, nil where there is none.
func view(e *jobstore.Entry, live []job.Progress, now *run.Live) *View {
	j := &e.Job
	v := &View{Name: j.Request.Name, State: j.State, Error: j.Error, Possible: job.Possible(j.State), Epoch: j.Epoch, Owner: j.Owner,
		Entry: e.N, Request: j.Request, CreatedAt: j.CreatedAt, StartedAt: j.StartedAt, FinishedAt: j.FinishedAt}
	if v.Possible == nil {
		v.Possible = []job.Event{}
	}
	switch {
	case j.Target == nil:
	case j.Target.Restored != nil:
		v.Restored = j.Target.Restored
	default:
		v.Target = &TargetView{Outputs: j.Target.Outputs, Emitted: j.Target.Emitted, Late: j.Target.Late, Future: j.Target.Future, Poison: j.Target.Poison,
			DecisionsCompared: j.Target.DecisionsCompared}
	}
	if j.Plan == nil {
		return v
	}
	if now != nil {
		v.Live = &LiveView{RecordsPerSecond: now.RecordsPerSecond, BytesPerSecond: now.BytesPerSecond, Waiting: now.Waiting}
	}
	v.Pipeline = j.Plan.Pipeline
	progress := live
	if progress == nil {
		progress = j.Progress
	}
	at := make(map[record.TopicPartition]job.Progress, len(progress))
	for _, p := range progress {
		at[p.TopicPartition] = p
	}
	for _, r := range j.Plan.Ranges {
		p, ok := at[r.TopicPartition]
		if !ok {
			p = job.Progress{Expected: r.From, Verified: r.From, Proof: job.EmptyProof()}
		}
		pv := PartitionView{TopicPartition: r.TopicPartition, From: r.From, Until: r.Until, Gaps: r.Gaps, Expected: p.Expected,
			Segments: p.Segments, SegmentsPlanned: r.Segments, Bytes: p.Bytes, BytesPlanned: r.Bytes,
			RecordsSent: p.Records, RecordsPlanned: r.Records, Planned: p.Proof, PlannedTo: p.Verified}
		switch {
		case now != nil:
			pv.State = now.States[r.TopicPartition]
		case p.Expected >= r.Until:
			pv.State = run.StateDone
		}
		if j.Target != nil {
			for _, d := range j.Target.Progress {
				if d.TopicPartition == r.TopicPartition {
					proof := job.ProofOf(d)
					pv.Delivered = &proof
				}
			}
		}
		for _, u := range p.Unreadable {
			v.Gaps = append(v.Gaps, GapView{TopicPartition: r.TopicPartition, Class: ClassUnreadable, Unreadable: u})
		}
		v.Partitions = append(v.Partitions, pv)
		v.Totals.add(&pv)
	}
	return v
}

func (t *Totals) add(p *PartitionView) {
	t.Partitions++
	if p.Expected >= p.Until {
		t.PartitionsDone++
	}
	t.Segments += p.Segments
	t.SegmentsPlanned += p.SegmentsPlanned
	t.Bytes += p.Bytes
	t.BytesPlanned += p.BytesPlanned
	t.Records += p.Planned.Count
	t.RecordsSent += p.RecordsSent
	t.RecordsPlanned += p.RecordsPlanned
}
