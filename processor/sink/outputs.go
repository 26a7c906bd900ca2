package sink

import (
	"sort"

	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/processor/pipeline"
)

// Outputs returns the topics that a pipeline writes, by role: results, late, future, poison. partitions is the number of partitions of
// each source topic: a side output has as many as its source (the largest, where there are several), and so have the results of a keyed
// pipeline.
func Outputs(p *pipeline.Pipeline, partitions map[string]int32) map[string]Spec {
	var side int32
	for _, s := range p.Source {
		side = max(side, partitions[s.Topic])
	}
	n := p.Output.Partitions
	if p.Keyed {
		n = side
	}
	m := map[string]Spec{engine.Result.String(): {Name: p.Output.Topic, Partitions: n}}
	for _, k := range []engine.Kind{engine.Late, engine.Future, engine.Poison} {
		m[k.String()] = Spec{Name: engine.SideTopic(p, k), Partitions: side, Grow: !p.Keyed}
	}
	return m
}

// Specs returns the specs of m, sorted by name.
func Specs(m map[string]Spec) []Spec {
	out := make([]Spec, 0, len(m))
	for _, s := range m {
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}
