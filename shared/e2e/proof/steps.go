package proof

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// until polls cond until it holds; its last reason is in the error where ctx ends first.
func until(ctx context.Context, what string, cond func() (ok bool, why string, err error)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, why, err := cond()
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %s", what, ctx.Err(), why)
		case <-tick.C:
		}
	}
}

func (p *Proof) partitions(ctx context.Context, topic string) (map[kafka.TP]kafka.LogRange, error) {
	topics, err := p.admin.Topics(ctx, topic)
	if err != nil {
		return nil, err
	}
	var tps []kafka.TP
	for i := range topics[topic].Partitions {
		tps = append(tps, kafka.TP{Topic: topic, Partition: i})
	}
	if len(tps) == 0 {
		return nil, nil
	}
	return p.admin.Offsets(ctx, tps)
}

// LogEnd is the number of records ever produced to the input: its log ends, summed over the partitions.
func (p *Proof) LogEnd(ctx context.Context) (sum int64, err error) {
	ends, err := p.partitions(ctx, p.Topic)
	for _, end := range ends {
		sum += end.End
	}
	return sum, err
}

// WaitProduced waits until n more records than before are in the input topic.
func (p *Proof) WaitProduced(ctx context.Context, before, n int64) error {
	return until(ctx, fmt.Sprintf("%d records in %s", n, p.Topic), func() (bool, string, error) {
		end, err := p.LogEnd(ctx)
		return end-before >= n, fmt.Sprintf("%d are", end-before), err
	})
}

// Job is what the proof reads of a replay job.
type Job struct {
	State, Error string
	Epoch        int64 // rises with every replayer that begins to work on it
	Totals       struct{ RecordsSent, RecordsPlanned int64 }
}

// ReplayJob asks the replayer for the job.
func (p *Proof) ReplayJob(ctx context.Context) (Job, error) { return p.JobNamed(ctx, p.Replay) }

// JobNamed asks the replayer for a job.
func (p *Proof) JobNamed(ctx context.Context, name string) (j Job, err error) {
	return j, GetJSON(ctx, p.Replayer.URL+"/replays/"+name, &j)
}

// Ends are the ends of the input's partitions, whether or not records are left in them.
func (p *Proof) Ends(ctx context.Context) (map[int32]int64, error) {
	logs, err := p.partitions(ctx, p.Topic)
	ends := make(map[int32]int64, len(logs))
	for tp, l := range logs {
		ends[tp.Partition] = l.End
	}
	return ends, err
}

// WaitReplaying waits until a replayer works on the job.
func (p *Proof) WaitReplaying(ctx context.Context) (job Job, err error) {
	return job, until(ctx, "replay "+p.Replay+" to run", func() (ok bool, why string, err error) {
		job, err = p.ReplayJob(ctx)
		return job.State == "RUNNING" && job.Epoch > 0, "state " + job.State, err
	})
}

// ErrOverEarly: the job had ended before the kill could meet it.
var ErrOverEarly = errors.New("COMPLETED before the kill")

// WaitTakenOver waits until a replayer works on the job that is a later one than that of the given epoch. A job that ended
// without one is ErrOverEarly.
func (p *Proof) WaitTakenOver(ctx context.Context, epoch int64) error {
	return until(ctx, "a takeover of replay "+p.Replay, func() (bool, string, error) {
		job, err := p.ReplayJob(ctx)
		switch {
		case err != nil:
			return false, err.Error(), nil // the replayer may be restarting
		case job.Epoch > epoch:
			return true, "", nil
		case job.State == "COMPLETED":
			return false, "", ErrOverEarly
		}
		return false, fmt.Sprintf("state %s, epoch %d", job.State, job.Epoch), nil
	})
}

// waitProcessed waits until the live pipeline has committed the log end of every input partition. Outputs and positions are
// committed in one transaction, so the outputs are there too.
func (p *Proof) waitProcessed(ctx context.Context) error {
	return until(ctx, "the live pipeline", func() (bool, string, error) {
		ends, err := p.partitions(ctx, p.Topic)
		if err != nil {
			return false, "", err
		}
		var tps []kafka.TP
		for tp := range ends {
			tps = append(tps, tp)
		}
		committed, err := p.admin.CommittedOffsets(ctx, "tapedeck."+p.Pipeline, tps)
		if err != nil {
			return false, err.Error(), nil // the coordinator may be moving
		}
		for tp, end := range ends {
			if c, ok := committed[tp]; !ok || c.Offset < end.End {
				return false, fmt.Sprintf("%s: committed %d of %d", tp, c.Offset, end.End), nil
			}
		}
		return len(ends) > 0, "topic " + p.Topic + " is not there", nil
	})
}

