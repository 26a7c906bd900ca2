package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
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

// restoreScene is an archive made for a restore, and two replayers that share it.
type restoreScene struct {
	t         *testing.T
	topic     string
	records   map[int32][]record.Record
	positions []int64 // of the archived group g, by partition
	admin     *kafka.Admin
	replayers []*proof.Process
}

const restorePartitions = 4

// newRestoreScene archives perPartition records in each of four partitions: gaps as compaction and markers leave them, nulls and empties, headers with
// repeated keys and null values, timestamps out of order.
func newRestoreScene(t *testing.T, rng *rand.Rand, perPartition int) *restoreScene {
	t.Helper()
	o := options(t, 0, 0)
	s := &restoreScene{t: t, topic: o.Topic, records: map[int32][]record.Record{}}
	st, err := storeurl.Open(t.Context(), o.StoreURL)
	must(t, err)
	defer func() { _ = st.Close() }()
	arc := archive.Open(st, "topics")
	for p := range int32(restorePartitions) {
		s.archive(arc, rng, p, perPartition)
	}
	s.keepGroup(arc, rng)
	s.admin, err = kafka.NewAdmin(kafka.Client{Bootstrap: o.Bootstrap, ClientID: "test"})
	must(t, err)
	t.Cleanup(s.admin.Close)
	for n := range 2 {
		port, err := proof.FreePort()
		must(t, err)
		url := fmt.Sprintf("http://127.0.0.1:%d", port)
		config := fmt.Sprintf("store: %q\nrest.listen: 127.0.0.1:%d\nreplayer.id: r%d\njob.lease: 1s\njob.scan.interval: 100ms\n"+
			"targets.k.type: kafka\ntargets.k.bootstrap.servers: %q\ntargets.k.lanes: 3\ntargets.k.transaction.records: 500\ntargets.k.progress.topic: %s-progress\n",
			o.StoreURL, port, n, o.Bootstrap, s.topic)
		p, err := proof.NewProcess(binDir, t.TempDir(), "replayer", url, config, o.Vars)
		must(t, err)
		must(t, p.Start(t.Context()))
		t.Cleanup(func() { _ = p.Kill() })
		s.replayers = append(s.replayers, p)
	}
	return s
}

