// Package proof runs the main job of the product end to end with its real binaries, and checks that it held: record a topic
// and process it live, delete it from Kafka, replay the archive into the same processor, compare the outputs byte for byte.
//
// The demo prints it as one screen; the end-to-end tests run it with processes killed in the middle, on the embedded stack and
// on real components.
package proof

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"tapedeck.dev/tapedeck/shared/devstack/trips"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// pollWait is how long one Poll of the proof's own consumers waits.
const pollWait = 100 * time.Millisecond

//go:embed fares.yaml
var pipelineTemplate string

// Env says where the components are and what the processes need in their environment.
type Env struct {
	Bootstrap   string
	StoreURL    string
	RegistryURL string
	Vars        []string // e.g. AWS_ACCESS_KEY_ID=…
}

// Options of a proof.
type Options struct {
	Env
	Bin        string // folder of the binaries
	Dir        string // folder for configuration and log files
	Topic      string // input topic; the pipeline's names derive from it
	Partitions int32
	Schema     string // Avro schema of the input, as JSON text
	// Produce writes the input and returns how many records it wrote.
	Produce func(ctx context.Context) (int64, error)
	// Ports of archiver, replayer and processor; 0 takes a free one.
	Ports [3]int
	// External, if set, says where the three services run already. The proof then starts none and writes no configuration for
	// them: theirs must be the one that it would write.
	External *External

	// FlushSize is the archiver's flush.size; 0 means 2000.
	FlushSize int
	// Codec is the archiver's codec; "" means its default.
	Codec string

	// ReplayerConfig and ProcessorConfig are lines of YAML added to theirs; ReplayFields are further fields of the replay's request.
	ReplayerConfig, ProcessorConfig string
	ReplayFields                    map[string]any

	// WhileLive, if set, runs while input is produced and processed (kills and restarts); the proof goes on when it returns.
	WhileLive func(ctx context.Context, p *Proof) error
	// BeforeDelete, if set, runs when everything is archived and Kafka still has the input.
	BeforeDelete func(ctx context.Context, p *Proof) error
	// BeforeReplay, if set, runs between the deletion and the replay.
	BeforeReplay func(ctx context.Context, p *Proof) error
	// WhileReplaying, if set, runs once the replay was started.
	WhileReplaying func(ctx context.Context, p *Proof) error

	// Step, if set, is told what happens next.
	Step func(format string, args ...any)
}

// Proof is one run.
type Proof struct {
	Options
	Pipeline  string
	Replay    string // name of the replay job
	Archiver  *Process
	Replayer  *Process
	Processor *Process

	admin *kafka.Admin
}

// New writes the configurations and starts nothing yet.
func New(o Options) (*Proof, error) {
	if o.FlushSize == 0 {
		o.FlushSize = 2000
	}
	if o.Step == nil {
		o.Step = func(string, ...any) {}
	}
	p := &Proof{Options: o, Pipeline: "fares-" + o.Topic, Replay: "again"}
	if o.External != nil {
		p.Archiver = &Process{Name: "archiver", URL: o.External.Archiver, hook: o.External.Hook}
		p.Replayer = &Process{Name: "replayer", URL: o.External.Replayer, hook: o.External.Hook}
		p.Processor = &Process{Name: "processor", URL: o.External.Processor, hook: o.External.Hook}
		var err error
		p.admin, err = kafka.NewAdmin(kafka.Client{Bootstrap: o.Bootstrap, ClientID: "proof"})
		return p, err
	}
	for i := range p.Ports {
		if p.Ports[i] == 0 {
			port, err := FreePort()
			if err != nil {
				return nil, err
			}
			p.Ports[i] = port
		}
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make working folder: %w", err)
	}
	pipeline, err := p.writePipeline()
	if err != nil {
		return nil, err
	}
	// A killed process must be missed sooner than after the default of 45 s, and a rebalance must not wait for it for the
	// default of five minutes.
	common := fmt.Sprintf("bootstrap.servers: %q\nlog.level: info\nconsumer.override.session.timeout.ms: 6000\nconsumer.override.max.poll.interval.ms: 15000\n", o.Bootstrap)
	registry := fmt.Sprintf("schema.registry.url: %q\n", o.RegistryURL)
	store := fmt.Sprintf("store: %q\n", o.StoreURL)
	listen := func(i int) string { return fmt.Sprintf("rest.listen: 127.0.0.1:%d\n", p.Ports[i]) }
	url := func(i int) string { return fmt.Sprintf("http://127.0.0.1:%d", p.Ports[i]) }

	codec := ""
	if o.Codec != "" {
		codec = "codec: " + o.Codec + "\n"
	}
	p.Archiver, err = NewProcess(o.Bin, o.Dir, "archiver", url(0), listen(0)+common+registry+store+codec+fmt.Sprintf(
		"group.id: archiver-%s\ntopics: [%s, %s.decisions]\ntopics.refresh.ms: 500\nflush.size: %d\nrotate.age.ms: 1500\n",
		o.Topic, o.Topic, p.Pipeline, o.FlushSize), o.Vars)
	if err != nil {
		return nil, err
	}
	p.Replayer, err = NewProcess(o.Bin, o.Dir, "replayer", url(1), listen(1)+store+o.ReplayerConfig+fmt.Sprintf(
		"targets:\n  live:\n    type: processor\n    url: %s\n    pipeline: %s\n  kafka:\n    type: kafka\n    bootstrap.servers: %q\n",
		url(2), p.Pipeline, o.Bootstrap), o.Vars)
	if err != nil {
		return nil, err
	}
	p.Processor, err = NewProcess(o.Bin, o.Dir, "processor", url(2), listen(2)+common+registry+o.ProcessorConfig+fmt.Sprintf(
		"pipelines: [%s]\ncommit.interval.ms: 200\n", pipeline), o.Vars)
	if err != nil {
		return nil, err
	}
	p.admin, err = kafka.NewAdmin(kafka.Client{Bootstrap: o.Bootstrap, ClientID: "proof"})
	return p, err
}