// waitArchived waits until the archive's frontier is the log end of every partition of topic.
func (p *Proof) waitArchived(ctx context.Context, topic string) error {
	a, done, err := p.archive(ctx)
	if err != nil {
		return err
	}
	defer done()
	return until(ctx, "the archive of "+topic, func() (bool, string, error) {
		ends, err := p.partitions(ctx, topic)
		if err != nil {
			return false, "", err
		}
		for tp, end := range ends {
			if end.End == 0 {
				continue
			}
			tail, err := a.Tail(ctx, tp.Topic, tp.Partition, -1)
			if err != nil {
				return false, "", err
			}
			if tail == nil || tail.Header.Next < end.End {
				next := int64(0)
				if tail != nil {
					next = tail.Header.Next
				}
				return false, fmt.Sprintf("%s: archived to %d of %d", tp, next, end.End), nil
			}
		}
		return len(ends) > 0, "topic is not there", nil
	})
}

func (p *Proof) archive(ctx context.Context) (*archive.Archive, func(), error) {
	st, err := storeurl.Open(ctx, p.StoreURL)
	if err != nil {
		return nil, nil, err
	}
	return archive.Open(st, "topics"), func() { _ = st.Close() }, nil
}

// deleteInput deletes every input record from Kafka and checks that none is left.
func (p *Proof) deleteInput(ctx context.Context, r *Result) error {
	ends, err := p.partitions(ctx, p.Topic)
	if err != nil {
		return err
	}
	before := make(map[kafka.TP]int64)
	for tp, end := range ends {
		before[tp] = end.End
	}
	if err := p.admin.DeleteRecords(ctx, before); err != nil {
		return err
	}
	left, err := p.partitions(ctx, p.Topic)
	if err != nil {
		return err
	}
	for tp, l := range left {
		if l.Start != l.End {
			return fmt.Errorf("delete records of %s: log still holds [%d, %d)", tp, l.Start, l.End)
		}
		r.LogStart += l.Start
		r.LogEnd += l.End
	}
	return nil
}

// replay starts the replay job with one POST and waits for its end.
func (p *Proof) replay(ctx context.Context) error {
	if err := p.StartReplay(ctx, p.Replay, p.ReplayFields); err != nil {
		return err
	}
	if p.WhileReplaying != nil {
		if err := p.WhileReplaying(ctx, p); err != nil {
			return err
		}
	}
	return p.WaitReplay(ctx, p.Replay)
}

// StartReplay starts a replay of everything into the pipeline, with other fields where they are given.
func (p *Proof) StartReplay(ctx context.Context, name string, fields map[string]any) error {
	request := map[string]any{"name": name, "target": "live", "from": "earliest", "until": "end", "endMode": "hold"}
	maps.Copy(request, fields)
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Replayer.URL+"/replays", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("start replay %s: %w", name, err)
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode/100 != 2 {
		return fmt.Errorf("start replay %s: %s: %s", name, resp.Status, bytes.TrimSpace(answer))
	}
	return nil
}

// WaitReplay waits until a replay is COMPLETED. One that ends otherwise is an error.
func (p *Proof) WaitReplay(ctx context.Context, name string) error {
	return until(ctx, "replay "+name, func() (bool, string, error) {
		job, err := p.JobNamed(ctx, name)
		if err != nil {
			return false, err.Error(), nil // the replayer may be restarting
		}
		switch job.State {
		case "COMPLETED":
			return true, "", nil
		case "FAILED", "CANCELLED":
			return false, "", fmt.Errorf("%s: %s", job.State, job.Error)
		}
		return false, fmt.Sprintf("state %s, %d of %d records sent", job.State, job.Totals.RecordsSent, job.Totals.RecordsPlanned), nil
	})
}

// GetJSON decodes the answer to a GET; any status but 200 is an error, which has the answer's text.
func GetJSON(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body) // the status says enough
		return fmt.Errorf("GET %s: %s: %s", url, resp.Status, bytes.TrimSpace(text))
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// ErrDiffers is wrapped where live and replayed output are not the same bytes.
var ErrDiffers = errors.New("live and replayed output differ")

