// Package live runs a pipeline over live Kafka, exactly once: closings, side outputs, decisions and positions are in one
// transaction (docs/processor.md).
package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"tapedeck.dev/tapedeck/processor/engine"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
)

const metadataVersion = 1

type metadata struct {
	V   int    `json:"v"`
	Low *int64 `json:"low"`
	M   *int64 `json:"m"`
	W   *int64 `json:"w"`
	// Closing is there only between two transactions of one closing.
	Closing *engine.Partial `json:"closing,omitempty"`
}

// FormatCommit returns c as the committed offset and its metadata (at most 220 bytes; Kafka allows 4,095).
func FormatCommit(c engine.Commit) kafka.CommitOffset {
	m := metadata{V: metadataVersion, Low: &c.Low, M: &c.MaxAtLow, W: &c.Emitted}
	if c.Partial.N > 0 {
		m.Closing = &c.Partial
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("live: %v", err)) // plain data always encodes
	}
	return kafka.CommitOffset{Offset: c.Position, LeaderEpoch: record.NoEpoch, Metadata: string(b)}
}

// ParseCommit is the inverse of FormatCommit, strict: an offset that something else committed is not one to start from.
func ParseCommit(o kafka.CommitOffset) (engine.Commit, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(o.Metadata)))
	d.DisallowUnknownFields()
	var m metadata
	if err := d.Decode(&m); err != nil {
		return engine.Commit{}, fmt.Errorf("parse commit metadata %q: %w", o.Metadata, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return engine.Commit{}, fmt.Errorf("parse commit metadata %q: something follows the value", o.Metadata)
	}
	if m.V != metadataVersion {
		return engine.Commit{}, fmt.Errorf("parse commit metadata %q: version %d; this build reads version %d", o.Metadata, m.V, metadataVersion)
	}
	if m.Low == nil || m.M == nil || m.W == nil || o.Offset < 0 || *m.Low < 0 || *m.Low > o.Offset {
		return engine.Commit{}, fmt.Errorf("parse commit metadata %q at offset %d: incomplete or out of order", o.Metadata, o.Offset)
	}
	c := engine.Commit{Position: o.Offset, Low: *m.Low, MaxAtLow: *m.M, Emitted: *m.W}
	if m.Closing != nil {
		if c.Partial = *m.Closing; c.Partial.N <= 0 || c.Partial.End <= c.Emitted {
			return engine.Commit{}, fmt.Errorf("parse commit metadata %q: the closing is incomplete or out of order", o.Metadata)
		}
	}
	return c, nil
}
