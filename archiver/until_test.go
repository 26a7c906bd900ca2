package archiver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tapedeck.dev/tapedeck/archiver/partition"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/store"
)

func (e *env) backup(s Settings) *Backup {
	e.t.Helper()
	b, err := e.backupIn(e.ctx(), s)
	if err != nil {
		e.t.Fatal(err)
	}
	return b
}

func (e *env) backupIn(ctx context.Context, s Settings) (*Backup, error) {
	e.t.Helper()
	a, err := New(s, Parts{Store: e.store, TopicsDir: "topics", Log: testLog(e.t), Metrics: prometheus.NewRegistry()})
	if err != nil {
		e.t.Fatal(err)
	}
	return a.RunUntilNow(ctx)
}

// row is a partition of a backup.
func (b *Backup) row(t *testing.T, topic string, part int32) BackupPartition {
	t.Helper()
	for _, p := range b.Partitions {
		if p.Topic == topic && p.Partition == part {
			return p
		}
	}
	t.Fatalf("no row for %s-%d in %+v", topic, part, b)
	return BackupPartition{}
}

func TestBackupToTheEnds(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 2)
	e.topic("empty", 1)
	e.fill("trips", 0, 0, 25)
	e.fill("trips", 1, 0, 7)
	s := e.settings("trips", "empty")
	s.Partition.Rule.FlushSize = 10
	for range 2 { // the second finds nothing to do
		if b := e.backup(s); b.Code() != 0 || !b.Complete || len(b.Partitions) != 3 {
			t.Fatalf("%+v", b)
		}
	}
	e.fill("trips", 0, 25, 3)
	b := e.backup(s)
	if b.Code() != 0 {
		t.Fatalf("%+v", b)
	}
	want := BackupPartition{Topic: "trips", State: partition.Finished, Start: 25, Next: 28, Until: 28, Records: 3, Segments: 1}
	if got := b.row(t, "trips", 0); got != want {
		t.Errorf("%+v", got)
	}
	if got := b.row(t, "empty", 0); got.Next != 0 || got.State != partition.Finished || got.Segments != 0 {
		t.Errorf("%+v", got)
	}
	if d := fmt.Sprint(e.starts("trips", 0), e.starts("trips", 1), e.starts("empty", 0)); d != "[0 10 20 25] [0] []" {
		t.Error(d)
	}
	for part := range int32(2) {
		e.checkEqual("trips", part, e.log("trips", part))
	}
	e.checkClean()
	// No member was there, so the group's positions are stored for a later service.
	if c := e.committed("trips", 0); c.Offset != 28 {
		t.Errorf("committed %+v", c)
	}
}

// A partition that receives records all the while is archived to where it ended when the run began.
func TestBackupWhileRecordsArrive(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 50)
	stop, done := make(chan struct{}), make(chan struct{})
	var sent atomic.Int64
	sent.Store(50)
	go func() {
		defer close(done)
		p := e.producer("")
		for i := 50; ; i++ {
			select {
			case <-stop:
				return
			default:
				e.send(p, "trips", 0, numbered(i, 1)...)
				sent.Add(1)
			}
		}
	}()
	e.await("records arrive", func() bool { return sent.Load() > 60 })
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 20
	low := sent.Load()
	b := e.backup(s)
	high := sent.Load()
	e.await("more records", func() bool { return sent.Load() > high+10 })
	close(stop)
	<-done
	r := b.row(t, "trips", 0)
	if b.Code() != 0 || r.Until < low || r.Until > high+1 || r.Next != r.Until || r.Records != r.Next {
		t.Fatalf("%+v, %d to %d sent", b, low, high)
	}
	e.checkEqual("trips", 0, e.log("trips", 0)[:r.Until])
	// The service goes on from there.
	s.Partition.RotateAge = 200 * time.Millisecond
	a := e.start(s)
	e.awaitArchived("trips", 0, sent.Load())
	a.end()
	e.checkEqual("trips", 0, e.log("trips", 0))
	e.checkClean()
}

