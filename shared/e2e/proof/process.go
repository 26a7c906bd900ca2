package proof

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is one running service of the product: a real binary with its configuration file, log file and fixed port.
type Process struct {
	Name string
	URL  string // http://host:port of its REST listener

	bin, config, logPath string
	env                  []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has been waited for
}

// newProcess writes the configuration; Start runs it.
func newProcess(bin, dir, name, url, config string, env []string) (*Process, error) {
	p := &Process{Name: name, URL: url, bin: filepath.Join(bin, name), env: env,
		config: filepath.Join(dir, name+".yaml"), logPath: filepath.Join(dir, name+".log")}
	if err := os.WriteFile(p.config, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration of %s: %w", name, err)
	}
	return p, nil
}

// Start starts the process and waits until it is ready.
func (p *Process) Start(ctx context.Context) error {
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", p.Name, err)
	}
	cmd := exec.Command(p.bin, "--config", p.config) // not bound to ctx: Stop and Kill end it
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = Environment(p.env)
	// A Ctrl-C in the terminal is for us alone: as a second signal it would end the services in the middle of their clean stop.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		_ = log.Close()
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the exit status is read from ProcessState
		_ = log.Close()
		close(done)
	}()
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()
	return p.waitReady(ctx, done)
}

func (p *Process) waitReady(ctx context.Context, done <-chan struct{}) error {
	client := &http.Client{Timeout: 2 * time.Second}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := client.Get(p.URL + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-done:
			return fmt.Errorf("%s ended before it was ready; its log ends:\n%s", p.Name, p.LogTail(12))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; its log ends:\n%s", p.Name, ctx.Err(), p.LogTail(12))
		case <-tick.C:
		}
	}
}

// Kill ends the process as kill -9 does and waits for its end.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL, 10*time.Second) }

// Stop asks the process to end (SIGTERM), waits, and kills it after a bound. An exit status other than 0 is an error.
func (p *Process) Stop() error {
	if err := p.end(syscall.SIGTERM, 30*time.Second); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && p.cmd.ProcessState != nil && !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s ended with %s; its log ends:\n%s", p.Name, p.cmd.ProcessState, p.LogTail(8))
	}
	return nil
}

func (p *Process) end(sig syscall.Signal, bound time.Duration) error {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	select {
	case <-done:
		return nil
	case <-time.After(bound):
		_ = cmd.Process.Kill()
		<-done
		return fmt.Errorf("%s did not end within %s of %s; its log ends:\n%s", p.Name, bound, sig, p.LogTail(12))
	}
}

// LogTail returns the last n lines of the process's log.
func (p *Process) LogTail(n int) string {
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return "  " + strings.Join(lines, "\n  ")
}

// Environment is this process's without its TAPEDECK_* variables, which the services would take for settings, and with extra.
func Environment(extra []string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TAPEDECK_") })
	return append(env, extra...)
}

// freePort returns a port that was free a moment ago, so that a restarted process keeps its address.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
