package kafka

import (
	"errors"
	"sync"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// groupReader is an Admin's client for reading positions of groups, made when it is first needed. It is a consumer, though it never consumes:
// where a broker answers that it is not the group's coordinator (it starts, or the coordinator has moved), librdkafka has the client's own group
// look for its coordinator again, and a client without one crashes the process (https://github.com/confluentinc/librdkafka/issues/5040).
type groupReader struct {
	cfg Client

	mu     sync.Mutex
	c      *Consumer
	closed bool
}

// admin returns the client.
func (g *groupReader) admin() (*kafka.AdminClient, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errors.New("the admin client is closed")
	}
	if g.c == nil {
		c, err := NewConsumer(ConsumerConfig{Client: g.cfg})
		if err != nil {
			return nil, err
		}
		g.c = c
	}
	// Nobody polls it: errors of its connections, which a call reports itself, would pile up.
	for g.c.c.Poll(0) != nil {
	}
	return g.c.admin, nil
}

func (g *groupReader) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.c != nil {
		_ = g.c.Close() // it has nothing to lose
	}
	g.c, g.closed = nil, true
}
