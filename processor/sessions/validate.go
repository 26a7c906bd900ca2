package sessions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"

	"tapedeck.dev/tapedeck/processor/decision"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/sink"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/session"
)

// liveIsolation is what live runs read with (live.Isolation; the packages do not import each other).
const liveIsolation = "read_committed"

var nameRE = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// CheckName checks a session's name.
func CheckName(name string) error {
	if !nameRE.MatchString(name) {
		return malformed("session name %q must be 1 to 64 characters of a-z, 0-9 and -", name)
	}
	return nil
}

// ParseRequest reads the body of PUT /sessions/{name}; an unknown field is an error.
func ParseRequest(b []byte) (session.Request, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var r session.Request
	if err := d.Decode(&r); err != nil {
		return r, malformed("session request: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return r, malformed("session request: something follows the value")
	}
	return r, nil
}

// Validate checks a request against the pipeline (nil: not configured here) and the live decision log (nil: not readable, or
// none). It returns the decisions that the session obeys. Every error is an *Error.
func Validate(req session.Request, p *pipeline.Pipeline, live *decision.Log) (*decision.Log, error) {
	if p == nil {
		return nil, missing("pipeline %q is not configured here", req.Pipeline)
	}
	if err := checkShape(req, p); err != nil {
		return nil, err
	}
	if req.PipelineHash != "" && req.PipelineHash != p.Hash {
		return nil, conflict("the replay was planned with pipeline %s of hash %.12s, the configured file has %.12s: plan it again", p.Name, req.PipelineHash, p.Hash)
	}
	log, err := decision.ParseLog(rawValues(req.Decisions))
	if err != nil {
		return nil, malformed("decisions: %v", err)
	}
	if req.Promise == session.Recompute {
		return log, checkRecompute(req, p, log)
	}
	if err := checkReproduce(req, p, log); err != nil {
		return nil, err
	}
	if tells(live, log) {
		if e := live.MissingFrom(log, untils(req.Ranges), req.EndMode == session.Hold); e != nil {
			return nil, refused("the archived decision log is behind: topic %s holds %s, which this request lacks; archive it first", p.DecisionsTopic(), decision.Format(e))
		}
	}
	return log, nil
}

// tells reports whether the live decision log (nil: not readable, or none) is of the run that a request's decisions are of, so that it
// tells what they lack.
func tells(live, log *decision.Log) bool {
	return live != nil && live.Origin != nil && log.Origin != nil && sameOrigin(live.Origin, log.Origin)
}

func checkShape(req session.Request, p *pipeline.Pipeline) error {
	switch req.Promise {
	case session.Reproduce, session.Recompute:
	default:
		return malformed("promise %q must be reproduce or recompute", req.Promise)
	}
	switch req.EndMode {
	case session.Hold, session.Drain:
	default:
		return malformed("endMode %q must be hold or drain", req.EndMode)
	}
	switch req.Schemas {
	case "", session.FromSegment, session.FromRegistry:
	default:
		return malformed("schemas %q must be segment or registry", req.Schemas)
	}
	if req.Epoch < 0 {
		return malformed("epoch %d must be ≥ 0", req.Epoch)
	}
	if len(req.Ranges) == 0 {
		return malformed("ranges is empty: nothing to replay")
	}
	inputs := map[string]bool{}
	for _, s := range p.Source {
		inputs[s.Topic] = true
	}
	if err := checkWindows(req); err != nil {
		return err
	}
	seen := map[record.TopicPartition]bool{}
	for _, r := range req.Ranges {
		switch {
		case !inputs[r.Topic]:
			return refused("topic %q is not an input of pipeline %s", r.Topic, p.Name)
		case r.Partition < 0 || r.From < 0 || r.Until < r.From:
			return malformed("range [%d, %d) of %s: want 0 ≤ from ≤ until", r.From, r.Until, r.TopicPartition)
		case r.TopicID == "":
			return malformed("range of %s: topicId is missing", r.TopicPartition)
		case seen[r.TopicPartition]:
			return malformed("two ranges of %s", r.TopicPartition)
		}
		seen[r.TopicPartition] = true
	}
	return nil
}

func checkReproduce(req session.Request, p *pipeline.Pipeline, log *decision.Log) error {
	no := func(format string, args ...any) error {
		return refused("cannot reproduce pipeline %s: %s", p.Name, fmt.Sprintf(format, args...))
	}
	o := log.Origin
	if o == nil {
		return no("decisions holds no origin; archive topic %s and send its values", p.DecisionsTopic())
	}
	if o.PipelineHash != p.Hash {
		return no("its results began with pipeline hash %.12s, the configured file has %.12s; configure the file of that run, or ask for recompute", o.PipelineHash, p.Hash)
	}
	members := log.Members()
	have := map[record.TopicPartition]bool{}
	for _, r := range req.Ranges {
		have[r.TopicPartition] = true
		if id := o.Topics[r.Topic].ID; id != r.TopicID {
			return no("the archive of %s holds the topic with id %q, the live run read id %q", r.TopicPartition, r.TopicID, id)
		}
		start, ok := members[r.TopicPartition]
		if !ok {
			return no("partition %s is in neither the origin nor a floor of the decisions", r.TopicPartition)
		}
		if r.From != start {
			return no("the range of %s starts at %d, the live run at %d", r.TopicPartition, r.From, start)
		}
		if r.Isolation != liveIsolation {
			return no("%s was archived with isolation %q, the live run reads %s", r.TopicPartition, r.Isolation, liveIsolation)
		}
		if g := gapIn(r.Gaps, r.From, r.Until); g != nil {
			return no("offsets [%d, %d) of %s are %s in the archive", g.From, g.To, r.TopicPartition, g.Class)
		}
	}
	var lacks []string
	for tp := range members {
		if !have[tp] {
			lacks = append(lacks, tp.String())
		}
	}
	if len(lacks) > 0 {
		sort.Strings(lacks)
		return no("no range of %s, which the live run read (an empty range counts)", strings.Join(lacks, ", "))
	}
	return nil
}

// gapIn returns the first range inside [from, until) whose records existed but are not in the archive.
func gapIn(skips []segment.Skip, from, until int64) *segment.Skip {
	for i := range skips {
		if g := &skips[i]; g.Class != segment.NoData && g.From < until && g.To > from && g.From < g.To {
			return g
		}
	}
	return nil
}

func sameOrigin(a, b *decision.Origin) bool {
	return bytes.Equal(decision.Format(a), decision.Format(b))
}

func untils(ranges []session.Range) map[record.TopicPartition]int64 {
	m := map[record.TopicPartition]int64{}
	for _, r := range ranges {
		m[r.TopicPartition] = r.Until
	}
	return m
}

func rawValues(raw []json.RawMessage) [][]byte {
	vs := make([][]byte, len(raw))
	for i, r := range raw {
		vs[i] = r
	}
	return vs
}

// sameRequest reports whether two requests ask for the same, whoever asks (epoch aside).
func sameRequest(a, b session.Request) bool {
	a.Epoch, b.Epoch = 0, 0
	a.Schemas, b.Schemas = a.SchemaSource(), b.SchemaSource()
	return bytes.Equal(canonical(a), canonical(b))
}

// canonical is a request's bytes with the decisions reformatted, so that white space makes no difference.
func canonical(r session.Request) []byte {
	ds := make([]json.RawMessage, len(r.Decisions))
	for i, d := range r.Decisions {
		var b bytes.Buffer
		if err := json.Compact(&b, d); err != nil {
			b.Reset()
			b.Write(d)
		}
		ds[i] = b.Bytes()
	}
	if len(ds) == 0 {
		ds = nil
	}
	r.Decisions = ds
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("sessions: %v", err)) // plain data always encodes
	}
	return b
}

// outputs returns the session's topics by role, and the map from live topics to them.
func outputs(name string, p *pipeline.Pipeline, ranges []session.Range) (roles map[string]sink.Spec, byLive map[string]string, err error) {
	counts := map[string]int32{}
	for _, r := range ranges {
		counts[r.Topic] = max(counts[r.Topic], r.Partition+1)
	}
	for _, s := range p.Source {
		if counts[s.Topic] == 0 {
			return nil, nil, refused("no range of input topic %s", s.Topic)
		}
	}
	roles, byLive = map[string]sink.Spec{}, map[string]string{}
	for role, s := range sink.Outputs(p, counts) {
		topic := s.Name + ".replay." + name
		if len(topic) > 249 {
			return nil, nil, refused("topic name %s would be longer than Kafka's 249 characters; choose a shorter session name", topic)
		}
		byLive[s.Name] = topic
		s.Name, s.Grow = topic, false
		roles[role] = s
	}
	return roles, byLive, nil
}
