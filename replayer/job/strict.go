package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// strict decodes a JSON object that has no other fields than these, each spelled so: encoding/json would take "Name" for "name", and two requests
// that ask for the same must be equal. null is a value only of a field that is given as "name?".
func strict(data []byte, v any, fields ...string) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if m == nil {
		return errors.New("null is not an object")
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		switch {
		case slices.Contains(fields, name+"?"):
		case !slices.Contains(fields, name):
			return fmt.Errorf("unknown field %.80q", name)
		case string(m[name]) == "null":
			return fmt.Errorf("%s is null; give a value, or leave it out", name)
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
