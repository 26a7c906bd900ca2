package kafka

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/shared/record"
)

// A coordinator that has moved, or is just starting, is asked again. librdkafka used to crash the process there.
func TestGroupOffsetsOfMovedCoordinator(t *testing.T) {
	e := onFake(t)
	tp := TP{Topic: e.topic(1)}
	group := unique("group")
	e.must(e.admin.SetGroupOffsets(e.ctx(), group, map[TP]CommitOffset{tp: {Offset: 7, LeaderEpoch: record.NoEpoch}}))
	var refused atomic.Int32
	e.fake.ControlKey(kmsg.OffsetFetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if refused.Add(1) > 4 {
			return nil, nil, false
		}
		e.fake.KeepControl()
		req := r.(*kmsg.OffsetFetchRequest)
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		resp.ErrorCode = kerr.NotCoordinator.Code
		for _, g := range req.Groups {
			answer := kmsg.NewOffsetFetchResponseGroup()
			answer.Group, answer.ErrorCode = g.Group, kerr.NotCoordinator.Code
			resp.Groups = append(resp.Groups, answer)
		}
		return resp, nil, true
	})
	all, err := e.admin.GroupOffsets(e.ctx(), group)
	if err != nil || all[tp].Offset != 7 {
		t.Errorf("positions %v (%v), want 7", all, err)
	}
	if n := refused.Load(); n < 5 {
		t.Errorf("the coordinator was asked %d times, want the 4 refusals and more", n)
	}
	one, err := e.admin.CommittedOffsets(e.ctx(), group, []TP{tp})
	if err != nil || one[tp].Offset != 7 {
		t.Errorf("positions %v (%v), want 7", one, err)
	}
}
