package pipeline

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// semanticsVersion goes up when the same file begins to give other bytes.
const semanticsVersion = 1

// hash is the SHA-256 of a canonical JSON form: only what can reach an output byte, or decide which output it is, and nothing of how the file
// is written. Maps have sorted keys, lists the order of the file.
func hash(p *Pipeline) string {
	type named struct{ Name, Expr string }
	type source struct {
		Topic, Format string
		Schema        json.RawMessage `json:",omitempty"`
		EventField    string          // "" is the record timestamp
		EventUnit     string
		DelayMs       int64
		MaxFutureMs   int64
		Where         string
		Compute       []named
	}
	type canonical struct {
		Semantics    int
		Name         string
		Keyed        bool
		Sources      []source
		GroupBy      []named
		Window       Window
		Aggregates   []string
		OutputTopic  string
		OutputParts  int32
		OutputFormat string
	}
	c := canonical{Semantics: semanticsVersion, Name: p.Name, Keyed: p.Keyed, Window: p.Window,
		OutputTopic: p.Output.Topic, OutputParts: p.Output.Partitions, OutputFormat: "json"}
	for i := range p.Source {
		s := &p.Source[i]
		out := source{Topic: s.Topic, Format: string(s.Format), DelayMs: s.DelayMs, MaxFutureMs: s.MaxFutureMs, EventUnit: string(s.EventTime.Unit)}
		if s.Reader != nil {
			out.Schema = compact(s.Reader.String())
		}
		if !s.EventTime.Record {
			for _, f := range s.Fields {
				if f.Slot == s.EventTime.Slot {
					out.EventField = f.Name
				}
			}
		}
		if s.Where != nil {
			out.Where = s.Where.Text
		}
		for _, f := range s.Compute {
			out.Compute = append(out.Compute, named{f.Name, f.Expr.Text})
		}
		c.Sources = append(c.Sources, out)
	}
	for _, g := range p.GroupBy {
		c.GroupBy = append(c.GroupBy, named{g.Name, g.Expr.Text})
	}
	for _, a := range p.Aggregates {
		arg := ""
		if a.Arg != nil {
			arg = a.Arg.Text
		}
		c.Aggregates = append(c.Aggregates, fmt.Sprintf("%s=%s(%s)", a.Name, a.Func, arg))
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("canonical form of pipeline %s: %v", p.Name, err)) // strings, numbers and checked JSON only
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// compact rewrites JSON without white space and with sorted keys. It keeps text that is no JSON object as a string: "int" is a schema too.
func compact(text string) json.RawMessage {
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.UseNumber()
	var x any
	if dec.Decode(&x) != nil {
		x = text
	}
	b, err := json.Marshal(x)
	if err != nil {
		panic(fmt.Sprintf("canonical form of a schema: %v", err)) // it came from a decoder
	}
	return b
}
