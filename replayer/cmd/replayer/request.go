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

// request is a job's request from a file, from flags, or from a file with some fields given by flags. The replayer checks it.
type request struct {
	file                      string
	name, target, from, until string
	topics                    []string
	promise, endMode, onLost  string
	schemas                   string
}

func (q *request) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&q.file, "file", "f", "", "`file` with the request in JSON or YAML (- for standard input)")
	f.StringVar(&q.name, "name", "", "name of the job: a-z, 0-9 and -")
	f.StringVar(&q.target, "target", "", "target, by its name in the replayer's configuration")
	f.StringSliceVar(&q.topics, "topics", nil, "topics, comma separated; none: the inputs of the target's pipeline")
	f.StringVar(&q.from, "from", "", "first record: earliest, an offset, or a time (RFC 3339, or ms:NUMBER)")
	f.StringVar(&q.until, "until", "", "end, exclusive: end, an offset, or a time (RFC 3339, or ms:NUMBER)")
	f.StringVar(&q.promise, "promise", "", "reproduce (default) or recompute")
	f.StringVar(&q.endMode, "end-mode", "", "hold (default) or drain")
	f.StringVar(&q.onLost, "on-lost", "", "fail (default) or allow")
	f.StringVar(&q.schemas, "schemas", "", "writer schemas: segment (default to reproduce) or registry (default to recompute)")
}

// body is the request in JSON.
func (q *request) body(cmd *cobra.Command) ([]byte, error) {
	fields := map[string]any{}
	if q.file != "" {
		if err := readFile(cmd, q.file, &fields); err != nil {
			return nil, err
		}
	}
	words := []struct {
		field, value string
	}{{"name", q.name}, {"target", q.target}, {"promise", q.promise}, {"endMode", q.endMode}, {"onLost", q.onLost}, {"schemas", q.schemas}}
	for _, w := range words {
		if w.value != "" {
			fields[w.field] = w.value
		}
	}
	if len(q.topics) > 0 {
		fields["topics"] = q.topics
	}
	for _, b := range []struct{ field, value string }{{"from", q.from}, {"until", q.until}} {
		if b.value == "" {
			continue
		}
		bound, err := parseBound(b.value)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", b.field, err)
		}
		fields[b.field] = bound
	}
	if len(fields) == 0 {
		return nil, errors.New("no request: give -f FILE, or --name and --target")
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
	if ms, ok := strings.CutPrefix(s, "ms:"); ok {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
			return job.Bound{Kind: job.Timestamp, Value: n}, nil
		}
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		// Timestamps are whole milliseconds: what lies between two of them begins at the later.
		ms := t.UnixMilli()
		if t.After(time.UnixMilli(ms)) {
			ms++
		}
		return job.Bound{Kind: job.Timestamp, Value: ms}, nil
	}
	return job.Bound{}, fmt.Errorf("%q: give earliest, end, an offset, a time such as 2026-03-01T14:00:00Z, or ms:NUMBER", s)
}
