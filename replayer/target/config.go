// Package target talks to what a replay is sent to. Targets are named in the replayer's configuration; a request can only choose among
// them, so that no address is ever taken from a request.
package target

import (
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strings"

	"tapedeck.dev/tapedeck/shared/secure"
	"tapedeck.dev/tapedeck/shared/service"
)

// TypeProcessor is a receiver of the session protocol (docs/receiver-protocol.md).
const TypeProcessor = "processor"

// Config is one target of the configuration.
type Config struct {
	Name     string
	Type     string
	URL      *url.URL // scheme and host; an optional path in front of the receiver's
	Pipeline string   // the receiver's pipeline that the replay runs in
	Security secure.ClientSettings
	Kafka    *Kafka // of type kafka, which has none of the three above
}

// fields of a target.
var fields = []string{"type", "url", "pipeline", "token", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"}

// ParseConfig reads targets.<name>.type|url|pipeline, given without "targets.".
func ParseConfig(settings map[string]string) (map[string]Config, error) {
	byName := map[string]map[string]string{}
	for key, value := range settings {
		name, field, ok := strings.Cut(key, ".")
		if !ok || name == "" {
			return nil, fmt.Errorf("targets.%s: want targets.<name>.type, .url, .pipeline and so on (--help lists them)", key)
		}
		if byName[name] == nil {
			byName[name] = map[string]string{}
		}
		byName[name][field] = value
	}
	out := make(map[string]Config, len(byName))
	for name, m := range byName {
		c, err := parseOne(name, m)
		if err != nil {
			return nil, err
		}
		out[name] = c
	}
	return out, nil
}

func parseOne(name string, m map[string]string) (Config, error) {
	if m["type"] == TypeKafka {
		return parseKafka(name, m)
	}
	given := make([]string, 0, len(m))
	for field := range m {
		given = append(given, field)
	}
	sort.Strings(given)
	for _, field := range given {
		if slices.Contains(fields, field) {
			continue
		}
		if near := service.Nearest(field, fields); near != "" {
			return Config{}, fmt.Errorf("targets.%s.%s is unknown; did you mean targets.%s.%s?", name, field, name, near)
		}
		return Config{}, fmt.Errorf("targets.%s.%s is unknown; known: %s", name, field, strings.Join(fields, ", "))
	}
	c := Config{Name: name, Type: m["type"], Pipeline: m["pipeline"]}
	if c.Type == "" {
		c.Type = TypeProcessor
	}
	if c.Type != TypeProcessor {
		return Config{}, fmt.Errorf("targets.%s.type %q is unknown; give %s or %s", name, c.Type, TypeProcessor, TypeKafka)
	}
	u, err := url.Parse(m["url"])
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return Config{}, fmt.Errorf("targets.%s.url %q: give http://host:port of the processor", name, m["url"])
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return Config{}, fmt.Errorf("targets.%s.url: a query or fragment has no meaning here", name)
	}
	c.URL = u
	file := func(field string) secure.File {
		return secure.File{Setting: "targets." + name + "." + field, Path: m[field]}
	}
	c.Security = secure.ClientSettings{
		ClientFiles: secure.ClientFiles{CA: file("ssl.ca.location"), Certificate: file("ssl.certificate.location"), Key: file("ssl.key.location")},
		TokenFile:   secure.File{Setting: "targets." + name + ".token"}, Token: m["token"],
	}
	if c.Pipeline == "" {
		return Config{}, fmt.Errorf("targets.%s.pipeline is missing: give the name of the processor's pipeline to replay into", name)
	}
	return c, nil
}

// Names lists configured targets, sorted.
func Names(targets map[string]Config) []string {
	names := make([]string, 0, len(targets))
	for n := range targets {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}
