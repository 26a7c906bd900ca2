package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/devstack/trips"
	"tapedeck.dev/tapedeck/shared/e2e/proof"
	"tapedeck.dev/tapedeck/shared/kafka"
)

// nobody is an address that answers nothing: a port of the loopback interface that no service listens on.
const nobody = "127.0.0.1:1"

// TestBadStart starts each service with one thing wrong: it must end within the bound, with exit status 2 and a line that names
// the setting.
func TestBadStart(t *testing.T) {
	o := options(t, 0, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := trips.EnsureTopic(ctx, kafka.Client{Bootstrap: o.Bootstrap, ClientID: "e2e"}, o.Topic, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := proof.New(o); err != nil { // writes the configurations that are right
		t.Fatal(err)
	}
	foreign := t.TempDir()
	object := filepath.Join(foreign, "topics", "t", "partition=0", "t+0+0000000000.avro")
	if err := os.MkdirAll(filepath.Dir(object), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(object, []byte("Obj\x01 of somebody else"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := strings.Replace(o.StoreURL, "s3://tapedeck/", "s3://no-such-bucket/", 1)
	for _, c := range []struct {
		service, setting, value, want string
	}{
		{"archiver", "bootstrap.servers", nobody, "bootstrap.servers"},
		{"processor", "bootstrap.servers", nobody, "bootstrap.servers"},
		{"archiver", "store", "s3://tapedeck/x?region=us-east-1&path-style=true&endpoint=http://" + nobody, "store"},
		{"replayer", "store", "s3://tapedeck/x?region=us-east-1&path-style=true&endpoint=http://" + nobody, "store"},
		{"archiver", "store", missing, "no-such-bucket"},
		{"archiver", "store", "file://" + foreign, "t+0+0000000000.avro"},
		{"archiver", "store", "ftp://somewhere", "s3://"},
		{"archiver", "schema.registry.url", "http://" + nobody, "schema.registry.url"},
		{"processor", "schema.registry.url", "http://" + nobody, "schema.registry.url"},
		{"archiver", "flsh.size", "3", `did you mean "flush.size"`},
		{"processor", "pipelnes", "x", `did you mean "pipelines"`},
		{"replayer", "stroe", "x", `did you mean "store"`},
		{"processor", "pipelines", "/no/such/file.yaml", "/no/such/file.yaml"},
		{"replayer", "targets.live.typ", "processor", "type"},
	} {
		t.Run(fmt.Sprintf("%s %s=%.20s", c.service, c.setting, c.value), func(t *testing.T) {
			run, stop := context.WithTimeout(ctx, 3*time.Minute)
			defer stop()
			cmd := exec.CommandContext(run, filepath.Join(binDir, c.service), "--config", filepath.Join(o.Dir, c.service+".yaml"),
				"--set", "startup.timeout=2s", "--set", c.setting+"="+c.value)
			cmd.Env = proof.Environment(o.Vars)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			if run.Err() != nil {
				t.Fatalf("still running after three minutes:\n%s", stderr.String())
			}
			if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Errorf("ended with %v, want exit status 2", err)
			}
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			if last := lines[len(lines)-1]; !strings.Contains(last, c.want) || strings.HasPrefix(last, "{") {
				t.Errorf("the last line does not say %q:\n%s", c.want, stderr.String())
			}
		})
	}
}

// TestReplayOfNothing asks for what is not there: the job must be FAILED with the reason, and the command line exit with 1.
func TestReplayOfNothing(t *testing.T) {
	o := options(t, 2000, 0)
	o.BeforeReplay = func(ctx context.Context, p *proof.Proof) error {
		for name, c := range map[string]struct {
			args []string
			want string
		}{
			"topic":     {[]string{"--topics", "no-such-topic", "--from", "earliest", "--until", "end"}, "no-such-topic"},
			"beyond":    {[]string{"--from", "earliest", "--until", "999999999"}, "999999999"},
			"middle":    {[]string{"--promise", "recompute", "--from", "10"}, "middle"},
			"no-window": {[]string{"--promise", "recompute", "--from", "2031-01-01T00:00:00Z", "--until", "2031-01-02T00:00:00Z"}, ""},
		} {
			// The plan must say so before a job does.
			for verb, want := range map[string]string{"plan": "", "start": "FAILED"} {
				args := append([]string{verb, "--url", p.Replayer.URL, "--name", name, "--target", "live"}, c.args...)
				if verb == "start" {
					args = append(args, "--wait")
				}
				out, err := exec.CommandContext(ctx, filepath.Join(binDir, "replayer"), args...).CombinedOutput()
				if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 {
					t.Errorf("%s %s: %v, want exit status 1\n%s", verb, name, err, out)
				}
				if !strings.Contains(string(out), want) || !strings.Contains(string(out), c.want) {
					t.Errorf("%s %s: the output does not say %q and %q:\n%s", verb, name, want, c.want, out)
				}
			}
		}
		return nil
	}
	prove(t, o)
}
