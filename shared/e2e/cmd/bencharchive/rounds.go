package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka/barepoll"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// bench is one benchmark, as the flags say.
type bench struct {
	bootstrap, store, archiver, topic string
	records                           int64
	size, rounds                      int
	partitions                        int32
	sets                              []string
}

// patience bounds one run of either side.
const patience = 5 * time.Minute

func (b *bench) run(ctx context.Context, out io.Writer) error {
	if b.rounds < 1 || b.records < int64(b.partitions) || b.partitions < 1 {
		return fmt.Errorf("%d rounds, %d records, %d partitions: want at least one of each, and a record for each partition", b.rounds, b.records, b.partitions)
	}
	id := fmt.Sprintf("%x", time.Now().UnixNano())
	if b.topic == "" {
		b.topic = "bench-" + id
	}
	began := time.Now()
	sums, err := b.produce(ctx)
	if err != nil {
		return fmt.Errorf("fill %s: %w", b.topic, err)
	}
	_, _ = fmt.Fprintf(out, "%d records of %d bytes in %d partitions, produced in %.1f s\n", b.records, b.size, b.partitions, time.Since(began).Seconds())
	var ratios []float64
	for round := range b.rounds {
		// The first of a pair may find colder caches: they take turns.
		var loop barepoll.Result
		var loopCPU time.Duration
		var arch archived
		sides := []func() error{
			func() (err error) { loop, loopCPU, err = b.loop(ctx); return err },
			func() (err error) { arch, err = b.archive(ctx, fmt.Sprintf("%s-%d", id, round), sums); return err },
		}
		if round%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			if err := side(); err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
		}
		n := float64(b.records)
		ratios = append(ratios, loop.Seconds/arch.seconds)
		_, _ = fmt.Fprintf(out, "round %d: poll loop %.2f s (%.3f M records/s, %.1f s of CPU), archiver %.2f s (%.3f M records/s, %.1f s of CPU), ratio %.2f; "+
			"%d segments, %.1f bytes a record stored, verified; S3 calls for each segment %.2f (%s), before the assignment %d\n",
			round+1, loop.Seconds, n/loop.Seconds/1e6, loopCPU.Seconds(), arch.seconds, n/arch.seconds/1e6, arch.cpu.Seconds(), loop.Seconds/arch.seconds,
			arch.segments, float64(arch.bytes)/n, arch.perSegment(), arch.calls, arch.startCalls.total())
	}
	slices.Sort(ratios)
	_, _ = fmt.Fprintf(out, "ratios %.2f, lowest to highest; the median follows\nratio archiver/poll-loop: %.2f\n", ratios, ratios[len(ratios)/2])
	return nil
}

// loop runs the bare loop in a process of its own.
func (b *bench) loop(ctx context.Context) (r barepoll.Result, cpu time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return r, 0, err
	}
	cmd := exec.CommandContext(ctx, self, "loop", "--bootstrap", b.bootstrap, "--topic", b.topic, "--records", fmt.Sprint(b.records))
	cmd.Stderr = os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		return r, 0, fmt.Errorf("bare loop: %w", err)
	}
	if err := json.Unmarshal(answer, &r); err != nil {
		return r, 0, fmt.Errorf("bare loop answered %q: %w", answer, err)
	}
	return r, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// archive runs the archiver once over the topic, to its end, and checks what it has stored.
func (b *bench) archive(ctx context.Context, id string, sums map[int32]partitionSum) (a archived, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dir, err := os.MkdirTemp("", "tapedeck-bench-")
	if err != nil {
		return a, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	base, query, _ := strings.Cut(b.store, "?")
	url := strings.TrimRight(base, "/") + "/" + id
	if query != "" {
		url += "?" + query
	}
	p, err := startArchiver(b.archiver, filepath.Join(dir, "log"), append([]string{
		"bootstrap.servers=" + b.bootstrap, "store=" + url, "topics=" + b.topic, "group.id=bench-" + id,
		"rest.listen=127.0.0.1:0", "rest.port.file=" + filepath.Join(dir, "address"), "log.level=debug",
	}, b.sets...))
	if err != nil {
		return a, err
	}
	a, err = p.archiveAll(ctx, b.records, filepath.Join(dir, "address"))
	if stop := p.stop(); err == nil {
		err = stop
	}
	a.cpu = p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	if err != nil {
		return a, err
	}
	return a, b.check(ctx, url, sums)
}

// check demands that the archive holds exactly what was produced: verify finds nothing, and in each partition number and checksum of the
// records are those of the log.
func (b *bench) check(ctx context.Context, url string, sums map[int32]partitionSum) error {
	st, err := storeurl.Open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	arc := archive.Open(st, "topics")
	report, err := arc.Verify(ctx, b.topic)
	if err != nil {
		return err
	}
	if len(report.Findings) > 0 || report.Records != b.records {
		return fmt.Errorf("the archive is wrong: %d records of %d, findings %v", report.Records, b.records, report.Findings)
	}
	for part, want := range sums {
		var got partitionSum
		prefix := segment.PartitionPrefix("topics", b.topic, part)
		for after, more := "", true; more; {
			objs, m, err := st.List(ctx, prefix, after, 0)
			if err != nil {
				return err
			}
			for _, o := range objs {
				head, _, err := st.GetRange(ctx, o.Key, 0, segment.HeadBytes)
				if err != nil {
					return err
				}
				h, _, err := segment.ParseHeader(o.Key, head)
				if err != nil {
					return err
				}
				got.records += h.Count
				got.checksum += h.Checksum
				after = o.Key
			}
			more = m
		}
		if tp := (record.TopicPartition{Topic: b.topic, Partition: part}); got != want {
			return fmt.Errorf("%s: archived %d records with checksum %x, produced %d with %x", tp, got.records, got.checksum, want.records, want.checksum)
		}
	}
	return nil
}
