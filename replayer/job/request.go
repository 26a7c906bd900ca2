package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/session"
)

// MaxRequestBytes bounds the body of a request.
const MaxRequestBytes = 1 << 20

// What happens when a planned range holds offsets that are lost (gone from Kafka before they were archived) or were never to be
// archived.
const (
	LostFails = "fail"
	LostAllow = "allow"
)

// OrderPartition sends each partition in offset order; partitions run side by side.
const OrderPartition = "partition"

// Request is what a job is asked to do.
type Request struct {
	Name    string          `json:"name"`              // [a-z0-9-]{1,64}; also the session's name at the target
	Target  string          `json:"target"`            // a name from the replayer's configuration (targets.<name>.…)
	Topics  []Topic         `json:"topics,omitempty"`  // none: the inputs of the target's pipeline
	Exclude []Topic         `json:"exclude,omitempty"` // of these
	From    Bound           `json:"from"`              // default earliest
	Until   Bound           `json:"until"`             // default end, as it is when the job is planned
	Bounds  map[string]Ends `json:"bounds,omitempty"`  // "topic/partition" → other ends for that partition
	Promise session.Promise `json:"promise"`           // default reproduce
	EndMode session.EndMode `json:"endMode"`           // default hold
	Order   string          `json:"order"`             // partition (default) or event-time
	OnLost  string          `json:"onLost"`            // fail (default) or allow
	// Schemas is where the target takes writer schemas from: segment (default to reproduce) or registry (default to recompute).
	Schemas session.SchemaSource `json:"schemas"`

	Speed            Speed  `json:"speed,omitempty"`            // default max
	RecordsPerSecond *int64 `json:"recordsPerSecond,omitempty"` // ≥ 1; none: no limit
	BytesPerSecond   *int64 `json:"bytesPerSecond,omitempty"`   // ≥ 1; none: no limit
	MaxSkew          *int64 `json:"maxSkew,omitempty"`          // order event-time only: ms of record time, default DefaultMaxSkew
	RestoreFields
	// Windows are the event-time windows to compute anew; nil: From and Until say the range.
	Windows *Windows `json:"windows,omitempty"`
	Filter  *Filter  `json:"filter,omitempty"` // nil: every record of the range
	// OnUnreadable is UnreadableSkip, or "" (the default, also written "fail").
	OnUnreadable string `json:"onUnreadable,omitempty"`
}

// Ends of one partition; an absent one is the request's.
type Ends struct {
	From  *Bound `json:"from,omitempty"`
	Until *Bound `json:"until,omitempty"`
}

// UnmarshalJSON refuses unknown fields and nulls: neither end would be what somebody meant to give.
func (e *Ends) UnmarshalJSON(data []byte) error {
	type plain Ends
	var p plain
	if err := strict(data, &p, "from", "until"); err != nil {
		return fmt.Errorf("bounds: %w; each has from, until or both", err)
	}
	*e = Ends(p)
	return nil
}

// EndsOf returns the bounds of one partition.
func (r *Request) EndsOf(tp record.TopicPartition) (from, until Bound) {
	from, until = r.From, r.Until
	e := r.Bounds[tp.Topic+"/"+strconv.Itoa(int(tp.Partition))]
	if e.From != nil {
		from = *e.From
	}
	if e.Until != nil {
		until = *e.Until
	}
	return from, until
}

// fields of a request, and those that are planned but not in this version.
var (
	fields = []string{"name", "target", "topics", "from", "until", "bounds", "promise", "endMode", "order", "onLost", "schemas",
		"speed", "recordsPerSecond", "bytesPerSecond", "maxSkew",
		"topicMapping", "partitionMapping", "createTopics", "replicationFactor", "ifNotEmpty", "provenanceHeaders", "groups", "registry",
		"exclude", "windows", "filter", "onUnreadable"}
	later []string
)

// ParseRequest reads a request, fills in defaults and brings it into its canonical form, so that two requests that ask for the same are
// equal. Every error says what to write instead.
func ParseRequest(data []byte) (*Request, error) {
	if len(data) > MaxRequestBytes {
		return nil, fmt.Errorf("the request has more than %d bytes", MaxRequestBytes)
	}
	if err := checkFields(data); err != nil {
		return nil, err
	}
	r := &Request{
		From: Bound{Kind: Earliest}, Until: Bound{Kind: End}, Promise: session.Reproduce, EndMode: session.Hold,
		Order: OrderPartition, OnLost: LostFails,
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(r); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("request: there is more after the JSON object")
	}
	r.Schemas = (&session.Request{Promise: r.Promise, Schemas: r.Schemas}).SchemaSource()
	r.sort()
	r.canonical()
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

// checkFields names the nearest field for one that is not known.
func checkFields(data []byte) error {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		return fmt.Errorf("request is not a JSON object: %w", err)
	}
	names := make([]string, 0, len(top))
	for name := range top {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		// encoding/json would take "Name" for "name"; one spelling keeps requests comparable.
		if slices.Contains(fields, name) {
			// Neither says what to do, and both would be taken for the default.
			if raw := string(top[name]); raw == "null" || raw == `""` {
				return fmt.Errorf("%s is %s; give a value, or leave it out", name, raw)
			}
			continue
		}
		if slices.Contains(later, name) {
			return fmt.Errorf("field %q is not in this version", name)
		}
		if near := service.Nearest(name, fields); near != "" {
			return fmt.Errorf("unknown field %q; did you mean %q?", name, near)
		}
		return fmt.Errorf("unknown field %q; known: %s", name, strings.Join(fields, ", "))
	}
	return nil
}

