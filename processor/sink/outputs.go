package sink

import (
	"sort"

	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/processor/pipeline"
)

// Outputs returns the topics that a pipeline writes, by role: "results", and "late", "future", "poison", or
// "late.<source topic>" and so on where there are several sources. partitions is the number of partitions of each source
// topic: a side output has as many as its source, and so have the results of a keyed pipeline.
func Outputs(p *pipeline.Pipeline, partitions map[string]int32) map[string]Spec {
	n := p.Output.Partitions
	if p.Keyed {
		n = partitions[p.Source[0].Topic]
	}
	m := map[string]Spec{engine.Result.String(): {Name: p.Output.Topic, Partitions: n}}
	for _, k := range []engine.Kind{engine.Late, engine.Future, engine.Poison} {
		for _, s := range p.Source {
			role := k.String()
			if len(p.Source) > 1 {
				role += "." + s.Topic
			}
			m[role] = Spec{Name: p.Output.Topic + "." + role, Partitions: partitions[s.Topic], Grow: !p.Keyed}
		}
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
