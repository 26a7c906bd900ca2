package pipeline

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/types"
	"github.com/goccy/go-yaml/ast"

	"tapedeck.dev/tapedeck/processor/agg"
	"tapedeck.dev/tapedeck/shared/service"
)

// maxTopic is Kafka's limit for a topic's name; what we append to names must fit.
const maxTopic = 249

var (
	topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)
	fieldName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	call      = regexp.MustCompile(`^(?s)\s*([A-Za-z_]\w*)\s*\((.*)\)\s*$`)
)

// reserved are the names that every result record has, or may have.
var reserved = []string{"window_start", "window_end", "error"}

// Parse reads one pipeline file; file names it in errors, which point at line and column and name the nearest valid word. A schemaFile is
// read relative to file's directory.
func Parse(file string, data []byte) (*Pipeline, error) {
	d := &doc{file: file}
	p := &Pipeline{}
	if root := d.parseYAML(data); root != nil && len(d.errs) == 0 {
		d.pipeline(root, p)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	p.Hash = hash(p)
	return p, nil
}

func (d *doc) pipeline(root ast.Node, p *Pipeline) {
	set := d.settings(root, "a pipeline", notYet{"join": "joins are", "joins": "joins are"},
		"name", "keyed", "sources", "groupBy", "window", "aggregates", "output")
	need := func(key, hint string) (item, bool) {
		e, ok := set[key]
		if !ok {
			d.errorf(first(root), "setting %q is missing: %s", key, hint)
		}
		return e, ok
	}
	if e, ok := need("name", "the pipeline's name, for example `name: fares`"); ok {
		p.Name = d.topic(e, "name", len(".decisions"))
	}
	if e, ok := set["keyed"]; ok {
		word, _ := d.word(e, "keyed", nil, "merged", "partition")
		p.Keyed = word == "partition"
	}
	var sc *scope
	if e, ok := need("sources", "a list with the input topic"); ok {
		list := d.list(e.node, "sources")
		if len(list) == 0 {
			d.errorf(e.at, "sources is empty")
		} else if len(list) > 1 {
			d.errorf(list[1], "several sources are not in this version")
		} else {
			p.Source = make([]Source, 1)
			sc = d.source(list[0], &p.Source[0], p.Keyed)
		}
	}
	if e, ok := need("window", "for example `window: {tumbling: {size: 10s}}`"); ok {
		d.window(e, p)
	}
	// Without a scope (the source is wrong) expressions cannot be checked: one error, not twenty that follow from it.
	names := append([]string(nil), reserved...)
	if e, ok := set["groupBy"]; ok && sc != nil {
		d.groupBy(e, p, sc, &names)
	}
	if e, ok := need("aggregates", "for example `aggregates: {trips: count()}`"); ok && sc != nil {
		d.aggregates(e, p, sc, &names)
	}
	if e, ok := need("output", "for example `output: {topic: fares, partitions: 4}`"); ok {
		d.output(e, p)
	}
}

// topic reads a name that is, or becomes part of, a topic's name; room is what we append.
func (d *doc) topic(e item, what string, room int) string {
	t, ok := d.text(e, what)
	switch {
	case !ok:
	case !topicName.MatchString(t) || t == "." || t == "..":
		d.errorf(e.node, "%s: %q may hold only letters, digits, '.', '_' and '-'", what, t)
	case len(t)+room > maxTopic:
		d.errorf(e.node, "%s is longer than %d characters", what, maxTopic-room)
	}
	return t
}

func (d *doc) source(n ast.Node, s *Source, keyed bool) *scope {
	errs := len(d.errs)
	set := d.settings(n, "a source", nil,
		"topic", "format", "schema", "schemaFile", "eventTime", "delay", "maxFuture", "idleness", "where", "compute")
	if e, ok := set["topic"]; ok {
		s.Topic = d.topic(e, "topic", 0)
	} else {
		d.errorf(first(n), "setting \"topic\" is missing: the topic to read")
	}
	if e, ok := set["format"]; ok {
		word, _ := d.word(e, "format", notYet{"protobuf": "protobuf is", "jsonschema": "JSON schema is"}, string(Avro), string(JSON))
		s.Format = Format(word)
	} else {
		d.errorf(first(n), "setting \"format\" is missing: avro or json")
	}
	fields := d.schema(n, set, s)
	s.MaxFutureMs = -1
	if e, ok := set["delay"]; ok {
		s.DelayMs = d.duration(e, "delay", 0)
	} else {
		d.errorf(first(n), "setting \"delay\" is missing: how much older than the newest record a record may be, for example 10s, or 0s")
	}
	if e, ok := set["maxFuture"]; ok {
		s.MaxFutureMs = d.duration(e, "maxFuture", 0)
	}
	if e, ok := set["idleness"]; ok {
		d.idleness(e, s, keyed)
	}
	if s.Format == "" || s.Format == Avro && fields == nil {
		return nil
	}
	sc := s.newScope(fields)
	if e, ok := set["eventTime"]; ok {
		d.eventTime(e, s, sc)
	} else {
		d.errorf(first(n), "setting \"eventTime\" is missing: `record`, or {field: …, unit: ms}")
	}
	if e, ok := set["where"]; ok {
		if s.Where = d.expr(e, "where", sc); s.Where != nil {
			if t := s.Where.kind(); t != nil && t.Kind() != reflect.Bool {
				d.errorf(e.node, "where must be true or false, not %s", t)
			}
		}
	}
	if e, ok := set["compute"]; ok {
		d.compute(e, s, sc)
	}
	if len(d.errs) > errs {
		return nil
	}
	return sc
}

// schema reads the pinned reader schema; nil where there is none or it is wrong.
func (d *doc) schema(n ast.Node, set map[string]item, s *Source) map[string]Field {
	inline, hasInline := set["schema"]
	path, hasFile := set["schemaFile"]
	switch {
	case s.Format != Avro:
		for _, e := range []item{inline, path} {
			if e.node != nil && s.Format == JSON {
				d.errorf(e.at, "%s: a source of format json has no schema", e.key)
			}
		}
		return nil
	case hasInline && hasFile:
		d.errorf(path.at, "schema and schemaFile exclude each other")
		return nil
	case !hasInline && !hasFile:
		d.errorf(first(n), "setting \"schema\" is missing: a source of format avro pins its reader schema, as `schema: |` or `schemaFile: file`")
		return nil
	}
	at, text := inline, ""
	if hasFile {
		at = path
		name, ok := d.text(path, "schemaFile")
		if !ok {
			return nil
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(d.file), name)
		}
		content, err := os.ReadFile(name)
		if err != nil {
			d.errorf(path.node, "schemaFile: %v", err)
			return nil
		}
		text = string(content)
	} else {
		if _, ok := inline.node.(ast.MapNode); ok {
			d.errorf(inline.node, "schema must be text: write `schema: |` and the JSON below it")
			return nil
		}
		var ok bool
		if text, ok = d.text(inline, "schema"); !ok {
			return nil
		}
	}
	reader, fields, err := avroFields(text)
	if err != nil {
		d.errorf(at.node, "%s: %v", at.key, err)
		return nil
	}
	s.Reader = reader
	return fields
}

