package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// RefusedError: an archive that cannot be replayed as it is, and why. Repeating is of no use.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }

func refused(format string, args ...any) error { return &RefusedError{fmt.Errorf(format, args...)} }

// rows reads the records of one range: the object of values, and those of keys and headers where they are. each is called with each record in
// order; the record is valid until the following call. It returns the schemas that keys and values name.
//
// Errors: *DamagedError, *RefusedError, store.ErrNotFound; others are the store's or the registry's, and may pass.
func (s *Source) rows(ctx context.Context, o *object, each func(*record.Record) error) ([]segment.Schema, error) {
	data, err := s.get(ctx, o.key)
	if err != nil {
		return nil, err
	}
	c, err := openContainer(o.key, data)
	if err != nil {
		return nil, err
	}
	enc, err := s.encoder(ctx, c, o.Name)
	if err != nil {
		return nil, err
	}
	var used []segment.Schema
	note := func(x *segment.Schema) {
		if x != nil {
			used = append(used, *x)
		}
	}
	note(enc.used)
	var sides []side
	var sideKeys []string
	for _, key := range []string{o.keys, o.headers} {
		if key == "" {
			continue
		}
		n, err := ParseName(s.cfg.TopicsDir, s.cfg.FileDelim, key)
		if err != nil {
			return nil, &RefusedError{err}
		}
		data, err := s.get(ctx, key)
		if err != nil {
			return nil, err
		}
		x, err := s.openSide(ctx, n, data)
		if err != nil {
			return nil, err
		}
		sides, sideKeys = append(sides, x), append(sideKeys, key)
		note(x.used())
	}
	var path []string
	if s.cfg.TimestampField != "" {
		path = strings.Split(s.cfg.TimestampField, ".")
	}
	for row := int64(0); ; row++ {
		if row%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		datum, v, err := c.next()
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return nil, err
		}
		rec := record.Record{Topic: o.Topic, Partition: o.Partition, Offset: o.Start + row, Timestamp: noTimestamp, TimestampType: -1, LeaderEpoch: record.NoEpoch}
		for i, x := range sides {
			key, headers, err := x.next()
			switch sideEnded := errors.Is(err, io.EOF); {
			case sideEnded && ended:
				continue
			case sideEnded || err == nil && ended:
				return nil, refused("objects %s and %s do not hold the same number of records, so which belongs to which is not known", o.key, sideKeys[i])
			case err != nil:
				return nil, err
			}
			if key != nil {
				rec.Key = key
			}
			if headers != nil {
				rec.Headers = headers
			}
		}
		if ended {
			return used, nil
		}
		if rec.Value, err = enc.encode(datum, v); err != nil {
			return nil, c.damaged("record %d: %w", row, err)
		}
		if path != nil {
			if rec.Timestamp, err = s.timestamp(v, path, c); err != nil {
				return nil, err
			}
			if rec.Timestamp != noTimestamp {
				rec.TimestampType = record.CreateTime
			}
		}
		if err := each(&rec); err != nil {
			return nil, err
		}
	}
}
