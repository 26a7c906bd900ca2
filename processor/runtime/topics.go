package runtime

import (
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/sessions"
	"tapedeck.dev/tapedeck/processor/sink"
)

// Outputs returns a pipeline's output topics by role.
func Outputs(p *pipeline.Pipeline) map[string]string {
	m := map[string]string{}
	for role, s := range sink.Outputs(p, nil) {
		m[role] = s.Name
	}
	return m
}

// writes returns every topic that a pipeline's live run and its sessions' progress write.
func writes(p *pipeline.Pipeline) []string {
	names := []string{p.DecisionsTopic(), sessions.SessionsTopic(p)}
	for _, n := range Outputs(p) {
		names = append(names, n)
	}
	return names
}
