package soak

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tapedeck.dev/tapedeck/shared/e2e/proof"
)

// Archiver is one archiver as a process. Its methods are called from one goroutine.
type Archiver struct {
	ID      string
	LogPath string

	cmd     *exec.Cmd
	done    chan struct{} // closed when cmd has been waited for
	stopped bool          // SIGSTOP
}

// StartArchiver starts a process; it does not wait until it is ready. Its log is appended to dir/<id>.log.
func StartArchiver(bin, dir, id string, settings []string) (*Archiver, error) {
	a := &Archiver{ID: id, LogPath: filepath.Join(dir, id+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(a.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", id, err)
	}
	var args []string
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	a.cmd = exec.Command(bin, args...)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	a.cmd.Env = proof.Environment(nil)
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := a.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", id, err), log.Close())
	}
	go func() {
		_ = a.cmd.Wait() // read from ProcessState
		_ = log.Close()
		close(a.done)
	}()
	return a, nil
}

// Running reports whether the process has not ended.
func (a *Archiver) Running() bool {
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// Kill is kill -9.
func (a *Archiver) Kill() {
	_ = a.cmd.Process.Kill()
	<-a.done
}

// Freeze is SIGSTOP, Thaw SIGCONT.
func (a *Archiver) Freeze() {
	a.stopped = true
	_ = a.cmd.Process.Signal(syscall.SIGSTOP)
}

// Thaw is described at Freeze.
func (a *Archiver) Thaw() {
	a.stopped = false
	_ = a.cmd.Process.Signal(syscall.SIGCONT)
}

// stopBound is how long an archiver may take for its clean end.
const stopBound = 60 * time.Second

// Stop is SIGTERM; an end with another status than 0 is an error, unless the signal came before the program listened for signals.
func (a *Archiver) Stop() error {
	if a.stopped {
		a.Thaw()
	}
	listening := strings.Contains(a.LogTail(1<<30), `"msg":"starting"`)
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.done:
	case <-time.After(stopBound):
		a.Kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM", a.ID, stopBound)
	}
	if !listening {
		return nil
	}
	return a.ended()
}

func (a *Archiver) ended() error {
	if a.cmd.ProcessState.Success() {
		return nil
	}
	return fmt.Errorf("%s ended with %s; its log ends:\n%s", a.ID, a.cmd.ProcessState, a.LogTail(8))
}

// LogTail returns the last n lines of its log.
func (a *Archiver) LogTail(n int) string {
	b, err := os.ReadFile(a.LogPath)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
