package service

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Entries returns the entries of an Entries setting, each a configuration of the key's Members in which a member that is not given has its
// default; see Given.
func (c *Config) Entries(name string) []*Config { return c.get(name, Entries).entries }

// Given reports whether a setting was written somewhere, so that its value is not its default.
func (c *Config) Given(name string) bool { return c.values[name].origin != defaultOrigin }

const defaultOrigin = "default"

// parseEntries reads the value of an Entries setting: the list as the file has it, or YAML or JSON text. It brings s into the form that is printed,
// one line of JSON, which is read again as the same.
func (c *Config) parseEntries(k Key, s setting) (setting, error) {
	list := s.node
	if list == nil {
		if strings.TrimSpace(s.raw) == "" {
			s.raw, s.entries = "", nil
			return s, nil
		}
		body, err := parseText(s.origin, s.raw)
		if err != nil {
			return s, err
		}
		seq, ok := body.(*ast.SequenceNode)
		if !ok {
			return s, fmt.Errorf("setting %q (%s): want a list of entries, as YAML or JSON, each of %s", k.Name, s.origin, names(k.Members))
		}
		list = seq
	}
	s.entries = nil
	var printed []map[string]any
	for i, el := range list.Values {
		e, row, err := c.parseEntry(k, s.origin, el)
		if err != nil {
			return s, fmt.Errorf("setting %q (%s), entry %d: %w", k.Name, s.origin, i+1, err)
		}
		s.entries, printed = append(s.entries, e), append(printed, row)
	}
	text, err := json.Marshal(printed)
	if err != nil {
		return s, fmt.Errorf("setting %q: %w", k.Name, err)
	}
	s.raw, s.node = string(text), nil
	return s, nil
}

func (c *Config) parseEntry(k Key, origin string, n ast.Node) (*Config, map[string]any, error) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
	default:
		return nil, nil, fmt.Errorf("want `name: value` pairs, of %s", names(k.Members))
	}
	file, _, _ := strings.Cut(origin, ":")
	y := yamlReader{file: file, seen: map[string]int{}}
	if err := y.node("", n); err != nil {
		return nil, nil, err
	}
	e := &Config{reader: "an entry of " + k.Name, keys: k.Members, byName: map[string]Key{}, values: map[string]setting{}}
	for _, m := range k.Members {
		e.byName[m.Name] = m
		e.values[m.Name] = setting{name: m.Name, raw: m.Default, origin: defaultOrigin}
	}
	row := map[string]any{}
	for _, s := range y.out {
		if _, ok := e.byName[s.name]; !ok {
			known := make([]string, len(k.Members))
			for i, m := range k.Members {
				known[i] = m.Name
			}
			if near := Nearest(s.name, known); near != "" {
				return nil, nil, fmt.Errorf("unknown setting %q (%s); did you mean %q?", s.name, s.origin, near)
			}
			return nil, nil, fmt.Errorf("unknown setting %q (%s); an entry takes %s", s.name, s.origin, names(k.Members))
		}
		if err := e.put(s); err != nil {
			return nil, nil, err
		}
		row[s.name] = s.raw
		if s.list != nil {
			row[s.name] = s.list
		}
	}
	for _, m := range k.Members {
		if m.Required && e.values[m.Name].raw == "" {
			return nil, nil, fmt.Errorf("%s is required", m.Name)
		}
	}
	return e, row, nil
}

func names(keys []Key) string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.Name
	}
	return strings.Join(out, ", ")
}