// sort brings lists into their canonical order.
func (r *Request) sort() {
	sortTopics(r.Topics)
	sortTopics(r.Exclude)
	r.Filter.sort()
	if len(r.Bounds) == 0 {
		r.Bounds = nil
	}
	if r.OnUnreadable == UnreadableFails {
		r.OnUnreadable = ""
	}
}

var nameShape = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// ValidName reports whether name can be a job's name; it is an element of object keys and of URLs.
func ValidName(name string) bool { return nameShape.MatchString(name) }

func (r *Request) check() error {
	if !ValidName(r.Name) {
		return fmt.Errorf("name %q: give 1 to 64 of a-z, 0-9 and -", r.Name)
	}
	if r.Target == "" {
		return errors.New("target is missing: give the name of one of the configured targets")
	}
	if r.Topics != nil && len(r.Topics) == 0 { // a list that came out empty must not mean everything
		return errors.New("topics is empty: name some, or leave it out for the inputs of the target's pipeline")
	}
	if err := r.checkSelection(); err != nil {
		return err
	}
	if err := r.checkEnds("", r.From, r.Until); err != nil {
		return err
	}
	for key, e := range r.Bounds {
		tp, err := parseTP(key)
		if err != nil {
			return err
		}
		if key != tp.Topic+"/"+strconv.Itoa(int(tp.Partition)) {
			return fmt.Errorf(`bounds: %q: write it as "%s/%d"`, key, tp.Topic, tp.Partition)
		}
		if e.From == nil && e.Until == nil {
			return fmt.Errorf("bounds: %s has neither from nor until", key)
		}
		from, until := r.EndsOf(tp)
		if err := r.checkEnds("bounds: "+key+": ", from, until); err != nil {
			return err
		}
	}
	if err := r.RestoreFields.check(); err != nil {
		return err
	}
	if err := r.checkWords(); err != nil {
		return err
	}
	if err := r.checkPace(); err != nil {
		return err
	}
	return r.checkContent()
}

func (r *Request) checkEnds(where string, from, until Bound) error {
	if from.Kind == End {
		return fmt.Errorf(`%sfrom "end" leaves nothing to replay; give "earliest", an offset or a timestamp`, where)
	}
	if until.Kind == Earliest {
		return fmt.Errorf(`%suntil "earliest" leaves nothing to replay; give "end", an offset or a timestamp`, where)
	}
	return nil
}

func (r *Request) checkWords() error {
	words := []struct {
		field, value string
		allowed      []string
		later        []string
	}{
		{"promise", string(r.Promise), []string{string(session.Reproduce), string(session.Recompute)}, nil},
		{"endMode", string(r.EndMode), []string{string(session.Hold), string(session.Drain)}, []string{"continue"}},
		{"order", r.Order, []string{OrderPartition, OrderEventTime}, nil},
		{"onLost", r.OnLost, []string{LostFails, LostAllow}, nil},
		{"schemas", string(r.Schemas), []string{string(session.FromSegment), string(session.FromRegistry)}, nil},
	}
	for _, w := range words {
		if slices.Contains(w.allowed, w.value) {
			continue
		}
		if slices.Contains(w.later, w.value) {
			return fmt.Errorf("%s %q is not in this version; give %s", w.field, w.value, strings.Join(w.allowed, " or "))
		}
		return fmt.Errorf("%s %q is unknown; give %s", w.field, w.value, strings.Join(w.allowed, " or "))
	}
	return nil
}

func parseTP(key string) (record.TopicPartition, error) {
	topic, part, ok := strings.Cut(key, "/")
	p, err := strconv.ParseInt(part, 10, 32)
	if !ok || err != nil || p < 0 || !topicShape.MatchString(topic) {
		return record.TopicPartition{}, fmt.Errorf(`bounds: %q: give "topic/partition", for example "trips/0"`, key)
	}
	return record.TopicPartition{Topic: topic, Partition: int32(p)}, nil
}

// Same reports whether two canonical requests ask for the same.
func Same(a, b *Request) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}