func (p *Proof) writePipeline() (string, error) {
	text, err := Pipeline(p.Pipeline, p.Topic, p.Partitions, p.Schema)
	if err != nil {
		return "", err
	}
	file := filepath.Join(p.Dir, "fares.yaml")
	return file, os.WriteFile(file, text, 0o600)
}

// Pipeline is the pipeline file of a proof: sum, count and maximum of the fares per user in windows of ten seconds.
func Pipeline(name, topic string, partitions int32, schema string) ([]byte, error) {
	t, err := template.New("pipeline").Parse(pipelineTemplate)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	schema = "      " + strings.ReplaceAll(strings.TrimSpace(schema), "\n", "\n      ")
	err = t.Execute(&b, map[string]any{"Pipeline": name, "Topic": topic, "Partitions": partitions, "Schema": schema})
	return b.Bytes(), err
}

// StartServices makes the input topic and starts the three processes; external ones it waits for.
func (p *Proof) StartServices(ctx context.Context) error {
	if _, err := trips.EnsureTopic(ctx, kafka.Client{Bootstrap: p.Bootstrap, ClientID: "proof"}, p.Topic, p.Options.Partitions); err != nil {
		return err
	}
	for _, s := range []*Process{p.Processor, p.Archiver, p.Replayer} {
		start := s.Start
		if p.External != nil {
			start = s.WaitReady // somebody else has started it
		}
		if err := start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// StopServices stops the processes that run, unless they are external. Every one must end cleanly.
func (p *Proof) StopServices() error {
	if p.External != nil {
		p.admin.Close()
		return nil
	}
	errs := make([]error, 0, 3)
	for _, s := range []*Process{p.Replayer, p.Processor, p.Archiver} {
		errs = append(errs, s.Stop())
	}
	p.admin.Close()
	return errors.Join(errs...)
}

// Result is what a proof saw.
type Result struct {
	Produced                    int64
	Archived                    ArchiveSummary
	PutCalls                    int64 // −1 where the archiver was restarted and its counter with it
	EmittedLive, EmittedReplay  int
	LateLive, LateReplay        int
	HashLive, HashReplay        string // results and late records
	Partitions                  []PartitionHash
	Before                      int64 // input records of earlier runs
	Live, Again                 map[int32]Sequence
	LiveTook, ReplayTook        time.Duration
	InspectOutput, VerifyOutput string
	ResultsTopic, ReplayTopic   string
	LateTopic, ReplayLateTopic  string
	LogStart, LogEnd            int64
}

// PartitionHash holds the two hashes of one output partition.
type PartitionHash struct {
	Topic        string
	Partition    int32
	Records      int
	Live, Replay string
}

// Run does the whole job. Services must be started. An error means that it did not hold.
func (p *Proof) Run(ctx context.Context) (*Result, error) {
	r := &Result{PutCalls: -1}
	var err error
	if r.Before, err = p.LogEnd(ctx); err != nil {
		return r, err
	}
	begin := time.Now()
	if err := p.live(ctx, r); err != nil {
		return r, err
	}
	r.LiveTook = time.Since(begin)
	if p.BeforeDelete != nil {
		if err := p.BeforeDelete(ctx, p); err != nil {
			return r, err
		}
	}
	p.Step("deleting the input from Kafka: only the archive has it now")
	if err := p.deleteInput(ctx, r); err != nil {
		return r, err
	}
	if p.BeforeReplay != nil {
		if err := p.BeforeReplay(ctx, p); err != nil {
			return r, err
		}
	}
	begin = time.Now()
	p.Step("replaying: POST %s/replays", p.Replayer.URL)
	if err := p.replay(ctx); err != nil {
		return r, err
	}
	r.ReplayTook = time.Since(begin)
	p.Step("comparing live and replayed output, verifying the archive")
	if err := p.compare(ctx, r); err != nil {
		return r, err
	}
	return r, p.inspect(ctx, r)
}

// live produces the input and waits until it is processed and archived to its end.
func (p *Proof) live(ctx context.Context, r *Result) error {
	p.Step("producing trips to %s while the processor runs live and the archiver archives", p.Topic)
	produced := make(chan error, 1)
	go func() {
		n, err := p.Produce(ctx)
		r.Produced = n
		produced <- err
	}()
	if p.WhileLive != nil {
		if err := p.WhileLive(ctx, p); err != nil {
			return errors.Join(err, <-produced)
		}
	}
	if err := <-produced; err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	p.Step("waiting until live positions = archive frontier = log end")
	if err := p.waitProcessed(ctx); err != nil {
		return err
	}
	if err := p.waitArchived(ctx, p.Topic); err != nil {
		return err
	}
	return p.waitArchived(ctx, p.Pipeline+".decisions")
}
