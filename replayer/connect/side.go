package connect

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// The sink writes keys and headers to objects of their own, one datum for each value, in formats of their own:
//
//	.avro   keys: the key's schema; headers: an array of {key, value: string}
//	.json   a line for each: a text in quotes, another simple value, or an object; headers: {"headers": [{"key": …, "value": …}]}
//	.bin    keys only: the bytes, each followed by a newline (nothing tells a newline inside)
//
// .json and .bin may be packed (.gz).
type side interface {
	// next returns what belongs to the next record; io.EOF behind the last.
	next() (key []byte, headers []record.Header, err error)
	used() *segment.Schema // that keys name, nil for none
}

func (s *Source) openSide(ctx context.Context, n Name, data []byte) (side, error) {
	key := n.Format()
	ext, packed := strings.CutSuffix(n.Ext, ".gz")
	if packed {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = readBounded(z)
		}
		if err != nil {
			return nil, &DamagedError{key, 0, err}
		}
	}
	switch {
	case ext == ".avro" && !packed:
		c, err := openContainer(key, data)
		if err != nil || n.Part == Headers {
			return &avroHeaders{c}, err
		}
		e, err := s.encoder(ctx, c, n)
		return &avroKeys{c, e}, err
	case ext == ".json":
		return &lines{object: key, size: len(data), rest: data, part: n.Part}, nil
	case ext == ".bin" && n.Part == Keys:
		return &lines{object: key, size: len(data), rest: data, part: n.Part, raw: true}, nil
	}
	return nil, refused("object %s: %s in the format %s are not read (avro, json, and bin for keys are)", key, strings.TrimPrefix(string(n.Part), "."), n.Ext)
}

type avroKeys struct {
	c *container
	e *encoder
}

func (k *avroKeys) used() *segment.Schema { return k.e.used }

func (k *avroKeys) next() ([]byte, []record.Header, error) {
	datum, v, err := k.c.next()
	if err != nil {
		return nil, nil, err
	}
	key, err := k.e.encode(datum, v)
	if err != nil {
		return nil, nil, k.c.damaged("key %d: %w", k.c.row-1, err)
	}
	return key, nil, nil
}

type avroHeaders struct{ c *container }

func (h *avroHeaders) used() *segment.Schema { return nil }

func (h *avroHeaders) next() ([]byte, []record.Header, error) {
	_, v, err := h.c.next()
	if err != nil {
		return nil, nil, err
	}
	out, err := headersOf(v)
	if err != nil {
		return nil, nil, h.c.damaged("headers %d: %w", h.c.row-1, err)
	}
	return nil, out, nil
}

// headersOf reads an array of {key, value}, or an object that holds one as "headers".
func headersOf(v any) ([]record.Header, error) {
	if o, ok := v.(map[string]any); ok {
		v = o["headers"]
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("a %T is not a list of headers", v)
	}
	out := make([]record.Header, 0, len(list))
	for _, item := range list {
		o, _ := item.(map[string]any)
		key, ok := o["key"].(string)
		if !ok {
			return nil, errors.New("a header without a key")
		}
		switch value := o["value"].(type) {
		case string:
			out = append(out, record.Header{Key: key, Value: []byte(value)})
		case nil:
			out = append(out, record.Header{Key: key})
		default:
			return nil, fmt.Errorf("the value of header %q is a %T, not a text", key, value)
		}
	}
	return out, nil
}

// lines reads JSON or bytes, one datum a line.
type lines struct {
	object string
	size   int
	rest   []byte
	part   Part
	raw    bool
}

func (l *lines) used() *segment.Schema { return nil }

func (l *lines) next() ([]byte, []record.Header, error) {
	if len(l.rest) == 0 {
		return nil, nil, io.EOF
	}
	at := l.size - len(l.rest)
	line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
	if !ok {
		return nil, nil, &DamagedError{l.object, at, errTruncated}
	}
	l.rest = rest
	if l.raw {
		return append([]byte{}, line...), nil, nil
	}
	var v any
	if err := json.Unmarshal(line, &v); err != nil {
		return nil, nil, &DamagedError{l.object, at, err}
	}
	if l.part == Headers {
		out, err := headersOf(v)
		if err != nil {
			return nil, nil, &DamagedError{l.object, at, err}
		}
		return nil, out, nil
	}
	switch v := v.(type) {
	case nil:
		return nil, nil, nil
	case string:
		return []byte(v), nil, nil
	}
	return append([]byte{}, bytes.TrimSpace(line)...), nil, nil
}
