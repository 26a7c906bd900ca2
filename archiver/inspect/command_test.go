package inspect_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/archiver/inspect"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// filled gives the address of an archive with two partitions of topic trips and one of taxis: partition 0 of trips has
// lost offsets 0–4 and holds 5–24 in two segments, the others hold 0–9 in one.
func filled(t *testing.T) (addr string, st *mem.Store) {
	t.Helper()
	name := strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-")
	st = mem.Named(name)
	t.Cleanup(func() { mem.Forget(name) })
	a := archive.Open(st, "topics")
	write := func(tp record.TopicPartition, tail *archive.Tail, start, first, next int64) *archive.Tail {
		id := segment.LogIdentity{ClusterID: "c", TopicID: "id-" + tp.Topic, Topic: tp.Topic, Partition: tp.Partition, Isolation: segment.ReadCommitted}
		w, err := segment.NewWriter(id, start, "")
		if err != nil {
			t.Fatal(err)
		}
		if first > start {
			if err := w.Skip(start, first, segment.Lost); err != nil {
				t.Fatal(err)
			}
		}
		for o := first; o < next; o++ {
			if _, err := w.Append(&record.Record{Topic: tp.Topic, Partition: tp.Partition, Offset: o, Timestamp: 1_700_000_000_000 + o, Value: fmt.Append(nil, o)}); err != nil {
				t.Fatal(err)
			}
		}
		chain := segment.First()
		if tail != nil {
			chain = segment.After(tail.Header, tail.Size)
		}
		data, h, err := w.Close(next, chain, nil)
		if err != nil {
			t.Fatal(err)
		}
		out, err := a.Create(context.Background(), h, data, archive.RetryPolicy{})
		if err != nil {
			t.Fatal(err)
		}
		return &out.Tail
	}
	tp := func(topic string, p int32) record.TopicPartition {
		return record.TopicPartition{Topic: topic, Partition: p}
	}
	tail := write(tp("trips", 0), nil, 0, 5, 15)
	write(tp("trips", 0), tail, 15, 15, 25)
	write(tp("trips", 1), nil, 0, 0, 10)
	write(tp("taxis", 0), nil, 0, 0, 10)
	return "mem://" + name, st
}

// run runs a command line as the archiver does.
func run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	root := &cobra.Command{Use: "archiver"}
	root.AddCommand(inspect.InspectCommand(), inspect.VerifyCommand(), inspect.AcceptGapCommand())
	root.SetOut(&out)
	root.SetErr(&errs)
	code = service.Main(root, args)
	return code, out.String(), errs.String()
}

func TestInspectJSON(t *testing.T) {
	addr, _ := filled(t)
	code, out, errs := run("inspect", "--store", addr, "-o", "json", "--topic", "trips")
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var got []map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(got) != 2 {
		t.Fatalf("%d entries", len(got))
	}
	for key, want := range map[string]any{
		"topic": "trips", "partition": 0.0, "topicId": "id-trips", "start": 5.0, "next": 25.0, "records": 20.0, "segments": 2.0,
		"minTimestamp": 1_700_000_000_005.0, "maxTimestamp": 1_700_000_000_024.0,
	} {
		if got[0][key] != want {
			t.Errorf("%s is %v, want %v", key, got[0][key], want)
		}
	}
	if b, ok := got[0]["bytes"].(float64); !ok || b <= 0 {
		t.Errorf("bytes %v", got[0]["bytes"])
	}
	if g := fmt.Sprint(got[0]["gaps"]); g != "[map[class:lost from:0 to:5]]" {
		t.Errorf("gaps %s", g)
	}
	if g := fmt.Sprint(got[1]["gaps"]); g != "[]" {
		t.Errorf("gaps %s of a partition without any", g)
	}
}

func TestInspectTable(t *testing.T) {
	addr, _ := filled(t)
	code, out, errs := run("inspect", "--store", addr)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || errs != "" || len(lines) != 4 {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	for i, want := range []string{"TOPIC", "taxis", "trips", "trips"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d: %s", i, lines[i])
		}
	}
	if !strings.Contains(lines[2], "[0,5) lost") || !strings.Contains(lines[2], "2023-11-14T22:13:20.005Z") {
		t.Error(lines[2])
	}
}

