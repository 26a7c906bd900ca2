package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// MaxPatternBytes bounds a pattern: RE2 runs in time linear in the pattern and the names, and so this bounds what a request costs.
const MaxPatternBytes = 1024

// Topic chooses topics, or some of their partitions. In JSON it is a name, {"name": …, "partitions": […]} or
// {"pattern": …, "partitions": […]}.
type Topic struct {
	Name       string
	Pattern    string  // in place of Name: RE2 over the whole of a topic's name in Kafka
	Partitions []int32 // ascending; none: all that the archive holds
}

type topicObject struct {
	Name       string  `json:"name,omitempty"`
	Pattern    string  `json:"pattern,omitempty"`
	Partitions []int32 `json:"partitions,omitempty"`
}

// MarshalJSON writes the name alone where it says everything.
func (t Topic) MarshalJSON() ([]byte, error) {
	if len(t.Partitions) == 0 && t.Pattern == "" {
		return json.Marshal(t.Name)
	}
	return json.Marshal(topicObject(t))
}

// UnmarshalJSON reads any of the forms.
func (t *Topic) UnmarshalJSON(data []byte) error {
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return fmt.Errorf("topic null: %s", topicForms)
	}
	var name string
	if err := json.Unmarshal(data, &name); err == nil {
		*t = Topic{Name: name}
		return nil
	}
	var o topicObject
	if err := strict(data, &o, "name", "pattern", "partitions"); err != nil {
		return fmt.Errorf("topic %.200s: %s", data, topicForms)
	}
	if o.Partitions != nil && len(o.Partitions) == 0 { // a list that came out empty must not mean all of them
		return fmt.Errorf("topic %.200s: partitions is empty: name some, or leave it out for all", data)
	}
	*t = Topic(o)
	return nil
}

const topicForms = `give a name, {"name": "trips", "partitions": [0, 1]} or {"pattern": "trips-.*"}`

// String names t in messages.
func (t Topic) String() string {
	if t.Pattern != "" {
		return fmt.Sprintf("pattern %q", t.Pattern)
	}
	return t.Name
}

// Regexp compiles Pattern, anchored at both ends.
func (t Topic) Regexp() (*regexp.Regexp, error) { return regexp.Compile(`^(?:` + t.Pattern + `)$`) }

// sortTopics brings a selection into its canonical order: names, then patterns.
func sortTopics(ts []Topic) {
	for i := range ts {
		slices.Sort(ts[i].Partitions)
	}
	slices.SortStableFunc(ts, func(a, b Topic) int {
		if a.Pattern != "" || b.Pattern != "" {
			return strings.Compare(a.Pattern, b.Pattern)
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// topicShape is a topic's name, or that of one of its incarnations; "~1" is the first.
var topicShape = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}(~[1-9][0-9]{0,8})?$`)

// kafkaTopic reports whether name can be that of a topic in Kafka.
func kafkaTopic(name string) bool {
	return topicShape.MatchString(name) && !strings.Contains(name, "~")
}

func (r *Request) checkSelection() error {
	if err := checkTopics("topics", r.Topics); err != nil {
		return err
	}
	if err := checkTopics("exclude", r.Exclude); err != nil {
		return err
	}
	for _, t := range r.Exclude {
		if t.Pattern == "" && !kafkaTopic(t.Name) {
			return fmt.Errorf("exclude: %q: which log of a topic is replayed is said in topics; exclude takes its name in Kafka", t.Name)
		}
	}
	return nil
}

func checkTopics(field string, ts []Topic) error {
	for i, t := range ts {
		switch {
		case (t.Name == "") == (t.Pattern == ""):
			return fmt.Errorf("%s: %s", field, topicForms)
		case len(t.Pattern) > MaxPatternBytes:
			return fmt.Errorf("%s: a pattern has %d bytes; %d are the most", field, len(t.Pattern), MaxPatternBytes)
		case t.Pattern == "" && !topicShape.MatchString(t.Name):
			return fmt.Errorf(`%s: %.300q is not a topic's name; a pattern is {"pattern": …}`, field, t.Name)
		case i > 0 && ts[i-1].Name == t.Name && ts[i-1].Pattern == t.Pattern:
			return fmt.Errorf("%s: %s is there twice", field, t)
		}
		if t.Pattern != "" {
			if _, err := t.Regexp(); err != nil {
				return fmt.Errorf("%s: %s is no RE2 expression: %w", field, t, err)
			}
		}
		for j, p := range t.Partitions {
			if p < 0 || j > 0 && t.Partitions[j-1] == p {
				return fmt.Errorf("%s: %s: partition %d is negative or there twice", field, t, p)
			}
		}
	}
	return nil
}
