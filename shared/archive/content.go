package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
)

// contentHash is what a name holds of the content of its object: 32 hexadecimal digits, so that the same content has the same name.
func contentHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// getJSON reads the object at key as one JSON value. A damaged one is ErrForeign.
func (a *Archive) getJSON(ctx context.Context, key string, v any) error {
	data, err := a.st.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %s cannot be read: %w", ErrForeign, key, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%w: %s holds more than one value", ErrForeign, key)
	}
	return nil
}