func (d *doc) eventTime(e item, s *Source, sc *scope) {
	if scalar, ok := e.node.(ast.ScalarNode); ok {
		if scalarText(scalar) != "record" {
			d.errorf(e.node, "eventTime is `record` (the record timestamp) or {field: …, unit: ms}")
			return
		}
		s.EventTime.Record = true
		return
	}
	set := d.settings(e.node, "eventTime", nil, "field", "unit")
	field, hasField := set["field"]
	unit, hasUnit := set["unit"]
	if !hasField || !hasUnit {
		d.errorf(e.at, "eventTime needs both field and unit (s, ms, us or ns)")
		return
	}
	word, _ := d.word(unit, "unit", nil, string(Seconds), string(Millis), string(Micros), string(Nanos))
	s.EventTime.Unit = Unit(word)
	name, ok := d.text(field, "field")
	if !ok {
		return
	}
	if _, used := sc.slots[name]; !used && !sc.add(name) {
		d.errorf(field.node, "eventTime: %s", sc.unknownField(name))
		return
	}
	s.EventTime.Slot = sc.slots[name]
	for _, f := range s.Fields {
		if f.Name == name && (f.Type == BoolField || f.Type == StringField) {
			d.errorf(field.node, "eventTime: field %q is no number", name)
		}
	}
}

