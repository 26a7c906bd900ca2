package runtime_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/processor/live"
	"tapedeck.dev/tapedeck/processor/sessions"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

// One partition is far ahead: it is held back, the state stays within its limit, and once the other one moves all is read. The run is killed on the way.
func TestLiveStateIsBoundedAtSkew(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := fares(t, unique("fares"), topic, false)
	e.topic(topic, 2)
	const limit = 200_000
	var ahead, behind []record.Record
	for _, r := range trips(71, topic, 2, 2000) {
		if r.Partition == 0 {
			ahead = append(ahead, r)
		} else {
			behind = append(behind, r)
		}
	}
	e.produce(ahead...)
	e.produce(behind[:5]...)
	small := func(c *live.Config) { c.MaxStateBytes = limit }
	r := e.start(p, small)
	most := int64(0)
	watch := func() live.Status {
		st := r.Status()
		if most = max(most, st.StatePeak); st.State == live.Failed || st.Restarts > 0 {
			t.Fatalf("%s: %s", st.State, st.Error)
		}
		return st
	}
	var st live.Status
	e.until("the partition ahead to be held back", func() bool {
		st = watch()
		return st.State == live.Blocked && len(st.Partitions) == 2 && strings.Contains(st.Partitions[0].Waiting, "state.max.bytes")
	})
	if !strings.Contains(st.Error, topic+"-1") || !strings.Contains(st.Error, "idleness") || st.Partitions[0].Read >= 2000 || st.StateMax != limit {
		t.Errorf("%+v", st)
	}
	r.kill()
	r = e.start(p, small)
	e.produce(behind[5:]...)
	ends := e.ends(topic)
	e.until("all to be read", func() bool {
		st := watch()
		n := 0
		for _, s := range st.Partitions {
			if s.Position >= ends[s.TopicPartition] {
				n++
			}
		}
		return n == 2
	})
	t.Logf("at most %d bytes of %d", most, limit)
	// What is fed between two looks comes on top, before closings are written: 200 records are much here, and little beside a real limit.
	if most > limit/2*3 || most <= limit/2 {
		t.Errorf("%d bytes of state, the limit is %d", most, limit)
	}
	r.kill()
	e.wantOutputs(p, "", e.oracle(p))
}

// More groups than fit: no partition could go on to make it smaller. The pipeline says so, loses nothing, and goes on with a higher limit.
func TestLiveStateTooLarge(t *testing.T) {
	t.Parallel()
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprintf("keyed=%v", keyed), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			topic := unique("trips")
			p := fares(t, unique("fares"), topic, keyed)
			e.topic(topic, 2)
			first := trips(72, topic, 2, 100)
			e.produce(first...)
			r := e.start(p, func(c *live.Config) { c.MaxStateBytes = 150_000 })
			e.untilRead(p)
			var many []record.Record
			for i := range 600 {
				many = append(many, record.Record{Topic: topic, Partition: int32(i % 2), Timestamp: base + 60_000,
					Value: fmt.Appendf(nil, `{"t":%d,"user":"v%d","price":1}`, base+60_000, i)})
			}
			e.produce(many...)
			e.untilFailed(r, "state.max.bytes is 150000", "raise state.max.bytes", "positions stay")
			if n := r.Status().Restarts; n > 0 {
				t.Errorf("%d restarts before it was said", n)
			}
			r.kill()
			r = e.start(p, func(c *live.Config) { c.MaxStateBytes = 2_000_000 })
			e.untilRead(p)
			r.kill()
			e.wantOutputs(p, "", e.oracle(p))
		})
	}
}

// A partition that is delivered in full holds the watermark back for good. What can never close then is dropped, so that the session ends within its limit;
// a drain needs it all, and says that it does not fit.
func TestSessionStateIsBoundedBehindADeliveredPartition(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	p := fares(t, unique("fares"), topic, false)
	e.topic(topic, 2)
	var recs []record.Record
	n := 0
	for _, r := range trips(73, topic, 2, 1500) {
		if r.Partition == 0 || n < 60 {
			recs = append(recs, r)
		}
		if r.Partition == 1 {
			n++
		}
	}
	e.produce(recs...)
	r := e.start(p)
	e.untilRead(p)
	r.kill()
	want := e.oracle(p)
	rng := rand.New(rand.NewPCG(3, 3))
	a := e.archive(p, rng)
	const limit = 60_000
	rc := e.receiver(func(c *sessions.Config) { c.MaxStateBytes = limit }, p)
	rc.mustOpen("again", a.req)
	// The short one in full before the long one is begun, which then would hold everything; and a crash in the middle.
	for _, tp := range []kafka.TP{{Topic: topic, Partition: 1}, {Topic: topic, Partition: 0}} {
		for i, s := range a.segs[tp] {
			if tp.Partition == 0 && i == 20 {
				rc.down()
				rc.up()
				break
			}
			if _, code, text := rc.put("again", 1, s); code != http.StatusOK && code != http.StatusServiceUnavailable {
				t.Fatal(code, text)
			}
		}
	}
	rc.send("again", 1, a, rng, nil)
	if _, code, text := rc.finish("again", 1); code != http.StatusOK {
		t.Fatalf("finish: %d %s", code, text)
	}
	if d := diff(want, e.outputs(p, ".replay.again")); d != "" {
		t.Error(d)
	}

	a.req.EndMode = session.Drain
	rc.mustOpen("all", a.req)
	failed := ""
	for _, tp := range []kafka.TP{{Topic: topic, Partition: 1}, {Topic: topic, Partition: 0}} {
		for _, s := range a.segs[tp] {
			if _, code, text := rc.put("all", 1, s); code == http.StatusConflict {
				failed = text
				break
			}
		}
	}
	if !strings.Contains(failed, "session.max.bytes is 60000") {
		t.Errorf("a drain beyond the limit: %q", failed)
	}
	if st := rc.status("all"); st.State != session.Failed || !strings.Contains(st.Error, "session.max.bytes") {
		t.Errorf("%+v", st)
	}
}

