package kafka

import (
	"errors"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// uncounted is a producer whose reports the test counts.
func uncounted(sent int64) *Producer {
	return &Producer{sent: sent, wake: make(chan struct{}), wanted: -1}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Who waits is woken by the report that it waits for and by no other, also where that comes before it listens.
func TestAwait(t *testing.T) {
	topic := "t"
	ok := kafka.TopicPartition{Topic: &topic}
	bad := kafka.TopicPartition{Topic: &topic, Error: errors.New("refused")}

	p := uncounted(4000)
	inFlight, changed, err := p.await(some)
	if inFlight != 4000 || err != nil {
		t.Fatalf("%d on their way (%v), want 4000", inFlight, err)
	}
	for i := range 499 {
		if p.count(ok); isClosed(changed) {
			t.Fatalf("woken after %d reports, want 500", i+1)
		}
	}
	if p.count(ok); !isClosed(changed) {
		t.Fatal("not woken after 500 reports")
	}
	if p.count(ok); isClosed(p.wake) {
		t.Error("nobody waits, and the next channel is closed")
	}

	inFlight, changed, _ = p.await(all)
	for range inFlight - 1 {
		p.count(ok)
	}
	if isClosed(changed) {
		t.Error("woken before the last report")
	}
	if p.count(ok); !isClosed(changed) {
		t.Error("not woken by the last report")
	}
	if inFlight, _, _ = p.await(all); inFlight != 0 {
		t.Errorf("%d on their way, want none", inFlight)
	}

	// One large record fills the queue: its report is waited for.
	p = uncounted(1)
	_, changed, _ = p.await(some)
	if p.count(ok); !isClosed(changed) {
		t.Error("the only report does not wake")
	}

	// An error wakes at once, and is seen by who comes later.
	p = uncounted(4000)
	_, changed, _ = p.await(all)
	if p.count(bad); !isClosed(changed) {
		t.Error("an error does not wake")
	}
	if _, _, err = p.await(all); err == nil {
		t.Error("the error is not seen by who waits after it")
	}
}

// However reports and waiting interleave, the waiting ends.
func TestAwaitRace(t *testing.T) {
	topic := "t"
	for round := range 2000 {
		p := uncounted(0)
		n := 1 + round%7
		reports := make(chan struct{}, n)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range reports {
				p.count(kafka.TopicPartition{Topic: &topic})
			}
		}()
		for i := range n {
			if err := p.add(1); err != nil {
				t.Fatal(err)
			}
			reports <- struct{}{}
			want := all
			if i%2 == round%2 {
				want = some
			}
			if inFlight, changed, _ := p.await(want); inFlight > 0 {
				select {
				case <-changed:
				case <-time.After(2 * time.Minute):
					t.Fatalf("round %d: nobody woke who waits for %d reports", round, inFlight)
				}
			}
		}
		close(reports)
		<-done
		if inFlight, err := p.state(); inFlight != 0 || err != nil {
			t.Fatalf("round %d: %d on their way (%v)", round, inFlight, err)
		}
	}
}
