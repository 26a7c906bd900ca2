package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"tapedeck.dev/tapedeck/shared/record"
)

// Groups chooses the consumer groups whose archived positions are restored with the topics. In JSON it is a list of names, or an object.
type Groups struct {
	Names   []string          `json:"names,omitempty"`   // ascending
	Pattern string            `json:"pattern,omitempty"` // RE2 over the full name
	Until   *int64            `json:"until,omitempty"`   // ms since 1970: of the snapshots, the newest that was complete then; none: the newest
	Mapping map[string]string `json:"mapping,omitempty"` // archived group → its name at the target
}

type groupsObject Groups

// MarshalJSON writes the list alone where it says everything.
func (g Groups) MarshalJSON() ([]byte, error) {
	if g.Pattern == "" && g.Until == nil && len(g.Mapping) == 0 {
		return json.Marshal(g.Names)
	}
	return json.Marshal(groupsObject(g))
}

// UnmarshalJSON reads either form.
func (g *Groups) UnmarshalJSON(data []byte) error {
	var names []string
	if err := json.Unmarshal(data, &names); err == nil {
		*g = Groups{Names: names}
		return nil
	}
	var o groupsObject
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return fmt.Errorf(`groups: give names, ["billing", "audit"], or {"pattern": "billing-.*", "until": <ms>, "mapping": {"billing": "billing-2"}}: %w`, err)
	}
	*g = Groups(o)
	return nil
}

func (g *Groups) canonical() {
	if g == nil {
		return
	}
	slices.Sort(g.Names)
	if len(g.Mapping) == 0 {
		g.Mapping = nil
	}
}

func (g *Groups) check() error {
	if g == nil {
		return nil
	}
	if len(g.Names) == 0 && g.Pattern == "" {
		return errors.New("groups chooses none: give names or a pattern, or leave it out")
	}
	for i, n := range g.Names {
		if n == "" || i > 0 && g.Names[i-1] == n {
			return fmt.Errorf("groups: %q is empty or there twice", n)
		}
	}
	if _, err := g.compile(); err != nil {
		return fmt.Errorf("groups: pattern: %w", err)
	}
	if g.Until != nil && *g.Until < 0 {
		return fmt.Errorf("groups: until %d is before 1970; give milliseconds since then", *g.Until)
	}
	to := map[string]string{}
	for _, from := range slices.Sorted(maps.Keys(g.Mapping)) {
		name := g.Mapping[from]
		if name == "" {
			return fmt.Errorf("groups: mapping: %s has no name at the target", from)
		}
		if other, ok := to[name]; ok {
			return fmt.Errorf("groups: mapping: %s and %s would both be %s", other, from, name)
		}
		to[name] = from
	}
	return nil
}

func (g *Groups) compile() (*regexp.Regexp, error) {
	if g.Pattern == "" {
		return nil, nil
	}
	return regexp.Compile("^(?:" + g.Pattern + ")$")
}

// Chooses returns the rule.
func (g *Groups) Chooses() (func(group string) bool, error) {
	re, err := g.compile()
	if err != nil {
		return nil, err
	}
	return func(group string) bool {
		return slices.Contains(g.Names, group) || re != nil && re.MatchString(group)
	}, nil
}

// GroupsPlan is which groups a job restores, and from which snapshot. It is fixed when the job is planned.
type GroupsPlan struct {
	Snapshot int64       `json:"snapshot"` // its time in ms since 1970
	Groups   []GroupPlan `json:"groups"`   // by name
	Notes    []string    `json:"notes,omitempty"`
}

// GroupPlan is one group of a GroupsPlan.
type GroupPlan struct {
	Group     string `json:"group"`
	To        string `json:"to"`        // its name at the target
	Positions int    `json:"positions"` // of it that lie in the job's partitions
}

// RestoredGroup is what a group got.
type RestoredGroup struct {
	Group     string             `json:"group"`
	To        string             `json:"to"`
	Positions []RestoredPosition `json:"positions"` // by source topic, partition
}

// RestoredPosition is one position of a group.
type RestoredPosition struct {
	record.TopicPartition                       // source
	Target                record.TopicPartition `json:"target"`
	Old                   int64                 `json:"old"` // in the archived log
	New                   int64                 `json:"new"` // at the target; −1: left out, for the reason given
	Note                  string                `json:"note,omitempty"`
}
