package main

import (
	"runtime/debug"
	"strings"
)

// version is what the binary knows of its build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "rdmamc, unknown build"
	}
	return versionText(info)
}

// versionText is the module's version, the commit where it is known, and the
// compiler.
func versionText(info *debug.BuildInfo) string {
	words := []string{"rdmamc", info.Main.Version}
	if info.Main.Version == "" {
		words[1] = "(devel)"
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			words = append(words, s.Value)
		case s.Key == "vcs.modified" && s.Value == "true":
			words = append(words, "modified")
		}
	}
	return strings.Join(append(words, info.GoVersion), " ")
}
