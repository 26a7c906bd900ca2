// Command soak archives topics with a group of real archivers while everything fails at random, and compares the archive with the log.
// Exit status 0 only where nothing was lost, duplicated or overlapping.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/shared/e2e/soak"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "soak: %v\n", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var o soak.Options
	var quiet bool
	c := &cobra.Command{
		Use: "soak --store URL", Short: "Archive while everything fails at random, and compare the archive with the log",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Seed == 0 {
				o.Seed = uint64(time.Now().UnixNano())
			}
			if o.Dir, err = os.MkdirTemp("", "tapedeck-soak-"); err != nil {
				return err
			}
			if !quiet {
				o.Out = cmd.OutOrStdout()
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "seed %d\n", o.Seed)
			f, err := soak.Run(cmd.Context(), o)
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "seed %d: %s\n", o.Seed, f)
			if err != nil {
				return fmt.Errorf("seed %d, logs in %s: %w", o.Seed, o.Dir, err)
			}
			return os.RemoveAll(o.Dir)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Bootstrap, "bootstrap", "127.0.0.1:9092", "Kafka, host:port")
	f.StringVar(&o.Store, "store", "", "where to archive, s3://bucket?endpoint=http://host:port&…; a prefix of its own is used below it")
	f.StringVar(&o.Archiver, "archiver", "bin/archiver", "the archiver's binary")
	f.IntVar(&o.BrokerPID, "broker-pid", 0, "process of the broker, to be paused now and then (0: it is not)")
	f.DurationVar(&o.Duration, "for", 30*time.Minute, "how long events happen")
	f.IntVar(&o.Events, "events", 0, "so many events instead")
	f.IntVar(&o.Kills, "kills", 0, "go on until so many archivers were killed")
	f.DurationVar(&o.Pause, "pause", 2*time.Second, "longest pause between two events")
	f.Float64Var(&o.Rate, "rate", 400, "records per second and topic")
	f.Uint64Var(&o.Seed, "seed", 0, "of everything random (0: from the clock); timings remain the machine's")
	f.BoolVar(&quiet, "quiet", false, "no line for each event")
	_ = c.MarkFlagRequired("store") // fails for a flag that is not there only
	return c
}
