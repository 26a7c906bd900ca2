package connect

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
)

// contents of an object of values, as a plan needs them.
type contents struct {
	count            int64 // records
	minTime, maxTime int64 // their timestamps, ms; noTimestamp where there are none, and where the object cannot be unpacked
}

// listed is an object as it was listed: one that is written again has another size, or the same number of records is checked when it is read.
type listed struct {
	key  string
	size int64
}

// count fills in what each object holds. The names do not tell, so each object is read once; what it holds is kept for as long as this process runs.
func (s *Source) count(ctx context.Context, objects []*object) error {
	for _, o := range objects {
		c, err := s.countOne(ctx, o)
		if err != nil {
			return err
		}
		o.contents = c
	}
	return nil
}

func (s *Source) countOne(ctx context.Context, o *object) (contents, error) {
	at := listed{o.key, o.size}
	s.mu.Lock()
	known, ok := s.counted[at]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	if o.size > maxObjectBytes {
		return contents{}, refused("object %s has %d bytes, more than %d: it would not fit into memory", o.key, o.size, maxObjectBytes)
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return contents{}, context.Cause(ctx)
	}
	data, err := s.get(ctx, o.key)
	if err != nil {
		return contents{}, err
	}
	found, err := s.look(o.key, data)
	if err != nil {
		return contents{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.counted) >= maxCounted {
		clear(s.counted)
	}
	s.counted[at] = found
	return found, nil
}

// look finds what an object holds. Records are counted by the heads of blocks, and decoded only for their timestamps. What cannot be decoded is no error
// here: it is one object, and found when it is read, where a request may pass it over.
func (s *Source) look(key string, data []byte) (contents, error) {
	out := contents{minTime: noTimestamp, maxTime: noTimestamp}
	c, err := openContainer(key, data)
	if err == nil {
		out.count, err = c.count()
	}
	if err != nil || s.cfg.TimestampField == "" || out.count == 0 {
		return out, err
	}
	if c, err = openContainer(key, data); err != nil {
		return out, err
	}
	path := strings.Split(s.cfg.TimestampField, ".")
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for {
		_, v, err := c.next()
		if errors.Is(err, io.EOF) {
			out.minTime, out.maxTime = low, high
			return out, nil
		}
		if err != nil {
			return out, nil
		}
		ts, err := s.timestamp(v, path, c)
		if err != nil {
			return out, err
		}
		low, high = min(low, ts), max(high, ts)
	}
}

// timestamp is that of the record that c has just given out.
func (s *Source) timestamp(v any, path []string, c *container) (int64, error) {
	ts, err := stamp(v, path)
	if err != nil {
		return 0, refused("connect.timestamp.field %s: record %d of object %s: %w", s.cfg.TimestampField, c.row-1, c.object, err)
	}
	return ts, nil
}
