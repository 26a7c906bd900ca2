package proof

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Print writes the one screen of a proof that held.
func (r *Result) Print(w io.Writer, p *Proof) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-20s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(w)
	line("produced", "%d trips to %s, %d partitions", r.Produced, p.Topic, p.Options.Partitions)
	puts := "PUT calls unknown"
	if r.PutCalls >= 0 {
		puts = fmt.Sprintf("%d PUT calls in all", r.PutCalls)
	}
	line("archived", "%d records in %d segments, %d bytes, %s", r.Archived.Records, r.Archived.Segments, r.Archived.Bytes, puts)
	line("left in Kafka", "%d records: log start = log end = %d, summed over partitions", r.LogEnd-r.LogStart, r.LogEnd)
	line("emitted live", "%d results to %s (%.1f s with producing)", r.EmittedLive, r.ResultsTopic, r.LiveTook.Seconds())
	line("emitted in replay", "%d results to %s (%.1f s)", r.EmittedReplay, r.ReplayTopic, r.ReplayTook.Seconds())
	line("late records", "%d live, %d in replay", r.LateLive, r.LateReplay)
	line("verify", "%s", strings.TrimSpace(lastLine(r.VerifyOutput)))
	fmt.Fprintln(w)
	line("SHA-256 live", "%s", r.HashLive)
	line("SHA-256 replay", "%s", r.HashReplay)
	verdict := "EQUAL"
	if r.HashLive != r.HashReplay {
		verdict = "DIFFERENT"
	}
	line("", "%s", verdict)
	fmt.Fprintln(w)
	if p.External != nil {
		return
	}
	fmt.Fprintln(w, "  Next: make demo KEEP=1 leaves everything up to play with; README.md has a five-minute tour.")
}

// PrintKeep writes what to look at while everything is up. more is an event time behind all that was produced: trips from there on are
// not late.
func (p *Proof) PrintKeep(w io.Writer, more time.Time) {
	var exports []string
	for _, v := range p.Vars {
		exports = append(exports, "export "+v)
	}
	fmt.Fprintf(w, `
  Everything is up. In another terminal, in this folder:

%s
  curl -s %s/status            # archiver
  curl -s %s/replays           # replayer: the job that ran
  curl -s %s/pipelines/%s      # processor: positions, watermarks, counts
  export STORE='%s'
  bin/archiver inspect --store "$STORE"
  bin/archiver verify  --store "$STORE"
  bin/replayer start --url %s --name once-more --target live --from earliest --until end --wait
  bin/replayer restore --url %s --name back --target kafka --topics %s --map-topic %s=%s-restored --create-topics --wait
  bin/devstack produce --bootstrap %s --registry %s --topic %s --partitions %d --count 1000 --seed 2 --start %s

  Configuration and logs: %s
`, "  "+strings.Join(exports, "\n  "), p.Archiver.URL, p.Replayer.URL, p.Processor.URL, p.Pipeline, p.StoreURL, p.Replayer.URL,
		p.Replayer.URL, p.Topic, p.Topic, p.Topic, p.Bootstrap, p.RegistryURL, p.Topic, p.Options.Partitions, more.UTC().Format(time.RFC3339), p.Dir)
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// DamageOneObject flips one byte in the middle of a segment of topic in the files of a store that keeps objects as files
// below root, and returns the object's path below the folder of topics.
func DamageOneObject(root, topic string) (string, error) {
	var victim string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".avro") && strings.Contains(path, "/"+topic+"/partition=") {
			victim = path
			return fs.SkipAll
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if victim == "" {
		return "", fmt.Errorf("no segment of %s below %s", topic, root)
	}
	f, err := os.OpenFile(victim, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	info, err := f.Stat()
	if err != nil {
		return "", errors.Join(err, f.Close())
	}
	b := make([]byte, 1)
	at := info.Size() * 3 / 4
	if _, err := f.ReadAt(b, at); err != nil {
		return "", errors.Join(err, f.Close())
	}
	b[0] ^= 0xff
	_, err = f.WriteAt(b, at)
	_, name, _ := strings.Cut(victim, "/topics/")
	return "topics/" + name, errors.Join(err, f.Close())
}
