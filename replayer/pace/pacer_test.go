package pace

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Many senders share one limit. The clock is the bubble's, so that counts are exact.
func TestSendersShareOneRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Limits{RecordsPerSecond: 100})
		ctx, cancel := context.WithCancelCause(context.Background())
		var sent atomic.Int64
		var senders sync.WaitGroup
		for range 8 {
			senders.Go(func() {
				for p.Wait(ctx, Unit{Records: 5, Bytes: 1, Timestamp: -1}) == nil {
					sent.Add(5)
				}
			})
		}
		for i := range int64(10) {
			time.Sleep(time.Second)
			synctest.Wait()
			if got, want := sent.Load(), 100*(i+1)+5; got > want || got < want-5 {
				t.Errorf("after %d s %d records, want %d", i+1, got, want)
			}
		}
		stop := errors.New("stop")
		cancel(stop)
		senders.Wait()
		if err := p.Wait(ctx, Unit{}); !errors.Is(err, stop) {
			t.Errorf("after the end: %v", err)
		}
		if p.Waited(Rate) < 70*time.Second || p.Waited(Speed) != 0 {
			t.Errorf("8 senders waited %s for 10 s", p.Waited(Rate))
		}
	})
}

func TestNoLimitNoPacer(t *testing.T) {
	p := New(Limits{})
	if p != nil {
		t.Fatal("a pacer for nothing")
	}
	p.Begin(5)
	if err := p.Wait(context.Background(), Unit{Records: 1 << 40, Timestamp: 1 << 60}); err != nil {
		t.Error(err)
	}
	if _, _, ok := p.Try(time.Time{}, Unit{}, false); !ok || p.Waited(Speed) != 0 {
		t.Error("no limit limits")
	}
}
