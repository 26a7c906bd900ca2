// Command demo runs the main job on the embedded stack and prints one screen.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/shared/devstack"
	"tapedeck.dev/tapedeck/shared/devstack/trips"
	"tapedeck.dev/tapedeck/shared/e2e/proof"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

type flags struct {
	keep, damage bool
	trips        int
	seed         uint64
	dir          string
	timeout      time.Duration
}

func command() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:           "demo",
		Short:         "Record a topic, lose it in Kafka, replay it, and compare the outputs byte for byte",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f) },
	}
	c.Flags().BoolVar(&f.keep, "keep", false, "leave everything up and print URLs and commands")
	c.Flags().BoolVar(&f.damage, "damage", false, "flip one byte of an archived object before the replay: the demo must fail and name it")
	c.Flags().IntVar(&f.trips, "trips", 40_000, "number of trips")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the trip generator")
	c.Flags().StringVar(&f.dir, "dir", "", "folder for data, configuration and logs (default: a temporary one, removed at the end)")
	c.Flags().DurationVar(&f.timeout, "timeout", 110*time.Second, "give up after this time")
	return c
}

const partitions = 4

func run(ctx context.Context, f flags) (err error) {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	dir := f.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "tapedeck-demo-"); err != nil {
			return err
		}
		defer func() {
			if err == nil {
				_ = os.RemoveAll(dir)
			} else {
				fmt.Fprintf(os.Stderr, "demo: data, configuration and logs are kept in %s\n", dir)
			}
		}()
	}
	stack, err := devstack.Start(ctx, devstack.Options{Dir: filepath.Join(dir, "stack")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stack.Close()) }()
	for _, v := range stack.Env() { // this process reads the archive too
		if err := setenv(v); err != nil {
			return err
		}
	}
	step := func(format string, args ...any) { fmt.Printf("  · "+format+"\n", args...) }
	var more time.Time // behind the newest event time, set by Produce
	opts := proof.Options{
		Env:    proof.Env{Bootstrap: stack.Bootstrap, StoreURL: stack.StoreURL, RegistryURL: stack.RegistryURL, Vars: stack.Env()},
		Bin:    filepath.Dir(exe),
		Dir:    dir,
		Topic:  "trips",
		Schema: trips.Schema, Partitions: partitions,
		Produce: func(ctx context.Context) (int64, error) {
			s, err := trips.Produce(ctx, trips.ProduceOptions{Bootstrap: stack.Bootstrap, RegistryURL: stack.RegistryURL, Topic: "trips",
				Partitions: partitions, Source: trips.Generate(trips.GenerateOptions{Seed: f.seed, Count: f.trips}), FlushAhead: time.Minute})
			more = time.UnixMilli(s.LastMs).Add(2 * time.Minute)
			return s.Records, err
		},
		Step: step,
	}
	if f.keep {
		opts.Ports = [3]int{8183, 8184, 8185}
	}
	damaged := ""
	if f.damage {
		opts.BeforeReplay = func(context.Context, *proof.Proof) error {
			damaged, err = proof.DamageOneObject(filepath.Join(dir, "stack"), "trips")
			step("damaged one byte of %s", damaged)
			return err
		}
	}
	fmt.Println("Tapedeck demo: record, lose Kafka, replay, get the same bytes")
	step("embedded stack: Kafka %s, S3 %s, registry %s", stack.Bootstrap, stack.S3Endpoint, stack.RegistryURL)
	p, err := proof.New(opts)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	defer func() { err = errors.Join(err, p.StopServices()) }()
	if err := p.StartServices(bounded); err != nil {
		return err
	}
	r, err := p.Run(bounded)
	if err != nil {
		return err
	}
	r.Print(os.Stdout, p)
	if f.keep {
		p.PrintKeep(os.Stdout, more)
		fmt.Println("Everything stays up until Ctrl-C.")
		<-ctx.Done()
		fmt.Println("Stopping.")
	}
	return nil
}

func setenv(v string) error {
	for i := range v {
		if v[i] == '=' {
			return os.Setenv(v[:i], v[i+1:])
		}
	}
	return fmt.Errorf("environment entry %q has no value", v)
}