// Transactions: to the last stable offset; markers at the end belong to the last segment; what an open transaction holds back is told.
func TestBackupOfTransactions(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("done", 1)
	e.topic("open", 1)
	tx := e.producer("tx")
	inTx := func(topic string, from, n int, end func(context.Context) error) {
		t.Helper()
		if err := tx.Begin(); err != nil {
			t.Fatal(err)
		}
		e.send(tx, topic, 0, numbered(from, n)...)
		if end == nil {
			return
		}
		if err := end(e.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	inTx("done", 0, 5, tx.CommitTx)
	inTx("done", 5, 3, tx.AbortTx)
	inTx("open", 0, 4, tx.CommitTx)
	inTx("open", 4, 6, nil)
	b := e.backup(e.settings("done", "open"))
	if r := b.row(t, "done", 0); r.Until != 10 || r.Next != 10 || r.Records != 5 || r.Pending != 0 {
		t.Errorf("%+v", r)
	}
	if r := b.row(t, "open", 0); r.Until != 5 || r.Next != 5 || r.Records != 4 || r.Pending != 6 {
		t.Errorf("%+v", r)
	}
	if b.Code() != 0 {
		t.Errorf("%+v", b)
	}
	e.checkClean()
	if err := tx.CommitTx(e.ctx()); err != nil {
		t.Fatal(err)
	}
	if r := e.backup(e.settings("open")).row(t, "open", 0); r.Start != 5 || r.Next != 12 || r.Records != 6 || r.Pending != 0 {
		t.Errorf("%+v", r)
	}
}

func TestBackupWithFindings(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 2)
	e.fill("trips", 0, 0, 20)
	e.fill("trips", 1, 0, 20)
	if b := e.backup(e.settings("trips")); b.Code() != 0 {
		t.Fatalf("%+v", b)
	}
	e.fill("trips", 0, 20, 20)
	e.fill("trips", 1, 20, 20)
	if err := e.admin.DeleteRecords(e.ctx(), map[kafka.TP]int64{{Topic: "trips", Partition: 1}: 30}); err != nil {
		t.Fatal(err)
	}
	b := e.backup(e.settings("trips", "trisp"))
	if b.Code() != 1 || len(b.Findings) != 2 || !strings.Contains(b.Findings[0], "trisp") || !strings.Contains(b.Findings[1], "trips-1 stopped: gap") {
		t.Fatalf("%+v", b)
	}
	if r := b.row(t, "trips", 0); r.Next != 40 {
		t.Errorf("the healthy one: %+v", r)
	}
	s := e.settings("trips")
	s.Partition.Gap = partition.GapRecord
	b = e.backup(s)
	if r := b.row(t, "trips", 1); b.Code() != 1 || r.Lost != 10 || r.Start != 20 || r.Next != 40 || r.Records != 10 {
		t.Fatalf("%+v", b)
	}
	if b = e.backup(s); b.Code() != 0 {
		t.Errorf("the loss is told once, and by verify: %+v", b)
	}
	s = e.settings()
	s.Topics.Pattern = fullMatch("nothing.*")
	if b := e.backup(s); b.Code() != 1 || !strings.Contains(strings.Join(b.Findings, ""), "matches no topic") {
		t.Errorf("%+v", b)
	}
}

// A store that is down for longer than the caller waits: not complete, and what is there is right.
func TestBackupOutOfTime(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 20)
	met := make(chan struct{}, 100)
	e.store.SetBefore(func(ctx context.Context, op, key string) error {
		if op == store.OpCreate && strings.HasPrefix(key, "topics/") {
			select {
			case met <- struct{}{}:
			default:
			}
			return errors.New("down")
		}
		return nil
	})
	ctx, cancel := context.WithCancel(e.ctx())
	defer cancel()
	go func() { <-met; <-met; cancel() }()
	s := e.settings("trips")
	s.ShutdownIn = 10 * time.Millisecond
	b, err := e.backupIn(ctx, s)
	if err != nil || b.Complete || b.Code() != 2 || !strings.Contains(strings.Join(b.Findings, ""), "not archived to 20, but to 0") {
		t.Fatalf("%+v, %v", b, err)
	}
	e.store.SetBefore(nil)
	if b := e.backup(s); b.Code() != 0 {
		t.Fatalf("%+v", b)
	}
	e.checkClean()
}

// Beside a running service of the same group: both write one chain, each offset once.
func TestBackupBesideAService(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 3)
	s := e.settings("trips")
	s.Partition.Rule.FlushSize = 7
	a := e.start(s)
	e.await("the service owns all", func() bool { return len(a.Status().Partitions) == 3 })
	for round := range 3 {
		for part := range int32(3) {
			e.fill("trips", part, round*100, 100)
		}
		b := e.backup(s)
		if b.Code() != 0 {
			t.Fatalf("%+v", b)
		}
		for part := range int32(3) {
			if r := b.row(t, "trips", part); r.Next < r.Until || r.Until != int64(round+1)*100 {
				t.Errorf("%+v", r)
			}
		}
		if n := len(a.Status().Partitions); n != 3 {
			t.Errorf("the service has %d partitions", n)
		}
	}
	a.end()
	for part := range int32(3) {
		e.checkEqual("trips", part, e.log("trips", part))
	}
	e.checkClean()
}

// The command: exit status and output.
func TestRunCommand(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	bin := build(t)
	url, arc := openDir(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 10)
	startup := "1m"
	run := func(want int, bootstrap string, args ...string) (string, string) {
		t.Helper()
		var out, logs bytes.Buffer
		c := exec.CommandContext(e.ctx(), bin, append([]string{"run", "--set", "bootstrap.servers=" + bootstrap, "--set", "store=" + url,
			"--set", "startup.timeout=" + startup}, args...)...)
		c.Stdout, c.Stderr = &out, &logs
		err := c.Run()
		if code := c.ProcessState.ExitCode(); code != want {
			t.Fatalf("%v: exit status %d (%v), want %d\n%s\n%s", args, code, err, want, out.String(), logs.String())
		}
		return out.String(), logs.String()
	}
	out, _ := run(0, e.bootstrap, "--until", "now", "--set", "topics=trips", "-o", "json")
	var b Backup
	if err := json.Unmarshal([]byte(out), &b); err != nil || b.row(t, "trips", 0).Next != 10 {
		t.Errorf("%v\n%s", err, out)
	}
	if n := e.next(arc, "trips", 0); n != 10 {
		t.Errorf("archived to %d", n)
	}
	if out, _ := run(1, e.bootstrap, "--until", "now", "--set", "topics=trips, trisp"); !strings.Contains(out, "finding: topics that are named are not in Kafka: trisp") ||
		!strings.Contains(out, "1 findings") {
		t.Error(out)
	}
	if _, logs := run(2, e.bootstrap, "--set", "topics=trips"); !strings.Contains(logs, "--until") {
		t.Error(logs)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	startup = "5s" // it passes
	if _, logs := run(2, nobody, "--until", "now", "--set", "topics=trips"); !strings.Contains(logs, "bootstrap.servers") {
		t.Error(logs)
	}
}
