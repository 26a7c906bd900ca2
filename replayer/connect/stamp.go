package connect

import (
	"errors"
	"fmt"
	"time"
)

// noTimestamp is what a record without one has.
const noTimestamp = -1

// stamp returns the timestamp (ms) that a field of a value holds; noTimestamp where the field, or one that it lies in, is null.
func stamp(v any, path []string) (int64, error) {
	for i, name := range path {
		if v == nil {
			return noTimestamp, nil
		}
		rec, ok := v.(map[string]any)
		if !ok {
			return 0, fmt.Errorf("%q lies in a %T, not in a record", name, v)
		}
		if v, ok = rec[name]; !ok {
			return 0, fmt.Errorf("there is no field %q", path[i])
		}
	}
	switch v := v.(type) {
	case nil:
		return noTimestamp, nil
	case time.Time:
		return v.UnixMilli(), nil
	case int64:
		return v, nil
	case int32:
		return int64(v), nil
	case int:
		return int64(v), nil
	case string:
		t, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			return 0, errors.New("the text is not a time in RFC 3339")
		}
		return t.UnixMilli(), nil
	}
	return 0, fmt.Errorf("a %T is not a time: it must be a timestamp, milliseconds, or a text in RFC 3339", v)
}
