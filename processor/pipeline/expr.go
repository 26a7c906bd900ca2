package pipeline

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"

	"tapedeck.dev/tapedeck/processor/value"
	"tapedeck.dev/tapedeck/shared/service"
)

// Expr is one compiled expression over a row: a source's used fields, then its computed ones. It is immutable; the virtual machine and
// the environment that it needs belong to the caller, so that several engines may share a pipeline.
type Expr struct {
	Text    string
	slot    int // ≥ 0: the expression is just this slot
	program *vm.Program
	reads   []slot
}

type slot struct {
	name string
	at   int
}

// Scratch is what evaluation needs besides the row. One per goroutine.
type Scratch struct {
	vm  vm.VM
	env map[string]any
}

// NewScratch makes a Scratch.
func NewScratch() *Scratch { return &Scratch{env: map[string]any{}} }

// Eval evaluates x over row. Any error means that the record is poison; its text is not stable between versions.
func (x *Expr) Eval(row []value.Value, s *Scratch) (value.Value, error) {
	if x.slot >= 0 {
		return row[x.slot], nil
	}
	for _, r := range x.reads {
		s.env[r.name] = row[r.at].Any()
	}
	out, err := s.vm.Run(x.program, s.env)
	if err != nil {
		return value.Value{}, fmt.Errorf("evaluate %q: %w", x.Text, err)
	}
	v, err := value.FromAny(out)
	if err != nil {
		return value.Value{}, fmt.Errorf("evaluate %q: %w", x.Text, err)
	}
	return v, nil
}

// impure are the built-in functions that an expression may not use: their result depends on more than the record (a clock, the time zone
// database or the local zone of the host, the order of a map, the sorting algorithm of the Go version).
var impure = []string{"now", "date", "duration", "timezone", "keys", "values", "toPairs", "groupBy", "sort", "sortBy", "median"}

// scope is what expressions of one source may name.
type scope struct {
	open  bool // any name is a field (json)
	slots map[string]int
	types map[string]types.Type
	// add makes a slot for a field that is used for the first time; nil where name is none.
	add func(name string) bool
}

// names lists what may be named, for suggestions.
func (s *scope) names() []string { return slices.Sorted(maps.Keys(s.types)) }

// compile compiles text. The error's text has no file position.
func (s *scope) compile(text string) (*Expr, error) {
	tree, err := parser.Parse(text)
	if err != nil {
		return nil, exprError(err)
	}
	var look visitor
	ast.Walk(&tree.Node, &look)
	if look.err != nil {
		return nil, look.err
	}
	x := &Expr{Text: text, slot: -1}
	for _, name := range look.names {
		if slices.Contains(look.declared, name) {
			continue
		}
		if _, known := s.slots[name]; !known && (s.add == nil || !s.add(name)) {
			if near := service.Nearest(name, s.names()); near != "" {
				return nil, fmt.Errorf("unknown name %q; did you mean %q?", name, near)
			}
			return nil, fmt.Errorf("unknown name %q; known here: %s", name, strings.Join(s.names(), ", "))
		}
		x.reads = append(x.reads, slot{name, s.slots[name]})
	}
	if id, ok := tree.Node.(*ast.IdentifierNode); ok {
		x.slot = s.slots[id.Value]
	}
	env := types.Map{}
	for _, r := range x.reads {
		env[r.name] = s.types[r.name]
	}
	options := []expr.Option{expr.Env(env), expr.Function("int", toInt, new(func(any) int))}
	for _, f := range impure {
		options = append(options, expr.DisableBuiltin(f))
	}
	if x.program, err = expr.Compile(text, options...); err != nil {
		return nil, exprError(err)
	}
	return x, nil
}

// kind returns the type of x's result where it is known before any record, else nil.
func (x *Expr) kind() reflect.Type {
	t := x.program.Node().Type()
	if t == nil || t.Kind() == reflect.Interface {
		return nil
	}
	return t
}

// visitor collects names and refuses what is not a function of the record alone.
type visitor struct {
	names    []string
	declared []string
	err      error
}

func (v *visitor) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		if n.Value == "$env" {
			v.refuse("$env is not allowed: name the fields")
		} else if !slices.Contains(v.names, n.Value) {
			v.names = append(v.names, n.Value)
		}
	case *ast.VariableDeclaratorNode:
		v.declared = append(v.declared, n.Name)
	case *ast.BuiltinNode:
		if slices.Contains(impure, n.Name) {
			v.refuse("function %s is not allowed: its result may depend on more than the record", n.Name)
		}
	case *ast.BinaryNode:
		if n.Operator == "**" || n.Operator == "^" {
			v.refuse("operator %s is not allowed: its result may differ between processors", n.Operator)
		}
	}
}

func (v *visitor) refuse(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf(format, args...)
	}
}

// toInt replaces the library's int(): Go leaves the conversion of a float that does not fit to the processor.
func toInt(args ...any) (any, error) {
	switch x := args[0].(type) {
	case int:
		return x, nil
	case int64:
		return int(x), nil
	case float64:
		if !(x >= -1<<63 && x < 1<<63) {
			return nil, fmt.Errorf("int(%v) does not fit 64 bits", x)
		}
		return int(math.Trunc(x)), nil
	case string:
		return strconv.Atoi(x)
	}
	return nil, fmt.Errorf("int() of %T", args[0])
}

// exprError takes the message and the place inside the expression, and leaves the drawing of the source out.
func exprError(err error) error {
	if fe, ok := err.(*file.Error); ok {
		return fmt.Errorf("%s (character %d)", fe.Message, fe.Column+1)
	}
	return err
}
