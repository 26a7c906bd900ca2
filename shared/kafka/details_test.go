package kafka

import (
	"fmt"
	"maps"
	"testing"
)

// TestTopicDetails: what is set on a topic, not what it has from its brokers; more topics than one request takes.
func TestTopicDetails(t *testing.T) {
	e := newEnv(t)
	name := e.topic(2)
	want := map[string]string{"cleanup.policy": "compact", "retention.ms": "12345"}
	with := name + "-with"
	e.must(e.admin.CreateTopic(e.ctx(), with, 3, 1, want))
	got, err := e.admin.TopicDetails(e.ctx(), name, with, name+"-missing")
	e.must(err)
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	if d := got[name]; d.Name != name || d.ID == "" || d.Partitions != 2 || d.Replication < 1 || !maps.Equal(d.Config, map[string]string{"retention.ms": "-1"}) {
		t.Errorf("%+v", d)
	}
	if d := got[with]; d.Partitions != 3 || d.Replication != 1 || !maps.Equal(d.Config, want) {
		t.Errorf("%+v", d)
	}
	names := []string{}
	for i := range 2*describeChunk + 1 {
		names = append(names, fmt.Sprintf("%s-missing-%d", name, i))
	}
	got, err = e.admin.TopicDetails(e.ctx(), append(names, name)...)
	e.must(err)
	if len(got) != 1 || got[name].Partitions != 2 {
		t.Errorf("%+v", got)
	}
}
