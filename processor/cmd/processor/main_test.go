package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tapedeck.dev/tapedeck/shared/service"
)

const good = `name: fares
sources: [{topic: trips, format: json, eventTime: {field: t, unit: s}, delay: 10s}]
window: {tumbling: {size: 10s}}
aggregates: {total: sum(price)}
output: {topic: out, partitions: 2}
`

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestValidate(t *testing.T) {
	ok, bad := write(t, "ok.yaml", good), write(t, "bad.yaml", strings.Replace(good, "delay", "dely", 1))
	var out, errOut bytes.Buffer
	if err := validate(&out, &errOut, []string{ok}, true); err != nil || errOut.Len() > 0 {
		t.Fatalf("%v %s", err, errOut.String())
	}
	var reports []report
	if err := json.Unmarshal(out.Bytes(), &reports); err != nil || len(reports) != 1 {
		t.Fatalf("%v %s", err, out.String())
	}
	if r := reports[0]; r.Name != "fares" || len(r.Hash) != 64 || r.Outputs["late"] != "out.late" || r.DecisionsTopic != "fares.decisions" || r.Inputs[0] != "trips" {
		t.Errorf("%+v", r)
	}
	out.Reset()
	err := validate(&out, &errOut, []string{ok, bad}, false)
	var exit *service.ExitError
	if !errors.As(err, &exit) || exit.Code != 1 {
		t.Errorf("a wrong file: %v", err)
	}
	if !strings.Contains(errOut.String(), "bad.yaml") || !strings.Contains(errOut.String(), "delay") || !strings.Contains(out.String(), reports[0].Hash) {
		t.Errorf("%s\n%s", errOut.String(), out.String())
	}
	if err := validate(&out, &errOut, []string{ok, ok}, false); !errors.As(err, &exit) || exit.Code != 1 {
		t.Errorf("two pipelines of one name: %v", err)
	}
	if err := validate(&out, &errOut, []string{ok + ".not"}, false); err == nil || errors.As(err, &exit) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// buffer takes what the logger writes from another goroutine.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestStartNamesTheSetting(t *testing.T) {
	ok := write(t, "ok.yaml", good)
	avro := write(t, "avro.yaml", strings.Replace(good, "format: json", `format: avro, schema: '{"type":"record","name":"r","fields":[{"name":"t","type":"long"},{"name":"price","type":"long"}]}'`, 1))
	for name, c := range map[string]struct{ args, want string }{
		"no pipelines":       {"bootstrap.servers=127.0.0.1:1", "pipelines"},
		"no brokers":         {"pipelines=" + ok, "bootstrap.servers"},
		"no such file":       {"bootstrap.servers=127.0.0.1:1 pipelines=" + ok + ".not", "pipelines"},
		"kafka away":         {"bootstrap.servers=127.0.0.1:1 startup.timeout=300ms pipelines=" + ok, "bootstrap.servers"},
		"avro, no registry":  {"bootstrap.servers=127.0.0.1:1 pipelines=" + avro, "schema.registry.url"},
		"registry away":      {"bootstrap.servers=127.0.0.1:1 startup.timeout=300ms schema.registry.url=http://127.0.0.1:1 pipelines=" + avro, "schema.registry.url"},
		"interval too small": {"bootstrap.servers=127.0.0.1:1 commit.interval.ms=0 pipelines=" + ok, "commit.interval.ms"},
		"unknown setting":    {"bootstrap.servers=127.0.0.1:1 comit.interval.ms=5 pipelines=" + ok, "commit.interval.ms"},
	} {
		root := service.Command("processor", "x", keys(), run)
		var errOut buffer
		root.SetErr(&errOut)
		var args []string
		for a := range strings.FieldsSeq(c.args) {
			args = append(args, "--set", a)
		}
		if code := service.Main(root, args); code != 2 || !strings.Contains(errOut.String(), c.want) {
			t.Errorf("%s: exit %d, %s; want %q", name, code, errOut.String(), c.want)
		}
	}
}

func TestDefaultInstance(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	if got, err := defaultInstance("127.0.0.1:8185"); err != nil || got != host+"-8185" {
		t.Errorf("%q %v", got, err)
	}
	for _, listen := range []string{":0", "x"} {
		if got, err := defaultInstance(listen); err == nil {
			t.Errorf("%s: %q", listen, got)
		}
	}
}
