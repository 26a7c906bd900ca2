package service

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"time"
)

// Config is a resolved configuration. Precedence: --set, then environment TAPEDECK_* (dots as underscores, upper case), then the
// YAML file (nested or dotted), then defaults.
type Config struct {
	reader string // who reads it, for messages
	keys   []Key
	byName map[string]Key
	values map[string]setting // exact keys (always present) and given members of families
}

// Load resolves. env is os.Environ()-like; file "" means none. An unknown key is an error naming the nearest known one
// and where it was written (file:line, environment or --set); a missing required key, a value of the wrong kind too. A secret may
// be given as <name>.file: the file's content without its last line break.
//
// A setting that only another of the services uses is an error too, but in the environment, which they may share.
func Load(keys []Key, file string, sets []string, env []string) (*Config, error) {
	return load("this service", keys, file, sets, env)
}

func load(reader string, keys []Key, file string, sets []string, env []string) (*Config, error) {
	if file == "" {
		return resolve(reader, keys, nil, sets, env)
	}
	ss, err := readYAML(file, keys)
	if err != nil {
		return nil, err
	}
	return resolve(reader, keys, ss, sets, env)
}

// resolve layers the settings of a file, the environment and --set over the defaults.
func resolve(reader string, keys []Key, file []setting, sets []string, env []string) (*Config, error) {
	c := &Config{reader: reader, keys: merge(keys), byName: map[string]Key{}, values: map[string]setting{}}
	for _, k := range c.keys {
		c.byName[k.Name] = k
		if _, family := k.isPrefix(); !family {
			c.values[k.Name] = setting{name: k.Name, raw: k.Default, origin: defaultOrigin}
		}
	}
	if err := c.layer(file); err != nil {
		return nil, err
	}
	ss, err := readEnv(c.keys, env)
	if err != nil {
		return nil, err
	}
	if err := c.layer(ss); err != nil {
		return nil, err
	}
	ss = nil
	for _, row := range sets {
		name, value, ok := strings.Cut(row, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--set %s: want key=value", row)
		}
		ss = append(ss, setting{name: strings.TrimSpace(name), raw: value, origin: "--set"})
	}
	if err := c.layer(ss); err != nil {
		return nil, err
	}
	for _, k := range c.keys {
		if k.Required && c.values[k.Name].raw == "" {
			return nil, fmt.Errorf("setting %q is required: give it in the file, as %s or with --set %s=…", k.Name, EnvName(k.Name), k.Name)
		}
	}
	return c, nil
}

