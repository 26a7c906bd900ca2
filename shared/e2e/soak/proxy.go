package soak

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Fault is what a Proxy does with connections.
type Fault string

// Faults. None passes everything.
const (
	None    Fault = ""
	Refuse  Fault = "refuse"  // connections are closed at once
	Stall   Fault = "stall"   // nothing is passed on, in either direction
	Swallow Fault = "swallow" // requests arrive, answers are lost: the connection is cut at the answer's first byte
)

// Proxy is a TCP proxy that can be told to misbehave. An answer that it swallows leaves the client without knowing whether its object was
// created, which is the case that an archiver must get right.
type Proxy struct {
	listener net.Listener
	to       string
	wg       sync.WaitGroup

	mu     sync.Mutex
	fault  Fault
	change chan struct{} // closed and replaced when fault changes
	conns  map[net.Conn]bool
	closed bool
}

// NewProxy listens on a free port of this host and passes on to an address.
func NewProxy(to string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy: %w", err)
	}
	p := &Proxy{listener: l, to: to, change: make(chan struct{}), conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set begins a fault, or ends one (None). Refuse cuts the connections that are open.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	close(p.change)
	p.change = make(chan struct{})
	if f == Refuse {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	close(p.change)
	p.change = make(chan struct{})
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	err := p.listener.Close()
	p.wg.Wait()
	return err
}

func (p *Proxy) state() (f Fault, change <-chan struct{}, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.change, p.closed
}

// hold registers a connection; false where it is to be closed.
func (p *Proxy) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.fault == Refuse {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors for a moment
			continue
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) serve(c net.Conn) {
	defer p.drop(c)
	if !p.hold(c) {
		return
	}
	s, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer p.drop(s)
	if !p.hold(s) {
		return
	}
	var wg sync.WaitGroup
	both := func() { _, _ = c.Close(), s.Close() }
	wg.Go(func() { defer both(); p.pump(s, c, false) })
	wg.Go(func() { defer both(); p.pump(c, s, true) })
	wg.Wait()
}

// pump passes bytes on until either side ends or a fault ends the connection.
func (p *Proxy) pump(to io.Writer, from io.Reader, answers bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		for {
			f, change, closed := p.state()
			if closed || f == Swallow && answers && n > 0 {
				return
			}
			if f != Stall {
				break
			}
			<-change
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
