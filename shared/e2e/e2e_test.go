// Package e2e tests the real binaries as processes: on the embedded stack, or on real components where TAPEDECK_TEST_KAFKA,
// TAPEDECK_TEST_REGISTRY and TAPEDECK_TEST_S3_URLS name them (scripts/real/run.sh does that).
package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/devstack"
	"tapedeck.dev/tapedeck/shared/devstack/trips"
	"tapedeck.dev/tapedeck/shared/e2e/proof"
)

var (
	binDir string // the binaries under test
	env    proof.Env
	dataAt string // folder below which the store keeps objects as files, "" where unknown
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tapedeck-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binDir = filepath.Join(dir, "bin")
	if err := os.Mkdir(binDir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	build := exec.Command("go", "build", "-o", binDir+"/", "../../archiver/cmd/archiver", "../../replayer/cmd/replayer", "../../processor/cmd/processor")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the binaries: %v\n%s", err, out)
		return 1
	}
	if bootstrap := os.Getenv("TAPEDECK_TEST_KAFKA"); bootstrap != "" {
		urls := strings.Fields(os.Getenv("TAPEDECK_TEST_S3_URLS"))
		if len(urls) == 0 {
			fmt.Fprintln(os.Stderr, "TAPEDECK_TEST_KAFKA is set: set TAPEDECK_TEST_S3_URLS and TAPEDECK_TEST_REGISTRY too")
			return 1
		}
		env = proof.Env{Bootstrap: bootstrap, RegistryURL: os.Getenv("TAPEDECK_TEST_REGISTRY"), StoreURL: urls[0]}
		dataAt = os.Getenv("TAPEDECK_TEST_S3_DIR")
		return m.Run()
	}
	stack, err := devstack.Start(context.Background(), devstack.Options{Dir: filepath.Join(dir, "stack")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = stack.Close() }()
	for _, v := range stack.Env() {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	env = proof.Env{Bootstrap: stack.Bootstrap, RegistryURL: stack.RegistryURL, StoreURL: stack.StoreURL, Vars: stack.Env()}
	dataAt = filepath.Join(dir, "stack")
	return m.Run()
}

// options returns the proof's options for one test: own topic, own prefix of the store.
func options(t *testing.T, n int, rate float64) proof.Options {
	t.Helper()
	topic := fmt.Sprintf("%s-%x", strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())), time.Now().UnixNano()&0xffffff)
	const partitions = 4
	e := env
	base, query, _ := strings.Cut(e.StoreURL, "?")
	e.StoreURL = strings.TrimRight(base, "/") + "/" + topic
	if query != "" {
		e.StoreURL += "?" + query
	}
	return proof.Options{Env: e, Bin: binDir, Dir: t.TempDir(), Topic: topic, Partitions: partitions, Schema: trips.Schema,
		FlushSize: 500,
		Produce: func(ctx context.Context) (int64, error) {
			s, err := trips.Produce(ctx, trips.ProduceOptions{Bootstrap: e.Bootstrap, RegistryURL: e.RegistryURL, Topic: topic,
				Partitions: partitions, Rate: rate, Source: trips.Generate(trips.GenerateOptions{Seed: 7, Count: n}), FlushAhead: time.Minute})
			return s.Records, err
		},
		Step: t.Logf,
	}
}

