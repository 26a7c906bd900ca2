package runtime_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/processor/live"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/sessions"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/session"
)

// gate lets a number of transactions commit and holds up the next one, so that a process can be killed between the two.
type gate struct {
	left atomic.Int64
	held atomic.Int64
}

func newGate(c *kfake.Cluster) *gate {
	g := &gate{}
	g.left.Store(1 << 40)
	c.ControlKey(int16(kmsg.EndTxn), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.EndTxnRequest)
		if !req.Commit || g.left.Add(-1) >= 0 {
			return nil, nil, false
		}
		g.held.Add(1)
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code // the client tries again, and again
		return resp, nil, true
	})
	return g
}

func (g *gate) allow(n int64) {
	g.held.Store(0)
	g.left.Store(n)
}

// midClosing reports whether the stored positions are those between two transactions of one closing.
func (e *env) midClosing(p *pipeline.Pipeline) bool {
	e.t.Helper()
	var tps []kafka.TP
	for tp := range e.ends(p.Source[0].Topic) {
		tps = append(tps, tp)
	}
	got, err := e.admin.CommittedOffsets(e.ctx(), "tapedeck."+p.Name, tps)
	if err != nil {
		return false // no group yet
	}
	for _, o := range got {
		if strings.Contains(o.Metadata, `"closing"`) {
			return true
		}
	}
	return false
}

// wantPrefix checks that what a reader sees is how the wanted output begins, in every partition.
func (e *env) wantPrefix(p *pipeline.Pipeline, suffix string, want map[string][]string) {
	e.t.Helper()
	for role, got := range e.outputs(p, suffix) {
		next := map[string]int{}
		byPart := map[string][]string{}
		for _, l := range want[role] {
			part, _, _ := strings.Cut(l, " ")
			byPart[part] = append(byPart[part], l)
		}
		for _, l := range got {
			part, _, _ := strings.Cut(l, " ")
			if i := next[part]; i >= len(byPart[part]) || byPart[part][i] != l {
				e.t.Fatalf("%s: record %d of partition %s is %s; want %v", role, i, part, l, byPart[part])
			}
			next[part]++
		}
	}
}

// A closing of many transactions, and the process is killed between each two of them: no duplicate, no loss, no other order, at any moment.
func TestLiveKilledBetweenTheTransactionsOfAClosing(t *testing.T) {
	t.Parallel()
	for keyed, size := range map[bool]int{false: 2, true: 6} {
		t.Run(fmt.Sprintf("keyed=%v", keyed), func(t *testing.T) {
			t.Parallel() // it waits for killed transactions most of the time
			e, fake := newFake(t)
			topic := unique("trips")
			p := fares(t, unique("fares"), topic, keyed)
			e.topic(topic, 2)
			e.produce(trips(61, topic, 2, 45)...)
			want := e.oracle(p)
			g := newGate(fake)
			mid := 0
			for life := 0; ; life++ {
				if life > 150 {
					t.Fatal("no end")
				}
				g.allow(int64(1 + life%2)) // the first may only store again what was stored
				r := e.start(p, func(c *live.Config) { c.TxRecords = size; c.CommitInterval = 10 * time.Millisecond })
				done := false
				e.until("a transaction to be held up, or the end", func() bool {
					st := r.Status()
					done = st.State == live.Running && len(st.Partitions) == 2
					for _, s := range st.Partitions {
						done = done && s.LogEnd > 0 && s.Position == s.LogEnd
					}
					return done || g.held.Load() > 0
				})
				r.kill()
				e.settle(p)
				e.wantPrefix(p, "", want)
				if e.midClosing(p) {
					mid++
				}
				if done {
					break
				}
			}
			g.allow(1 << 40)
			e.start(p)
			e.untilRead(p)
			e.wantOutputs(p, "", want)
			t.Logf("%d results; killed %d times within a closing", len(want["results"]), mid)
			if mid < 3 {
				t.Error("too few kills within a closing: the test shows little")
			}
		})
	}
}

// The same of a replay session, with both end modes.
func TestSessionKilledBetweenTheTransactionsOfAClosing(t *testing.T) {
	t.Parallel()
	for _, mode := range []session.EndMode{session.Hold, session.Drain} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel() // each life waits until the broker aborts what the last one left open
			e, fake := newFake(t)
			p := e.lived(62, 2, 45, false)
			rng := rand.New(rand.NewPCG(8, 8))
			a := e.archive(p, rng)
			g := newGate(fake)
			a.req.EndMode = mode
			undisturbed := e.receiver(nil, p)
			undisturbed.mustOpen("calm-"+string(mode), a.req)
			undisturbed.send("calm-"+string(mode), 1, a, rng, nil)
			if _, code, text := undisturbed.finish("calm-"+string(mode), 1); code != http.StatusOK {
				t.Fatal(code, text)
			}
			want := e.outputs(p, ".replay.calm-"+string(mode))
			name := "torn-" + string(mode)
			// Everything is closed by finish; each life of the process gets a few transactions.
			r := e.receiver(func(c *sessions.Config) {
				c.TxRecords, c.CommitInterval, c.TxTimeout = 5, time.Hour, 10*time.Second
			}, p)
			r.mustOpen(name, a.req)
			lives := 0
			var last chan int // the answer of the finish that was held up
			for ; ; lives++ {
				if lives > 100 {
					t.Fatal("no end")
				}
				r.send(name, 1, a, rng, nil) // it fences the process that was held up
				if last != nil {
					g.allow(1 << 40)
					if code := <-last; code == http.StatusOK {
						t.Fatal("the process that was replaced has finished the session")
					}
				}
				e.wantPrefix(p, ".replay."+name, want)
				g.allow(1)
				last = make(chan int, 1)
				go finishOnce(e.ctx(), r.srv.URL+"/sessions/"+name+"/finish?epoch=1", last)
				code := 0
				e.until("a transaction to be held up, or the end", func() bool {
					select {
					case code = <-last:
						return true
					default:
						return g.held.Load() > 0
					}
				})
				if code == http.StatusOK {
					break
				}
				if code != 0 {
					t.Fatalf("finish: %d", code)
				}
				t.Cleanup(r.srv.Close)
				r.up() // another process
			}
			g.allow(1 << 40)
			if d := diff(want, e.outputs(p, ".replay."+name)); d != "" {
				t.Error(d)
			}
			t.Logf("%d results, %d lives", len(want["results"]), lives)
			if lives < 4 {
				t.Error("too few kills")
			}
		})
	}
}

// finishOnce sends the status of the answer, 0 for none.
func finishOnce(ctx context.Context, url string, answer chan<- int) {
	code := 0
	if req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil); err == nil {
		if resp, err := http.DefaultClient.Do(req); err == nil {
			code = resp.StatusCode
			_ = resp.Body.Close()
		}
	}
	answer <- code
}
