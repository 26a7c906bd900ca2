package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/e2e/proof"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// replayScene is an archive that a test has written itself, replayed by the real replayer into the real processor.
type replayScene struct {
	t            *testing.T
	o            proof.Options
	*proof.Proof                   // its Replayer is asked about jobs; its Processor takes them
	rows         [][]record.Record // by partition
	output       string            // topic of the results, which the others derive from
}

// newReplayScene makes partitions × per records of a topic, with event times over the same span in each partition, out of order, some late, some not to be read.
// A record's timestamp tells nothing of its event time: the lower a partition's number, the older it seems.
func newReplayScene(t *testing.T, seed uint64, partitions int32, per int) *replayScene {
	t.Helper()
	o := options(t, 0, 0)
	s := &replayScene{t: t, o: o, Proof: &proof.Proof{Options: o}, output: "out-" + o.Topic}
	rng := rand.New(rand.NewPCG(seed, 1))
	for p := range partitions {
		var rs []record.Record
		for i := range per {
			at := int64(i)*spanMs/int64(per) - rng.Int64N(1500)
			switch rng.IntN(20) {
			case 0:
				at -= 30_000 // late
			case 1:
				at = -1
			}
			r := record.Record{Topic: o.Topic, Partition: p, Offset: int64(i), Timestamp: 1_700_000_000_000 + int64(p)*spanMs + int64(i)*spanMs/int64(per),
				LeaderEpoch: record.NoEpoch, Value: []byte("not to be read")}
			if at != -1 {
				r.Value = fmt.Appendf(nil, `{"t":%d,"user":"u%d","price":%d}`, 1_700_000_000_000+at, rng.IntN(40), rng.IntN(100))
			}
			rs = append(rs, r)
		}
		s.rows = append(s.rows, rs)
	}
	must(t, os.WriteFile(filepath.Join(o.Dir, "p.yaml"), fmt.Appendf(nil, `
name: p-%s
sources: [{topic: %s, format: json, eventTime: {field: t, unit: ms}, delay: 2s}]
groupBy: [user]
window: {tumbling: {size: 1s}}
aggregates: {total: sum(price), n: count()}
output: {topic: %s, partitions: 3}
`, o.Topic, o.Topic, s.output), 0o600))
	admin, err := kafka.NewAdmin(kafka.Client{Bootstrap: o.Bootstrap, ClientID: "test"})
	must(t, err)
	defer admin.Close()
	must(t, admin.CreateTopic(t.Context(), o.Topic, partitions, 1, nil)) // the live run waits for it; nothing is in it
	return s
}

// spanMs is what the event times of a scene span.
const spanMs = 60_000

// archive writes the records into the store below prefix, in segments of at most size records. ends, where given, are the offsets at which partitions end.
func (s *replayScene) archive(prefix string, rng *rand.Rand, size int, ends []int64) (storeURL string) {
	s.t.Helper()
	base, query, _ := strings.Cut(s.o.StoreURL, "?")
	storeURL = base + "/" + prefix
	if query != "" {
		storeURL += "?" + query
	}
	st, err := storeurl.Open(s.t.Context(), storeURL)
	must(s.t, err)
	defer func() { _ = st.Close() }()
	arc := archive.Open(st, "topics")
	for p, rs := range s.rows {
		if ends != nil {
			rs = rs[:ends[p]]
		}
		id := segment.LogIdentity{ClusterID: "gone", TopicID: "AAAAAAAAAAAAAAAAAAAAAA", Topic: s.o.Topic, Partition: int32(p), Isolation: "read_committed"}
		chain := segment.First()
		for from := 0; from < len(rs); {
			to := min(len(rs), from+1+rng.IntN(size))
			w, err := segment.NewWriter(id, int64(from), "")
			must(s.t, err)
			for i := from; i < to; i++ {
				_, err := w.Append(&rs[i])
				must(s.t, err)
			}
			data, h, err := w.Close(int64(to), chain, nil)
			must(s.t, err)
			_, err = arc.Create(s.t.Context(), h, data, archive.RetryPolicy{Min: time.Millisecond, Max: time.Second})
			must(s.t, err)
			chain, from = segment.After(h, int64(len(data))), to
		}
	}
	return storeURL
}

// process configures one of the binaries with an address of its own; it is killed with the test. at is its address where another had it before.
func (s *replayScene) process(name, at, config string) *proof.Process {
	s.t.Helper()
	if at == "" {
		port, err := proof.FreePort()
		must(s.t, err)
		at = fmt.Sprintf("http://127.0.0.1:%d", port)
	}
	p, err := proof.NewProcess(binDir, s.t.TempDir(), name, at, fmt.Sprintf("rest.listen: %q\n%s", strings.TrimPrefix(at, "http://"), config), s.o.Vars)
	must(s.t, err)
	s.t.Cleanup(func() {
		_ = p.Kill()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", name, p.LogTail(15))
		}
	})
	return p
}

