package store_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/store"
)

func TestMerge(t *testing.T) {
	bucket := store.Attributes{StorageClass: "STANDARD_IA", Tags: map[string]string{"team": "data", "env": "prod"}}
	for _, c := range []struct {
		all  []store.Attributes
		want store.Attributes
	}{
		{nil, store.Attributes{}},
		{[]store.Attributes{bucket, {}}, bucket},
		{[]store.Attributes{bucket, {StorageClass: "GLACIER_IR", Tags: map[string]string{"env": "test", "topic": "trips"}}},
			store.Attributes{StorageClass: "GLACIER_IR", Tags: map[string]string{"team": "data", "env": "test", "topic": "trips"}}},
	} {
		got, err := store.Merge(c.all...)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("merge of %v: %v\n%s", c.all, err, diff)
		}
	}
	if bucket.Tags["env"] != "prod" {
		t.Error("a merge has changed what it was given")
	}
}

func TestMergeRefuses(t *testing.T) {
	many := map[string]string{}
	for i := range store.MaxTags {
		many[fmt.Sprint(i)] = ""
	}
	if _, err := store.Merge(store.Attributes{Tags: many}); err != nil {
		t.Errorf("%d tags: %v", len(many), err)
	}
	for text, all := range map[string][]store.Attributes{
		"GLACIER_IR is the coldest": {{StorageClass: "DEEP_ARCHIVE"}},
		"not a name":                {{StorageClass: "standard ia"}},
		"11 tags":                   {{Tags: many}, {Tags: map[string]string{"more": ""}}},
		"without a name":            {{Tags: map[string]string{"": "x"}}},
		"are allowed":               {{Tags: map[string]string{"a": "b,c"}}},
		"more than 128":             {{Tags: map[string]string{strings.Repeat("ä", 129): ""}}},
		"more than 256":             {{Tags: map[string]string{"a": strings.Repeat("ä", 257)}}},
		"not ours to give":          {{Tags: map[string]string{"AWS:x": ""}}},
		"line":                      {{Tags: map[string]string{"line": "a\nb"}}},
	} {
		if _, err := store.Merge(all...); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestParseTagsRefuses(t *testing.T) {
	for text, want := range map[string]string{"": "no value", "a": "no value", "a=1,a=2": "twice", "=x": "without a name", "a=1,": "no value"} {
		if _, err := store.ParseTags(text); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParseTags(f *testing.F) {
	for _, text := range []string{"team=data,env=prod", "a=", "a=b=c, d=e", "ä b=1/2", "x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tags, err := store.ParseTags(text)
		if err != nil {
			return
		}
		again, err := store.ParseTags(store.FormatTags(tags))
		if err != nil || !maps.Equal(tags, again) {
			t.Fatalf("%q: %v, then %v, %v", text, tags, again, err)
		}
	})
}