// prove runs a proof with its services, checks the live results against the oracle, and returns what it saw.
func prove(t *testing.T, o proof.Options) *proof.Result {
	t.Helper()
	var input map[int32]proof.Sequence
	before := o.BeforeDelete
	o.BeforeDelete = func(ctx context.Context, p *proof.Proof) (err error) {
		if input, err = proof.ReadTopic(ctx, p.Bootstrap, p.Topic); err == nil && before != nil {
			err = before(ctx, p)
		}
		return err
	}
	r, err := runProof(t, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.HashLive != r.HashReplay {
		t.Fatalf("hashes differ: %s, %s", r.HashLive, r.HashReplay)
	}
	checkAgainstOracle(t, input, r)
	t.Logf("produced %d, segments %d, emitted %d, late %d", r.Produced, r.Archived.Segments, r.EmittedLive, r.LateLive)
	return r
}

func runProof(t *testing.T, o proof.Options) (*proof.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	p, err := proof.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.StartServices(ctx); err != nil {
		t.Fatal(errors.Join(err, p.StopServices()))
	}
	r, err := p.Run(ctx)
	if stop := p.StopServices(); stop != nil {
		t.Error(stop)
	}
	if err != nil {
		for _, s := range []*proof.Process{p.Archiver, p.Replayer, p.Processor} {
			t.Logf("%s log:\n%s", s.Name, s.LogTail(25))
		}
	}
	return r, err
}

// TestProof is the demo's proof with the oracle on top.
func TestProof(t *testing.T) { prove(t, options(t, 20_000, 0)) }

// killer kills one of the processes at random moments while work goes on, and starts it again.
func killer(t *testing.T, which func(p *proof.Proof) *proof.Process, times int, span time.Duration) func(context.Context, *proof.Proof) error {
	seed := uint64(time.Now().UnixNano())
	t.Logf("kill moments are drawn with seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	return func(ctx context.Context, p *proof.Proof) error {
		s := which(p)
		for range times {
			select { // the random moment itself, not a wait for something
			case <-time.After(time.Duration(r.Int64N(int64(span)))):
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := s.Kill(); err != nil {
				return err
			}
			if err := s.Start(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestArchiverKilled(t *testing.T) {
	o := options(t, 12_000, 3000)
	o.WhileLive = killer(t, func(p *proof.Proof) *proof.Process { return p.Archiver }, 3, 1200*time.Millisecond)
	prove(t, o)
}

func TestProcessorKilledLive(t *testing.T) {
	o := options(t, 12_000, 3000)
	o.WhileLive = killer(t, func(p *proof.Proof) *proof.Process { return p.Processor }, 3, 1200*time.Millisecond)
	prove(t, o)
}

func TestProcessorKilledInReplay(t *testing.T) {
	o := options(t, 60_000, 0)
	o.WhileReplaying = killer(t, func(p *proof.Proof) *proof.Process { return p.Processor }, 2, 300*time.Millisecond)
	prove(t, o)
}

func TestReplayerKilled(t *testing.T) {
	o := options(t, 60_000, 0)
	o.WhileReplaying = killer(t, func(p *proof.Proof) *proof.Process { return p.Replayer }, 2, 300*time.Millisecond)
	prove(t, o)
}

// TestDamagedObject flips one byte of an archived segment: the replay must fail and name the object, and so must verify.
func TestDamagedObject(t *testing.T) {
	if dataAt == "" {
		t.Skip("the store's files are not known: set TAPEDECK_TEST_S3_DIR")
	}
	o := options(t, 10_000, 0)
	damaged := ""
	o.BeforeReplay = func(_ context.Context, p *proof.Proof) (err error) {
		damaged, err = proof.DamageOneObject(dataAt, p.Topic)
		return err
	}
	_, err := runProof(t, o)
	if err == nil || damaged == "" || !strings.Contains(err.Error(), damaged) {
		t.Fatalf("damaged %q, the proof said: %v", damaged, err)
	}
	verify := exec.Command(filepath.Join(binDir, "archiver"), "verify", "--store", o.StoreURL)
	out, err := verify.CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), damaged) {
		t.Fatalf("verify: %v\n%s", err, out)
	}
}

// TestTaxiTrips runs the job over real taxi trips.
func TestTaxiTrips(t *testing.T) {
	file := os.Getenv("TAPEDECK_TEST_TRIPS")
	if file == "" {
		file = filepath.Join("..", "..", "..", "shared", "data", "nyc-taxis.csv")
	}
	if _, err := os.Stat(file); err != nil {
		t.Skipf("no trips: set TAPEDECK_TEST_TRIPS to a CSV of NYC taxi trips (%v)", err)
	}
	o := options(t, 0, 0)
	source, err := trips.ReadCSV(trips.CSVOptions{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	o.Produce = func(ctx context.Context) (int64, error) {
		s, err := trips.Produce(ctx, trips.ProduceOptions{Bootstrap: o.Bootstrap, RegistryURL: o.RegistryURL, Topic: o.Topic,
			Partitions: o.Partitions, Source: source, FlushAhead: time.Minute})
		return s.Records, err
	}
	r := prove(t, o)
	if want := int64(6433 + 4); os.Getenv("TAPEDECK_TEST_TRIPS") == "" && r.Produced != want {
		t.Errorf("produced %d records, want %d trips and flush records", r.Produced, want)
	}
}
