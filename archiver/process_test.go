package archiver

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/internal/waiting"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// These tests run the real binary over a store in a directory.

// TestMain removes what built made.
func TestMain(m *testing.M) {
	code := waiting.Run(m, "8")
	if builtDir != "" {
		_ = os.RemoveAll(builtDir)
	}
	os.Exit(code)
}

var builtDir string

// built makes the binary once for all tests.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tapedeck-archiver-")
	if err != nil {
		return "", err
	}
	builtDir = dir
	bin := filepath.Join(dir, "archiver")
	if out, err := exec.Command("go", "build", "-o", bin, "./cmd/archiver").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return bin, nil
})

func build(t *testing.T) string {
	t.Helper()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// process is an archiver as a process.
type process struct {
	cmd  *exec.Cmd
	logs *lockedBuffer
	addr string // file with the address that it serves
	done chan struct{}
}

// lockedBuffer is read while a process writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (e *env) process(bin, storeURL string, sets ...string) *process {
	e.t.Helper()
	args := []string{"--set", "bootstrap.servers=" + e.bootstrap, "--set", "store=" + storeURL, "--set", "rest.listen=127.0.0.1:0", "--set", "group.id=g",
		"--set", "consumer.override.session.timeout.ms=2000", "--set", "consumer.override.heartbeat.interval.ms=200",
		// The fake broker keeps a member that was killed while it joined for this long, where a real one needs the session's time only.
		"--set", "consumer.override.max.poll.interval.ms=5000"}
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	addr := filepath.Join(e.t.TempDir(), "address")
	args = append(args, "--set", "rest.port.file="+addr)
	p := &process{cmd: exec.Command(bin, args...), logs: &lockedBuffer{}, addr: addr, done: make(chan struct{})}
	p.cmd.Stderr = p.logs
	// The test alone says what the settings are.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(row string) bool { return strings.HasPrefix(row, "TAPEDECK_") })
	if err := p.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	e.t.Cleanup(func() { p.signal(syscall.SIGKILL); <-p.done })
	return p
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// awaitReady waits until /readyz says so.
func (e *env) awaitReady(p *process) {
	e.t.Helper()
	e.awaitOr("ready", p.logs.String, func() bool {
		addr, err := os.ReadFile(p.addr)
		if err != nil {
			return false
		}
		resp, err := http.Get("http://" + strings.TrimSpace(string(addr)) + "/readyz")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
}

// end stops the process as an operator does, and demands exit status 0.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("did not end at SIGTERM")
	}
	if c := p.cmd.ProcessState.ExitCode(); c != 0 {
		t.Fatalf("exit status %d\n%s", c, p.logs.String())
	}
}

func openDir(t *testing.T) (string, *archive.Archive) {
	t.Helper()
	url := "file://" + t.TempDir()
	st, err := storeurl.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return url, archive.Open(st, "topics")
}

// next is where a chain ends, 0 where there is none.
func (e *env) next(a *archive.Archive, topic string, part int32) int64 {
	e.t.Helper()
	tl, err := a.Tail(e.ctx(), topic, part, -1)
	if err != nil {
		e.t.Fatal(err)
	}
	if tl == nil {
		return 0
	}
	return tl.Header.Next
}

// checkWhole demands a clean archive that holds n records of each partition, each offset once.
func (e *env) checkWhole(a *archive.Archive, topic string, parts int32, n int64) {
	e.t.Helper()
	r, err := a.Verify(e.ctx())
	if err != nil {
		e.t.Fatal(err)
	}
	if len(r.Findings) > 0 || r.Records != n*int64(parts) {
		e.t.Fatalf("%d records, want %d; findings %+v", r.Records, n*int64(parts), r.Findings)
	}
	for part := range parts {
		want := e.log(topic, part)
		got := records(e.t, a.Store(), segment.PartitionPrefix("topics", topic, part))
		if len(got) != len(want) {
			e.t.Fatalf("partition %d: %d records, want %d", part, len(got), len(want))
		}
		for i := range got {
			if !record.Equal(&got[i], &want[i]) {
				e.t.Fatalf("partition %d: record %d differs", part, i)
			}
		}
	}
}

func records(t *testing.T, st store.Store, prefix string) (out []record.Record) {
	t.Helper()
	for after := ""; ; {
		objs, more, err := st.List(t.Context(), prefix, after, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objs {
			after = o.Key
			data, err := st.Get(t.Context(), o.Key)
			if err != nil {
				t.Fatal(err)
			}
			rd, err := segment.NewReader(o.Key, data)
			if err != nil {
				t.Fatal(err)
			}
			for range rd.Header().Count {
				var r record.Record
				if err := rd.Next(&r); err != nil {
					t.Fatal(err)
				}
				out = append(out, r)
			}
		}
		if !more {
			return out
		}
	}
}

// graves are clients that were killed, by their client.id.
type graves struct {
	e     *env
	admin *kgo.Client
	dead  map[string]time.Time
}

// ended has the broker forget the members of clients that were killed a session's time ago. A real broker does so by itself; the fake one gives a
// member no session where the answer to its JoinGroup met a closed connection, and leaves it its partitions for ever.
func (g *graves) ended() {
	g.e.t.Helper()
	info := g.e.fake.GroupInfo("g")
	if info == nil {
		return
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = "g"
	for _, m := range info.Members {
		if died, ok := g.dead[m.ClientID]; ok && time.Since(died) > 3*time.Second { // the session is 2 s
			left := kmsg.NewLeaveGroupRequestMember()
			left.MemberID = m.MemberID
			req.Members = append(req.Members, left)
		}
	}
	if len(req.Members) == 0 {
		return
	}
	if _, err := req.RequestWith(g.e.ctx(), g.admin); err != nil {
		g.e.t.Fatal(err)
	}
}

// Field fault 4: kill -9 at random moments.
func TestKills(t *testing.T) {
	t.Parallel()
	const parts, perPart, kills = 6, 3000, 10
	e := newEnv(t)
	e.topic("trips", parts)
	bin := build(t)
	url, arc := openDir(t)
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		p := e.producer("")
		for i := range perPart / 100 {
			for part := range int32(parts) {
				e.send(p, "trips", part, numbered(i*100, 100)...)
			}
		}
	}()
	admin, err := kgo.NewClient(kgo.SeedBrokers(e.bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	g := &graves{e, admin, map[string]time.Time{}}
	life := 0
	live := func() (*process, string) {
		life++
		client := fmt.Sprintf("life-%d", life)
		return e.process(bin, url, "topics=trips", "rotate.age.ms=200", "flush.size=170", "consumer.override.client.id="+client), client
	}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(uint64(seed), 1))
	for range kills {
		p, client := live()
		before := e.next(arc, "trips", 0)
		// Sometimes right away, sometimes in the middle of its work: some progress is waited for, so that kills do not all meet the start.
		if rnd.IntN(3) > 0 {
			e.awaitOr("progress", p.logs.String, func() bool {
				g.ended()
				return before == perPart || e.next(arc, "trips", 0) > before
			})
		}
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond) // the random moment, not a synchronisation
		p.signal(syscall.SIGKILL)
		<-p.done
		g.dead[client] = time.Now()
	}
	<-produced
	p, _ := live()
	e.awaitReady(p)
	for part := range int32(parts) {
		e.awaitOr(fmt.Sprintf("partition %d archived", part), p.logs.String, func() bool {
			g.ended()
			return e.next(arc, "trips", part) == perPart
		})
	}
	p.end(t)
	e.checkWhole(arc, "trips", parts, perPart)
}

// Field fault 1 with real processes: A is stopped with a full buffer, its session expires, B takes over; A continues.
func TestAStoppedProcessThatContinues(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	bin := build(t)
	url, arc := openDir(t)
	a := e.process(bin, url, "topics=trips", "rotate.age.ms=3000", "flush.size=1000", "log.level=debug")
	e.fill("trips", 0, 0, 40)
	e.await("A owns the partition", func() bool {
		i := e.fake.GroupInfo("g")
		return i != nil && i.State == "Stable" && len(i.Members) == 1
	})
	a.signal(syscall.SIGSTOP)
	e.fill("trips", 0, 40, 60)
	b := e.process(bin, url, "topics=trips", "rotate.age.ms=300")
	e.awaitOr("B archives", b.logs.String, func() bool { return e.next(arc, "trips", 0) == 100 })
	first := records(t, arc.Store(), segment.PartitionPrefix("topics", "trips", 0))
	a.signal(syscall.SIGCONT)
	e.fill("trips", 0, 100, 50)
	e.awaitOr("the rest is archived", a.logs.String, func() bool { return e.next(arc, "trips", 0) == 150 })
	e.awaitOr("A is a member again", a.logs.String, func() bool {
		i := e.fake.GroupInfo("g")
		return i != nil && len(i.Members) == 2
	})
	a.end(t)
	b.end(t)
	now := records(t, arc.Store(), segment.PartitionPrefix("topics", "trips", 0))
	for i := range first {
		if !record.Equal(&first[i], &now[i]) {
			t.Fatalf("record %d has changed", i)
		}
	}
	e.checkWhole(arc, "trips", 1, 150)
}

// Bad input ends with one clear line, status 2, within the bound.
func TestStartErrorsNameTheSetting(t *testing.T) {
	bin := build(t)
	foreign := t.TempDir()
	name := segment.Name{TopicsDir: "topics", Topic: "trips", Partition: 0, Start: 0}.Format()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(foreign, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(foreign, name), []byte("Obj\x01 of another sink"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		sets []string
		want []string
	}{
		"no broker":        {[]string{"topics=t", "store=file://" + t.TempDir(), "bootstrap.servers=127.0.0.1:1"}, []string{"bootstrap.servers: ", "127.0.0.1:1", "startup.timeout"}},
		"no store":         {[]string{"topics=t", "bootstrap.servers=127.0.0.1:1", "store=ftp://x"}, []string{"store: ", "ftp"}},
		"no topics":        {[]string{"bootstrap.servers=127.0.0.1:1", "store=file://" + t.TempDir()}, []string{"set topics or topics.regex"}},
		"no registry":      {[]string{"topics=t", "bootstrap.servers=127.0.0.1:1", "store=file://" + t.TempDir(), "schema.registry.url=http://127.0.0.1:1"}, []string{"schema.registry.url: "}},
		"foreign":          {[]string{"topics=t", "bootstrap.servers=127.0.0.1:1", "store=file://" + foreign}, []string{"store: ", "foreign", "trips"}},
		"bad key":          {[]string{"topic=t", "bootstrap.servers=127.0.0.1:1", "store=file:///x"}, []string{`did you mean "topics"?`}},
		"bad regex":        {[]string{"topics.regex=(", "bootstrap.servers=127.0.0.1:1", "store=file:///x"}, []string{"topics.regex", "RE2"}},
		"unknown override": {[]string{"topics=t", "store=file://" + t.TempDir(), "bootstrap.servers=127.0.0.1:1", "consumer.override.foo=1"}, []string{": consumer.override.foo: "}},
		"bad override":     {[]string{"topics=t", "store=file://" + t.TempDir(), "bootstrap.servers=127.0.0.1:1", "consumer.override.fetch.min.bytes=x"}, []string{": consumer.override.fetch.min.bytes: "}},
		"unknown sasl":     {[]string{"topics=t", "store=file://" + t.TempDir(), "bootstrap.servers=127.0.0.1:1", "sasl.foo=1"}, []string{": sasl.foo: "}},
		"bad protocol":     {[]string{"topics=t", "store=file://" + t.TempDir(), "bootstrap.servers=127.0.0.1:1", "security.protocol=tls"}, []string{`setting "security.protocol"`}},
		"bad registry":     {[]string{"topics=t", "store=file://" + t.TempDir(), "bootstrap.servers=127.0.0.1:1", "schema.registry.url=x"}, []string{": schema.registry.url \"x\""}},
		"registry's user":  {[]string{"topics=t", "store=file://" + t.TempDir(), "bootstrap.servers=127.0.0.1:1", "schema.registry.url=http://127.0.0.1:1", "schema.registry.basic.auth.user.info=me"}, []string{": schema.registry.basic.auth.user.info: "}},
		"bad bound":        {[]string{"topics=t", "flush.size=0", "bootstrap.servers=127.0.0.1:1", "store=file:///x"}, []string{"flush.size", "at least 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some wait until startup.timeout has passed, which is long enough for the checks that come before
			args := []string{"--set", "startup.timeout=5s", "--set", "log.level=error", "--set", "rest.listen=127.0.0.1:0"}
			for _, s := range tt.sets {
				args = append(args, "--set", s)
			}
			began := time.Now()
			out, err := exec.Command(bin, args...).CombinedOutput()
			ee, ok := err.(*exec.ExitError)
			if !ok || ee.ExitCode() != 2 {
				t.Fatalf("ended with %v\n%s", err, out)
			}
			if d := time.Since(began); d > patience {
				t.Errorf("took %s", d)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			for _, w := range tt.want {
				if len(lines) != 1 || !strings.Contains(lines[0], w) {
					t.Errorf("want one line with %q, got:\n%s", w, out)
				}
			}
		})
	}
}
