package connect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/twmb/avro"

	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
)

// encoder makes the bytes of keys or values of one object.
type encoder struct {
	how    Encoding // Plain, JSON or Raw; Registry is Plain behind a prefix
	prefix []byte
	schema *avro.Schema
	used   *segment.Schema // that the prefix names
}

// encode returns the bytes of one datum; nil for null, which is only possible where the schema allows it.
func (e *encoder) encode(datum []byte, v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	switch e.how {
	case JSON:
		return e.schema.EncodeJSON(v)
	case Raw:
		switch v := v.(type) {
		case string:
			return []byte(v), nil
		case []byte:
			return append([]byte{}, v...), nil
		}
		return nil, fmt.Errorf("a %T is neither string nor bytes", v)
	}
	return append(append(make([]byte, 0, len(e.prefix)+len(datum)), e.prefix...), datum...), nil
}

// encoder finds out how keys or values of one object are encoded. An error is a *RefusedError, or the registry's and may pass.
func (s *Source) encoder(ctx context.Context, c *container, n Name) (*encoder, error) {
	how, subject, setting := s.cfg.Values, s.cfg.ValueSubject, "connect.values"
	if n.Part == Keys {
		how, subject, setting = s.cfg.Keys, s.cfg.KeySubject, "connect.keys"
	}
	simple := isText(c.schema.Root())
	e := &encoder{how: how, schema: c.schema}
	switch how {
	case Auto:
		if e.how = Raw; simple {
			return e, nil
		}
	case Raw:
		if !simple {
			return nil, refused("object %s holds %s, and %s is raw, which is for strings and bytes: set it to registry, avro or json", c.object, rootName(c.schema), setting)
		}
		return e, nil
	case Plain, JSON:
		return e, nil
	}
	if s.cfg.Schemas == nil {
		return nil, refused("object %s holds %s, for which %s %s needs a registry: set schema.registry.url, or %s to avro or json", c.object, rootName(c.schema), setting, how, setting)
	}
	root := c.schema.Root()
	subject = strings.NewReplacer("{topic}", n.Topic, "{record}", fullName(root)).Replace(subject)
	used, err := s.ids.find(ctx, s.cfg.Schemas, subject, c, how == Register)
	if err != nil {
		return nil, err
	}
	e.how, e.used, e.prefix = Plain, used, schema.AppendWire(nil, used.ID)
	return e, nil
}

// isText reports whether all data of a schema are strings or bytes, or null.
func isText(n *avro.SchemaNode) bool {
	switch n.Type {
	case "string", "bytes":
		return n.LogicalType == ""
	case "union":
		text := false
		for i := range n.Branches {
			switch b := &n.Branches[i]; {
			case b.Type == "null":
			case isText(b):
				text = true
			default:
				return false
			}
		}
		return text
	}
	return false
}

func fullName(n *avro.SchemaNode) string {
	if n.Type == "union" {
		for i := range n.Branches {
			if name := fullName(&n.Branches[i]); name != "" {
				return name
			}
		}
	}
	if n.Namespace != "" && !strings.Contains(n.Name, ".") {
		return n.Namespace + "." + n.Name
	}
	return n.Name
}

func rootName(s *avro.Schema) string {
	n := s.Root()
	if name := fullName(n); name != "" {
		return n.Type + " " + name
	}
	return n.Type
}

// ids remembers which schema of the registry stands for a schema of an object.
type ids struct {
	mu    sync.Mutex
	known map[[2]string]*segment.Schema // by subject and text
}

// find returns the version of a subject whose schema encodes the same bytes as that of an object. Connect's text is not the registered one: it
// carries Connect's properties and lacks what Connect does not keep. So canonical forms are compared (the Avro specification, "Parsing Canonical
// Form"), which say what the bytes are. Among several such versions (they differ in documentation or defaults) the one that Connect's own version
// property names is taken, else the first: later ones may come, and the same object must stay the same bytes.
func (k *ids) find(ctx context.Context, reg Schemas, subject string, c *container, register bool) (*segment.Schema, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := [2]string{subject, c.text}
	if s := k.known[at]; s != nil {
		return s, nil
	}
	versions, err := reg.Versions(ctx, subject)
	if err != nil {
		return nil, byRegistry(fmt.Errorf("schemas of subject %s for object %s: %w", subject, c.object, err))
	}
	found := match(versions, c.schema)
	if found == nil && register {
		id, err := reg.Register(ctx, subject, c.text, "AVRO")
		if err != nil && !errors.Is(err, schema.ErrUnavailable) {
			return nil, refused("schema of object %s: %w", c.object, err) // a schema that the subject's compatibility does not allow, for example
		}
		if err != nil {
			return nil, fmt.Errorf("schema of object %s: %w", c.object, err)
		}
		found = &segment.Schema{ID: id, Type: "AVRO", Text: c.text, Subject: subject}
	}
	if found == nil {
		return nil, refused("none of the %d versions of subject %s has the schema of object %s (%s): register it there, name another subject (connect.value.subject, "+
			"connect.key.subject), let it be registered (connect.values or connect.keys register), or take avro or json without ids",
			len(versions), subject, c.object, rootName(c.schema))
	}
	if k.known == nil || len(k.known) > 10_000 {
		k.known = map[[2]string]*segment.Schema{}
	}
	k.known[at] = found
	return found, nil
}

// byRegistry makes a registry's refusal one of ours.
func byRegistry(err error) error {
	if errors.Is(err, schema.ErrRefused) {
		return &RefusedError{err}
	}
	return err
}

func match(versions []segment.Schema, s *avro.Schema) *segment.Schema {
	want := string(s.Canonical())
	hint, _ := connectVersion(s.Root())
	var found *segment.Schema
	for i := range versions {
		v := &versions[i]
		if v.Type != "" && v.Type != "AVRO" {
			continue
		}
		parsed, err := parseWith(v)
		if err != nil || string(parsed.Canonical()) != want {
			continue
		}
		if found == nil || int64(v.Version) == hint {
			found = v
		}
	}
	return found
}

// connectVersion is the version that Connect's converter read the schema as.
func connectVersion(n *avro.SchemaNode) (int64, bool) {
	if v, ok := n.Props["connect.version"].(int64); ok {
		return v, true
	}
	for i := range n.Branches {
		if v, ok := connectVersion(&n.Branches[i]); ok {
			return v, true
		}
	}
	return 0, false
}

// parseWith parses a registered schema with its references, which stand in an order in which each comes after those that it needs.
func parseWith(s *segment.Schema) (*avro.Schema, error) {
	var cache avro.SchemaCache
	for _, r := range s.References {
		if _, err := cache.Parse(r.Text, avro.WithLaxNames(nil)); err != nil {
			return nil, err
		}
	}
	return cache.Parse(s.Text, avro.WithLaxNames(nil))
}
