package archiver

import "sync"

// inbox carries messages of the workers to the poll loop. Putting never blocks, so that a worker can always end, also when the
// loop has ended before it. Its length is bounded by one answer per worker and one message per round of the watcher.
type inbox struct {
	mu   sync.Mutex
	msgs []any
}

func (b *inbox) put(m any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.msgs = append(b.msgs, m)
}

func (b *inbox) take() []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.msgs
	b.msgs = nil
	return m
}
