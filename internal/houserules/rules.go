// Package houserules holds the import directions of this repository as data, and checks packages against them.
//
// Services import shared, never each other; shared imports no service; an SDK stays in the one package that wraps it.
package houserules

import (
	"fmt"
	"slices"
	"strings"
)

const module = "tapedeck.dev/tapedeck/"

// Package is what the check needs to know of a Go package.
type Package struct {
	ImportPath string
	Imports    []string // of the package itself, without its tests
	Deps       []string // transitive
	Main       bool
}

// only says that packages below Path may import, of this module, only what is below Allowed ("" = nothing at all).
type only struct {
	Path    string
	Allowed []string
}

var onlyRules = []only{
	{"shared/record", nil},
	{"shared/segment", []string{"shared/record", "shared/segment"}},
	{"shared/store", []string{"shared/store"}},
	{"shared/archive", []string{"shared/record", "shared/segment", "shared/store", "shared/archive"}},
	{"shared/murmur2", nil},
	{"shared/session", []string{"shared/record", "shared/segment", "shared/session"}},
	{"shared/kafka", []string{"shared/record", "shared/kafka"}},
	{"shared/secure", []string{"shared/secure"}},
	{"shared/schema", []string{"shared/record", "shared/segment", "shared/secure", "shared/schema"}},
	{"shared/service", []string{"shared/secure", "shared/service"}},
	{"archiver", []string{"shared", "archiver"}},
	{"replayer", []string{"shared", "replayer"}},
	{"processor", []string{"shared", "processor"}},
	{"processor/engine", []string{"shared/record", "shared/segment", "shared/schema", "shared/murmur2", "processor/pipeline", "processor/engine", "processor/agg", "processor/value"}},
	{"shared", []string{"shared"}},
}

// wraps says that the packages below SDK are imported only below one of Homes.
type wraps struct {
	SDK   string
	Homes []string
}

var wrapRules = []wraps{
	{"github.com/confluentinc/confluent-kafka-go", []string{"shared/kafka"}},
	{"github.com/riferrei/srclient", []string{"shared/schema"}},
	{"github.com/aws/aws-msk-iam-sasl-signer-go", []string{"shared/kafka"}},
	{"github.com/aws/aws-sdk-go-v2", []string{"shared/store/s3", "shared/devstack"}},
	{"github.com/twmb/franz-go", []string{"shared/devstack"}},
	{"github.com/versity/versitygw", []string{"shared/devstack"}},
	{"github.com/getkin/kin-openapi", []string{"replayer/internal/apicheck"}},
	{module + "replayer/internal/apicheck", nil}, // tests alone
	{module + "shared/devstack", []string{"shared/devstack", "shared/e2e"}},
	{module + "shared/e2e", []string{"shared/e2e"}},
}

// noClock are the packages that must be functions of their arguments: none of these imports.
var noClock = []string{"shared/record", "shared/murmur2", "shared/segment", "processor/engine"}

var clocks = []string{"context", "go.uber.org/zap", "log", "log/slog", "math/rand", "math/rand/v2"}

// Check returns one line per import that breaks a rule, sorted.
func Check(pkgs []Package) []string {
	var bad []string
	for _, p := range pkgs {
		path, ours := strings.CutPrefix(p.ImportPath, module)
		if !ours {
			continue
		}
		for _, imp := range p.Imports {
			if why := refuse(path, imp); why != "" {
				bad = append(bad, fmt.Sprintf("%s imports %s: %s", path, strings.TrimPrefix(imp, module), why))
			}
		}
		if !p.Main || below(path, "shared/devstack") || below(path, "shared/e2e") {
			continue
		}
		for _, dep := range p.Deps {
			if d, ok := strings.CutPrefix(dep, module); ok && below(d, "shared/devstack") {
				bad = append(bad, fmt.Sprintf("%s depends on %s: no product binary carries the embedded stack", path, d))
			}
		}
	}
	slices.Sort(bad)
	return bad
}

func refuse(path, imp string) string {
	if target, ours := strings.CutPrefix(imp, module); ours {
		for _, r := range onlyRules {
			if below(path, r.Path) && !slices.ContainsFunc(r.Allowed, func(a string) bool { return below(target, a) }) {
				return fmt.Sprintf("%s may import only %v of this module", r.Path, r.Allowed)
			}
		}
	}
	for _, r := range wrapRules {
		if below(imp, r.SDK) && !slices.ContainsFunc(r.Homes, func(h string) bool { return below(path, h) }) {
			return fmt.Sprintf("stays in %v", r.Homes)
		}
	}
	if slices.ContainsFunc(noClock, func(n string) bool { return below(path, n) }) && slices.Contains(clocks, imp) {
		return "the package takes no clock, logger, context or random value"
	}
	return ""
}

// below reports whether path is dir or inside it. A version suffix of a module path (/v2) counts as inside.
func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