// leastIdle is the shortest time after which a partition may count as idle, ms. Below it, a producer that batches looks idle between two batches.
const leastIdle = 100

func (d *doc) idleness(e item, s *Source, keyed bool) {
	if keyed {
		d.errorf(e.at, "idleness: with `keyed: partition` each partition closes alone, so that an idle one holds nobody back; leave it out")
		return
	}
	after, ok := d.settings(e.node, "idleness", nil, "after")["after"]
	if !ok {
		d.errorf(e.at, "idleness needs `after`: how long a partition may be without a record before the others go on, for example {after: 30s}")
		return
	}
	s.IdleAfterMs = d.duration(after, "after", leastIdle)
}

func (d *doc) expr(e item, what string, sc *scope) *Expr {
	text, ok := d.text(e, what)
	if !ok {
		return nil
	}
	return d.exprText(e, what, text, sc)
}

func (d *doc) exprText(e item, what, text string, sc *scope) *Expr {
	x, err := sc.compile(text)
	if err != nil {
		d.errorf(e.node, "%s: %v", what, err)
		return nil
	}
	return x
}

func (d *doc) compute(e item, s *Source, sc *scope) {
	list, _ := d.entries(e.node, "compute")
	for _, c := range list {
		if !fieldName.MatchString(c.key) {
			d.errorf(c.at, "compute: %q is no name: letters, digits and _ only", c.key)
			continue
		}
		if _, taken := sc.types[c.key]; taken {
			d.errorf(c.at, "compute: %q is a field already; choose another name", c.key)
			continue
		}
		x := d.expr(c, "compute "+c.key, sc)
		if x == nil {
			continue
		}
		sc.slots[c.key] = s.Slots
		sc.types[c.key] = computedType(x)
		s.Compute = append(s.Compute, Computed{Name: c.key, Slot: s.Slots, Expr: x})
		s.Slots++
	}
}

// computedType is what later expressions may know of x's result.
func computedType(x *Expr) types.Type {
	t := x.kind()
	switch {
	case t == nil:
		return types.Any
	case t.Kind() == reflect.Bool:
		return types.Bool
	case t.Kind() == reflect.String:
		return types.String
	case t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64:
		return types.Float64
	case isInteger(t):
		return types.Int64
	}
	return types.Any
}

func isInteger(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 }

func isNumber(t reflect.Type) bool {
	return isInteger(t) || t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64
}

func (d *doc) window(e item, p *Pipeline) {
	later := notYet{"sliding": "sliding windows are", "session": "session windows are", "hopping": "sliding windows are"}
	set := d.settings(e.node, "window", later, "tumbling")
	tumbling, ok := set["tumbling"]
	if !ok {
		if m, isMap := e.node.(ast.MapNode); isMap && !m.MapRange().Next() {
			d.errorf(e.node, "window is empty: write {tumbling: {size: 10s}}")
		}
		return
	}
	size, ok := d.settings(tumbling.node, "tumbling", nil, "size")["size"]
	if !ok {
		d.errorf(tumbling.at, "tumbling needs a size, for example 10s")
		return
	}
	p.Window.SizeMs = d.duration(size, "size", 1)
}

// name takes a name for the output record.
func (d *doc) name(at ast.Node, what, name string, taken *[]string) {
	switch {
	case !fieldName.MatchString(name):
		d.errorf(at, "%s: %q is no name: letters, digits and _ only", what, name)
	case slices.Contains(reserved, name):
		d.errorf(at, "%s: the name %q is taken by the result record itself", what, name)
	case slices.Contains(*taken, name):
		d.errorf(at, "%s: the name %q is used twice in the output", what, name)
	}
	*taken = append(*taken, name)
}