// newProcessor configures a processor with these settings, in the place of the one before.
func (s *replayScene) newProcessor(config string) {
	s.t.Helper()
	at := ""
	if s.Processor != nil {
		must(s.t, s.Processor.Kill())
		at = s.Processor.URL
	}
	s.Processor = s.process("processor", at, fmt.Sprintf("bootstrap.servers: %q\npipelines: [%s]\n%s", s.o.Bootstrap, filepath.Join(s.o.Dir, "p.yaml"), config))
	must(s.t, s.Processor.Start(s.t.Context()))
}

// newReplayer configures a replayer over an archive, with these settings; it is not started.
func (s *replayScene) newReplayer(storeURL, config string) *proof.Process {
	s.t.Helper()
	return s.process("replayer", "", fmt.Sprintf("store: %q\ntargets.live.url: %s\ntargets.live.pipeline: p-%s\n%s", storeURL, s.Processor.URL, s.o.Topic, config))
}

// replayed runs a job to its end.
func (s *replayScene) replayed(ctx context.Context, name string, fields map[string]any) {
	s.t.Helper()
	s.start(ctx, name, fields)
	must(s.t, s.WaitReplay(ctx, name))
}

func (s *replayScene) start(ctx context.Context, name string, fields map[string]any) {
	s.t.Helper()
	all := map[string]any{"promise": "recompute"}
	for k, v := range fields {
		all[k] = v
	}
	must(s.t, s.StartReplay(ctx, name, all))
}

// written is what a job wrote: results, late and poison records.
func (s *replayScene) written(ctx context.Context, name string) (all map[string]map[int32]proof.Sequence) {
	s.t.Helper()
	all = map[string]map[int32]proof.Sequence{}
	for _, suffix := range []string{"", ".late", ".poison"} {
		seqs, err := proof.ReadTopic(ctx, s.o.Bootstrap, s.output+suffix+".replay."+name)
		must(s.t, err)
		if proof.Count(seqs) == 0 {
			s.t.Fatalf("replay %s wrote nothing to the topic of %q: equality would mean nothing", name, suffix)
		}
		all[suffix] = seqs
	}
	return all
}

// differ says where two jobs wrote different bytes; "" where they did not.
func differ(a, b map[string]map[int32]proof.Sequence) string {
	for suffix := range a {
		if diff := proof.FirstDifference(a[suffix], b[suffix]); diff != "" {
			return fmt.Sprintf("topic of %q: %s", suffix, diff)
		}
	}
	return ""
}

