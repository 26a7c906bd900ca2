package partition

import (
	"fmt"
	"strconv"
	"strings"
)

const hintPrefix = "segment="

// FormatHint is the metadata of a committed offset: the start of the newest confirmed segment.
func FormatHint(start int64) string { return hintPrefix + strconv.FormatInt(start, 10) }

// ParseHint is the inverse of FormatHint. Anything else is an error; a group may hold positions that others wrote.
func ParseHint(metadata string) (int64, error) {
	digits, ok := strings.CutPrefix(metadata, hintPrefix)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 0 || FormatHint(n) != metadata {
		return 0, fmt.Errorf("metadata %q is no hint", metadata)
	}
	return n, nil
}
