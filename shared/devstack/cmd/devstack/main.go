// Command devstack runs Kafka, S3 and a schema registry in one process, and produces trips.
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
		fmt.Fprintf(os.Stderr, "devstack: %v\n", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	c := &cobra.Command{
		Use:           "devstack",
		Short:         "A Kafka broker, an S3 store and a schema registry to try Tapedeck on, and trips to fill them with",
		Long:          "Runs small embedded servers for demonstrations and tests. Kafka and the registry keep their data in memory; not for production.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.AddCommand(upCommand(), produceCommand())
	return c
}
