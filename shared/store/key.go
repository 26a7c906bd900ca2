package store

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxKeyBytes is the longest key, prefix of the address included, that S3 takes.
const MaxKeyBytes = 1024

// CheckKey says whether a key can be stored by every implementation: 1 to MaxKeyBytes bytes of UTF-8 without control
// characters (an XML listing cannot carry them), made of path elements that are neither empty nor "." nor "..". The error
// wraps ErrInvalid.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("key is empty: %w", ErrInvalid)
	case len(key) > MaxKeyBytes:
		return fmt.Errorf("key %.40q… has %d bytes, more than %d: %w", key, len(key), MaxKeyBytes, ErrInvalid)
	case !utf8.ValidString(key):
		return fmt.Errorf("key %q is not UTF-8: %w", key, ErrInvalid)
	}
	for _, r := range key {
		if r < 0x20 || r == 0x7f || r == 0xfffe || r == 0xffff {
			return fmt.Errorf("key %q has a control character: %w", key, ErrInvalid)
		}
	}
	for elem := range strings.SplitSeq(key, "/") {
		if elem == "" || elem == "." || elem == ".." {
			return fmt.Errorf("key %q has a path element %q: %w", key, elem, ErrInvalid)
		}
	}
	return nil
}

// PageSize is the number of objects that one List answers for the given max.
func PageSize(max int) int {
	if max <= 0 || max > 1000 {
		return 1000
	}
	return max
}

// Names of the operations, as hooks, counters and metrics use them.
const (
	OpCreate   = "create"
	OpGet      = "get"
	OpGetRange = "get_range"
	OpList     = "list"
	OpListDirs = "list_dirs"
	OpSweep    = "sweep"
)

// CheckDirPrefix says whether prefix can be given to ListDirs: "" or ending in '/'. The error wraps ErrInvalid.
func CheckDirPrefix(prefix string) error {
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		return fmt.Errorf("prefix %q does not end in a slash: %w", prefix, ErrInvalid)
	}
	return nil
}
