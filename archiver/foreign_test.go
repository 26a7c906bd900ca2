package archiver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// What a connector's configuration becomes is a configuration that the archiver accepts, address of the store included.
func TestConnectorFilesAreAccepted(t *testing.T) {
	for _, name := range []string{"simple.json", "full.json"} {
		data, err := os.ReadFile("connect/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		ss, notes, err := ConnectorFile(data)
		if err != nil || len(notes) == 0 {
			t.Fatalf("%s: %v, %d notes", name, err, len(notes))
		}
		sets := []string{"bootstrap.servers=127.0.0.1:1"}
		for _, s := range ss {
			sets = append(sets, s.Name+"="+s.Value)
		}
		cfg, err := service.Load(Keys(), "", sets, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := ReadSettings(cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		st, err := storeurl.Open(t.Context(), cfg.String("store"))
		if err != nil {
			t.Errorf("%s: store: %v", name, err)
			continue
		}
		_ = st.Close()
	}
}

// The binary takes a connector's file where it takes its own, says what differs, and refuses what it cannot do.
func TestAConnectorFileAsConfiguration(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	bin := build(t)
	url, arc := openDir(t)
	e.topic("trips", 1)
	e.topic("orders", 1)
	e.fill("trips", 0, 0, 10)
	run := func(want int, args ...string) string {
		t.Helper()
		c := exec.CommandContext(e.ctx(), bin, args...)
		out, _ := c.CombinedOutput()
		if code := c.ProcessState.ExitCode(); code != want {
			t.Fatalf("%v: exit status %d, want %d\n%s", args, code, want, out)
		}
		return string(out)
	}
	file := func(name string) string { return filepath.Join("connect", "testdata", name) }
	out := run(0, "run", "--until", "now", "--config", file("simple.json"), "--set", "store="+url, "--set", "bootstrap.servers="+e.bootstrap)
	for _, want := range []string{"tasks.max=1", "start=group:connect-s3-sink", "all archived"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
	if tl, err := arc.Tail(e.ctx(), "trips", 0, -1); err != nil || tl.Header.Next != 10 || tl.Header.Start != 9 {
		t.Errorf("flush.size=3 is not obeyed: %+v, %v", tl, err)
	}
	if out := run(0, "config", "--config", file("full.json"), "--set", "bootstrap.servers=x"); strings.Contains(out, "archiver:secret") ||
		!strings.Contains(out, "flush.size: 50000") || !strings.Contains(out, "note: errors.tolerance") {
		t.Error(out)
	}
	if out := run(2, "--config", file("refused.json"), "--set", "bootstrap.servers=x"); !strings.Contains(out, "JsonFormat") || !strings.Contains(out, "refused.json") {
		t.Error(out)
	}
}
