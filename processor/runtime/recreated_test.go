package runtime_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/processor/live"
)

// A topic that is deleted, created again and filled between two looks at the metadata. The fetch requests name topics (as those of brokers
// before topic ids in fetches), so the consumer itself cannot tell.
func TestLiveCommitsNothingOfARecreatedTopic(t *testing.T) {
	t.Parallel()
	e, fake := newFake(t)
	fake.ControlKey(int16(kmsg.ApiVersions), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		return versions(kreq.(*kmsg.ApiVersionsRequest)), nil, true
	})
	topic := unique("trips")
	p := fares(t, unique("fares"), topic, false)
	e.topic(topic, 1)
	e.produce(trips(1, topic, 1, 50)...)
	r := e.start(p, func(c *live.Config) { c.MetadataInterval = time.Hour })
	e.untilRead(p)
	before := e.outputs(p, "")

	// The consumer is held up, so that it meets the new topic where it left the old one.
	var held atomic.Bool
	held.Store(true)
	fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		fake.SleepControl(func() {
			for held.Load() {
				time.Sleep(time.Millisecond)
			}
		})
		return nil, nil, false
	})
	if err := e.admin.DeleteTopic(e.ctx(), topic); err != nil {
		t.Fatal(err)
	}
	e.topic(topic, 1)
	e.produce(trips(2, topic, 1, 150)...)
	held.Store(false)
	e.untilFailed(r, "re-created", topic)
	if d := diff(before, e.outputs(p, "")); d != "" {
		t.Error(d)
	}
}

// versions is what a broker says that fetches by topic name.
func versions(req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	for key, limit := range map[int16]int16{0: 9, 1: 11, 2: 7, 3: 12, 8: 8, 9: 7, 10: 4, 11: 7, 12: 4, 13: 5, 14: 5, 17: 1, 18: 3, 19: 7, 20: 6, 21: 2,
		22: 4, 23: 4, 24: 3, 25: 3, 26: 3, 28: 3, 32: 4, 36: 2, 37: 3, 60: 0} {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MaxVersion = key, limit
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	return resp
}
