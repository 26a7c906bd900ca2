package service

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets this binary be the service that the signal tests run as a process.
func TestMain(m *testing.M) {
	if mode := os.Getenv("TAPEDECK_TEST_SERVICE"); mode != "" {
		os.Exit(Main(Command("child", "", testKeys(), func(ctx context.Context, f *Frame) error {
			os.Stdout.WriteString("up\n")
			if mode == "starting" {
				return f.AtStart(ctx, "store", func(context.Context) error { return errors.New("not there yet") })
			}
			<-ctx.Done()
			os.Stdout.WriteString("ending\n")
			if mode == "hang" {
				select {}
			}
			return nil
		}), nil))
	}
	os.Exit(m.Run())
}

func child(t *testing.T, mode string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "TAPEDECK_TEST_SERVICE="+mode)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(out)
	await(t, sc, "up")
	return cmd, sc
}

func await(t *testing.T, sc *bufio.Scanner, line string) {
	t.Helper()
	for sc.Scan() {
		if strings.TrimSpace(sc.Text()) == line {
			return
		}
	}
	t.Fatalf("no line %q", line)
}

func TestFirstSignalEndsTheContext(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		cmd, sc := child(t, "clean")
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		await(t, sc, "ending")
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", sig, err)
		}
	}
}

// An orchestrator that ends what still waits for Kafka must not read of a failure.
func TestASignalDuringStartUpIsNoFailure(t *testing.T) {
	cmd, _ := child(t, "starting")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestSecondSignalEndsTheProcess(t *testing.T) {
	cmd, sc := child(t, "hang")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, sc, "ending")
	// The default action comes back just after the context ends; until then a signal changes nothing, so it is sent until it works.
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-done:
			ee, ok := err.(*exec.ExitError)
			if !ok || ee.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
				t.Errorf("ended with %v", err)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// The first signal delivered twice at once is one signal; a different one ends the process at once.
func TestTheSameSignalTwiceAtOnceIsOne(t *testing.T) {
	cmd, sc := child(t, "hang")
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, sc, "ending")
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for time.Since(began) < sameSignal/2 {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-done:
			t.Fatalf("ended after %s: %v", time.Since(began), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		ee, ok := err.(*exec.ExitError)
		if !ok || ee.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("another signal did not end it")
	}
}
