package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/replayer/job"
)

// request is a job's request from a file, from flags, or from a file in which flags replace fields. The replayer checks it.
type request struct {
	file  string
	flags []*requestFlag
}

// register adds the flags of a command.
func (q *request) register(cmd *cobra.Command, which targets) {
	f := cmd.Flags()
	f.StringVarP(&q.file, "file", "f", "", "`file` with the request in JSON or YAML (- for standard input); flags replace its fields")
	for _, r := range requestFlags() {
		if r.targets&which != 0 {
			r.register(f)
			q.flags = append(q.flags, r)
		}
	}
}

// body is the request in JSON.
func (q *request) body(cmd *cobra.Command) ([]byte, error) {
	fields := map[string]any{}
	if q.file != "" {
		if err := readFile(cmd, q.file, &fields); err != nil {
			return nil, err
		}
	}
	given := map[string]bool{} // fields that flags say: several may make up one
	for _, r := range q.flags {
		if !cmd.Flags().Changed(r.name) {
			continue
		}
		if !given[r.field] {
			delete(fields, r.field)
			given[r.field] = true
		}
		if err := r.apply(fields); err != nil {
			return nil, fmt.Errorf("--%s: %w", r.name, err)
		}
	}
	if len(fields) == 0 {
		return nil, errors.New("no request: give --name and --target, or -f FILE; `replayer plan` with the same flags shows what would be done")
	}
	return json.Marshal(fields)
}

func readFile(cmd *cobra.Command, file string, fields *map[string]any) error {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), job.MaxRequestBytes+1))
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if len(data) > job.MaxRequestBytes {
		return fmt.Errorf("read the request: %s has more than %d bytes", file, job.MaxRequestBytes)
	}
	if err := yaml.Unmarshal(data, fields); err != nil { // JSON is YAML
		return fmt.Errorf("read the request from %s: %w", file, err)
	}
	return nil
}

func parseBound(s string) (job.Bound, error) {
	if s == job.Earliest || s == job.End {
		return job.Bound{Kind: s}, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return job.Bound{Kind: job.Offset, Value: n}, nil
	}
	if ms, ok := parseTime(s); ok {
		return job.Bound{Kind: job.Timestamp, Value: ms}, nil
	}
	return job.Bound{}, fmt.Errorf("%q: give earliest, end, an offset, a time such as 2026-03-01T14:00:00Z, or ms:NUMBER", s)
}

// parseTime reads ms:NUMBER or RFC 3339. Timestamps are whole milliseconds: what lies between two of them is the later.
func parseTime(s string) (ms int64, ok bool) {
	if text, is := strings.CutPrefix(s, "ms:"); is {
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, false
	}
	if ms = t.UnixMilli(); t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms, true
}
