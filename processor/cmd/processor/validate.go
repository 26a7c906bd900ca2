package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/runtime"
	"tapedeck.dev/tapedeck/shared/service"
)

// validateCommand checks pipeline files without connecting to anything.
func validateCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check pipeline files and print their hashes and topics; exit 1 where one is wrong",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("-o %s: want text or json", output)
			}
			return validate(cmd.OutOrStdout(), cmd.ErrOrStderr(), args, output == "json")
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// report is what validate prints of one file.
type report struct {
	File           string            `json:"file"`
	Name           string            `json:"name"`
	Hash           string            `json:"hash"`
	Keyed          bool              `json:"keyed"`
	Inputs         []string          `json:"inputs"`
	Outputs        map[string]string `json:"outputs"`
	DecisionsTopic string            `json:"decisionsTopic"`
}

func validate(out, errOut io.Writer, files []string, asJSON bool) error {
	reports := []report{}
	var ps []*pipeline.Pipeline
	wrong := false
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		p, err := pipeline.Parse(file, data)
		if err != nil {
			wrong = true
			if _, err := fmt.Fprintln(errOut, err); err != nil {
				return err
			}
			continue
		}
		r := report{File: file, Name: p.Name, Hash: p.Hash, Keyed: p.Keyed, Outputs: runtime.Outputs(p), DecisionsTopic: p.DecisionsTopic()}
		for _, s := range p.Source {
			r.Inputs = append(r.Inputs, s.Topic)
		}
		reports, ps = append(reports, r), append(ps, p)
	}
	if err := runtime.CheckDistinct(ps); err != nil {
		wrong = true
		if _, err := fmt.Fprintln(errOut, err); err != nil {
			return err
		}
	}
	if err := printReports(out, reports, asJSON); err != nil {
		return err
	}
	if wrong {
		return &service.ExitError{Code: 1}
	}
	return nil
}

func printReports(out io.Writer, reports []report, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(reports)
	}
	tw := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	line := func(format string, args ...any) error {
		_, err := fmt.Fprintf(tw, format+"\n", args...)
		return err
	}
	for _, r := range reports {
		err := line("%s\tok", r.File)
		add := func(key, v string) {
			if err == nil {
				err = line("  %s\t%s", key, v)
			}
		}
		add("pipeline", r.Name)
		add("hash", r.Hash)
		for _, in := range r.Inputs {
			add("input", in)
		}
		roles := make([]string, 0, len(r.Outputs))
		for role := range r.Outputs {
			roles = append(roles, role)
		}
		sort.Strings(roles)
		for _, role := range roles {
			add(role, r.Outputs[role])
		}
		add("decisions", r.DecisionsTopic)
		if err != nil {
			return err
		}
	}
	return tw.Flush()
}
