// Command prove runs the main job on services that run already, e.g. in containers: record a topic, lose it in Kafka,
// replay it, compare the outputs byte for byte.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/shared/devstack/trips"
	"tapedeck.dev/tapedeck/shared/e2e/proof"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "prove: %v\n", err)
		os.Exit(1)
	}
}

// components are the flags that both commands have.
type components struct {
	bootstrap, store, topic string
	partitions              int32
}

func (c *components) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.bootstrap, "bootstrap", "127.0.0.1:9092", "Kafka, host:port")
	cmd.Flags().StringVar(&c.store, "store", "", "the archive's address, s3://…")
	cmd.Flags().StringVar(&c.topic, "topic", "trips", "input topic")
	cmd.Flags().Int32Var(&c.partitions, "partitions", 4, "partitions of the input topic")
	_ = cmd.MarkFlagRequired("store") // fails for a flag that is not there only
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "prove", Short: "Prove replay = live on running services", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(setupCommand(), runCommand())
	return root
}

func setupCommand() *cobra.Command {
	var c components
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Make the bucket and the input topic; what is there already stays",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return setup(cmd.Context(), c) },
	}
	c.flags(cmd)
	return cmd
}

func setup(ctx context.Context, c components) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	st, err := storeurl.Open(ctx, c.store)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	bucket, ok := st.(interface{ MakeBucket(context.Context) error })
	if !ok {
		return fmt.Errorf("store %s has no buckets: want s3://…", st)
	}
	if err := bucket.MakeBucket(ctx); err != nil {
		return err
	}
	n, err := trips.EnsureTopic(ctx, kafka.Client{Bootstrap: c.bootstrap, ClientID: "tapedeck-setup"}, c.topic, c.partitions)
	if err != nil {
		return err
	}
	fmt.Printf("bucket of %s and topic %s with %d partitions are there\n", st, c.topic, n)
	return nil
}

type flags struct {
	components
	registry string
	services proof.External
	trips    int
	seed     uint64
	rate     float64
	replay   string
	timeout  time.Duration
}

func runCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Produce trips, delete them from Kafka, replay the archive, compare; exit 0 only if all of it held",
		Long: `Produces seeded trips to the input topic, waits until processor and archiver have reached its end, deletes it from Kafka, replays the
archive into the processor and compares what was written live with what was written in the replay, byte for byte.

With --hook the three services are killed and restarted in the middle: archiver and processor by kill -9, and the archiver by SIGTERM,
while trips are produced; the replayer by kill -9 while it replays.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f) },
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&f.registry, "registry", "", "URL of the schema registry")
	cmd.Flags().StringVar(&f.services.Archiver, "archiver", "http://127.0.0.1:8183", "URL of the archiver")
	cmd.Flags().StringVar(&f.services.Replayer, "replayer", "http://127.0.0.1:8184", "URL of the replayer")
	cmd.Flags().StringVar(&f.services.Processor, "processor", "http://127.0.0.1:8185", "URL of the processor")
	cmd.Flags().StringVar(&f.services.Hook, "hook", "", "`program` that starts and ends services: HOOK start|kill|stop NAME")
	cmd.Flags().IntVar(&f.trips, "trips", 40_000, "number of trips")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the trip generator")
	cmd.Flags().Float64Var(&f.rate, "rate", 0, "trips per second (0: as fast as it goes)")
	cmd.Flags().StringVar(&f.replay, "replay", "", "name of the replay job (default: a new one)")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 4*time.Minute, "give up after this time")
	_ = cmd.MarkFlagRequired("registry")
	return cmd
}

func run(ctx context.Context, f flags) (err error) {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	opts := proof.Options{
		Env: proof.Env{Bootstrap: f.bootstrap, StoreURL: f.store, RegistryURL: f.registry},
		Bin: filepath.Dir(exe), External: &f.services,
		Topic: f.topic, Partitions: f.partitions, Schema: trips.Schema,
		Produce: func(ctx context.Context) (int64, error) {
			start, err := f.start(ctx)
			if err != nil {
				return 0, err
			}
			s, err := trips.Produce(ctx, trips.ProduceOptions{Bootstrap: f.bootstrap, RegistryURL: f.registry, Topic: f.topic, Partitions: f.partitions,
				Rate: f.rate, Source: trips.Generate(trips.GenerateOptions{Seed: f.seed, Count: f.trips, Start: start}), FlushAhead: time.Minute})
			return s.Records, err
		},
		Step: func(format string, args ...any) { fmt.Printf("  · "+format+"\n", args...) },
	}
	fmt.Println("Tapedeck: record, lose Kafka, replay, get the same bytes")
	if f.services.Hook != "" {
		opts.WhileLive, opts.WhileReplaying = f.killLive, killReplayer
	}
	p, err := proof.New(opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.StopServices()) }()
	if p.Replay = f.replay; p.Replay == "" {
		p.Replay = "demo-" + strconv.FormatInt(time.Now().UnixMilli(), 36) // a second run is another job
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := p.StartServices(ctx); err != nil {
		return err
	}
	r, err := p.Run(ctx)
	if err != nil {
		return err
	}
	r.Print(os.Stdout, p)
	return nil
}

// start is when the first trip arrives: for a first run always the same time, so that its records are; for a later one now, since
// trips older than those of the run before would all be late.
func (f flags) start(ctx context.Context) (time.Time, error) {
	admin, err := kafka.NewAdmin(kafka.Client{Bootstrap: f.bootstrap, ClientID: "prove"})
	if err != nil {
		return time.Time{}, err
	}
	defer admin.Close()
	var tps []kafka.TP
	for p := range f.partitions {
		tps = append(tps, kafka.TP{Topic: f.topic, Partition: p})
	}
	ranges, err := admin.Offsets(ctx, tps)
	if err != nil {
		return time.Time{}, err
	}
	for _, r := range ranges {
		if r.End > 0 {
			return time.Now().UTC().Truncate(time.Second), nil
		}
	}
	return trips.DefaultStart, nil
}

// killLive kills and restarts services at given shares of the production. A moment that came too late proves nothing, and is an error.
func (f flags) killLive(ctx context.Context, p *proof.Proof) error {
	before, err := p.LogEnd(ctx)
	if err != nil {
		return err
	}
	for _, k := range []struct {
		percent int
		what    string
		s       *proof.Process
		end     func() error
	}{
		{15, "kill -9", p.Archiver, p.Archiver.Kill},
		{40, "kill -9", p.Processor, p.Processor.Kill},
		{65, "SIGTERM", p.Archiver, p.Archiver.Stop},
	} {
		if err := p.WaitProduced(ctx, before, int64(f.trips*k.percent/100)); err != nil {
			return err
		}
		p.Step("%s: %s after %d %% of the trips", k.s.Name, k.what, k.percent)
		if err := k.end(); err != nil {
			return err
		}
		if end, err := p.LogEnd(ctx); err != nil {
			return err
		} else if end-before >= int64(f.trips) {
			return fmt.Errorf("all trips were produced before %s was ended: give more --trips or a lower --rate", k.s.Name)
		}
		if err := k.s.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// killReplayer kills the replayer once its job runs, and checks that another life of it took the job over. How long a replay takes is the
// machine's affair: one that was over before the kill is said, and its outcome still has to stand after the restart.
func killReplayer(ctx context.Context, p *proof.Proof) error {
	job, err := p.WaitReplaying(ctx)
	if err != nil {
		return err
	}
	p.Step("replayer: kill -9 while the job is %s", job.State)
	if err := p.Replayer.Kill(); err != nil {
		return err
	}
	if err := p.Replayer.Start(ctx); err != nil {
		return err
	}
	err = p.WaitTakenOver(ctx, job.Epoch)
	if errors.Is(err, proof.ErrOverEarly) {
		p.Step("replayer: the job was over before the kill (replay more records to meet it)")
		return nil
	}
	return err
}
