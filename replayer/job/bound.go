package job

import (
	"encoding/json"
	"fmt"

	"tapedeck.dev/tapedeck/shared/archive"
)

// Bound is one end of the range to replay, from inclusive, until exclusive. In JSON it is "earliest" or "end", or an object:
// {"kind": "offset", "value": 100} or {"kind": "timestamp", "value": <ms since 1970>}.
type Bound archive.Bound

// Kinds of a Bound.
const (
	Earliest  = "earliest"
	End       = "end"
	Offset    = "offset"
	Timestamp = "timestamp"
)

// MarshalJSON writes the short string where there is one, and the value even where it is 0.
func (b Bound) MarshalJSON() ([]byte, error) {
	switch b.Kind {
	case Earliest, End:
		return json.Marshal(b.Kind)
	}
	return json.Marshal(struct {
		Kind  string `json:"kind"`
		Value int64  `json:"value"`
	}{b.Kind, b.Value})
}

// UnmarshalJSON reads either form.
func (b *Bound) UnmarshalJSON(data []byte) error {
	const forms = `"earliest", "end", {"kind":"offset","value":N} or {"kind":"timestamp","value":milliseconds}`
	var short string
	if err := json.Unmarshal(data, &short); err == nil {
		if short != Earliest && short != End {
			return fmt.Errorf("bound %q is unknown; give %s", short, forms)
		}
		*b = Bound{Kind: short}
		return nil
	}
	var long struct {
		Kind  string `json:"kind"`
		Value *int64 `json:"value"`
	}
	if err := strict(data, &long, "kind", "value"); err != nil {
		return fmt.Errorf("bound %s: give %s", data, forms)
	}
	switch long.Kind {
	case Earliest, End:
		if long.Value != nil && *long.Value != 0 {
			return fmt.Errorf("bound %s takes no value", long.Kind)
		}
		*b = Bound{Kind: long.Kind}
	case Offset, Timestamp:
		if long.Value == nil || *long.Value < 0 {
			return fmt.Errorf("bound %s needs a value ≥ 0", long.Kind)
		}
		*b = Bound{Kind: long.Kind, Value: *long.Value}
	default:
		return fmt.Errorf("bound kind %q is unknown; give %s", long.Kind, forms)
	}
	return nil
}

func (b Bound) String() string {
	if b.Kind == Offset || b.Kind == Timestamp {
		return fmt.Sprintf("%s %d", b.Kind, b.Value)
	}
	return b.Kind
}
