package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/shared/devstack"
	"tapedeck.dev/tapedeck/shared/devstack/trips"
	"tapedeck.dev/tapedeck/shared/e2e/proof"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

// bench is one benchmark, as the flags say.
type bench struct {
	out                                       io.Writer
	bootstrap, store, bin, only               string
	records, rounds                           int
	partitions                                int32
	archiverSets, processorSets, replayerSets []string

	// Made by prepare.
	id, topic, dir string
	registry       string // URL
	admin          *kafka.Admin
	first          string // the pipeline whose decisions are archived: what replays reproduce
	want           hashes // of its outputs
	ends           map[kafka.TP]int64
}

// patience bounds one run of either side.
const patience = 10 * time.Minute

// took is what one run of a side took.
type took struct {
	seconds float64
	phases  []string                 // of the seconds
	cpu     map[string]time.Duration // by process, from its start to its end
}

func (t took) String() string {
	var s []string
	for name, d := range t.cpu {
		s = append(s, fmt.Sprintf("%s %.1f s", name, d.Seconds()))
	}
	slices.Sort(s)
	split := ""
	if len(t.phases) > 0 {
		split = strings.Join(t.phases, ", ") + "; "
	}
	return fmt.Sprintf("%.2f s (%sCPU: %s)", t.seconds, split, strings.Join(s, ", "))
}

func (b *bench) say(format string, args ...any) { _, _ = fmt.Fprintf(b.out, format+"\n", args...) }

