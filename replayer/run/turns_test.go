package run

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"tapedeck.dev/tapedeck/replayer/pace"
)

// While a partition waits a year for its time, whatever wakes the senders must not leave anything behind: others may be sent thousands of times a second.
// When the time has come, it is sent.
func TestOneAlarmHoweverOftenSendersLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const year = 365 * 24 * time.Hour
		tr := trackerOf(1)
		tr.pacer = pace.New(pace.Limits{Speed: 1})
		tr.pacer.Begin(0)
		p, gen := tr.mustLoad(t, 0)
		l := segmentAt(0)
		l.spans[0].maxTs = year.Milliseconds()
		if err := tr.finishedLoad(p, gen, l); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		var sentAfter time.Duration
		go func() {
			if _, _, _, ok := tr.nextSend(); ok {
				sentAfter = time.Since(begun)
			}
		}()
		synctest.Wait()
		const looks = 20_000
		before := heap()
		for range looks {
			tr.set(p, 0) // wakes it
			synctest.Wait()
		}
		if grown := heap() - before; grown > looks*16 {
			t.Errorf("after %d looks %d bytes are left", looks, grown)
		}
		time.Sleep(year + time.Second)
		synctest.Wait()
		if sentAfter != year {
			t.Errorf("sent after %s, want %s", sentAfter, year)
		}
	})
}

// heap is how many bytes are reachable.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
