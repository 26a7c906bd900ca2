package service

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// setting is one value as somebody wrote it.
type setting struct {
	name string
	raw  string   // lists: joined by commas
	list []string // set where the value was written as a YAML list: its elements may hold commas
	// Of an Entries key: node is the list as the file has it, nil for text; entries is what it was read as.
	node    *ast.SequenceNode
	entries []*Config
	origin  string // file:line, "environment NAME" or "--set"
}

// readYAML flattens a file of nested or dotted keys: {flush: {size: 5}} and {flush.size: 5} mean the same. Lists of entries are left as they are.
func readYAML(path string, keys []Key) ([]setting, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return parseYAML(path, data, keys)
}

func parseYAML(file string, data []byte, keys []Key) ([]setting, error) {
	body, err := parseText(file, string(data))
	if err != nil || body == nil {
		return nil, err
	}
	y := yamlReader{file: file, seen: map[string]int{}, entries: map[string]bool{}}
	for _, k := range keys {
		if k.Kind == Entries {
			y.entries[k.Name] = true
		}
	}
	if err := y.node("", body); err != nil {
		return nil, err
	}
	return y.out, nil
}

// parseText returns the only document of a YAML (or JSON) text, nil where it is empty; file is for messages.
func parseText(file, text string) (ast.Node, error) {
	f, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		if se, ok := errors.AsType[yaml.Error](err); ok && se.GetToken() != nil {
			p := se.GetToken().Position
			return nil, fmt.Errorf("%s:%d:%d: %s", file, p.Line, p.Column, oneLine(se.GetMessage()))
		}
		return nil, fmt.Errorf("%s: %s", file, oneLine(err.Error()))
	}
	y := yamlReader{file: file}
	var body ast.Node
	for _, d := range f.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentType || d.Body.Type() == ast.NullType {
			continue // an empty file, or one of comments alone
		}
		if body != nil {
			return nil, y.errorf(d.Body, "more than one YAML document")
		}
		body = d.Body
	}
	return body, nil
}

type yamlReader struct {
	file    string
	seen    map[string]int  // name → line
	entries map[string]bool // names of Entries keys
	out     []setting
}

func (y *yamlReader) errorf(n ast.Node, format string, args ...any) error {
	p := n.GetToken().Position
	return fmt.Errorf("%s:%d:%d: %s", y.file, p.Line, p.Column, fmt.Sprintf(format, args...))
}

// node walks a value whose dotted name so far is path.
func (y *yamlReader) node(path string, n ast.Node) error {
	switch v := n.(type) {
	case *ast.MappingNode:
		for _, e := range v.Values {
			if err := y.entry(path, e); err != nil {
				return err
			}
		}
		return nil
	case *ast.MappingValueNode:
		return y.entry(path, v)
	}
	if path == "" {
		return y.errorf(n, "want settings as `name: value`")
	}
	return y.errorf(n, "%s: internal: value without entry", path)
}

func (y *yamlReader) entry(path string, e *ast.MappingValueNode) error {
	key, err := y.scalar(path, e.Key)
	if err != nil {
		return err
	}
	if key == "" {
		return y.errorf(e.Key, "empty key")
	}
	name := key
	if path != "" {
		name = path + "." + key
	}
	switch v := e.Value.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return y.node(name, v)
	case *ast.SequenceNode:
		if y.entries[name] {
			return y.put(setting{name: name, node: v}, e.Key)
		}
		list := make([]string, 0, len(v.Values))
		for _, el := range v.Values {
			s, err := y.scalar(name, el)
			if err != nil {
				return err
			}
			list = append(list, s)
		}
		return y.put(setting{name: name, raw: strings.Join(list, ","), list: list}, e.Key)
	case *ast.NullNode, nil:
		return y.errorf(e.Key, "%s has no value: give it one or remove the line", name)
	default:
		s, err := y.scalar(name, v)
		if err != nil {
			return err
		}
		return y.put(setting{name: name, raw: s}, e.Key)
	}
}

func (y *yamlReader) put(s setting, key ast.Node) error {
	line := key.GetToken().Position.Line
	if before, ok := y.seen[s.name]; ok {
		return y.errorf(key, "%s is given twice (also on line %d)", s.name, before)
	}
	y.seen[s.name] = line
	s.origin = fmt.Sprintf("%s:%d", y.file, line)
	y.out = append(y.out, s)
	return nil
}

// scalar returns a scalar as it was written (numbers are not reformatted: 0x10, 1e3 and 007 stay themselves).
func (y *yamlReader) scalar(path string, n ast.Node) (string, error) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, nil
	case *ast.LiteralNode:
		return v.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, nil
	case *ast.MergeKeyNode, *ast.AnchorNode, *ast.AliasNode:
		return "", y.errorf(n, "anchors, aliases and merges are not supported")
	}
	return "", y.errorf(n, "%s: want a plain value, not %s", path, strings.ToLower(n.Type().String()))
}

// oneLine joins the lines of a message.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
