package kafka

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// While a broker is away a service asks it again and again, and gives each call up. The connection is tried a few times a second all the same, not
// thousands of times.
func TestAnOutageKeepsNoProcessorBusy(t *testing.T) {
	c, err := kfake.NewCluster(kfake.Ports(0), kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	addr := c.ListenAddrs()[0]
	a, err := NewAdmin(Client{Bootstrap: addr, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Close()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var tries atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tries.Add(1)
			c.Close()
		}
	}()
	const calls = 30
	for range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err = a.Topics(ctx, "trips")
		cancel()
		if !errors.Is(err, ErrUnreachable) {
			t.Fatalf("%v, want ErrUnreachable", err)
		}
	}
	// Fewer than that were seen, and 500 to 2,500 where each call is queued while no broker is up.
	if n := tries.Load(); n > 5*calls {
		t.Errorf("%d connections during %d calls", n, calls)
	}
}
