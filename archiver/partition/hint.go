package partition

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	hintPrefix      = "segment="
	hintIncarnation = " incarnation="
)

// Hint is the metadata of a committed offset.
type Hint struct {
	Start       int64 // of the newest confirmed segment
	Incarnation int   // of the topic, ≥ 1
}

// FormatHint writes a hint: the first incarnation is not named.
func FormatHint(h Hint) string {
	s := hintPrefix + strconv.FormatInt(h.Start, 10)
	if h.Incarnation > 1 {
		s += hintIncarnation + strconv.Itoa(h.Incarnation)
	}
	return s
}

// ParseHint is the inverse of FormatHint. Anything else is an error; a group may hold positions that others wrote.
func ParseHint(metadata string) (Hint, error) {
	h := Hint{Incarnation: 1}
	digits, ok := strings.CutPrefix(metadata, hintPrefix)
	digits, number, later := strings.Cut(digits, hintIncarnation)
	var err, err2 error
	h.Start, err = strconv.ParseInt(digits, 10, 64)
	if later {
		h.Incarnation, err2 = strconv.Atoi(number)
	}
	if !ok || err != nil || err2 != nil || h.Start < 0 || FormatHint(h) != metadata {
		return Hint{}, fmt.Errorf("metadata %q is no hint", metadata)
	}
	return h, nil
}
