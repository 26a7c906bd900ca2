package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func entriesKeys() []Key {
	return []Key{{Name: "overrides", Kind: Entries, Example: "topics: [audit], flush.size: 100", Members: []Key{
		{Name: "topics", Kind: List, Required: true},
		{Name: "flush.size", Kind: Int, Default: "5"},
		{Name: "segment.bytes", Kind: Bytes},
	}}}
}

// A list of entries means the same in a file, nested or dotted, and as YAML or JSON text; and as `config` prints it.
func TestEntries(t *testing.T) {
	load := func(text string, sets, env []string) (*Config, error) {
		file := ""
		if text != "" {
			file = filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return Load(entriesKeys(), file, sets, env)
	}
	const text = `[{"flush.size":"7","topics":["a","b,c"]},{"segment.bytes":"1MiB","topics":"d, e"}]`
	for name, from := range map[string]func() (*Config, error){
		"dotted": func() (*Config, error) {
			return load("overrides:\n- topics: [a, 'b,c']\n  flush.size: 7\n- {topics: 'd, e', segment.bytes: 1MiB}\n", nil, nil)
		},
		"nested": func() (*Config, error) {
			return load("overrides:\n- topics: [a, 'b,c']\n  flush: {size: 7}\n- topics: d, e\n  segment:\n    bytes: 1MiB\n", nil, nil)
		},
		"json": func() (*Config, error) { return load("", []string{"overrides=" + text}, nil) },
		"yaml text": func() (*Config, error) {
			return load("", nil, []string{"TAPEDECK_OVERRIDES=- {topics: [a, 'b,c'], flush.size: 7}\n- {topics: 'd, e', segment.bytes: 1MiB}\n"})
		},
		"printed": func() (*Config, error) {
			c, err := load("", []string{"overrides=" + text}, nil)
			if err != nil {
				return nil, err
			}
			var b strings.Builder
			if err := c.print(&b); err != nil {
				return nil, err
			}
			return load(b.String(), nil, nil)
		},
	} {
		c, err := from()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		es := c.Entries("overrides")
		if len(es) != 2 {
			t.Fatalf("%s: %d entries", name, len(es))
		}
		a, b := es[0], es[1]
		if got := a.List("topics"); len(got) != 2 || got[1] != "b,c" || !a.Given("flush.size") || a.Int("flush.size") != 7 || a.Given("segment.bytes") {
			t.Errorf("%s: first %v %v", name, got, a.Int("flush.size"))
		}
		if got := b.List("topics"); len(got) != 2 || got[1] != "e" || b.Given("flush.size") || b.Int("flush.size") != 5 || b.Int("segment.bytes") != 1<<20 {
			t.Errorf("%s: second %v %v", name, got, b.Int("flush.size"))
		}
		if got := c.Masked()["overrides"]; got != text {
			t.Errorf("%s: printed as %s", name, got)
		}
	}
	if c, err := load("", nil, nil); err != nil || len(c.Entries("overrides")) != 0 {
		t.Errorf("not given: %v", err)
	}
	if c, err := load("overrides: []\n", nil, nil); err != nil || len(c.Entries("overrides")) != 0 {
		t.Errorf("empty: %v", err)
	}
	for in, want := range map[string]string{
		`[{topics: a, flush.szie: 1}]`:                   `entry 1: unknown setting "flush.szie" (--set:1); did you mean "flush.size"?`,
		`[{topics: a}, {topics: b, zzz: 1}]`:             `entry 2: unknown setting "zzz" (--set:1); an entry takes topics, flush.size, segment.bytes`,
		`[{flush.size: 1}]`:                              `topics is required`,
		`[{topics: a, flush.size: x}]`:                   `want a whole number`,
		`[{topics: a, flush.size: 1, flush: {size: 2}}]`: `given twice`,
		`{topics: a}`:                                    `want a list`,
		`[a, b]`:                                         "want `name: value` pairs",
		`[{topics: a`:                                    `--set:1:`,
	} {
		if _, err := load("", []string{"overrides=" + in}, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "overrides") && !strings.Contains(want, "--set") {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
	if _, err := load("overrides:\n- topics: a\n  flush.siz: 1\n", nil, nil); err == nil || !strings.Contains(err.Error(), "c.yaml:3") {
		t.Errorf("%v, want the line", err)
	}
}