func (d *doc) groupBy(e item, p *Pipeline, sc *scope, names *[]string) {
	for _, n := range d.list(e.node, "groupBy") {
		entries := []item{{at: n, node: n}}
		if _, isMap := n.(ast.MapNode); isMap {
			entries, _ = d.entries(n, "groupBy")
		}
		for _, g := range entries {
			x := d.expr(g, "groupBy", sc)
			if x == nil {
				continue
			}
			if g.key == "" {
				if !fieldName.MatchString(x.Text) {
					d.errorf(g.node, "groupBy: give the expression a name, as in `- zone: %s`", x.Text)
					continue
				}
				g.key = x.Text
			}
			if t := x.kind(); t != nil && t.Kind() != reflect.Bool && t.Kind() != reflect.String && !isNumber(t) {
				d.errorf(g.node, "groupBy: a key must be a number, a string, true or false, not %s", t)
			}
			d.name(g.at, "groupBy", g.key, names)
			p.GroupBy = append(p.GroupBy, Named{g.key, x})
		}
	}
}

func (d *doc) aggregates(e item, p *Pipeline, sc *scope, names *[]string) {
	list, ok := d.entries(e.node, "aggregates")
	if ok && len(list) == 0 {
		d.errorf(e.at, "aggregates is empty")
	}
	for _, a := range list {
		d.name(a.at, "aggregates", a.key, names)
		text, ok := d.text(a, a.key)
		if !ok {
			continue
		}
		if out, ok := d.aggregate(a, text, sc); ok {
			p.Aggregates = append(p.Aggregates, out)
		}
	}
}

func (d *doc) aggregate(a item, text string, sc *scope) (Aggregate, bool) {
	later := notYet{"avg": "avg is", "mean": "avg is", "first": "first and last are", "last": "first and last are",
		"stddev": "stddev is", "distinct": "distinct counts are"}
	m := call.FindStringSubmatch(text)
	if m == nil {
		d.errorf(a.node, "%s: an aggregate is one call: sum(x), count(), count(x), min(x) or max(x)", a.key)
		return Aggregate{}, false
	}
	f, known := agg.Names[m[1]]
	if !known {
		if feature, isLater := later[m[1]]; isLater {
			d.errorf(a.node, "%s: %s not in this version", a.key, feature)
		} else {
			d.errorf(a.node, "%s: unknown aggregate %q%s", a.key, m[1], suggestion(m[1], slices.Sorted(maps.Keys(agg.Names))))
		}
		return Aggregate{}, false
	}
	out := Aggregate{Name: a.key, Func: f}
	arg := strings.TrimSpace(m[2])
	if arg == "" {
		if f != agg.Count {
			d.errorf(a.node, "%s: %s needs an argument: %s(x)", a.key, m[1], m[1])
		}
		return out, f == agg.Count
	}
	if out.Arg = d.exprText(a, a.key, arg, sc); out.Arg == nil {
		return out, false
	}
	if t := out.Arg.kind(); t != nil && f != agg.Count && !isNumber(t) {
		d.errorf(a.node, "%s: %s needs a number, not %s", a.key, m[1], t)
	}
	return out, true
}

func (d *doc) output(e item, p *Pipeline) {
	set := d.settings(e.node, "output", nil, "topic", "partitions", "format")
	topic, ok := set["topic"]
	if !ok {
		d.errorf(e.at, "output needs a topic")
	} else {
		p.Output.Topic = d.topic(topic, "topic", len(".poison"))
		if len(p.Source) > 0 && p.Output.Topic == p.Source[0].Topic {
			d.errorf(topic.node, "output topic %q is the source's topic", p.Output.Topic)
		}
	}
	partitions, ok := set["partitions"]
	switch {
	case ok && p.Keyed:
		d.errorf(partitions.at, "partitions: a keyed pipeline writes to as many partitions as its source has; leave it out")
	case ok:
		p.Output.Partitions = int32(d.integer(partitions, "partitions", 1, 100_000))
	case !p.Keyed:
		d.errorf(e.at, "output needs partitions: the number of output partitions, for example 4; keys are spread over them")
	}
	if f, ok := set["format"]; ok {
		d.word(f, "format", notYet{"avro": "avro output is"}, "json")
	}
}

// first returns the node whose place stands for a whole mapping: its first key.
func first(n ast.Node) ast.Node {
	if m, ok := n.(ast.MapNode); ok {
		if it := m.MapRange(); it.Next() {
			return it.Key()
		}
	}
	return n
}

func suggestion(word string, known []string) string {
	if near := service.Nearest(word, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; it is one of " + strings.Join(known, ", ")
}
