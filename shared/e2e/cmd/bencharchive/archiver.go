package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tapedeck.dev/tapedeck/shared/e2e/proof"
)

// archived is what one run of the archiver did.
type archived struct {
	seconds    float64       // from the assignment of the partitions to the last confirmed segment
	cpu        time.Duration // of the whole process, user and system
	segments   int64
	bytes      int64      // of the segments
	startCalls callCounts // before the assignment: the check of the store
	calls      callCounts // since: the search for the tails, and the segments
}

func (a *archived) perSegment() float64 {
	return float64(a.calls.total()) / float64(max(a.segments, 1))
}

// callCounts counts store calls by operation.
type callCounts map[string]int64

func (c callCounts) total() (n int64) {
	for _, v := range c {
		n += v
	}
	return n
}

func (c callCounts) String() string {
	var s []string
	for op, n := range c {
		if n > 0 {
			s = append(s, fmt.Sprintf("%s %d", op, n))
		}
	}
	slices.Sort(s)
	return strings.Join(s, ", ")
}

// process is a running archiver; its log is a pipe that is read line by line, and kept in a file.
type process struct {
	cmd  *exec.Cmd
	log  io.ReadCloser
	file *os.File
}

func startArchiver(bin, logPath string, sets []string) (*process, error) {
	file, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	var args []string
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	cmd := exec.Command(bin, args...)
	cmd.Env = proof.Environment(nil)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the archiver: %w", err), file.Close())
	}
	return &process{cmd: cmd, log: log, file: file}, nil
}

const logTime = "2006-01-02T15:04:05.000Z0700"

// logLine is what the bench reads of the archiver's log.
type logLine struct {
	Time    string `json:"ts"`
	Message string `json:"msg"`
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"`
}

// archiveAll follows the log until so many records are confirmed in the store.
func (p *process) archiveAll(ctx context.Context, records int64, addressFile string) (a archived, err error) {
	// A read of the log ends when the process does, so the end of ctx ends the process.
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	defer stop()
	lines := bufio.NewScanner(p.log)
	lines.Buffer(nil, 1<<20)
	var began, last time.Time
	var done int64
	var tail []string
	for done < records {
		if !lines.Scan() {
			return a, fmt.Errorf("the archiver ended with %d of %d records archived (%v); its log ends:\n%s",
				done, records, errors.Join(ctx.Err(), lines.Err()), strings.Join(tail, "\n"))
		}
		_, _ = fmt.Fprintln(p.file, lines.Text())
		if tail = append(tail, lines.Text()); len(tail) > 10 {
			tail = tail[1:]
		}
		var l logLine
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		switch l.Message {
		case "partitions assigned":
			if !began.IsZero() {
				continue
			}
			if began, err = time.Parse(logTime, l.Time); err == nil {
				a.startCalls, err = storeCalls(ctx, addressFile)
			}
		case "segment confirmed":
			last, err = time.Parse(logTime, l.Time)
			done += l.Records
			a.segments++
			a.bytes += l.Bytes
		}
		if err != nil {
			return a, fmt.Errorf("read the archiver's log: %w", err)
		}
	}
	if done != records {
		return a, fmt.Errorf("archived %d records, the topic has %d", done, records)
	}
	a.seconds = last.Sub(began).Seconds()
	all, err := storeCalls(ctx, addressFile)
	if err != nil {
		return a, err
	}
	a.calls = callCounts{}
	for op, n := range all {
		a.calls[op] = n - a.startCalls[op]
	}
	return a, nil
}

// storeCalls reads the archiver's counters of store calls.
func storeCalls(ctx context.Context, addressFile string) (callCounts, error) {
	addr, err := os.ReadFile(addressFile)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+strings.TrimSpace(string(addr))+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the archiver's metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	counts := callCounts{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "tapedeck_store_calls_total{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		_, op, _ := strings.Cut(labels, `op="`)
		op, _, _ = strings.Cut(op, `"`)
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("read the archiver's metrics: %q: %w", lines.Text(), err)
		}
		counts[op] += int64(n)
	}
	return counts, lines.Err()
}

// stop ends the archiver as an operator does.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_, _ = io.Copy(p.file, p.log)
	err := p.cmd.Wait()
	if err != nil {
		err = fmt.Errorf("the archiver ended with %w; its log is lost with its folder", err)
	}
	return errors.Join(err, p.file.Close())
}