func (s *restoreScene) archive(arc *archive.Archive, rng *rand.Rand, p int32, n int) {
	s.t.Helper()
	id := segment.LogIdentity{ClusterID: "gone", TopicID: "AAAAAAAAAAAAAAAAAAAAAA", Topic: s.topic, Partition: p, Isolation: "read_committed"}
	offset, chain := int64(0), segment.First()
	for left := n; left > 0; {
		size := min(left, 1000+rng.IntN(3000))
		left -= size
		w, err := segment.NewWriter(id, offset, "")
		must(s.t, err)
		for range size {
			if rng.IntN(50) == 0 {
				offset += int64(rng.IntN(5))
			}
			r := record.Record{Topic: s.topic, Partition: p, Offset: offset, Timestamp: 1_700_000_000_000 + offset*10 + int64(rng.IntN(5000)),
				Key: fmt.Appendf(nil, "k%d", rng.IntN(100)), Value: fmt.Appendf(nil, "%d/%d %x", p, offset, rng.Uint64()), LeaderEpoch: record.NoEpoch}
			switch rng.IntN(20) {
			case 0:
				r.Key = nil
			case 1:
				r.Value = nil
			case 2:
				r.Key, r.Value = nil, nil
			case 3:
				r.Value = []byte{}
			case 4:
				r.Headers = []record.Header{{Key: "a", Value: []byte("1")}, {Key: "x-id", Value: []byte("2")}, {Key: "a", Value: []byte("3")}, {Key: "b"}, {Key: "c", Value: []byte{}}}
			}
			_, err := w.Append(&r)
			must(s.t, err)
			s.records[p] = append(s.records[p], r)
			offset++
		}
		offset += int64(rng.IntN(2)) // a marker
		data, h, err := w.Close(offset, chain, nil)
		must(s.t, err)
		_, err = arc.Create(s.t.Context(), h, data, archive.RetryPolicy{Min: time.Millisecond, Max: time.Second})
		must(s.t, err)
		chain = segment.After(h, int64(len(data)))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ask calls any replayer that answers.
func (s *restoreScene) ask(method, path, body string) (map[string]any, error) {
	var last error
	for _, p := range s.replayers {
		req, err := http.NewRequestWithContext(s.t.Context(), method, p.URL+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		resp, err := (&http.Client{Timeout: 5 * time.Second}).Do(req)
		if err != nil {
			last = err
			continue
		}
		data, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode > 299 {
			last = fmt.Errorf("%s %s: %s %s %w", method, path, resp.Status, bytes.TrimSpace(data), err)
			continue
		}
		var v map[string]any
		return v, json.Unmarshal(data, &v)
	}
	return nil, last
}

// insist asks until somebody takes it: on a busy machine an answer may be late, and a job's name makes the repetition harmless.
func (s *restoreScene) insist(ctx context.Context, method, path, body string) error {
	for {
		_, err := s.ask(method, path, body)
		if err == nil || ctx.Err() != nil {
			return err
		}
		wait(ctx, 200*time.Millisecond)
	}
}

// Two replayers restore job after job, and one of them is killed -9 at a random moment, again and again. Every target topic, read by a read_committed
// reader, is the archived range: no record is lost, doubled, out of place or changed; and a consumer group that comes along resumes at exactly its next record.
func TestRestoreSurvivesKills(t *testing.T) {
	kills, per := 3, 3000
	if os.Getenv("TAPEDECK_TEST_KAFKA") != "" {
		kills, per = 20, 15000
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newRestoreScene(t, rng, per)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	killed, hit := 0, 0
	for n := 0; killed < kills; n++ {
		name, to := fmt.Sprintf("restore-%d", n), fmt.Sprintf("%s-r%d", s.topic, n)
		must(t, s.admin.CreateTopic(ctx, to, restorePartitions, 1, map[string]string{"retention.ms": "-1"}))
		err := s.insist(ctx, http.MethodPost, "/replays", fmt.Sprintf(`{"name":%q,"target":"k","topics":[%q],"topicMapping":{%q:%q},"groups":{"names":["g"],"mapping":{"g":%q}}}`,
			name, s.topic, s.topic, to, to))
		must(t, err)
		for state := ""; state != "COMPLETED"; {
			if ctx.Err() != nil {
				t.Fatalf("job %s is %s after %d kills; the logs end:\n%s\n%s", name, state, killed, s.replayers[0].LogTail(15), s.replayers[1].LogTail(15))
			}
			moment := time.Duration(rng.Int64N(int64(700 * time.Millisecond)))
			victim := s.replayers[rng.IntN(len(s.replayers))]
			wait(ctx, moment)
			if killed < kills {
				if v, err := s.ask(http.MethodGet, "/replays/"+name, ""); err == nil && v["state"] == "RUNNING" {
					hit++
				}
				must(t, victim.Kill())
				must(t, victim.Start(ctx))
				killed++
			}
			v, err := s.ask(http.MethodGet, "/replays/"+name, "")
			if err != nil {
				continue
			}
			state, _ = v["state"].(string)
			if state == "FAILED" || state == "CANCELLED" {
				t.Fatalf("job %s is %s: %v", name, state, v["error"])
			}
		}
		s.compare(to)
		s.compareGroup(to)
	}
	t.Logf("%d kills, %d of them while a job was running", killed, hit)
	if hit == 0 {
		t.Error("no job was at work when its replayer was killed")
	}
}

// keepGroup archives positions of a group: at the beginning, at a record, anywhere (in a gap, if it comes so), and at the end.
func (s *restoreScene) keepGroup(arc *archive.Archive, rng *rand.Rand) {
	s.t.Helper()
	rs := s.records
	last := rs[3][len(rs[3])-1].Offset
	s.positions = []int64{0, rs[1][rng.IntN(len(rs[1]))].Offset, rng.Int64N(rs[2][len(rs[2])-1].Offset), last + 1}
	g := archive.GroupPositions{Group: "g"}
	for p, offset := range s.positions {
		g.Positions = append(g.Positions, archive.GroupPosition{Topic: s.topic, Partition: int32(p), Offset: offset, LeaderEpoch: 3})
	}
	must(s.t, arc.KeepGroups(s.t.Context(), &archive.GroupSnapshot{ClusterID: "gone", Time: 1000, Topics: map[string]string{s.topic: "AAAAAAAAAAAAAAAAAAAAAA"},
		Groups: []archive.GroupPositions{g}}))
}

// compareGroup reads a restored topic from where the group that has its name stands: what follows must be what followed in the archive, first and last.
func (s *restoreScene) compareGroup(topic string) {
	s.t.Helper()
	there, err := s.admin.GroupOffsets(s.t.Context(), topic)
	must(s.t, err)
	for p, position := range s.positions {
		tp := kafka.TP{Topic: topic, Partition: int32(p)}
		at, ok := there[tp]
		if !ok {
			s.t.Fatalf("%s: the group has no position", tp)
		}
		var want, got []string
		for _, r := range s.records[int32(p)] {
			if r.Offset >= position {
				want = append(want, text(&r))
			}
		}
		for _, r := range s.read(tp) {
			if r.Offset >= at.Offset {
				got = append(got, text(&r))
			}
		}
		if !slices.Equal(got, want) {
			s.t.Fatalf("%s: the group was at %d and is at %d: it reads %d records, want %d", tp, position, at.Offset, len(got), len(want))
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// compare holds a target topic against the archive, offset by offset.
func (s *restoreScene) compare(topic string) {
	s.t.Helper()
	for p := range int32(restorePartitions) {
		got := s.read(kafka.TP{Topic: topic, Partition: p})
		want := s.records[p]
		if len(got) != len(want) {
			s.t.Fatalf("%s/%d holds %d records, archived were %d", topic, p, len(got), len(want))
		}
		for i := range got {
			if text(&got[i]) != text(&want[i]) {
				s.t.Fatalf("%s/%d, record %d: %s\narchived at %d: %s", topic, p, i, text(&got[i]), want[i].Offset, text(&want[i]))
			}
		}
	}
}

// text is everything of a record that a restore keeps; null and empty differ.
func text(r *record.Record) string {
	b := func(v []byte) string {
		if v == nil {
			return "null"
		}
		return fmt.Sprintf("%q", v)
	}
	out := fmt.Sprintf("%d %s %s", r.Timestamp, b(r.Key), b(r.Value))
	for _, h := range r.Headers {
		out += fmt.Sprintf(" %q=%s", h.Key, b(h.Value))
	}
	return out
}

// read returns the committed records of a partition.
func (s *restoreScene) read(tp kafka.TP) []record.Record {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	ranges, err := s.admin.Offsets(ctx, []kafka.TP{tp})
	must(s.t, err)
	c, err := kafka.NewConsumer(kafka.ConsumerConfig{Client: kafka.Client{Bootstrap: env.Bootstrap, ClientID: "test"}})
	must(s.t, err)
	defer func() { _ = c.Close() }()
	must(s.t, c.Start(kafka.Position{TP: tp, Offset: ranges[tp].Start, LeaderEpoch: record.NoEpoch}))
	var out []record.Record
	for {
		events, err := c.Poll(ctx, 100*time.Millisecond)
		must(s.t, err)
		for _, ev := range events {
			switch ev := ev.(type) {
			case kafka.Batch:
				out = append(out, ev.Records...)
			case kafka.EndOfPartition:
				if ev.Offset >= ranges[tp].End {
					return out
				}
			case kafka.PartitionError:
				s.t.Fatal(ev.Err)
			}
		}
	}
}