// A record that Kafka refuses for good ends the session, and the message names it; trying again for ever would not help.
func TestSessionFailsOnARefusedRecord(t *testing.T) {
	t.Parallel()
	e, fake := newFake(t)
	topic := unique("trips")
	p := anyTime(t, topic)
	e.topic(topic, 1)
	e.produce(trip(topic, base, base+100_000, 0), trip(topic, base, base, 10), trip(topic, base, base, 50_000), trip(topic, base, base, 20))
	r := e.start(p)
	e.untilRead(p)
	r.kill()
	a := e.archive(p, rand.New(rand.NewPCG(1, 1)))
	fake.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		found := false
		for _, rt := range req.Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.MessageTooLarge.Code
				st.Partitions = append(st.Partitions, sp)
				found = found || len(rp.Records) > 40_000
			}
			resp.Topics = append(resp.Topics, st)
		}
		if !found {
			return nil, nil, false
		}
		return resp, nil, true
	})
	rc := e.receiver(func(c *sessions.Config) { c.CommitInterval = time.Hour }, p)
	rc.mustOpen("again", a.req)
	rc.send("again", 1, a, rand.New(rand.NewPCG(1, 1)), nil)
	_, code, text := rc.finish("again", 1)
	if code != http.StatusConflict || !strings.Contains(text, "late record of "+topic+"-0@2 ") || !strings.Contains(text, "too large") {
		t.Errorf("finish: %d %s", code, text)
	}
	rc.down()
	rc.up()
	if st := rc.status("again"); st.State != session.Failed || !strings.Contains(st.Error, topic+"-0@2 ") {
		t.Errorf("%+v", st)
	}
	if late := e.lines(p.Output.Topic + ".late.replay.again"); len(late) != 0 {
		t.Errorf("late: %v", late)
	}
}

// A partition that is passed by holds nobody back: there is nothing to wait for, though the others need more than half of the limit all the time.
func TestLiveStateWithAnIdlePartition(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	topic := unique("trips")
	e.topic(topic, 2) // nothing ever comes to partition 1
	seconds := func(from, to int) (recs []record.Record) {
		for s := from; s < to; s++ {
			for u := range 100 {
				recs = append(recs, record.Record{Topic: topic, Timestamp: base + int64(s)*1000,
					Value: fmt.Appendf(nil, `{"t":%d,"user":"u%d","price":1}`, base+s*1000+u, u)})
			}
			if s > 5 {
				recs = append(recs, record.Record{Topic: topic, Timestamp: base + int64(s)*1000, Value: fmt.Appendf(nil, `{"t":%d,"user":"late","price":1}`, base+s*1000-4000)})
			}
		}
		return recs
	}
	e.produce(seconds(0, 4)...)
	probe := idler(t, unique("probe"), topic, "")
	r := e.start(probe)
	e.untilReadOnce(probe, r)
	four := r.Status().StatePeak // of four windows; with a delay of 2 s two of them are open in full all the time, and at most three
	r.kill()
	if four == 0 {
		t.Fatal("no state")
	}
	p := idler(t, unique("fares"), topic, "150ms")
	r = e.start(p, func(c *live.Config) { c.MaxStateBytes = four / 20 * 19; c.CommitInterval = 5 * time.Millisecond })
	e.produce(seconds(4, 40)...)
	ends := e.ends(topic)
	e.until("all to be read", func() bool {
		st := r.Status()
		if st.State == live.Failed {
			t.Fatalf("%s: %s", st.State, st.Error)
		}
		return len(st.Partitions) == 2 && st.Partitions[0].Position >= ends[kafka.TP{Topic: topic}]
	})
	if st := r.Status(); st.StatePeak <= st.StateMax/2 {
		t.Errorf("at most %d bytes of %d, less than half of the limit: the test shows nothing", st.StatePeak, st.StateMax)
	}
	r.kill()
	if d := diff(e.oracle(p, e.floors(p)...), e.outputs(p, "")); d != "" {
		t.Error(d)
	}
}
