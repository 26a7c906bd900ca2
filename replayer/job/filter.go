package job

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"tapedeck.dev/tapedeck/shared/record"
)

// Bounds of a Filter, so that what a request costs per record is bounded too. (Keys are looked up by hash.)
const (
	MaxFilterKeys    = 10_000
	MaxFilterHeaders = 16
)

// Filter chooses records by key and headers: the key is one of Keys or begins with KeyPrefix (where either is given), and each of Headers is
// among the record's.
type Filter struct {
	Keys      []Bytes        `json:"keys,omitempty"` // a nil one is the null key
	KeyPrefix *Bytes         `json:"keyPrefix,omitempty"`
	Headers   []HeaderFilter `json:"headers,omitempty"`
}

// HeaderFilter is a header that a record must have.
type HeaderFilter struct {
	Key string
	// Any: whatever its value. Else its value is Value, nil for null.
	Any   bool
	Value Bytes
}

// Bytes are a string in JSON where they are UTF-8, else {"base64": …}; null is nil.
type Bytes []byte

type base64Object struct {
	Base64 string `json:"base64"`
}

// MarshalJSON writes the shortest form.
func (b Bytes) MarshalJSON() ([]byte, error) {
	switch {
	case b == nil:
		return []byte("null"), nil
	case utf8.Valid(b):
		return json.Marshal(string(b))
	}
	return json.Marshal(base64Object{base64.StdEncoding.EncodeToString(b)})
}

// UnmarshalJSON reads any of the forms.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	const forms = `give a string, {"base64": "…"} or null`
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		*b = nil
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err == nil {
		*b = Bytes(s)
		return nil
	}
	var o struct {
		Base64 *string `json:"base64"`
	}
	if err := strict(data, &o, "base64"); err != nil || o.Base64 == nil {
		return fmt.Errorf("%.100s: %s", data, forms)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(*o.Base64)
	if err != nil {
		return fmt.Errorf("base64 %.100q: %w", *o.Base64, err)
	}
	*b = append(Bytes{}, raw...)
	return nil
}

// MarshalJSON leaves the value out where any will do.
func (h HeaderFilter) MarshalJSON() ([]byte, error) {
	if h.Any {
		return json.Marshal(map[string]string{"key": h.Key})
	}
	return json.Marshal(struct {
		Key   string `json:"key"`
		Value Bytes  `json:"value"`
	}{h.Key, h.Value})
}

// UnmarshalJSON tells a missing value (any will do) from null.
func (h *HeaderFilter) UnmarshalJSON(data []byte) error {
	var o struct {
		Key   *string         `json:"key"`
		Value json.RawMessage `json:"value"`
	}
	if err := strict(data, &o, "key", "value?"); err != nil || o.Key == nil {
		return fmt.Errorf(`header %.200s: give {"key": "region", "value": "eu"}, or the key alone where any value will do`, data)
	}
	*h = HeaderFilter{Key: *o.Key, Any: o.Value == nil}
	if h.Any {
		return nil
	}
	return h.Value.UnmarshalJSON(o.Value)
}

// UnmarshalJSON refuses unknown fields.
func (f *Filter) UnmarshalJSON(data []byte) error {
	type plain Filter
	var p plain
	if err := strict(data, &p, "keys", "keyPrefix", "headers"); err != nil {
		return fmt.Errorf("filter: %w; it has keys, keyPrefix and headers", err)
	}
	*f = Filter(p)
	return nil
}

func (f *Filter) sort() {
	if f == nil {
		return
	}
	slices.SortFunc(f.Keys, compareBytes)
	slices.SortFunc(f.Headers, func(a, b HeaderFilter) int {
		return bytes.Compare(encodeHeader(a), encodeHeader(b))
	})
}

// compareBytes puts null before empty.
func compareBytes(a, b Bytes) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return bytes.Compare(a, b)
}

func encodeHeader(h HeaderFilter) []byte {
	b, err := json.Marshal(h)
	if err != nil {
		panic(err) // plain data
	}
	return b
}

func (f *Filter) check() error {
	if len(f.Keys) == 0 && f.KeyPrefix == nil && len(f.Headers) == 0 {
		return errors.New("filter: it chooses nothing; give keys, keyPrefix or headers, or leave it out")
	}
	if f.Keys != nil && len(f.Keys) == 0 { // a list that came out empty must not mean any key
		return errors.New("filter: keys is empty: name some, or leave it out where any key will do")
	}
	if f.KeyPrefix != nil && len(*f.KeyPrefix) == 0 {
		return errors.New("filter: keyPrefix is empty, and every key begins so; leave it out")
	}
	if len(f.Keys) > MaxFilterKeys || len(f.Headers) > MaxFilterHeaders {
		return fmt.Errorf("filter: %d keys and %d headers; at most %d and %d", len(f.Keys), len(f.Headers), MaxFilterKeys, MaxFilterHeaders)
	}
	for i, k := range f.Keys {
		if i > 0 && compareBytes(f.Keys[i-1], k) == 0 {
			return fmt.Errorf("filter: key %.100q is there twice", k)
		}
	}
	for i, h := range f.Headers {
		if h.Key == "" {
			return errors.New("filter: a header's key is empty")
		}
		if i > 0 && bytes.Equal(encodeHeader(f.Headers[i-1]), encodeHeader(h)) {
			return fmt.Errorf("filter: header %.100q is there twice", h.Key)
		}
	}
	return nil
}

// Keeper is a Filter made ready for records. Safe for concurrent use; a nil one keeps every record.
type Keeper struct {
	anyKey  bool
	nullKey bool
	keys    map[string]bool
	prefix  []byte // nil: none
	headers []HeaderFilter
}

// Keeper makes f ready; nil of nil.
func (f *Filter) Keeper() *Keeper {
	if f == nil {
		return nil
	}
	k := &Keeper{anyKey: len(f.Keys) == 0 && f.KeyPrefix == nil, keys: make(map[string]bool, len(f.Keys)), headers: f.Headers}
	for _, key := range f.Keys {
		if key == nil {
			k.nullKey = true
		} else {
			k.keys[string(key)] = true
		}
	}
	if f.KeyPrefix != nil {
		k.prefix = *f.KeyPrefix
	}
	return k
}

// Keep reports whether the filter chooses rec.
func (k *Keeper) Keep(rec *record.Record) bool {
	if k == nil {
		return true
	}
	return k.keepKey(rec.Key) && !slices.ContainsFunc(k.headers, func(h HeaderFilter) bool { return !has(rec, h) })
}

func (k *Keeper) keepKey(key []byte) bool {
	switch {
	case k.anyKey:
		return true
	case key == nil:
		return k.nullKey
	}
	return k.keys[string(key)] || k.prefix != nil && bytes.HasPrefix(key, k.prefix)
}

func has(rec *record.Record, want HeaderFilter) bool {
	return slices.ContainsFunc(rec.Headers, func(h record.Header) bool {
		return h.Key == want.Key && (want.Any || (h.Value == nil) == (want.Value == nil) && bytes.Equal(h.Value, want.Value))
	})
}
