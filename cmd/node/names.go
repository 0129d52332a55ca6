package node

import (
	"runtime/debug"
	"strings"

	"github.com/hearsay-llm/hearsay/routing"
)

// Policies lists the routing policies that a pool may name.
func Policies() []string { return routing.Policies() }

// LogLevels lists the levels that log.level and the command log-level may name.
func LogLevels() []string { return []string{"debug", "info", "warn", "error"} }

// Version is the version of this build: the module's, else the commit's first
// twelve digits, marked when the tree was changed.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	version, dirty := "devel", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			version = "devel-" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return strings.TrimSpace(version + dirty)
}
