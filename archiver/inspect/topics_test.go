package inspect_test

import (
	"context"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/archive"
)

func TestInspectTopics(t *testing.T) {
	addr, st := filled(t)
	a := archive.Open(st, "topics")
	for _, i := range []archive.TopicInfo{
		{ClusterID: "c", Topic: "trips", TopicID: "id-trips", Partitions: 2, ReplicationFactor: 3, Config: map[string]string{"retention.ms": "-1", "cleanup.policy": "compact"}},
		{ClusterID: "c", Topic: "taxis", TopicID: "id-taxis", Partitions: 1, ReplicationFactor: 1},
	} {
		if _, err := a.KeepTopic(context.Background(), i); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := run("inspect", "--store", addr, "--show", "topics")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || errs != "" || len(lines) != 3 || strings.Join(strings.Fields(lines[2]), " ") != "trips id-trips 2 3 cleanup.policy=compact, retention.ms=-1" {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	code, out, errs = run("inspect", "--store", addr, "--show", "topics", "--topic", "taxis", "-o", "json")
	if code != 0 || errs != "" || !strings.Contains(out, `"topicId": "id-taxis"`) || strings.Contains(out, "trips") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	for _, args := range [][]string{{"--show", "everything"}, {"--show", "topics", "--topic", "missing"}} {
		if code, out, errs := run(append([]string{"inspect", "--store", addr}, args...)...); code != 2 || out != "" || errs == "" {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
}
