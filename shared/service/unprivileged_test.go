package service

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

func TestUnprivileged(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "archiver")
	if err := os.WriteFile(program, nil, 0o555); err != nil {
		t.Fatal(err)
	}
	if err := checkUnprivileged(0, program); err == nil || !strings.Contains(err.Error(), "root") {
		t.Errorf("as root: %v", err)
	}
	// The folder is this test's own.
	if err := checkUnprivileged(65532, program); err == nil || !strings.Contains(err.Error(), "is writable") {
		t.Errorf("own program writable: %v", err)
	}
	// A link elsewhere does not hide the program's own folder.
	link := filepath.Join("/", "proc", "self", "cwd")
	if target, err := os.Readlink(link); err == nil && syscall.Access(target, mayWrite) == nil {
		if err := checkUnprivileged(65532, link); err == nil {
			t.Error("writable behind a link: no error")
		}
	}
	if fixed := "/proc/version"; syscall.Access(fixed, mayWrite) != nil && syscall.Access("/proc", mayWrite) != nil {
		if err := checkUnprivileged(65532, fixed); err != nil {
			t.Errorf("program that cannot be overwritten: %v", err)
		}
	}
}

// A service with run.unprivileged does not get as far as its work in a test binary, which its user owns.
func TestUnprivilegedServiceDoesNotStart(t *testing.T) {
	for _, set := range []string{"true", "false"} {
		ran := false
		cmd := Command("archiver", "test", CommonKeys(":0"), func(context.Context, *Frame) error { ran = true; return nil })
		cmd.SetErr(new(strings.Builder))
		code := Main(quiet(cmd), []string{"--set", "run.unprivileged=" + set})
		if want := set == "false"; ran != want || (code == 0) != want {
			t.Errorf("run.unprivileged=%s: ran %t, exit status %d", set, ran, code)
		}
	}
}

func quiet(c *cobra.Command) *cobra.Command {
	c.SetOut(new(strings.Builder))
	return c
}
