package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/shared/devstack"
)

func upCommand() *cobra.Command {
	var o devstack.Options
	var output string
	c := &cobra.Command{
		Use:   "up",
		Short: "Run the servers until interrupted, and print what to export",
		Example: `  devstack up --kafka-port 19092 --s3-port 19000 --registry-port 18081 --dir ./data
  devstack up > env.sh &    # then, once it says that it is up: . ./env.sh`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if output != "text" && output != "json" {
				return fmt.Errorf("output %q is neither text nor json", output)
			}
			s, err := devstack.Start(cmd.Context(), o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			if err := printStack(cmd.OutOrStdout(), s, output); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "devstack: up, objects below %s; interrupt to stop\n", s.Dir)
			<-cmd.Context().Done()
			return nil
		},
	}
	f := c.Flags()
	f.IntVar(&o.KafkaPort, "kafka-port", 0, "port of the Kafka broker (0: a free one)")
	f.IntVar(&o.S3Port, "s3-port", 0, "port of the S3 store (0: a free one)")
	f.IntVar(&o.RegistryPort, "registry-port", 0, "port of the schema registry (0: a free one)")
	f.StringVar(&o.Dir, "dir", "", "folder for the store's objects (default: a temporary one, removed at the end)")
	f.StringVar(&o.Bucket, "bucket", "tapedeck", "bucket to make")
	f.StringVarP(&output, "output", "o", "text", "text (shell exports) or json")
	return c
}

// printStack writes what a client needs; the text form is for a shell's eval.
func printStack(w io.Writer, s *devstack.Stack, output string) error {
	env := append([]string{
		"TAPEDECK_BOOTSTRAP_SERVERS=" + s.Bootstrap,
		"TAPEDECK_SCHEMA_REGISTRY_URL=" + s.RegistryURL,
		"TAPEDECK_STORE=" + s.StoreURL,
	}, s.Env()...)
	if output == "json" {
		m := map[string]any{
			"bootstrap": s.Bootstrap, "registryUrl": s.RegistryURL, "storeUrl": s.StoreURL, "s3Endpoint": s.S3Endpoint,
			"bucket": s.Bucket, "accessKey": s.AccessKey, "secretKey": s.SecretKey, "env": env,
		}
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(m)
	}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if _, err := fmt.Fprintf(w, "export %s='%s'\n", name, value); err != nil {
			return err
		}
	}
	return nil
}
