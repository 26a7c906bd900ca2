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

// External says where services run that the proof did not start, as containers do.
type External struct {
	Archiver, Replayer, Processor string // base URLs, http://host:port

	// Hook is a program that starts and ends them: it is run as `HOOK start|kill|stop NAME` and returns when that is done. kill
	// is kill -9; stop is SIGTERM, and fails where the service did not end cleanly. "": they cannot be killed or restarted.
	Hook string
}

// Process is one running service of the product: a real binary with its configuration file, log file and fixed port, or an
// external one.
type Process struct {
	Name string
	URL  string // http://host:port of its REST listener

	bin, config, logPath string
	env                  []string
	hook                 string // of an external service

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has been waited for
}

// NewProcess writes the configuration into dir, and keeps its log there; Start runs it. url is where it will listen, as config says. env is added
// to this process's environment.
func NewProcess(bin, dir, name, url, config string, env []string) (*Process, error) {
	p := &Process{Name: name, URL: url, bin: filepath.Join(bin, name), env: env,
		config: filepath.Join(dir, name+".yaml"), logPath: filepath.Join(dir, name+".log")}
	if err := os.WriteFile(p.config, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration of %s: %w", name, err)
	}
	return p, nil
}

// Start starts the process and waits until it is ready.
func (p *Process) Start(ctx context.Context) error {
	if p.bin == "" {
		if err := p.external(ctx, "start"); err != nil {
			return err
		}
		return p.WaitReady(ctx)
	}
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

// external has the hook do something with a service that runs elsewhere.
func (p *Process) external(ctx context.Context, verb string) error {
	if p.hook == "" {
		return fmt.Errorf("%s %s: it runs elsewhere, and no hook says how", verb, p.Name)
	}
	out, err := exec.CommandContext(ctx, p.hook, verb, p.Name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s %s: %w\n%s", p.hook, verb, p.Name, err, out)
	}
	return nil
}

// WaitReady waits until a process that was started before is ready.
func (p *Process) WaitReady(ctx context.Context) error { return p.waitReady(ctx, nil) }

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

// externalBound bounds one call of the hook that ends a service; it has its own, shorter bound for the service's end.
const externalBound = 90 * time.Second

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
	if p.bin == "" {
		ctx, cancel := context.WithTimeout(context.Background(), externalBound)
		defer cancel()
		if sig == syscall.SIGKILL {
			return p.external(ctx, "kill")
		}
		return p.external(ctx, "stop")
	}
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

// CPU is what a process that has ended took, user and system.
func (p *Process) CPU() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.ProcessState == nil {
		return 0
	}
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// LogTail returns the last n lines of the process's log.
func (p *Process) LogTail(n int) string {
	if p.bin == "" {
		return "  (kept where " + p.Name + " runs)"
	}
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

// FreePort returns a port that was free a moment ago, so that a restarted process keeps its address.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