// layer puts the settings of one source over those of the sources below it.
func (c *Config) layer(ss []setting) error {
	files := map[string]string{} // secret → origin of its .file in this layer
	for _, s := range ss {
		if base, ok := strings.CutSuffix(s.name, ".file"); ok && c.isSecret(base) {
			if _, declared := c.byName[s.name]; !declared {
				data, err := os.ReadFile(s.raw)
				if err != nil {
					return fmt.Errorf("setting %q (%s): %w", s.name, s.origin, err)
				}
				files[base] = s.origin
				s = setting{name: base, origin: s.origin, raw: strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")}
				if err := c.put(s); err != nil {
					return err
				}
				continue
			}
		}
	}
	for _, s := range ss {
		if base, ok := strings.CutSuffix(s.name, ".file"); ok && files[base] != "" {
			continue
		}
		if origin, ok := files[s.name]; ok {
			return fmt.Errorf("setting %q (%s) is also given as %q (%s); keep one", s.name, s.origin, s.name+".file", origin)
		}
		if err := c.put(s); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) put(s setting) error {
	k, ok := c.lookup(s.name)
	if !ok {
		known := make([]string, 0, len(c.byName))
		for _, k := range c.keys {
			if _, family := k.isPrefix(); !family {
				known = append(known, k.Name)
			}
		}
		if ofAnother(s.name) {
			return fmt.Errorf("setting %q (%s) is not used by %s: remove it", s.name, s.origin, c.reader)
		}
		return unknown("setting", s.name, s.origin, Nearest(s.name, known))
	}
	if k.Kind == Entries {
		s, err := c.parseEntries(k, s)
		if err != nil {
			return err
		}
		c.values[s.name] = s
		return nil
	}
	if err := k.check(s.raw); err != nil {
		shown := fmt.Sprintf("%q", s.raw)
		if c.isSecret(s.name) {
			shown = mask
		}
		return fmt.Errorf("setting %q (%s) is %s: %w", s.name, s.origin, shown, err)
	}
	c.values[s.name] = s
	return nil
}

// lookup finds the key that accepts name: itself, else the longest family.
func (c *Config) lookup(name string) (Key, bool) {
	if k, ok := c.byName[name]; ok && !strings.HasSuffix(name, "*") {
		return k, true
	}
	var best Key
	found := false
	for _, k := range c.keys {
		if p, family := k.isPrefix(); family && strings.HasPrefix(name, p) && len(name) > len(p) && len(k.Name) > len(best.Name) {
			best, found = k, true
		}
	}
	if found {
		best.Kind, best.Required = String, false
	}
	return best, found
}

func (c *Config) get(name string, kinds ...Kind) setting {
	k, ok := c.lookup(name)
	if !ok {
		panic(fmt.Sprintf("service: setting %q is not declared", name))
	}
	for _, kind := range kinds {
		if k.Kind == kind {
			return c.values[name]
		}
	}
	panic(fmt.Sprintf("service: setting %q is declared as %s", name, k.Kind))
}

// Reading a setting that is not declared, or as another kind than declared, panics: it is a mistake in the program, not in its use.

// String returns a String setting.
func (c *Config) String(name string) string { return c.get(name, String).raw }

// Int returns an Int, or the number of bytes of a Bytes setting; 0 where it is empty.
func (c *Config) Int(name string) int64 {
	s := c.get(name, Int, Bytes)
	n, _ := ParseBytes(s.raw)
	if c.byName[name].Kind == Int {
		n, _ = parseInt(s.raw)
	}
	return n
}

// Bool returns a Bool setting; false where it is empty.
func (c *Config) Bool(name string) bool {
	b, _ := parseBool(c.get(name, Bool).raw)
	return b
}

// Duration returns a Duration setting; 0 where it is empty.
func (c *Config) Duration(name string) time.Duration {
	d, _ := parseDuration(c.get(name, Duration).raw)
	return d
}

// List returns a List setting without empty elements.
func (c *Config) List(name string) []string {
	s := c.get(name, List)
	if s.list != nil {
		return append([]string(nil), s.list...)
	}
	return splitList(s.raw)
}

// WithPrefix returns the given settings below a prefix ("targets."), the prefix removed.
func (c *Config) WithPrefix(prefix string) map[string]string {
	out := map[string]string{}
	for name, s := range c.values {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" {
			out[rest] = s.raw
		}
	}
	return out
}

// ClientOverrides returns what to pass to librdkafka for a role: security.protocol, sasl.* and ssl.*, and over them
// <role>.override.* ("consumer" or "producer"; "" for an admin client).
func (c *Config) ClientOverrides(role string) map[string]string {
	out := map[string]string{}
	if v := c.String("security.protocol"); v != "" {
		out["security.protocol"] = v
	}
	for _, p := range []string{"sasl.", "ssl."} {
		for k, v := range c.WithPrefix(p) {
			if v != "" { // a declared one that is not set is librdkafka's own default
				out[p+k] = v
			}
		}
	}
	if role != "" {
		for k, v := range c.WithPrefix(role + ".override.") {
			out[k] = v
		}
	}
	return out
}

// names returns the names of all values, sorted.
func (c *Config) names() []string {
	out := make([]string, 0, len(c.values))
	for n := range c.values {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}
