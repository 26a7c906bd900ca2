package archiver

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/shared/service"
)

// client.rack reaches the broker with every fetch.
func TestTheRackReachesTheBroker(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	var rack atomic.Value
	e.fake.ControlKey(kmsg.Fetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		e.fake.KeepControl()
		rack.Store(r.(*kmsg.FetchRequest).Rack)
		return nil, nil, false
	})
	c, err := service.Load(Keys(), "", []string{"bootstrap.servers=" + e.bootstrap, "store=file:///x", "topics=trips", "client.rack=zone-b"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadSettings(c)
	if err != nil {
		t.Fatal(err)
	}
	s := e.settings("trips")
	s.Consumer["client.rack"] = read.Consumer["client.rack"]
	r := e.start(s)
	e.await("a fetch with the rack", func() bool { return rack.Load() == "zone-b" })
	r.end()
}
