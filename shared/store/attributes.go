package store

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Attributes are what a store may keep beside an object's bytes. They are for whoever pays for the bucket or cleans it up:
// no reader depends on them, and an archive that was copied without them is the same archive.
type Attributes struct {
	// StorageClass as S3 names it, e.g. STANDARD_IA; "" is the store's own choice. Every object must be readable at once, so
	// GLACIER and DEEP_ARCHIVE are refused.
	StorageClass string
	// Tags, at most MaxTags of them; nil: none.
	Tags map[string]string
}

// Bounds of tags, as S3 has them.
const (
	MaxTags          = 10
	MaxTagKeyRunes   = 128
	MaxTagValueRunes = 256
)

var (
	storageClass = regexp.MustCompile(`^[A-Z0-9][A-Z0-9_-]{0,63}$`)
	tagText      = regexp.MustCompile(`^[\pL\pZ\pN_.:/=+\-@]*$`)
	// slowClasses hold objects that must be restored before they can be read.
	slowClasses = []string{"GLACIER", "DEEP_ARCHIVE"}
)

// CheckStorageClass says whether segments can be kept in a storage class ("" can). Names that AWS does not have are left to the
// store. The error wraps ErrInvalid.
func CheckStorageClass(class string) error {
	switch {
	case class == "":
		return nil
	case slices.Contains(slowClasses, class):
		return fmt.Errorf("storage class %s: its objects cannot be read before they are restored, and an archive is read at every start; "+
			"GLACIER_IR is the coldest that can: %w", class, ErrInvalid)
	case !storageClass.MatchString(class):
		return fmt.Errorf("storage class %.80q is not a name such as STANDARD_IA: %w", class, ErrInvalid)
	}
	return nil
}

// CheckTags says whether S3 takes these tags. The error wraps ErrInvalid.
func CheckTags(tags map[string]string) error {
	if len(tags) > MaxTags {
		return fmt.Errorf("%d tags, an object may have %d: %w", len(tags), MaxTags, ErrInvalid)
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		value := tags[key]
		switch {
		case key == "":
			return fmt.Errorf("a tag without a name: %w", ErrInvalid)
		case utf8.RuneCountInString(key) > MaxTagKeyRunes:
			return fmt.Errorf("tag %.40q… has a name of more than %d characters: %w", key, MaxTagKeyRunes, ErrInvalid)
		case utf8.RuneCountInString(value) > MaxTagValueRunes:
			return fmt.Errorf("tag %q has a value of more than %d characters: %w", key, MaxTagValueRunes, ErrInvalid)
		case !tagText.MatchString(key), !tagText.MatchString(value):
			return fmt.Errorf("tag %q=%q: letters, digits, spaces and + - = . _ : / @ are allowed: %w", key, value, ErrInvalid)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return fmt.Errorf("tag %q: names that begin with aws: are not ours to give: %w", key, ErrInvalid)
		}
	}
	return nil
}

// ParseTags reads "team=data,env=prod". A value may contain '=', neither side a comma.
func ParseTags(text string) (map[string]string, error) {
	tags := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok {
			return nil, fmt.Errorf("tag %q has no value; give name=value,name=value: %w", pair, ErrInvalid)
		}
		if _, twice := tags[key]; twice {
			return nil, fmt.Errorf("tag %q is given twice: %w", key, ErrInvalid)
		}
		tags[key] = value
	}
	return tags, CheckTags(tags)
}

// FormatTags is the inverse of ParseTags, sorted by name; "" for none.
func FormatTags(tags map[string]string) string {
	pairs := make([]string, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		pairs = append(pairs, key+"="+tags[key])
	}
	return strings.Join(pairs, ",")
}

// Merge joins attributes, later ones over earlier ones: the last storage class that is not empty, and of each tag the last
// value. The error of a join that no object can have wraps ErrInvalid.
func Merge(all ...Attributes) (Attributes, error) {
	var out Attributes
	for _, a := range all {
		if a.StorageClass != "" {
			out.StorageClass = a.StorageClass
		}
		if len(a.Tags) > 0 {
			if out.Tags == nil {
				out.Tags = make(map[string]string, len(a.Tags))
			}
			maps.Copy(out.Tags, a.Tags)
		}
	}
	if err := CheckStorageClass(out.StorageClass); err != nil {
		return Attributes{}, err
	}
	return out, CheckTags(out.Tags)
}
