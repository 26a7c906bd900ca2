package replayer_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/jobstore"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/replayer/metrics"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/replayer/target"
	"tapedeck.dev/tapedeck/shared/record"
)

// examples/receiver.py, which knows the protocol's page and a general Avro reader, takes a job to COMPLETED: its proof is that of the archive, and
// what it has printed are the archived records. It is restarted in the middle, which makes it forget everything.
func TestPythonReceiver(t *testing.T) {
	python := os.Getenv("TAPEDECK_TEST_PYTHON")
	if python == "" {
		t.Skip("TAPEDECK_TEST_PYTHON names no Python with fastavro: scripts/real/run.sh makes one")
	}
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(3, 3)), "trips", 3, 300, 25)
	special(t, a)
	py := newPython(t, python, "trips")
	dest, err := target.NewClient(target.Config{Name: "py", Type: target.TypeProcessor, URL: py.url, Pipeline: "py"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer dest.Close()
	m := metrics.New(prometheus.NewRegistry())
	r := &run.Runner{Archive: a.Archive, Log: zap.NewNop(), Metrics: m, Settings: run.Settings{Parallel: 2, RetryTimeout: time.Minute,
		Backoff: run.Backoff{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}}}
	n := manager.New(jobstore.New(a.Mem), a.Archive, map[string]manager.Destination{"py": r.To(dest)}, manager.Settings{ID: "a", Lease: time.Hour, Scan: 10 * time.Millisecond}, zap.NewNop(), m)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = n.Run(ctx) }) // its error is ctx's end
	defer running.Wait()
	defer cancel()
	replaytest.Until(t, "the replayer is ready", func() bool { return n.Ready() == nil })

	whole := func(*record.Record) bool { return true }
	py.replay(t, n, a, `{"name":"whole","target":"py","promise":"recompute"}`, whole)
	// A cut in the middle of segments, with a restart of the receiver while it goes on.
	py.restartAfter = 100
	py.replay(t, n, a, `{"name":"part","target":"py","promise":"recompute","from":{"kind":"offset","value":17},"until":{"kind":"offset","value":290}}`,
		func(r *record.Record) bool { return r.Offset >= 17 && r.Offset < 290 })
	if py.restartAfter > 0 {
		t.Error("the receiver was not restarted: the test does not cover that")
	}
}

// special adds what must be kept apart: null, empty, headers in order and twice, timestamps before 1970.
func special(t *testing.T, a *replaytest.Archive) {
	tp := record.TopicPartition{Topic: "trips", Partition: 0}
	next := a.Header(tp).Next
	var recs []record.Record
	for i, r := range []record.Record{
		{Key: nil, Value: []byte("v")}, {Key: []byte{}, Value: nil}, {Key: []byte{0xff, 0}, Value: []byte{}, Timestamp: -62135596800001},
		{Key: []byte("k"), Value: bytes.Repeat([]byte("long "), 40), Headers: []record.Header{{Key: "a", Value: []byte("1")}, {Key: "b"}, {Key: "a", Value: []byte{}}}},
	} {
		r.Topic, r.Offset, r.LeaderEpoch = tp.Topic, next+int64(i), record.NoEpoch
		recs = append(recs, r)
	}
	a.Segment(t, tp, next+4, recs)
}

// python is the receiver as a process, which can be restarted on its port.
type python struct {
	bin, topic string
	url        *url.URL

	mu           sync.Mutex
	cmd          *exec.Cmd
	printed      [][]byte
	restartAfter int // printed lines; 0: never
	reading      sync.WaitGroup
}

func newPython(t *testing.T, bin, topic string) *python {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &python{bin: bin, topic: topic, url: &url.URL{Scheme: "http", Host: l.Addr().String()}}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p.start(t)
	t.Cleanup(func() {
		p.stop()
		p.reading.Wait()
	})
	replaytest.Until(t, "the receiver answers", func() bool {
		resp, err := http.Get(p.url.String() + "/pipelines/py")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

func (p *python) start(t *testing.T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := exec.Command(p.bin, filepath.Join("..", "examples", "receiver.py"), p.url.Port(), "py", p.topic)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return
	}
	p.cmd = cmd
	p.reading.Go(func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.mu.Lock()
			p.printed = append(p.printed, bytes.Clone(lines.Bytes()))
			again := p.restartAfter > 0 && len(p.printed) >= p.restartAfter
			if again {
				p.restartAfter, p.printed = 0, nil
			}
			p.mu.Unlock()
			if again {
				p.stop()
				_ = cmd.Wait() // killed
				p.start(t)
				return
			}
		}
		_ = cmd.Wait() // killed
	})
}

func (p *python) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
	}
}

// replay runs a job, demands that it is proved, and compares what the receiver has printed since its start with the records chosen.
func (p *python) replay(t *testing.T, n *manager.Manager, a *replaytest.Archive, body string, chosen func(*record.Record) bool) {
	t.Helper()
	p.mu.Lock()
	p.printed = nil
	p.mu.Unlock()
	req, err := job.ParseRequest([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	var v *manager.View
	replaytest.Until(t, "job "+req.Name+" ends", func() bool {
		v, err = n.Get(t.Context(), req.Name)
		return err != nil || v.State.Ended()
	})
	if err != nil || v.State != job.Completed {
		t.Fatalf("%v: %s %s", err, v.State, v.Error)
	}
	for _, part := range v.Partitions {
		if part.Delivered == nil || *part.Delivered != part.Planned || part.Planned.Count == 0 {
			t.Errorf("%s: planned %+v, delivered %+v", part.TopicPartition, part.Planned, part.Delivered)
		}
	}
	want := map[string]bool{}
	for tp, recs := range a.Records {
		for i := range recs {
			if tp.Topic == "trips" && chosen(&recs[i]) {
				want[line(&recs[i])] = true
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.printed {
		var l printed
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		canonical, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if !want[string(canonical)] {
			t.Errorf("printed, and not archived or twice: %s", text)
		}
		delete(want, string(canonical))
	}
	if len(want) > 0 {
		t.Errorf("%d records were not printed", len(want))
	}
}

// printed is a line of the receiver; bytes are in base64.
type printed struct {
	Key           *string  `json:"key"`
	Value         *string  `json:"value"`
	Topic         string   `json:"topic"`
	Partition     int32    `json:"partition"`
	Offset        int64    `json:"offset"`
	Timestamp     int64    `json:"timestamp"`
	TimestampType int32    `json:"timestampType"`
	Headers       []header `json:"headers"`
}

type header struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

func line(r *record.Record) string {
	text := func(b []byte) *string {
		if b == nil {
			return nil
		}
		s := base64.StdEncoding.EncodeToString(b)
		return &s
	}
	l := printed{text(r.Key), text(r.Value), r.Topic, r.Partition, r.Offset, r.Timestamp, int32(r.TimestampType), []header{}}
	for _, h := range r.Headers {
		l.Headers = append(l.Headers, header{h.Key, text(h.Value)})
	}
	data, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprint("plain data: ", err))
	}
	return string(data)
}
