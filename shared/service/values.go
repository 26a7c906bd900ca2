package service

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var byteUnits = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1000}, {"KB", 1000}, {"MB", 1000_000}, {"GB", 1000_000_000}, {"TB", 1000_000_000_000},
	{"B", 1},
}

// ParseBytes reads a Bytes setting: a number of bytes, with or without a unit (KiB, MiB, GiB, TiB; kB, MB, GB, TB).
func ParseBytes(s string) (int64, error) {
	num, factor := strings.TrimSpace(s), int64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(num, u.suffix); ok {
			num, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n < 0 {
		return 0, errors.New("want a number of bytes such as 67108864 or 64MiB")
	}
	if n > math.MaxInt64/factor {
		return 0, errors.New("too large")
	}
	return n * factor, nil
}

func parseInt(s string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return 0, errors.New("want a whole number")
	}
	return n, nil
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, errors.New("want true or false")
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil || d < 0 {
		return 0, errors.New("want a duration with its unit such as 500ms, 10s or 5m")
	}
	return d, nil
}

// splitList splits at commas; blanks around an element and empty elements are dropped.
func splitList(s string) []string {
	var out []string
	for e := range strings.SplitSeq(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}

// check reports what is wrong with a value of key k.
func (k Key) check(raw string) error {
	var err error
	switch k.Kind {
	case Int:
		_, err = parseInt(raw)
	case Bytes:
		_, err = ParseBytes(raw)
	case Bool:
		_, err = parseBool(raw)
	case Duration:
		_, err = parseDuration(raw)
	}
	if err != nil {
		return err
	}
	if len(k.OneOf) > 0 {
		ok := false
		for _, v := range k.OneOf {
			ok = ok || v == raw
		}
		if !ok {
			return fmt.Errorf("want one of %s", strings.Join(k.OneOf, ", "))
		}
	}
	if k.Check != nil {
		return k.Check(raw)
	}
	return nil
}
