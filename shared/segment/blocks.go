package segment

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
)

// blocks are the finished blocks of a writer. Compressing is most of a writer's work, so blocks are compressed beside the goroutine that
// appends; they enter the body in the order in which they were finished, whichever is compressed first, so that the bytes stay a
// function of the records.
type blocks struct {
	body    buffer   // compressed
	waiting []*block // finished after the last one in body, in order
	codec   codec
	sync    [16]byte
	failed  error // of the first block that could not be compressed
}

// block is one on its way into the body.
type block struct {
	count int64
	raw   []byte // datums; given back when compressed
	comp  []byte // once done is closed
	err   error
	size  int64 // bytes of memory until it is in the body, about
	done  chan struct{}
}

// compressors bounds how many blocks of the whole process are compressed beside their writers, and so the memory of uncompressed blocks.
// Where all are busy a writer compresses its block itself.
var compressors = make(chan struct{}, 2*runtime.GOMAXPROCS(0))

// blockBuffers are for blocks of the usual size, compressed or not.
var blockBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, blockBytes+blockBytes/8)
	return &b
}}

func takeBuffer() []byte { return (*blockBuffers.Get().(*[]byte))[:0] }

// giveBuffer takes back what nobody uses any more; what a large record has blown up is left to the garbage collector.
func giveBuffer(b []byte) {
	if cap(b) >= blockBytes && cap(b) <= 4*blockBytes {
		blockBuffers.Put(&b)
	}
}

// add takes over raw, the datums of a finished block.
func (b *blocks) add(raw []byte, count int64) error {
	x := &block{count: count, raw: raw, size: 2 * int64(cap(raw)), done: make(chan struct{})}
	b.waiting = append(b.waiting, x)
	beside := len(raw) <= 4*blockBytes // a large record must not be held by several blocks at a time
	if beside {
		select {
		case compressors <- struct{}{}:
			// Nobody waits for it but who settles the block: a writer that is dropped leaves it to end by itself, within one block's time.
			go func() {
				x.compress(b.codec)
				<-compressors
			}()
		default:
			beside = false
		}
	}
	if !beside {
		x.compress(b.codec)
	}
	b.settle(false)
	return b.failed
}

func (x *block) compress(c codec) {
	x.comp, x.err = c.compress(takeBuffer(), x.raw)
	giveBuffer(x.raw)
	x.raw = nil
	close(x.done)
}

// settle moves compressed blocks into the body: those that are ready, or all.
func (b *blocks) settle(all bool) {
	n := 0
	for _, x := range b.waiting {
		if !all {
			select {
			case <-x.done:
			default:
				b.waiting = b.waiting[n:]
				return
			}
		}
		<-x.done
		n++
		if x.err != nil {
			if b.failed == nil {
				b.failed = fmt.Errorf("compress block: %w", x.err)
			}
			continue
		}
		var prefix [2 * binary.MaxVarintLen64]byte
		b.body.write(binary.AppendVarint(binary.AppendVarint(prefix[:0], x.count), int64(len(x.comp))))
		b.body.write(x.comp)
		b.body.write(b.sync[:])
		giveBuffer(x.comp)
	}
	b.waiting = nil
}

func (b *blocks) memBytes() int64 {
	b.settle(false)
	n := b.body.held
	for _, x := range b.waiting {
		n += x.size
	}
	return n
}
