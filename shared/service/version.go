package service

import "runtime/debug"

// Set by the linker: -ldflags "-X tapedeck.dev/tapedeck/shared/service.version=1.2.3".
var (
	version  = ""
	revision = ""
)

// Build says what binary this is.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
}

// BuildInfo returns what the linker was told, else what the toolchain recorded.
func BuildInfo() Build {
	b := Build{Version: version, Revision: revision}
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return b.orUnknown()
	}
	b.Go = bi.GoVersion
	if b.Version == "" && bi.Main.Version != "(devel)" {
		b.Version = bi.Main.Version
	}
	if b.Revision == "" {
		dirty := ""
		for _, s := range bi.Settings {
			switch {
			case s.Key == "vcs.revision":
				b.Revision = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "+changes"
			}
		}
		if b.Revision != "" {
			b.Revision += dirty
		}
	}
	return b.orUnknown()
}

func (b Build) orUnknown() Build {
	if b.Version == "" {
		b.Version = "dev"
	}
	if b.Revision == "" {
		b.Revision = "unknown"
	}
	return b
}
