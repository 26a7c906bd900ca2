package main

import (
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/record"
)

// What a restore would create, warn of and change is in the plan's text, and what became of the records in the job's.
func TestTextOfARestore(t *testing.T) {
	from, to := record.TopicPartition{Topic: "trips", Partition: 3}, record.TopicPartition{Topic: "back", Partition: 1}
	var out strings.Builder
	err := planTable(&out, &run.Plan{Name: "june", Target: "k", Kafka: &job.KafkaPlan{ClusterID: "abc", Lanes: 2,
		Parts:    []job.KafkaPart{{TopicPartition: from, To: to, Begin: 17, Lane: 1}},
		Topics:   []job.KafkaTopic{{Name: "back", Create: true, Partitions: 2, Replication: 3, Config: map[string]string{"retention.ms": "-1"}}},
		Warnings: []string{"the target will compact"},
		Registry: &job.RegistryPlan{Schemas: []job.RegistrySchema{{Subject: "trips-value", Version: 2, ID: 7, Action: job.SchemaRegistered, To: -1}},
			Levels:    []job.RegistryLevel{{Subject: "trips-value", Level: "FULL", Action: job.LevelSet}},
			Rewritten: map[string][]job.IDChange{"trips": {{From: 7, To: -1}}}},
		Groups: &job.GroupsPlan{Groups: []job.GroupPlan{{Group: "billing", To: "billing-2", Positions: 4}}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Kafka cluster abc", "trips-3", "back-1", "17", "creates back: 2 partitions, replication factor 3, retention.ms=-1", "warning: the target will compact",
		"schema trips-value version 2, id 7: register as a new id", "compatibility level FULL of subject trips-value: set", "records of trips get other ids", "group billing becomes billing-2: 4 positions"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	err = viewTable(&out, &manager.View{Name: "june", State: job.Completed, Restored: &job.Restored{Notes: []string{"5 records have another timestamp"},
		Parts: []job.RestoredPart{{TopicPartition: from, To: to, Records: 100, First: 17, Last: 120, TimestampsChanged: 5}},
		Groups: []job.RestoredGroup{{Group: "billing", To: "billing-2", Positions: []job.RestoredPosition{{TopicPartition: from, Target: to, Old: 40, New: 60},
			{TopicPartition: record.TopicPartition{Topic: "other"}, Old: 9, New: -1, Note: "not part of the job"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"trips-3", "back-1", "100", "17", "120", "note: 5 records have another timestamp", "trips-3 at 40 is back-1 at 60", "other-0 at 9 is left out: not part of the job"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the job does not say %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "emitted") {
		t.Error("a restore has no windows")
	}
}
