package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"tapedeck.dev/tapedeck/shared/service"
)

// doc collects what is wrong with one file. Reading goes on after an error, so that one run tells all.
type doc struct {
	file string
	errs []located
}

type located struct {
	line, column int
	text         string
}

// item is a value together with the place to name in errors about it.
type item struct {
	key  string
	at   ast.Node // the key where there is one, else the value
	node ast.Node // nil: absent
}

func (d *doc) errorf(at ast.Node, format string, args ...any) {
	l := located{line: 1, column: 1, text: fmt.Sprintf(format, args...)}
	if at != nil {
		if t := at.GetToken(); t != nil && t.Position != nil {
			l.line, l.column = t.Position.Line, t.Position.Column
		}
	}
	d.errs = append(d.errs, l)
}

// err returns all errors in the order of their places, nil for none.
func (d *doc) err() error {
	slices.SortStableFunc(d.errs, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
	var all []error
	for _, l := range d.errs {
		all = append(all, fmt.Errorf("%s:%d:%d: %s", d.file, l.line, l.column, l.text))
	}
	return errors.Join(all...)
}

// parseYAML returns the root of the only document.
func (d *doc) parseYAML(data []byte) ast.Node {
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		var located yaml.Error
		if errors.As(err, &located) && located.GetToken() != nil {
			d.errs = append(d.errs, locatedAt(located))
		} else {
			d.errorf(nil, "not YAML: %v", err)
		}
		return nil
	}
	if len(f.Docs) != 1 || f.Docs[0].Body == nil {
		d.errorf(nil, "the file must hold one pipeline; see docs/pipeline.md for an example")
		return nil
	}
	ast.Walk(plainOnly{d}, f.Docs[0].Body)
	return f.Docs[0].Body
}

// plainOnly refuses the parts of YAML that make a file say something else than it shows.
type plainOnly struct{ d *doc }

func (v plainOnly) Visit(n ast.Node) ast.Visitor {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		v.d.errorf(n, "anchors, aliases, merge keys and tags are not supported")
		return nil
	}
	return v
}

func locatedAt(err yaml.Error) located {
	l := located{line: 1, column: 1, text: err.GetMessage()}
	if p := err.GetToken().Position; p != nil {
		l.line, l.column = p.Line, p.Column
	}
	return l
}

// entries lists a mapping's entries in file order; ok is false (and told) where n is no mapping.
func (d *doc) entries(n ast.Node, what string) (out []item, ok bool) {
	m, isMap := n.(ast.MapNode)
	if !isMap {
		d.errorf(n, "%s must be a mapping of settings, not %s", what, describe(n))
		return nil, false
	}
	for it := m.MapRange(); it.Next(); {
		k := it.Key()
		name := ""
		switch s := k.(type) {
		case ast.ScalarNode:
			name = scalarText(s)
		default:
			d.errorf(k, "%s: a setting's name must be plain text", what)
			continue
		}
		out = append(out, item{key: name, at: k, node: it.Value()})
	}
	return out, true
}

// notYet are settings that a later version will have; the message names the feature.
type notYet map[string]string

// settings reads a mapping of the known settings. Unknown ones are errors that name the nearest known one.
func (d *doc) settings(n ast.Node, what string, later notYet, known ...string) map[string]item {
	out := map[string]item{}
	list, _ := d.entries(n, what)
	for _, e := range list {
		switch feature, isLater := later[e.key]; {
		case slices.Contains(known, e.key):
			out[e.key] = e
		case isLater:
			d.errorf(e.at, "%s: %s not in this version", e.key, feature)
		default:
			if near := service.Nearest(e.key, known); near != "" {
				d.errorf(e.at, "unknown setting %q; did you mean %q?", e.key, near)
				if _, ok := out[near]; !ok {
					out[near] = e // go on as if it were spelt right, so that "missing" is not told as well
				}
			} else {
				d.errorf(e.at, "unknown setting %q; %s takes %s", e.key, what, strings.Join(known, ", "))
			}
		}
	}
	return out
}

// list reads a sequence.
func (d *doc) list(n ast.Node, what string) []ast.Node {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.errorf(n, "%s must be a list, not %s", what, describe(n))
		return nil
	}
	return s.Values
}

// text reads a scalar as it is written. ok is false (and told) where it is none, or empty.
func (d *doc) text(e item, what string) (string, bool) {
	s, isScalar := e.node.(ast.ScalarNode)
	if _, isNull := e.node.(*ast.NullNode); !isScalar || isNull {
		d.errorf(e.node, "%s must be text, not %s", what, describe(e.node))
		return "", false
	}
	t := strings.TrimSpace(scalarText(s))
	if t == "" {
		d.errorf(e.node, "%s is empty", what)
		return "", false
	}
	return t, true
}

// word reads a scalar that must be one of the given words.
func (d *doc) word(e item, what string, later notYet, words ...string) (string, bool) {
	t, ok := d.text(e, what)
	if !ok || slices.Contains(words, t) {
		return t, ok
	}
	if feature, isLater := later[t]; isLater {
		d.errorf(e.node, "%s: %s not in this version", what, feature)
	} else if near := service.Nearest(t, words); near != "" {
		d.errorf(e.node, "%s cannot be %q; did you mean %q?", what, t, near)
	} else {
		d.errorf(e.node, "%s cannot be %q; it is one of %s", what, t, strings.Join(words, ", "))
	}
	return "", false
}

// duration reads 10s, 1h30m, 250ms, or 0, in whole milliseconds from least on.
func (d *doc) duration(e item, what string, least int64) int64 {
	t, ok := d.text(e, what)
	if !ok {
		return 0
	}
	v, err := time.ParseDuration(t)
	switch {
	case err != nil:
		d.errorf(e.node, "%s: %q is no duration; write it like 10s, 1h30m or 250ms", what, t)
	case v%time.Millisecond != 0:
		d.errorf(e.node, "%s: %s is not a whole number of milliseconds", what, t)
	case v.Milliseconds() < least:
		d.errorf(e.node, "%s: %s is too short; the least is %s", what, t, time.Duration(least)*time.Millisecond)
	default:
		return v.Milliseconds() // at most 292 years: sums with event times cannot overflow
	}
	return 0
}

// integer reads a whole number in [least, most].
func (d *doc) integer(e item, what string, least, most int64) int64 {
	t, ok := d.text(e, what)
	if !ok {
		return 0
	}
	v, err := strconv.ParseInt(t, 10, 64)
	if err != nil || v < least || v > most {
		d.errorf(e.node, "%s: %q is not a whole number from %d to %d", what, t, least, most)
		return 0
	}
	return v
}

func scalarText(s ast.ScalarNode) string {
	switch t := s.(type) {
	case *ast.StringNode:
		return t.Value
	case *ast.LiteralNode:
		return t.Value.Value
	}
	return s.GetToken().Value
}

func describe(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	}
	return "a single value"
}
