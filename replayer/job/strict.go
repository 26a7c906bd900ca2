package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// strict decodes a JSON object that has no other fields than these, each spelled so: encoding/json would take "Name" for "name", and two requests
// that ask for the same must be equal.
func strict(data []byte, v any, fields ...string) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if m == nil {
		return errors.New("null is not an object")
	}
	for name := range m {
		if !slices.Contains(fields, name) {
			return fmt.Errorf("unknown field %.80q", name)
		}
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}
