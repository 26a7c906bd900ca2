package sessions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

const storedVersion = 1

// requestSuffix makes the key of a session's request, which is written once; its progress is written with every
// commit under the name alone. No session name holds a slash.
const requestSuffix = "/request"

// Stored is a session as its two records in the sessions topic tell it.
type Stored struct {
	Request      session.Request   `json:"-"`
	PipelineHash string            `json:"pipelineHash"` // of the pipeline that the session was opened with; it ends with no other
	Epoch        int64             `json:"epoch"`
	State        session.State     `json:"state"`
	Error        string            `json:"error"`
	TopicIDs     map[string]string `json:"topicIds"`   // output topic → its id; empty before they are created
	Parts        []StoredPart      `json:"partitions"` // in the order of Request.Ranges
	Emitted      int64             `json:"emitted"`
	Late         int64             `json:"late"`
	Future       int64             `json:"future"`
	Poison       int64             `json:"poison"`
	// DecisionsCompared is session.Status.DecisionsCompared.
	DecisionsCompared bool `json:"decisionsCompared"`
}

// StoredPart is one partition as of Position: count, first, last and checksum speak of the records below it.
type StoredPart struct {
	record.TopicPartition
	Position int64  `json:"position"`
	Low      int64  `json:"low"`
	M        int64  `json:"m"`
	W        int64  `json:"w"`
	Count    int64  `json:"count"`
	First    int64  `json:"first"`
	Last     int64  `json:"last"`
	Checksum string `json:"checksum"` // 16 hex digits
	// Closing is there only between two transactions of one closing.
	Closing *engine.Partial `json:"closing,omitempty"`
	// Watermark is session.Progress.Watermark.
	Watermark *int64 `json:"watermark,omitempty"`
}

func newStored(req session.Request, pipelineHash string) Stored {
	s := Stored{Request: req, PipelineHash: pipelineHash, Epoch: req.Epoch, State: session.Open}
	for _, r := range req.Ranges {
		s.Parts = append(s.Parts, StoredPart{TopicPartition: r.TopicPartition, Position: r.From, Low: r.From,
			M: engine.NoTime, W: engine.NoTime, First: -1, Last: -1, Checksum: formatSum(0)})
	}
	return s
}

func (p StoredPart) commit() engine.Commit {
	c := engine.Commit{Position: p.Position, Low: p.Low, MaxAtLow: p.M, Emitted: p.W}
	if p.Closing != nil {
		c.Partial = *p.Closing
	}
	return c
}

func formatSum(sum uint64) string { return fmt.Sprintf("%016x", sum) }

func parseSum(s string) (uint64, error) {
	if len(s) != 16 {
		return 0, fmt.Errorf("checksum %q is not 16 hex digits", s)
	}
	return strconv.ParseUint(s, 16, 64)
}

type storedJSON struct {
	V int `json:"v"`
	Stored
}

// FormatStored returns the value of the progress record.
func FormatStored(s Stored) []byte {
	b, err := json.Marshal(storedJSON{storedVersion, s})
	if err != nil {
		panic(fmt.Sprintf("sessions: %v", err)) // plain data always encodes
	}
	return b
}

// ParseStored is the inverse of FormatStored, for the request that was stored before it.
func ParseStored(b []byte, req session.Request) (Stored, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var v storedJSON
	if err := d.Decode(&v); err != nil {
		return Stored{}, fmt.Errorf("parse session progress: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Stored{}, fmt.Errorf("parse session progress: something follows the value")
	}
	if v.V != storedVersion {
		return Stored{}, fmt.Errorf("parse session progress: version %d; this build reads version %d", v.V, storedVersion)
	}
	s := v.Stored
	s.Request = req
	s.Request.Epoch = s.Epoch
	switch s.State {
	case session.Open, session.Finished, session.Cancelled, session.Failed:
	default:
		return Stored{}, fmt.Errorf("parse session progress: unknown state %q", s.State)
	}
	if len(s.Parts) != len(req.Ranges) {
		return Stored{}, fmt.Errorf("parse session progress: %d partitions, the request has %d", len(s.Parts), len(req.Ranges))
	}
	for i, p := range s.Parts {
		r := req.Ranges[i]
		if p.TopicPartition != r.TopicPartition || p.Low < r.From || p.Low > p.Position || p.Position > r.Until || p.Count < 0 {
			return Stored{}, fmt.Errorf("parse session progress: partition %s does not fit the range [%d, %d) of %s", p.TopicPartition, r.From, r.Until, r.TopicPartition)
		}
		if _, err := parseSum(p.Checksum); err != nil {
			return Stored{}, fmt.Errorf("parse session progress: %w", err)
		}
	}
	return s, nil
}

// storedIn returns the sessions that the records of a sessions topic tell, by name. The last record of a key holds.
func storedIn(recs []record.Record) (map[string]Stored, error) {
	requests, progress := map[string]session.Request{}, map[string][]byte{}
	for i := range recs {
		key := string(recs[i].Key)
		name, isRequest := strings.CutSuffix(key, requestSuffix)
		if !isRequest {
			progress[key] = recs[i].Value
			continue
		}
		req, err := ParseRequest(recs[i].Value)
		if err != nil {
			return nil, fmt.Errorf("record %d: stored request of session %s: %w", recs[i].Offset, name, err)
		}
		requests[name] = req
	}
	out := map[string]Stored{}
	for name, b := range progress {
		if b == nil {
			continue
		}
		req, ok := requests[name]
		if !ok {
			return nil, fmt.Errorf("session %s has progress but no request", name)
		}
		s, err := ParseStored(b, req)
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", name, err)
		}
		out[name] = s
	}
	return out, nil
}

// status is what the records tell, of a session that no engine holds here: an open one goes back to its low positions.
func (s Stored) status(name string, roles map[string]string) session.Status {
	st := session.Status{Name: name, Pipeline: s.Request.Pipeline, Sender: s.Request.Sender, Epoch: s.Epoch, State: s.State, Error: s.Error, Outputs: roles,
		Emitted: s.Emitted, Late: s.Late, Future: s.Future, Poison: s.Poison, DecisionsCompared: s.DecisionsCompared, Progress: []session.Progress{}}
	for _, p := range s.Parts {
		expected := p.Low
		if s.State == session.Finished {
			expected = p.Position
		}
		st.Progress = append(st.Progress, session.Progress{TopicPartition: p.TopicPartition, Expected: expected,
			Count: p.Count, First: p.First, Last: p.Last, Checksum: p.Checksum, Watermark: p.Watermark})
	}
	sortProgress(st.Progress)
	return st
}
