// Command bencharchive measures the archiver against the bare poll loop of the same Kafka client, on the same topic of a real broker:
// in each round both read the topic to its end, one after the other, and the archiver's archive is checked record by record.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/shared/kafka/barepoll"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bencharchive: %v\n", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var b bench
	c := &cobra.Command{
		Use:   "bencharchive --store URL",
		Short: "Measure the archiver against the bare poll loop, pairwise, in alternating rounds",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f := c.Flags()
	f.StringVar(&b.bootstrap, "bootstrap", "127.0.0.1:9092", "Kafka, host:port")
	f.StringVar(&b.store, "store", "", "where to archive, s3://…; each round has a prefix of its own below it")
	f.StringVar(&b.archiver, "archiver", "bin/archiver", "the archiver's binary")
	f.StringVar(&b.topic, "topic", "", "topic to read; empty: one is made and filled")
	f.Int64Var(&b.records, "records", 2_000_000, "records in all partitions")
	f.IntVar(&b.size, "size", 165, "bytes of a record's key and value")
	f.Int32Var(&b.partitions, "partitions", 4, "partitions")
	f.IntVar(&b.rounds, "rounds", 5, "rounds; the ratio is the median of theirs")
	f.StringArrayVar(&b.sets, "set", nil, "a setting of the archiver, key=value (may be repeated)")
	_ = c.MarkFlagRequired("store") // fails for a flag that is not there only
	c.AddCommand(loopCommand())
	return c
}

// loopCommand runs the bare loop in a process of its own, as the archiver has one.
func loopCommand() *cobra.Command {
	var bootstrap, topic string
	var records int64
	c := &cobra.Command{
		Use: "loop", Short: "Run the bare poll loop once and print what it took, as JSON", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := barepoll.Run(cmd.Context(), bootstrap, topic, records)
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
		},
	}
	c.Flags().StringVar(&bootstrap, "bootstrap", "", "Kafka, host:port")
	c.Flags().StringVar(&topic, "topic", "", "topic")
	c.Flags().Int64Var(&records, "records", 0, "records to read")
	return c
}
