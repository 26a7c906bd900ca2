package archiver

import "tapedeck.dev/tapedeck/shared/service"

// budget is how memory.max.bytes, the bound of the whole process, is shared out. All in bytes.
type budget struct {
	queue   int64 // of records that librdkafka has fetched ahead, by its own count
	poll    int64 // of records that one poll hands over
	heap    int64 // the Go runtime's soft limit: the bound without what lives outside of its heap
	buffers int64 // open and sealed segments
	closing int64 // objects being made, while their segments are still there
}

const (
	minMemory     = 64 << 20
	defaultMemory = 512 << 20
	// outsideHeap is what the process has besides: the program's own pages, librdkafka's threads and tables, the C library's.
	outsideHeap = 64 << 20
	// heapOwn is what the heap holds besides segments: partitions, metrics, status, compressors, requests under way.
	heapOwn  = 24 << 20
	maxQueue = 64 << 20
	maxPoll  = 32 << 20
	// queueCost is how many bytes librdkafka allocates for a byte that it counts, records being small and answers being kept whole.
	queueCost = 2
)

// share shares out memory.max.bytes.
func share(bound int64) budget {
	b := budget{queue: min(maxQueue, max(bound/16, 1<<20))}
	b.poll = min(maxPoll, max(b.queue/2, 1<<20))
	b.heap = max(bound-outsideHeap-queueCost*b.queue, bound/4)
	// A third of the heap is left for what the collector has not collected yet.
	rest := max(b.heap-heapOwn-2*b.poll, b.heap/4) * 2 / 3
	b.closing = max(rest/6, 1<<20)
	b.buffers = max(rest-b.closing, 1<<20)
	return b
}

// budget is a task's.
func (s Settings) budget() budget {
	b := share(s.MaxMemory)
	if n := int64(s.Tasks); n > 1 {
		b.queue, b.poll, b.buffers, b.closing = max(b.queue/n, 1<<20), max(b.poll/n, 1<<20), max(b.buffers/n, 1<<20), max(b.closing/n, 1<<20)
	}
	return b
}

// memoryBound is the default of memory.max.bytes: three quarters of what the control group allows.
func memoryBound() int64 {
	if limit, ok := service.MemoryLimit(); ok {
		return max(limit/4*3, minMemory)
	}
	return defaultMemory
}