func (p *Proof) compare(ctx context.Context, r *Result) error {
	var live, again []map[int32]Sequence
	for _, suffix := range []string{"", ".late"} {
		name := p.Pipeline + suffix
		a, err := ReadTopic(ctx, p.Bootstrap, name)
		if err != nil {
			return err
		}
		b, err := ReadTopic(ctx, p.Bootstrap, name+".replay."+p.Replay)
		if err != nil {
			return err
		}
		if diff := FirstDifference(a, b); diff != "" {
			return fmt.Errorf("%w: %s: %s", ErrDiffers, name, diff)
		}
		for i := range int32(len(a)) {
			one := func(m map[int32]Sequence) string { return HashTopic(map[int32]Sequence{i: m[i]}) }
			r.Partitions = append(r.Partitions, PartitionHash{Topic: name, Partition: i, Records: len(a[i]), Live: one(a), Replay: one(b)})
		}
		live, again = append(live, a), append(again, b)
	}
	r.ResultsTopic, r.LateTopic = p.Pipeline, p.Pipeline+".late"
	r.ReplayTopic, r.ReplayLateTopic = p.Pipeline+".replay."+p.Replay, p.Pipeline+".late.replay."+p.Replay
	r.Live, r.Again = live[0], again[0]
	r.EmittedLive, r.EmittedReplay = Count(live[0]), Count(again[0])
	r.LateLive, r.LateReplay = Count(live[1]), Count(again[1])
	r.HashLive, r.HashReplay = HashTopics(live...), HashTopics(again...)
	if r.EmittedLive == 0 {
		return errors.New("the live pipeline emitted nothing: equality would mean nothing")
	}
	if r.LateLive == 0 {
		return errors.New("no record was late: the input does not test lateness")
	}
	return nil
}

// ArchiveSummary adds up what `archiver inspect -o json` says of the input topic.
type ArchiveSummary struct {
	Segments, Records, Bytes int64
}

// inspect runs `archiver inspect` and `archiver verify` as a user would.
func (p *Proof) inspect(ctx context.Context, r *Result) error {
	out, err := p.command(ctx, "archiver", "inspect", "--store", p.StoreURL, "-o", "json")
	if err != nil {
		return err
	}
	rows, err := ParseInspect(out)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Topic == p.Topic {
			r.Archived.Segments += row.Segments
			r.Archived.Records += row.Records
			r.Archived.Bytes += row.Bytes
		}
	}
	if want := r.Before + r.Produced; r.Archived.Records != want {
		return fmt.Errorf("archived %d of %d produced records", r.Archived.Records, want)
	}
	table, err := p.command(ctx, "archiver", "inspect", "--store", p.StoreURL)
	if err != nil {
		return err
	}
	r.InspectOutput = string(table)
	verify, err := p.command(ctx, "archiver", "verify", "--store", p.StoreURL)
	r.VerifyOutput = string(verify)
	if err != nil {
		return err
	}
	r.PutCalls = counter(ctx, p.Archiver.URL, `tapedeck_store_calls_total`, `op="create"`)
	return nil
}

// ParseInspect reads the output of `archiver inspect -o json`.
func ParseInspect(out []byte) ([]archive.PartitionInfo, error) {
	var rows []archive.PartitionInfo
	if err := json.Unmarshal(out, &rows); err != nil {
		return nil, fmt.Errorf("parse the output of archiver inspect: %w", err)
	}
	return rows, nil
}

// command runs one of the binaries and returns its standard output; a non-zero exit is an error with its standard error.
func (p *Proof) command(ctx context.Context, bin string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(p.Bin, bin), args...)
	cmd.Env = Environment(p.Vars)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w\n%s%s", bin, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out, nil
}

// counter adds up the series of one metric whose labels contain label; −1 where it cannot be read.
func counter(ctx context.Context, url, name, label string) int64 {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return -1
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return -1
	}
	defer func() { _ = resp.Body.Close() }()
	sum, found := 0.0, false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, name+"{") || !strings.Contains(line, label) {
			continue
		}
		if v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64); err == nil {
			sum, found = sum+v, true
		}
	}
	if !found {
		return -1
	}
	return int64(sum)
}
