package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/replayer"
	"tapedeck.dev/tapedeck/replayer/client"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/shared/secure"
	"tapedeck.dev/tapedeck/shared/service"
)

// Exit statuses besides 0.
const (
	exitOutcome = 1 // the job failed or was cancelled, or the plan says that it cannot be done
	exitNotRun  = 2 // the command could not do its work
)

func root() *cobra.Command {
	cmd := service.Command("replayer", "Replay archived Kafka records in order, as jobs over HTTP.", replayer.Keys(), replayer.Run)
	cmd.AddCommand(planCommand(), startCommand(), restoreCommand(), listCommand(), statusCommand(), waitCommand(),
		doCommand(job.Pause, "Stop sending; the session stays open"),
		doCommand(job.Resume, "Go on with a paused job"),
		doCommand(job.Cancel, "End a job and close its session at the target"),
		doCommand(job.Retry, "Go on with a failed job"))
	return cmd
}

// remote are the flags of the commands that ask a running replayer.
type remote struct {
	url    string
	output string
	token  string // files
	ca     string
	cert   string
	key    string
}

func (r *remote) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.url, "url", "http://127.0.0.1:8184", "`address` of a replayer")
	cmd.Flags().StringVar(&r.token, "token-file", "", "`file` with the replayer's token (its rest.auth.token.file will do)")
	cmd.Flags().StringVar(&r.ca, "ca-file", "", "`file` with CA certificates (PEM) to trust instead of the system's")
	cmd.Flags().StringVar(&r.cert, "cert-file", "", "`file` with a client certificate (PEM), where the replayer asks for one")
	cmd.Flags().StringVar(&r.key, "key-file", "", "`file` with its private key (PEM)")
	cmd.Flags().StringVarP(&r.output, "output", "o", "table", "`format`: table or json")
}

func (r *remote) client() (*client.Client, error) {
	if r.output != "table" && r.output != "json" {
		return nil, fmt.Errorf("-o %q: give table or json", r.output)
	}
	return client.New(r.url, secure.ClientSettings{
		ClientFiles: secure.ClientFiles{
			CA:          secure.File{Setting: "--ca-file", Path: r.ca},
			Certificate: secure.File{Setting: "--cert-file", Path: r.cert},
			Key:         secure.File{Setting: "--key-file", Path: r.key},
		},
		TokenFile: secure.File{Setting: "--token-file", Path: r.token},
	})
}

// print writes v as JSON, or by table.
func (r *remote) print(w io.Writer, v any, table func(io.Writer) error) error {
	if r.output != "json" {
		return table(w)
	}
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}

func ctxOf(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

func planCommand() *cobra.Command {
	var r remote
	var q request
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what a job would read and send, without starting it (exit 1: it cannot be done)",
		Long: `Show what a job would read and send, without starting it. The flags are those of start and of restore.

Exit 0: it can be done; 1: it cannot, and the message says why; 2: the command could not do its work.`,
		Example: `  replayer plan --name june --target proc
  replayer plan --name back --target cluster-b --topics trips --create-topics`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := r.client()
			if err != nil {
				return err
			}
			body, err := q.body(cmd)
			if err != nil {
				return err
			}
			p, err := c.DryRun(ctxOf(cmd), body)
			var e *client.Error
			if errors.As(err, &e) && e.Code == http.StatusUnprocessableEntity {
				return &service.ExitError{Code: exitOutcome, Err: err}
			}
			if err != nil {
				return err
			}
			if err := r.print(cmd.OutOrStdout(), p, func(w io.Writer) error { return planTable(w, p) }); err != nil {
				return err
			}
			if len(p.Unreadable) > 0 && !passes(body) {
				return unreadable(p)
			}
			return nil
		},
	}
	r.flags(cmd)
	q.register(cmd, intoAny)
	return cmd
}

func startCommand() *cobra.Command {
	return starter(&cobra.Command{
		Use:   "start",
		Short: "Start a job (with --wait: exit 0 COMPLETED, 1 FAILED, CANCELLED, COMPLETED with gaps or ended before, 2 could not run)",
		Long: `Start a replay into the processor, or into another receiver. For a target Kafka, restore has the flags.

A name runs once: the same request again starts nothing, and exits 1 where the job has ended.
With --wait, exit 0: COMPLETED, everything planned was delivered and proved so; 1: FAILED, CANCELLED, COMPLETED with gaps, or ended
before; 2: it could not run, or the replayer did not answer. Without --wait, 0 says that the job has been accepted.`,
		Example: `  replayer start --name june --target proc --wait
  replayer start --name hour --target proc --promise recompute --windows 2026-06-01T14:00:00Z..2026-06-01T15:00:00Z
  replayer start -f request.yaml --wait`,
	}, intoProcessor)
}

