package archiver

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/record"
)

// envInt is a number from the environment, for runs that are larger than the suite's.
func envInt(t *testing.T, name string, fallback int64) int64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return fallback
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// highWater is the largest resident set that the process has had, in bytes.
func (p *process) highWater(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Skip("no VmHWM")
	return 0
}

// Field fault 11: many partitions with a backlog that is larger than memory.max.bytes. The process stays below its bound, and everything is
// archived once. The full size: TAPEDECK_TEST_PARTITIONS=1000 TAPEDECK_TEST_MEMORY=268435456.
func TestManyPartitionsWithABacklogStayInMemory(t *testing.T) {
	t.Parallel()
	var (
		parts   = envInt(t, "TAPEDECK_TEST_PARTITIONS", 120)
		each    = envInt(t, "TAPEDECK_TEST_PARTITION_BYTES", 1<<20)
		cap     = envInt(t, "TAPEDECK_TEST_MEMORY", 128<<20)
		value   = envInt(t, "TAPEDECK_TEST_RECORD_BYTES", 2000)
		topics  = int64(4)
		seconds = time.Duration(envInt(t, "TAPEDECK_TEST_SECONDS", 600)) * time.Second
	)
	if testing.Short() {
		t.Skip("a backlog of 120 MiB")
	}
	e := newEnv(t)
	var names []string
	perTopic := int32(parts / topics)
	n := int(each / value)
	p := e.producer("")
	rnd := rand.NewChaCha8([32]byte{1})
	for i := range topics {
		name := fmt.Sprintf("t%d", i)
		names = append(names, name)
		e.topic(name, perTopic)
		for part := range perTopic {
			recs := make([]record.Record, n)
			for j := range recs {
				v := make([]byte, value)
				// Half of it does not compress.
				for k := 0; k < len(v)/2; k += 8 {
					binary.LittleEndian.PutUint64(v[k:], rnd.Uint64())
				}
				recs[j] = record.Record{Value: v}
			}
			e.send(p, name, part, recs...)
		}
	}
	p.Close()
	url, arc := openDir(t)
	began := time.Now()
	a := e.process(build(t), url, "topics="+strings.Join(names, ","), "rotate.age.ms=20000", fmt.Sprintf("memory.max.bytes=%d", cap))
	var left []string
	deadline := began.Add(seconds)
	for {
		left = left[:0]
		for _, name := range names {
			for part := range perTopic {
				if got := e.next(arc, name, part); got != int64(n) {
					left = append(left, fmt.Sprintf("%s-%d at %d", name, part, got))
				}
			}
		}
		if len(left) == 0 {
			break
		}
		select {
		case <-a.done:
			t.Fatalf("the archiver ended\n%s", a.logs.String())
		case <-time.After(200 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d partitions are not archived: %v\n%s", len(left), parts, left[:min(5, len(left))], a.logs.String())
		}
	}
	took := time.Since(began)
	hwm := a.highWater(t)
	a.end(t)
	r, err := arc.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(n) * int64(perTopic) * topics; len(r.Findings) > 0 || r.Records != want {
		t.Errorf("%d records, want %d; findings %+v", r.Records, want, r.Findings)
	}
	t.Logf("%d partitions, %d MiB of backlog, memory.max.bytes %d MiB: %d MiB resident at most, %d segments, %s",
		parts, parts*each>>20, cap>>20, hwm>>20, r.Segments, took.Round(time.Second))
	if hwm > cap {
		t.Errorf("%d MiB resident, the bound is %d MiB", hwm>>20, cap>>20)
	}
}
