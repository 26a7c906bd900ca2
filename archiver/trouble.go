package archiver

import (
	"fmt"
	"sync"

	"tapedeck.dev/tapedeck/shared/kafka"
)

// trouble remembers, per partition, what its worker is waiting out: for /status and /readyz.
type trouble struct {
	mu   sync.Mutex
	errs map[kafka.TP]error
}

func (t *trouble) set(tp kafka.TP, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.errs == nil {
		t.errs = map[kafka.TP]error{}
	}
	t.errs[tp] = err
}

func (t *trouble) clear(tp kafka.TP) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.errs, tp)
}

func (t *trouble) of(tp kafka.TP) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.errs[tp]; err != nil {
		return err.Error()
	}
	return ""
}

// any returns an error that names one partition in trouble and how many there are, nil where there is none.
func (t *trouble) any() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first kafka.TP
	for tp := range t.errs {
		if first.Topic == "" || tp.Less(first) {
			first = tp
		}
	}
	if first.Topic == "" {
		return nil
	}
	return fmt.Errorf("%d partitions wait for store or Kafka; %s: %w", len(t.errs), first, t.errs[first])
}
