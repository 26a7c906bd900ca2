package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"tapedeck.dev/tapedeck/replayer/api"
	"tapedeck.dev/tapedeck/replayer/internal/apicheck"
	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/replayer/restore"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/replayer/target"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

// TestRestoreOverHTTP: the plan says where the records go, and the job what became of them: where each partition lies, timestamps that could not be kept, groups.
// Every answer is held against the document.
func TestRestoreOverHTTP(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.Ports(0), kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	a := replaytest.New()
	tp := record.TopicPartition{Topic: "old", Partition: 0}
	var rs []record.Record
	for i := range int64(30) {
		rs = append(rs, replaytest.Record(tp, i, 1_700_000_000_000+i))
	}
	rs[3].Timestamp = 0
	a.Segment(t, tp, 30, rs)
	info := archive.TopicInfo{ClusterID: replaytest.Cluster, Topic: "old", TopicID: replaytest.TopicID("old"), Partitions: 1, ReplicationFactor: 3,
		Config: map[string]string{"retention.ms": "1000", "cleanup.policy": "delete"}}
	if _, err := a.KeepTopic(t.Context(), info); err != nil {
		t.Fatal(err)
	}
	if err := a.KeepGroups(t.Context(), &archive.GroupSnapshot{ClusterID: replaytest.Cluster, Time: 5, Topics: map[string]string{"old": replaytest.TopicID("old")},
		Groups: []archive.GroupPositions{{Group: "billing", Positions: []archive.GroupPosition{{Topic: "old", Partition: 0, Offset: 12}}}}}); err != nil {
		t.Fatal(err)
	}
	rc := replaytest.NewReceiver(t, session.Pipeline{Name: "p", Hash: "hash", Inputs: []string{"old"}, DecisionsTopic: "p.decisions"})
	node := replaytest.StartOn(t, a.Mem, rc, manager.Settings{ID: "a", Lease: time.Hour, Scan: 10 * time.Millisecond}, func(r *run.Runner, targets map[string]manager.Destination) {
		d, err := restore.New("k", target.Kafka{Bootstrap: strings.Join(cluster.ListenAddrs(), ","), Lanes: 2, Progress: "progress", Replication: 1}, r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		targets["k"] = d
	})
	mux := http.NewServeMux()
	api.New(node.Manager).Register(mux)
	g := &rig{t: t}
	g.Server = httptest.NewServer(apicheck.Load(t, api.OpenAPI).Handler(t, mux))
	t.Cleanup(g.Close)

	const missing = `{"name":"back","target":"k","topics":["old"],"topicMapping":{"old":"new"}`
	g.want(422, `"createTopics": true`, "POST", "/replays?dryRun=true", missing+"}")
	g.want(422, `the target has 1 brokers; give "replicationFactor"`, "POST", "/replays?dryRun=true", missing+`,"createTopics":true}`)
	const body = missing + `,"createTopics":true,"replicationFactor":1,"groups":{"names":["billing"],"mapping":{"billing":"billing-2"}}}`
	plan := g.want(200, "", "POST", "/replays?dryRun=true", body)
	k := plan["kafka"].(map[string]any)
	topic := k["topics"].([]any)[0].(map[string]any)
	if topic["create"] != true || topic["replication"] != 1.0 || topic["config"].(map[string]any)["retention.ms"] != "-1" || len(k["warnings"].([]any)) == 0 {
		t.Errorf("the plan says of the topic: %v; warnings %v", topic, k["warnings"])
	}
	g.want(201, "", "POST", "/replays", body)
	var v map[string]any
	replaytest.Until(t, "it has ended", func() bool {
		_, v = g.call("GET", "/replays/back", "")
		return v["finishedAt"] != nil
	})
	g.want(200, "", "GET", "/replays/back/plan", "")
	if v["state"] != "COMPLETED" {
		t.Fatalf("%v", v)
	}
	restored := v["restored"].(map[string]any)
	part := restored["parts"].([]any)[0].(map[string]any)
	if part["records"] != 30.0 || part["timestampsChanged"] != 1.0 || part["to"].(map[string]any)["topic"] != "new" || v["target"] != nil {
		t.Errorf("restored: %v", v)
	}
	position := restored["groups"].([]any)[0].(map[string]any)["positions"].([]any)[0].(map[string]any)
	if position["old"] != 12.0 || position["new"].(float64) < 12 {
		t.Errorf("the group: %v", restored["groups"])
	}
	totals := v["totals"].(map[string]any)
	if totals["recordsSent"] != 30.0 || totals["recordsPlanned"] != 30.0 {
		t.Errorf("totals %v", totals)
	}
}
