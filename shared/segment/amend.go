package segment

import (
	"fmt"
	"slices"
)

// WithSchemas returns the segment data with the schemas more beside its own, for a receiver that knows what the segment tells and nothing else.
// The blocks stay as they are. It is a copy for the way, never for the archive: objects there do not change. Where data has all of more, data itself is
// returned. object names data in errors: *CorruptError, ErrNewerVersion, or that the header would be too large.
func WithSchemas(object string, data []byte, more []Schema) ([]byte, error) {
	h, body, err := ParseHeader(object, data)
	if err != nil {
		return nil, err
	}
	had := len(h.Schemas)
	for _, s := range more {
		if !slices.ContainsFunc(h.Schemas, func(x Schema) bool { return compareSchemas(x, s) == 0 }) {
			h.Schemas = append(h.Schemas, s)
		}
	}
	if len(h.Schemas) == had {
		return data, nil
	}
	slices.SortFunc(h.Schemas, compareSchemas)
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("add schemas to %s: %w", object, err)
	}
	head, err := encodeHeader(h)
	if err != nil {
		return nil, fmt.Errorf("add schemas to %s: %w", object, err)
	}
	return slices.Concat(head, data[body:]), nil
}
