// Command benchreplay measures replays against what they stand in for, on the same records of a real broker and a real store, pairwise and in
// alternating rounds: the processor fed by a replay against the processor reading the topic from Kafka as a backlog, and a restore into Kafka
// against a bare loop of transactional producers that has the records in memory.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "benchreplay: %v\n", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var b bench
	c := &cobra.Command{
		Use:   "benchreplay --store URL --bin DIR",
		Short: "Measure replays against live runs, pairwise, in alternating rounds",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b.out = cmd.OutOrStdout()
			return b.run(cmd.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&b.bootstrap, "bootstrap", "127.0.0.1:9092", "Kafka, host:port")
	f.StringVar(&b.store, "store", "", "where to archive, s3://…; each run has a prefix of its own below it")
	f.StringVar(&b.bin, "bin", "bin", "folder of the binaries archiver, processor and replayer")
	f.IntVar(&b.records, "records", 2_000_000, "trips in all partitions, one per ms of event time")
	f.Int32Var(&b.partitions, "partitions", 4, "partitions")
	f.IntVar(&b.rounds, "rounds", 5, "rounds; a ratio is the median of theirs")
	f.StringArrayVar(&b.archiverSets, "archiver-set", nil, "a setting of the archiver, `key=value` (may be repeated)")
	f.StringArrayVar(&b.processorSets, "processor-set", nil, "a setting of the processor, on both sides, `key=value`")
	f.StringArrayVar(&b.replayerSets, "replayer-set", nil, "a setting of the replayer, `key=value`")
	f.StringVar(&b.only, "only", "", "one of the pairs alone: replay or restore")
	_ = c.MarkFlagRequired("store") // fails for a flag that is not there only
	c.AddCommand(loopCommand())
	return c
}
