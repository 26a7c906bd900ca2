package archiver

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/archiver/partition"
)

// Field fault 20: a leader that has just taken over answers out of range for a valid position, and tells a log that ends before it, for a moment. It is
// asked again: nothing is recorded as lost, whatever the policy, and nothing stops.
func TestALeaderThatIsBehindForAMoment(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 30)
	s := e.settings("trips")
	s.Partition.Gap = partition.GapRecord
	s.Partition.Rule.FlushSize = 10
	s.Partition.RotateAge = 200 * time.Millisecond
	r := e.start(s)
	e.awaitArchived("trips", 0, 30)
	var behind atomic.Bool
	var lies atomic.Int32
	e.fake.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		if !behind.Load() {
			return nil, nil, false
		}
		lies.Add(1)
		req := kreq.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewFetchResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewFetchResponseTopicPartition()
				sp.Partition, sp.ErrorCode, sp.HighWatermark = rp.Partition, kerr.OffsetOutOfRange.Code, -1
				sp.RecordBatches = []byte{} // null would be a broken answer
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	e.fake.ControlKey(int16(kmsg.ListOffsets), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		if !behind.Load() {
			return nil, nil, false
		}
		req := kreq.(*kmsg.ListOffsetsRequest)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewListOffsetsResponseTopic()
			st.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				sp := kmsg.NewListOffsetsResponseTopicPartition()
				sp.Partition, sp.Timestamp = rp.Partition, -1
				if rp.Timestamp == -1 {
					sp.Offset = 12 // it has caught up so far
				}
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	behind.Store(true)
	// It is believed for so long that the position was out of range, and the archive was once found beyond the log's end.
	e.await("the archive is beyond the log for once", func() bool {
		st := r.state("trips", 0)
		return lies.Load() >= 4 && st != nil && st.State == partition.Recovering && strings.Contains(st.Error, "the archive ends at offset 30, but the log in Kafka at 12")
	})
	behind.Store(false)
	e.fill("trips", 0, 30, 20)
	e.awaitArchived("trips", 0, 50)
	e.await("it goes on", func() bool { st := r.state("trips", 0); return st != nil && st.State == partition.Fetching })
	r.end()
	if n := r.metric("tapedeck_archiver_lost_offsets_total"); n != 0 {
		t.Errorf("%v offsets are counted as lost", n)
	}
	e.checkEqual("trips", 0, e.log("trips", 0))
	for _, h := range e.headers("trips", 0) {
		if len(h.Skipped) > 0 {
			t.Errorf("%v", h.Skipped)
		}
	}
	e.checkClean()
}
