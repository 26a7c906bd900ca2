package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestRepeats(t *testing.T) {
	var r Repeats
	start := time.Unix(1000, 0)
	at := func(d time.Duration, text string, held int64, write bool) {
		t.Helper()
		if h, w := r.Line(text, start.Add(d)); h != held || w != write {
			t.Errorf("%s at %s: %d, %v; want %d, %v", text, d, h, w, held, write)
		}
	}
	at(0, "3/3 brokers are down", 0, true)
	at(time.Second, "3/3 brokers are down", 0, false)
	at(2*time.Second, "2/3 brokers are down", 0, false) // the same but for the numbers
	at(2*time.Second, "authentication failed", 0, true)
	at(RepeatEvery, "3/3 brokers are down", 2, true)
	at(RepeatEvery+time.Second, "3/3 brokers are down", 0, false)
	at(3*RepeatEvery, "3/3 brokers are down", 1, true)
	for i := range 10 * repeatTexts {
		r.Line(fmt.Sprint("x", string(rune('a'+i%26)), string(rune('A'+i/26))), start)
	}
	if len(r.seen) > repeatTexts {
		t.Errorf("%d texts are kept", len(r.seen))
	}
}

// Hours without a broker fill no disk, and other lines are untouched.
func TestForwardLogsThinsOutOutages(t *testing.T) {
	core, seen := observer.New(zap.DebugLevel)
	ch := make(chan kafka.LogEvent)
	done := forwardLogs(ch, zap.New(core))
	for i := range 200 {
		ch <- kafka.LogEvent{Name: "c", Tag: "FAIL", Level: 3, Message: fmt.Sprintf("[thrd:127.0.0.1:9092/%d]: Connection refused (after %dms)", i, i)}
		ch <- kafka.LogEvent{Name: "c", Tag: "REBALANCE", Level: 6, Message: "the same"}
	}
	close(ch)
	<-done
	if n := seen.FilterField(zap.String("tag", "FAIL")).Len(); n < 1 || n > 2 {
		t.Errorf("%d lines about one outage", n)
	}
	if n := seen.FilterField(zap.String("tag", "REBALANCE")).Len(); n != 200 {
		t.Errorf("%d of 200 other lines", n)
	}
}
