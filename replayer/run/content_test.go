package run_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// A filter leaves out what does not match it, and the proof is of the rest.
func TestFilter(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(3, 1)), topic, 3, 90, 7)
	for fields, want := range map[string]func(*record.Record) bool{
		`,"filter":{"keys":["k1","k5"]}`: func(r *record.Record) bool { return string(r.Key) == "k1" || string(r.Key) == "k5" },
		`,"filter":{"keyPrefix":"k1"},"until":{"kind":"timestamp","value":40000}`: func(r *record.Record) bool {
			return string(r.Key) == "k1" && r.Timestamp < 40000
		},
	} {
		rc := replaytest.NewReceiver(t, pipe())
		_, x, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, `,"promise":"recompute"`+fields)), client(t, rc))
		if err != nil {
			t.Fatal(err)
		}
		same(t, a, rc, want)
		n := int64(0)
		for tp := range a.Records {
			n += int64(len(rc.Taken("j", tp)))
		}
		for _, p := range x.Progress() {
			n -= p.Proof.Count
		}
		if n != 0 {
			t.Errorf("%s: the proof is off by %d records", fields, n)
		}
	}
	rc := replaytest.NewReceiver(t, pipe())
	_, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, `,"promise":"recompute","filter":{"keys":["none"]}`)), client(t, rc))
	wantFailure(t, err, "holds no record")
}

// Objects that cannot be read are passed over on request: the rest arrives, each record once, and each gap is told with its place.
func TestUnreadableIsPassedOver(t *testing.T) {
	const skip = `,"promise":"recompute","onUnreadable":"skip"`
	tp := record.TopicPartition{Topic: topic}
	for name, spoil := range map[string]func(a *replaytest.Archive, keys []string){
		"damaged record": func(a *replaytest.Archive, keys []string) { a.Damage(t, keys[3]) },
		"damaged header": func(a *replaytest.Archive, keys []string) {
			a.Mem.Put(keys[3], []byte("Obj\x01 tapedeck.format and then nothing"))
		},
		"cut off": func(a *replaytest.Archive, keys []string) {
			data, _ := a.Mem.Get(t.Context(), keys[3])
			a.Mem.Put(keys[3], data[:len(data)-9])
		},
		"gone": func(a *replaytest.Archive, keys []string) { a.Mem.Delete(keys[3]) },
		"swapped": func(a *replaytest.Archive, keys []string) {
			data, _ := a.Mem.Get(t.Context(), keys[2])
			a.Mem.Put(keys[3], data)
		},
		"first": func(a *replaytest.Archive, keys []string) { a.Mem.Put(keys[0], []byte("Obj\x01 tapedeck.format")) },
	} {
		t.Run(name, func(t *testing.T) {
			a := replaytest.New()
			a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 60, 6)
			keys := a.Keys(tp)
			hit := 3
			if name == "first" {
				hit = 0
			}
			from, to := start(t, keys[hit]), start(t, keys[hit+1])
			spoil(a, keys)
			rc := replaytest.NewReceiver(t, pipe())
			_, _, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, `,"promise":"recompute"`)), client(t, rc))
			if err == nil {
				t.Fatal("it is passed over unasked")
			}
			rc = replaytest.NewReceiver(t, pipe())
			rc.MaxSkew = 4000
			j := newJob(request(t, skip))
			out, x, err := replay(t, testCtx(t), newRunner(a), j, client(t, rc))
			if err != nil {
				t.Fatal(err)
			}
			same(t, a, rc, func(r *record.Record) bool {
				return r.Partition != 0 || r.Offset < from || r.Offset >= to
			})
			gaps := x.Progress()[0].Unreadable
			if len(gaps) != 1 || gaps[0].Key != keys[hit] || gaps[0].From != from || gaps[0].To != to || gaps[0].Reason == "" ||
				len(x.Progress()[1].Unreadable) > 0 || out.Progress[0].Count != x.Progress()[0].Proof.Count {
				t.Errorf("gaps %+v of [%d, %d)", gaps, from, to)
			}
			if at := gaps[0].Byte; (name == "damaged record") != (at > 0) && name != "cut off" && name != "damaged header" && name != "first" {
				t.Errorf("byte %d", at)
			}
		})
	}
}

// What was passed over once stays so for the whole job, also under its next owner and after a repair: the target has counted without it.
func TestPassedOverStaysSo(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 1, 60, 6)
	keys := a.Keys(record.TopicPartition{Topic: topic})
	sound, err := a.Mem.Get(t.Context(), keys[0])
	if err != nil {
		t.Fatal(err)
	}
	from, to := start(t, keys[0]), start(t, keys[1])
	a.Damage(t, keys[0])
	rc := replaytest.NewReceiver(t, pipe())
	r := newRunner(a)
	j := newJob(request(t, `,"promise":"recompute","onUnreadable":"skip"`))
	_, x, err := replay(t, testCtx(t), r, j, client(t, rc))
	if err != nil {
		t.Fatal(err)
	}
	// The target loses everything but the job is remembered; the object has been repaired.
	j.Progress = x.Progress()
	a.Mem.Put(keys[0], sound)
	rc.Restart(true)
	if _, x, err = replay(t, testCtx(t), r, j, client(t, rc)); err != nil {
		t.Fatal(err)
	}
	same(t, a, rc, func(r *record.Record) bool { return r.Offset < from || r.Offset >= to })
	if gaps := x.Progress()[0].Unreadable; len(gaps) != 1 {
		t.Errorf("gaps %v", gaps)
	}
}

// A store that does not answer, or takes no credentials, is no damage: it is waited for, and never passed over.
func TestAnOutageIsNotPassedOver(t *testing.T) {
	a := replaytest.New()
	a.Fill(t, rand.New(rand.NewPCG(1, 1)), topic, 2, 60, 6)
	var n atomic.Int64
	a.Mem.SetBefore(func(_ context.Context, op, key string) error {
		if op == store.OpGet && strings.HasPrefix(key, "topics/") && n.Add(1)%3 == 0 {
			return errors.Join(store.ErrNotAllowed, errors.New("away for a moment"))
		}
		return nil
	})
	rc := replaytest.NewReceiver(t, pipe())
	_, x, err := replay(t, testCtx(t), newRunner(a), newJob(request(t, `,"promise":"recompute","onUnreadable":"skip"`)), client(t, rc))
	if err != nil {
		t.Fatal(err)
	}
	same(t, a, rc, all)
	for _, p := range x.Progress() {
		if len(p.Unreadable) > 0 {
			t.Errorf("%v", p.Unreadable)
		}
	}
}

func start(t *testing.T, key string) int64 {
	t.Helper()
	n, err := segment.ParseName("topics", key)
	if err != nil {
		t.Fatal(err)
	}
	return n.Start
}
