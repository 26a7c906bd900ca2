package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/archiver"
	"tapedeck.dev/tapedeck/shared/secure"
	"tapedeck.dev/tapedeck/shared/service"
)

const maxAnswerBytes = 64 << 20

// remote are the flags of the commands that ask a running archiver. Each command is one documented HTTP call.
type remote struct {
	url, output          string
	token, ca, cert, key string // files
	topic                string
	partition            int32
}

func (r *remote) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.url, "url", "http://"+archiver.DefaultListen, "`address` of an archiver")
	f.StringVar(&r.token, "token-file", "", "`file` with the archiver's token (its rest.auth.token.file will do)")
	f.StringVar(&r.ca, "ca-file", "", "`file` with CA certificates (PEM) to trust instead of the system's")
	f.StringVar(&r.cert, "cert-file", "", "`file` with a client certificate (PEM), where the archiver asks for one")
	f.StringVar(&r.key, "key-file", "", "`file` with its private key (PEM)")
	f.StringVarP(&r.output, "output", "o", "table", "`format`: table or json")
}

func (r *remote) scope(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.topic, "topic", "", "only this topic (default: all of the process)")
	cmd.Flags().Int32Var(&r.partition, "partition", -1, "only this partition of the topic")
}

// path is the path of a call about the scope.
func (r *remote) path(verb string) (string, error) {
	switch {
	case r.topic == "" && r.partition >= 0:
		return "", errors.New("--partition needs --topic")
	case r.topic == "":
		return "/" + verb, nil
	case r.partition < 0:
		return "/topics/" + url.PathEscape(r.topic) + "/" + verb, nil
	}
	return "/topics/" + url.PathEscape(r.topic) + "/partitions/" + strconv.Itoa(int(r.partition)) + "/" + verb, nil
}

// call makes the one call of a command and returns the answer's body.
func (r *remote) call(cmd *cobra.Command, method, path string) ([]byte, error) {
	if r.output != "table" && r.output != "json" {
		return nil, fmt.Errorf("-o %q is neither json nor table", r.output)
	}
	u, err := url.Parse(r.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("--url %q: give http://host:port of an archiver", r.url)
	}
	tr, err := secure.Transport(secure.ClientSettings{
		ClientFiles: secure.ClientFiles{
			CA:          secure.File{Setting: "--ca-file", Path: r.ca},
			Certificate: secure.File{Setting: "--cert-file", Path: r.cert},
			Key:         secure.File{Setting: "--key-file", Path: r.key},
		},
		TokenFile: secure.File{Setting: "--token-file", Path: r.token},
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(cmd.Context(), method, strings.TrimSuffix(r.url, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: tr, Timeout: 30 * time.Second}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer from the archiver: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("read the archiver's answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		var e struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(data, &e) != nil || e.Message == "" {
			e.Message = resp.Status
		}
		return nil, fmt.Errorf("%s %s: %s", method, path, e.Message)
	}
	return data, nil
}

func operateCommand(verb, method, short string) *cobra.Command {
	var r remote
	onlyFailed := false
	cmd := &cobra.Command{
		Use: verb, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := r.path(verb)
			if err != nil {
				return err
			}
			if onlyFailed {
				path += "?onlyFailed=true"
			}
			data, err := r.call(cmd, method, path)
			if err != nil {
				return &service.ExitError{Code: 2, Err: err}
			}
			if r.output == "json" {
				_, err = cmd.OutOrStdout().Write(data)
				return err
			}
			var op archiver.Operation
			if err := json.Unmarshal(data, &op); err != nil {
				return fmt.Errorf("read the archiver's answer: %w", err)
			}
			return table(cmd.OutOrStdout(), op.Partitions)
		},
	}
	r.flags(cmd)
	r.scope(cmd)
	if verb == "restart" {
		cmd.Flags().BoolVar(&onlyFailed, "only-failed", false, "only partitions that are STOPPED")
	}
	return cmd
}

// statusCommand shows /status; exit status 1 where something is degraded.
func statusCommand() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use: "status", Short: "Show a running archiver's partitions; exit 1 where not everything configured is archived", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := r.call(cmd, http.MethodGet, "/status")
			if err != nil {
				return &service.ExitError{Code: 2, Err: err}
			}
			var s struct {
				Status archiver.Status `json:"status"`
			}
			if err := json.Unmarshal(data, &s); err != nil {
				return fmt.Errorf("read the archiver's answer: %w", err)
			}
			out := cmd.OutOrStdout()
			if r.output == "json" {
				_, err = out.Write(data)
			} else if err = table(out, s.Status.Partitions); err == nil {
				for _, d := range s.Status.Degraded {
					fmt.Fprintln(out, "degraded:", d)
				}
			}
			if err == nil && len(s.Status.Degraded) > 0 {
				return &service.ExitError{Code: 1}
			}
			return err
		},
	}
	r.flags(cmd)
	return cmd
}

func table(w io.Writer, parts []archiver.PartitionStatus) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOPIC\tPARTITION\tSTATE\tARCHIVED\tPOSITION\tLAG\tOPEN RECORDS\tERROR")
	for _, p := range parts {
		text := p.Error
		if p.Waiting != "" {
			text = p.Waiting
		}
		state := string(p.State)
		if p.Reason != "" {
			state += " " + string(p.Reason)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%d\t%d\t%s\n", p.Topic, p.Partition, state, p.Archived, p.Position, p.Lag, p.OpenRecords, text)
	}
	return t.Flush()
}
