package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/shared/devstack/trips"
	"tapedeck.dev/tapedeck/shared/e2e/proof"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/kafka/bareproduce"
	"tapedeck.dev/tapedeck/shared/record"
)

// perTransaction is how many records a restore puts into a transaction of a lane; the bare loop does the same.
const perTransaction = 100_000

// restoreAgainstLoop is the second pair: the records into a new topic, once by a restore job and once by the bare loop, which has them in memory.
func (b *bench) restoreAgainstLoop(ctx context.Context) error {
	source, err := b.topicHash(ctx, b.topic)
	if err != nil {
		return err
	}
	var ratios []float64
	for round := range b.rounds {
		var loop, restore took
		looped, restored := fmt.Sprintf("%s-loop-%d", b.topic, round), fmt.Sprintf("%s-restored-%d", b.topic, round)
		sides := []func() error{
			func() (err error) {
				loop, err = b.loop(ctx, looped)
				return err
			},
			func() (err error) {
				restore, err = b.restore(ctx, fmt.Sprintf("restore-%d", round), restored)
				return err
			},
		}
		if round%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			if err := side(); err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
		}
		for _, topic := range []string{looped, restored} {
			got, err := b.topicHash(ctx, topic)
			if err != nil {
				return err
			}
			if got != source {
				return fmt.Errorf("round %d: topic %s has the hash %s, its source %s", round+1, topic, got, source)
			}
			// Twice the input in each round would fill the disk.
			if err := b.deleteRecords(ctx, topic); err != nil {
				return err
			}
		}
		ratio := loop.seconds / restore.seconds
		ratios = append(ratios, ratio)
		n := float64(b.records) / 1e6
		b.say("round %d: bare loop %s, %.3f M records/s; restore %s, %.3f M records/s; ratio %.2f; topics equal", round+1, loop, n/loop.seconds, restore, n/restore.seconds, ratio)
	}
	slices.Sort(ratios)
	b.say("ratios %.2f, lowest to highest; the median follows\nratio replay→Kafka / bare transactional produce loop: %.2f", ratios, ratios[len(ratios)/2])
	return nil
}

func (b *bench) topicHash(ctx context.Context, topic string) (string, error) {
	t, err := proof.ReadTopic(ctx, b.bootstrap, topic)
	if err != nil {
		return "", err
	}
	if n := proof.Count(t); n != b.records {
		return "", fmt.Errorf("topic %s has %d records, not %d", topic, n, b.records)
	}
	return proof.HashTopic(t), nil
}

func (b *bench) deleteRecords(ctx context.Context, topic string) error {
	var tps []kafka.TP
	for p := range b.partitions {
		tps = append(tps, kafka.TP{Topic: topic, Partition: p})
	}
	logs, err := b.admin.Offsets(ctx, tps)
	if err != nil {
		return err
	}
	ends := map[kafka.TP]int64{}
	for tp, l := range logs {
		ends[tp] = l.End
	}
	return b.admin.DeleteRecords(ctx, ends)
}

// loop runs the bare loop in a process of its own, into a topic that is there.
func (b *bench) loop(ctx context.Context, topic string) (t took, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := trips.EnsureTopic(ctx, kafka.Client{Bootstrap: b.bootstrap, ClientID: "tapedeck-bench"}, topic, b.partitions); err != nil {
		return t, err
	}
	self, err := os.Executable()
	if err != nil {
		return t, err
	}
	cmd := exec.CommandContext(ctx, self, "loop", "--bootstrap", b.bootstrap, "--from", b.topic, "--topic", topic)
	cmd.Stderr = os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		return t, fmt.Errorf("bare loop: %w", err)
	}
	var r loopResult
	if err := json.Unmarshal(answer, &r); err != nil {
		return t, fmt.Errorf("bare loop answered %q: %w", answer, err)
	}
	return took{seconds: r.Seconds, phases: []string{fmt.Sprintf("%d commits", r.Commits)}, cpu: map[string]time.Duration{"loop": time.Duration(r.CPUSeconds * float64(time.Second))}}, nil
}

// loopResult is what the process of the bare loop tells.
type loopResult struct {
	bareproduce.Result
	CPUSeconds float64 `json:"cpuSeconds"` // while it ran, without reading the records before
}

// loopCommand has the records in memory before it begins.
func loopCommand() *cobra.Command {
	var bootstrap, from, topic string
	c := &cobra.Command{
		Use: "loop", Short: "Run the bare transactional produce loop once and print what it took, as JSON", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := proof.ReadTopic(cmd.Context(), bootstrap, from)
			if err != nil {
				return err
			}
			lists := make([][]record.Record, len(parts))
			for p, seq := range parts {
				lists[p] = seq
			}
			before, err := cpuTime()
			if err != nil {
				return err
			}
			var r loopResult
			if r.Result, err = bareproduce.Run(cmd.Context(), bootstrap, topic, lists, perTransaction); err != nil {
				return err
			}
			after, err := cpuTime()
			if err != nil {
				return err
			}
			r.CPUSeconds = (after - before).Seconds()
			return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
		},
	}
	c.Flags().StringVar(&bootstrap, "bootstrap", "", "Kafka, host:port")
	c.Flags().StringVar(&from, "from", "", "topic to read the records from, before the clock starts")
	c.Flags().StringVar(&topic, "topic", "", "topic to write to")
	return c
}

// restore runs one job into a new topic. Its time is the job's, from the request to COMPLETED: planning and checks, creating the topic, reading and
// checking segments, writing, progress, and the proof read back from the target.
func (b *bench) restore(ctx context.Context, name, topic string) (t took, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rep, repDir, err := b.service("replayer", b.replayerSets, fmt.Sprintf("store: %q", b.store), "targets:",
		fmt.Sprintf("  kafka: {type: kafka, bootstrap.servers: %q}", b.bootstrap))
	if err != nil {
		return t, err
	}
	if err := rep.Start(ctx); err != nil {
		_ = rep.Kill() // it may be up and not ready
		return t, err
	}
	j, err := b.job(ctx, rep.URL, map[string]any{"name": name, "target": "kafka", "topics": []string{b.topic}, "topicMapping": map[string]string{b.topic: topic}, "createTopics": true})
	if err == nil {
		t, err = phases(&j, filepath.Join(repDir, "replayer.log"), [][2]string{{"plan and check", "sending"}}, "read, write and prove")
	}
	if stopErr := rep.Stop(); err == nil {
		err = stopErr
	}
	t.cpu = map[string]time.Duration{"replayer": rep.CPU()}
	return t, err
}
