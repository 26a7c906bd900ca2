package service

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// EnvPrefix begins the name of every environment variable that is a setting.
const EnvPrefix = "TAPEDECK_"

// testEnvPrefix begins variables that steer this project's own tests; services ignore them.
const testEnvPrefix = "TAPEDECK_TEST_"

// EnvName is the environment variable of a setting: flush.size is TAPEDECK_FLUSH_SIZE.
func EnvName(key string) string {
	return EnvPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// readEnv finds the settings in an environment (NAME=value rows). The exact keys win over families (name.*), the longer family
// over the shorter. In a family the rest of the name becomes lower case with dots, so a member whose own name holds an
// underscore cannot be written in the environment; the file and --set can. An empty variable is not set: compose files and unit
// files write empty ones where they mean "none".
func readEnv(keys []Key, env []string) ([]setting, error) {
	exact := map[string]string{}
	type family struct{ env, prefix string }
	var families []family
	for _, k := range keys {
		if p, ok := k.isPrefix(); ok {
			families = append(families, family{EnvName(p), p})
			continue
		}
		exact[EnvName(k.Name)] = k.Name
		if k.Secret {
			exact[EnvName(k.Name+".file")] = k.Name + ".file"
		}
	}
	sort.Slice(families, func(i, j int) bool { return len(families[i].env) > len(families[j].env) })

	var out []setting
	for _, row := range env {
		name, value, ok := strings.Cut(row, "=")
		if !ok || value == "" || !strings.HasPrefix(name, EnvPrefix) || strings.HasPrefix(name, testEnvPrefix) {
			continue
		}
		s := setting{raw: value, origin: "environment " + name}
		if key, ok := exact[name]; ok {
			s.name = key
		} else {
			for _, f := range families {
				if rest, ok := strings.CutPrefix(name, f.env); ok && rest != "" {
					s.name = f.prefix + strings.ToLower(strings.ReplaceAll(rest, "_", "."))
					break
				}
			}
		}
		if s.name == "" && anothers(name) {
			continue
		}
		if s.name == "" {
			known := make([]string, 0, len(exact))
			for n := range exact {
				known = append(known, n)
			}
			sort.Strings(known)
			return nil, unknown("environment variable", name, "environment", Nearest(name, known))
		}
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out, nil
}

// anothers reports whether an environment variable is a setting of another of the services.
func anothers(env string) bool {
	for _, k := range slices.Concat(KafkaKeys("consumer", "producer"), StoreKeys(), RegistryKeys()) {
		if p, family := k.isPrefix(); family && strings.HasPrefix(env, EnvName(p)) || env == EnvName(k.Name) || k.Secret && env == EnvName(k.Name+".file") {
			return true
		}
	}
	return false
}

func unknown(what, name, origin, near string) error {
	if near == "" {
		return fmt.Errorf("unknown %s %q (%s); --help lists all", what, name, origin)
	}
	return fmt.Errorf("unknown %s %q (%s); did you mean %q?", what, name, origin, near)
}