func TestInspectOfNothing(t *testing.T) {
	for _, addr := range []string{"mem://inspect-nothing", "file://" + t.TempDir() + "/none"} {
		if code, out, errs := run("inspect", "--store", addr, "-o", "json"); code != 2 || out != "" || !strings.Contains(errs, "there is nothing at") {
			t.Errorf("%s: exit %d %q %s", addr, code, out, errs)
		}
	}
	empty := mem.Named("inspect-empty")
	t.Cleanup(func() { mem.Forget("inspect-empty") })
	if err := archive.Open(empty, "topics").Claim(context.Background()); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := run("inspect", "--store", "mem://inspect-empty", "-o", "json"); code != 0 || strings.TrimSpace(out) != "[]" {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	addr, _ := filled(t)
	if code, _, errs := run("inspect", "--store", addr, "--topic", "trips", "--topic", "none"); code != 2 || !strings.Contains(errs, "none") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestVerifyExitStatus(t *testing.T) {
	addr, st := filled(t)
	verify := func(args ...string) (int, string, string) {
		return run(append([]string{"verify", "--store", addr}, args...)...)
	}

	// A lost range is a finding until it is accepted.
	code, out, errs := verify()
	if code != 1 || !strings.Contains(out, "lost") || !strings.Contains(out, "accept-gap --topic trips --partition 0 --from 0 --to 5") || errs != "" {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if code, out, _ := verify("--topic", "taxis"); code != 0 || !strings.Contains(out, "1 partitions, 1 segments, 10 records") || !strings.Contains(out, "clean") {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, out, errs := run("accept-gap", "--store", addr, "--topic", "trips", "--partition", "0", "--from", "0", "--to", "5"); code != 0 {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if code, out, _ := verify(); code != 0 || !strings.Contains(out, "3 partitions, 4 segments, 40 records") {
		t.Errorf("exit %d: %s", code, out)
	}

	// Damage names object and byte.
	const key = "topics/trips/partition=1/trips+1+00000000000000000000.avro"
	data, err := st.Get(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	st.Put(key, data[:len(data)-7])
	code, out, _ = verify("-o", "json")
	var r archive.VerifyReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if code != 1 || len(r.Findings) != 1 || r.Findings[0].Object != key || r.Findings[0].Kind != archive.KindCorrupt || r.Findings[0].Offset == 0 {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, out, _ = verify(); code != 1 || !strings.Contains(out, key) || !strings.Contains(out, fmt.Sprint(r.Findings[0].Offset)) {
		t.Errorf("exit %d: %s", code, out)
	}

	// What could not run is neither clean nor a finding.
	for _, args := range [][]string{
		{"--topic", "none"}, {"--topics.dir", "elsewhere"}, {"--topics.dir", ""}, {"-o", "yaml"}, {"trips"}, {"--unknown"},
	} {
		if code, out, errs := verify(args...); code != 2 || errs == "" || out != "" {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
	for _, addr := range []string{"", "nowhere", "ftp://x"} {
		if code, _, errs := run("verify", "--store", addr); code != 2 || !strings.Contains(errs, "--store") && !strings.Contains(errs, "store address") {
			t.Errorf("%q: exit %d: %s", addr, code, errs)
		}
	}
	st.SetBefore(func(context.Context, string, string) error { return fmt.Errorf("403") })
	if code, _, errs := verify(); code != 2 || !strings.Contains(errs, "403") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// Only what the archive says was lost can be accepted.
func TestAcceptGapRefuses(t *testing.T) {
	addr, _ := filled(t)
	for _, c := range []struct{ topic, p, from, to string }{
		{"trips", "0", "0", "6"}, {"trips", "0", "7", "9"}, {"trips", "1", "0", "5"}, {"none", "0", "0", "5"}, {"trips", "0", "3", "3"},
	} {
		if code, out, errs := run("accept-gap", "--store", addr, "--topic", c.topic, "--partition", c.p, "--from", c.from, "--to", c.to); code != 2 || errs == "" {
			t.Errorf("%+v: exit %d: %s%s", c, code, out, errs)
		}
	}
	if code, _, errs := run("accept-gap", "--store", addr, "--topic", "trips"); code != 2 || !strings.Contains(errs, "partition") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// A store that holds another topics.dir is refused by every command, and not shown as empty.
func TestAnotherTopicsDirIsRefused(t *testing.T) {
	addr, st := filled(t)
	if err := archive.Open(st, "topics").Claim(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"inspect"}, {"verify"}, {"accept-gap", "--topic", "trips", "--partition", "0", "--from", "0", "--to", "5"},
	} {
		args = append(args, "--store", addr)
		if code, out, errs := run(append(args, "--topics.dir", "other")...); code != 2 || !strings.Contains(errs, `topics.dir "topics"`) {
			t.Errorf("%v: exit %d %s %s", args, code, out, errs)
		}
	}
	if code, _, errs := run("inspect", "--store", addr); code != 0 {
		t.Errorf("its own: exit %d %s", code, errs)
	}
}