func restoreCommand() *cobra.Command {
	return starter(&cobra.Command{
		Use:   "restore",
		Short: "Start a job into a target Kafka: topics, and with them consumer groups and schemas (exit statuses as start)",
		Long: `Start a job that restores archived topics into a target of type kafka: start, with the flags of such a target.

Records keep partition, key, value, headers and timestamp. What the target would reject or delete is found before the first record;
replayer plan with the same flags shows it. Exit statuses are those of start.`,
		Example: `  replayer restore --name back --target cluster-b --topics trips,users --create-topics --wait
  replayer restore --name beside --target cluster-a --topics trips --map-topic trips=trips-restored --create-topics
  replayer restore --name all --target cluster-b --topics-pattern '.*' --create-topics --groups-pattern '.*' --registry restore --wait`,
	}, intoKafka)
}

// starter makes a command that starts a job into a type of target.
func starter(cmd *cobra.Command, which targets) *cobra.Command {
	var r remote
	var q request
	var wait, existingOK bool
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := r.client()
		if err != nil {
			return err
		}
		body, err := q.body(cmd)
		if err != nil {
			return err
		}
		v, created, err := c.Start(ctxOf(cmd), body)
		if err != nil {
			return err
		}
		if !created {
			there := fmt.Errorf("job %s is there already, made by the same request, and is %s", v.Name, v.State)
			if v.State.Ended() {
				return ranBefore(cmd, &r, v, fmt.Errorf("%w: nothing was run; to run it again, take another name", there), existingOK)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: nothing new was started\n", there)
		}
		if wait {
			return waitFor(cmd, &r, c, v.Name)
		}
		return r.print(cmd.OutOrStdout(), v, func(w io.Writer) error { return viewTable(w, v) })
	}
	r.flags(cmd)
	q.register(cmd, which)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the job has ended, showing its progress")
	cmd.Flags().BoolVar(&existingOK, "existing-ok", false, "exit 0 where a job of this name and request has COMPLETED before, though nothing is run")
	return cmd
}

// ranBefore shows a job that had ended before the call. That is no success: the target may have been changed or wiped since.
func ranBefore(cmd *cobra.Command, r *remote, v *manager.View, why error, existingOK bool) error {
	if err := r.print(cmd.OutOrStdout(), v, func(w io.Writer) error { return viewTable(w, v) }); err != nil {
		return err
	}
	if existingOK && v.State == job.Completed && len(v.Gaps) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), why)
		return nil
	}
	return &service.ExitError{Code: exitOutcome, Err: why}
}

func waitCommand() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until a job has ended (exit 0 COMPLETED, 1 FAILED, CANCELLED or COMPLETED with gaps, 2 could not run)",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := r.client()
			if err != nil {
				return err
			}
			return waitFor(cmd, &r, c, args[0])
		},
	}
	r.flags(cmd)
	return cmd
}

func listCommand() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List every job",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := r.client()
			if err != nil {
				return err
			}
			views, err := c.List(ctxOf(cmd))
			if err != nil {
				return err
			}
			return r.print(cmd.OutOrStdout(), views, func(w io.Writer) error { return listTable(w, views) })
		},
	}
	r.flags(cmd)
	return cmd
}

func statusCommand() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show a job with its progress and proof",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := r.client()
			if err != nil {
				return err
			}
			v, err := c.Get(ctxOf(cmd), args[0])
			if err != nil {
				return err
			}
			return r.print(cmd.OutOrStdout(), v, func(w io.Writer) error { return viewTable(w, v) })
		},
	}
	r.flags(cmd)
	return cmd
}

func doCommand(e job.Event, short string) *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   string(e) + " NAME",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := r.client()
			if err != nil {
				return err
			}
			v, err := c.Do(ctxOf(cmd), args[0], e)
			if err != nil {
				return err
			}
			return r.print(cmd.OutOrStdout(), v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s %s\n", v.Name, v.State)
				return err
			})
		},
	}
	r.flags(cmd)
	return cmd
}