// metric is the value of a counter without labels; −1 where it is not told.
func metric(ctx context.Context, t *testing.T, p *proof.Process, name string) (v float64) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/metrics", nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	_, rest, ok := bytes.Cut(data, []byte("\n"+name+" "))
	if !ok {
		return -1
	}
	if _, err := fmt.Sscan(string(rest), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestTinySessionLimit: 64 partitions, two senders, and a processor that may keep so little that it has to refuse whatever is not furthest behind in event
// time, which the replayer cannot know from the timestamps. The job ends all the same, with the bytes of one without a limit.
func TestTinySessionLimit(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s := newReplayScene(t, 1, 64, 12)
	storeURL := s.archive("a", rand.New(rand.NewPCG(1, 2)), 5, nil)
	s.newProcessor("")
	s.Replayer = s.newReplayer(storeURL, "replay.parallel: 2\ntarget.retry.timeout: 2m\n")
	must(t, s.Replayer.Start(ctx))
	s.replayed(ctx, "free", nil)
	const busy = "tapedeck_replayer_target_busy_total"
	if n := metric(ctx, t, s.Replayer, busy); n != 0 {
		t.Errorf("%v segments were refused by a processor without a limit", n)
	}
	s.newProcessor("session.max.bytes: 130000\n")
	s.replayed(ctx, "tight", nil)
	n := metric(ctx, t, s.Replayer, busy)
	t.Logf("%v segments were refused for the moment", n)
	if n < 64 {
		t.Error("the limit was hardly felt: the test shows nothing")
	}
	if diff := differ(s.written(ctx, "free"), s.written(ctx, "tight")); diff != "" {
		t.Error(diff)
	}
}

// TestUntilInsideASegment: what a job writes that ends inside segments is what one writes over an archive that ends there.
func TestUntilInsideASegment(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s := newReplayScene(t, 2, 3, 300)
	ends := []int64{201, 255, 150}
	bounds := map[string]any{}
	for p, end := range ends {
		bounds[fmt.Sprintf("%s/%d", s.o.Topic, p)] = map[string]any{"until": map[string]any{"kind": "offset", "value": end}}
	}
	rng := rand.New(rand.NewPCG(2, 2))
	s.newProcessor("")
	s.Replayer = s.newReplayer(s.archive("short", rng, 40, ends), "")
	must(t, s.Replayer.Start(ctx))
	s.replayed(ctx, "short", map[string]any{"endMode": "drain"})
	must(t, s.Replayer.Kill())

	s.Replayer = s.newReplayer(s.archive("whole", rng, 40, nil), "")
	must(t, s.Replayer.Start(ctx))
	s.replayed(ctx, "inside", map[string]any{"endMode": "drain", "bounds": bounds})
	s.replayed(ctx, "whole", map[string]any{"endMode": "drain"})
	var plan windowsPlan
	must(t, proof.GetJSON(ctx, s.Replayer.URL+"/replays/inside/plan", &plan))
	for _, p := range plan.Partitions {
		last := p.Segments[len(p.Segments)-1]
		if last.Start >= p.Until || last.Next <= p.Until {
			t.Errorf("%s ends at %d, the last segment is [%d, %d): not inside", p.TopicPartition, p.Until, last.Start, last.Next)
		}
	}
	short := s.written(ctx, "short")
	if diff := differ(short, s.written(ctx, "inside")); diff != "" {
		t.Error(diff)
	}
	if differ(short, s.written(ctx, "whole")) == "" {
		t.Error("the records behind the ends make no difference: the test shows nothing")
	}
}

// TestOneTwoAndThreeReplayers: one, two and three replayers work on a job, the one at work is killed, and so is the processor, whose expected offsets go
// back then: no byte of the output differs from that of a job which nobody disturbed.
func TestOneTwoAndThreeReplayers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s := newReplayScene(t, 3, 4, 200)
	storeURL := s.archive("a", rand.New(rand.NewPCG(3, 2)), 12, nil)
	// It commits by itself after so many records only, so that a kill loses much of what it has acknowledged.
	s.newProcessor("commit.interval.ms: 3600000\ncommit.records: 300\n")
	var replayers []*proof.Process
	rewinds := func() (sum float64) {
		for _, p := range replayers {
			sum += metric(ctx, t, p, "tapedeck_replayer_rewinds_total")
		}
		return sum
	}
	for n := 1; n <= 3; n++ {
		p := s.newReplayer(storeURL, fmt.Sprintf("replayer.id: r%d\njob.lease: 1s\njob.scan.interval: 100ms\ntarget.retry.timeout: 2m\n", len(replayers)))
		must(t, p.Start(ctx))
		replayers = append(replayers, p)
		s.Replayer = p
		if n == 1 {
			s.replayed(ctx, "undisturbed", nil)
		}
		// A machine may be so busy that a job is over before the kills.
		for try := 0; ; try++ {
			name := fmt.Sprintf("by-%d-%d", n, try)
			met := s.disturbed(ctx, name, replayers, rewinds)
			if diff := differ(s.written(ctx, "undisturbed"), s.written(ctx, name)); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			if met {
				break
			}
			if try == 5 {
				t.Fatal("the kills meet no job at its work: the test shows too little")
			}
		}
	}
}

// disturbed runs a job: the processor is killed, so that expected offsets go back, and later again, with the replayer at work, which is started again once the
// job has ended; at once where there is no other. It reports whether both kills met the job.
func (s *replayScene) disturbed(ctx context.Context, name string, replayers []*proof.Process, rewinds func() float64) bool {
	s.t.Helper()
	before := rewinds()
	s.start(ctx, name, map[string]any{"recordsPerSecond": 400})
	meets := func(share float64) bool {
		_, err := waitSent(ctx, s.Proof, name, share)
		if errors.Is(err, proof.ErrOverEarly) {
			return false
		}
		must(s.t, err)
		must(s.t, s.Processor.Kill())
		return true
	}
	if !meets(0.1) {
		return false
	}
	must(s.t, s.Processor.Start(ctx))
	if !meets(0.5) {
		return false
	}
	back := rewinds() > before
	killed := s.killOwner(ctx, name, replayers) // nothing goes on before the processor is back
	must(s.t, s.Processor.Start(ctx))
	if killed == nil {
		return false
	}
	if len(replayers) == 1 {
		must(s.t, killed.Start(ctx))
	}
	must(s.t, s.WaitReplay(ctx, name))
	if len(replayers) > 1 {
		must(s.t, killed.Start(ctx))
	}
	job, err := s.JobNamed(ctx, name)
	must(s.t, err)
	return back && job.Epoch > 1
}

// killOwner kills the replayer that works on a job, and has another one that runs answer for it; nil where the job has ended.
func (s *replayScene) killOwner(ctx context.Context, name string, replayers []*proof.Process) (killed *proof.Process) {
	s.t.Helper()
	var v struct{ Owner, State string }
	must(s.t, proof.GetJSON(ctx, s.Replayer.URL+"/replays/"+name, &v))
	if v.State != "RUNNING" {
		return nil
	}
	for i, p := range replayers {
		if v.Owner == fmt.Sprintf("r%d", i) {
			killed = p
			must(s.t, p.Kill())
		} else {
			s.Replayer = p
		}
	}
	if killed == nil {
		s.t.Fatalf("job %s is owned by %q", name, v.Owner)
	}
	return killed
}