func (b *bench) run(ctx context.Context) (err error) {
	if b.rounds < 1 || b.partitions < 1 || b.records < int(b.partitions) {
		return fmt.Errorf("%d rounds, %d records, %d partitions: want at least one of each, and a record for each partition", b.rounds, b.records, b.partitions)
	}
	b.id = fmt.Sprintf("%x", time.Now().UnixNano())
	b.topic, b.first = "bench-"+b.id, "bench-"+b.id+"-first"
	base, query, _ := strings.Cut(b.store, "?")
	if b.store = strings.TrimRight(base, "/") + "/" + b.id; query != "" {
		b.store += "?" + query
	}
	if b.dir, err = os.MkdirTemp("", "tapedeck-bench-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	registry, stop, err := devstack.StartRegistry(0)
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	b.registry = registry
	if b.admin, err = kafka.NewAdmin(kafka.Client{Bootstrap: b.bootstrap, ClientID: "tapedeck-bench"}); err != nil {
		return err
	}
	defer b.admin.Close()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	for _, pair := range []struct {
		skip bool
		run  func(context.Context) error
	}{{b.only == "restore", b.replayAgainstLive}, {b.only == "replay", b.restoreAgainstLoop}} {
		if pair.skip {
			continue
		}
		if err := pair.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prepare fills the topic, runs the first pipeline over it, and archives the topic with that pipeline's decisions.
func (b *bench) prepare(ctx context.Context) error {
	began := time.Now()
	if _, err := trips.Produce(ctx, trips.ProduceOptions{Bootstrap: b.bootstrap, RegistryURL: b.registry, Topic: b.topic, Partitions: b.partitions,
		Source: trips.Generate(trips.GenerateOptions{Seed: 1, Count: b.records, Interval: time.Millisecond})}); err != nil {
		return fmt.Errorf("fill %s: %w", b.topic, err)
	}
	var tps []kafka.TP
	for p := range b.partitions {
		tps = append(tps, kafka.TP{Topic: b.topic, Partition: p})
	}
	ranges, err := b.admin.Offsets(ctx, tps)
	if err != nil {
		return err
	}
	b.ends = map[kafka.TP]int64{}
	for tp, r := range ranges {
		b.ends[tp] = r.End
	}
	b.say("%d trips (Avro) in %d partitions of %s, produced in %.1f s", b.records, b.partitions, b.topic, time.Since(began).Seconds())
	first, err := b.live(ctx, b.first)
	if err != nil {
		return fmt.Errorf("first live run: %w", err)
	}
	if b.want, err = b.outputs(ctx, b.first, ""); err != nil {
		return err
	}
	if b.want.n == 0 {
		return fmt.Errorf("the pipeline emitted nothing: equality would mean nothing; give more --records")
	}
	b.say("first live run, not counted: %s, %d outputs", first, b.want.n)
	return b.archive(ctx)
}

// archive records the topic and the first pipeline's decisions to their ends.
func (b *bench) archive(ctx context.Context) error {
	began := time.Now()
	args := []string{"run", "--until", "now"}
	for _, s := range append([]string{
		"bootstrap.servers=" + b.bootstrap, "store=" + b.store, "group.id=bench-" + b.id, "topics=" + b.topic + "," + b.first + ".decisions",
		"schema.registry.url=" + b.registry, "rest.listen=127.0.0.1:0",
	}, b.archiverSets...) {
		args = append(args, "--set", s)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "archiver"), args...)
	cmd.Env = proof.Environment(nil)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("archive the topic: %w\n%s", err, out[max(0, len(out)-3000):])
	}
	b.say("archived with its decisions in %.1f s", time.Since(began).Seconds())
	return nil
}

// hashes are of results and late records: keys, values, headers and timestamps, by partition in order.
type hashes struct {
	n     int
	whole string
	noIDs string // without the header tapedeck-id, in which the pipeline's name is
}

// outputs reads what a pipeline, or a replay into it, has put out.
func (b *bench) outputs(ctx context.Context, pipeline, suffix string) (h hashes, err error) {
	var topics []map[int32]proof.Sequence
	for _, role := range []string{"", ".late"} {
		t, err := proof.ReadTopic(ctx, b.bootstrap, pipeline+role+suffix)
		if err != nil {
			return h, err
		}
		topics = append(topics, t)
		h.n += proof.Count(t)
	}
	h.whole = proof.HashTopics(topics...)
	for _, t := range topics {
		for _, seq := range t {
			for i := range seq {
				seq[i].Headers = slices.DeleteFunc(seq[i].Headers, func(h record.Header) bool { return h.Key == "tapedeck-id" })
			}
		}
	}
	h.noIDs = proof.HashTopics(topics...)
	return h, nil
}

// replayAgainstLive is the first pair: the same pipeline over the same records, once from Kafka and once from the archive.
func (b *bench) replayAgainstLive(ctx context.Context) error {
	var ratios []float64
	for round := range b.rounds {
		var live, replay took
		sides := []func() error{
			func() (err error) {
				pipeline := fmt.Sprintf("bench-%s-%d", b.id, round)
				if live, err = b.live(ctx, pipeline); err != nil {
					return fmt.Errorf("live run: %w", err)
				}
				got, err := b.outputs(ctx, pipeline, "")
				if err == nil && got.noIDs != b.want.noIDs {
					err = fmt.Errorf("the live run put out %+v, the first one %+v", got, b.want)
				}
				return err
			},
			func() (err error) {
				job := fmt.Sprintf("round-%d", round)
				if replay, err = b.replay(ctx, job); err != nil {
					return fmt.Errorf("replay: %w", err)
				}
				got, err := b.outputs(ctx, b.first, ".replay."+job)
				if err == nil && got != b.want {
					err = fmt.Errorf("the replay put out %+v, the live run %+v", got, b.want)
				}
				return err
			},
		}
		// The first of a pair may find colder caches: they take turns.
		if round%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			if err := side(); err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
		}
		ratio := live.seconds / replay.seconds
		ratios = append(ratios, ratio)
		n := float64(b.records) / 1e6
		b.say("round %d: live %s, %.3f M records/s; replay %s, %.3f M records/s; ratio %.2f; outputs equal", round+1, live, n/live.seconds, replay, n/replay.seconds, ratio)
	}
	slices.Sort(ratios)
	b.say("ratios %.2f, lowest to highest; the median follows\nratio replay→processor / live→processor: %.2f", ratios, ratios[len(ratios)/2])
	return nil
}
