package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand(s *system) *cobra.Command {
	in := &inputs{sections: []section{sectionOutput}}
	return s.command("version [FLAG]...", "print the version", in,
		func(*parameters, []string) error {
			v := thisBuild()
			return s.print(v.text(), v)
		})
}

// version is set by the linker (-X main.version=...). If it is empty, thisBuild uses the version
// that the Go toolchain recorded.
var version string

// build describes this executable.
type build struct {
	Version  string `json:"release"` // the field "version" is the version of the JSON form
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // changed since the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (build) kind() string { return "Version" }

// thisBuild returns the description of this executable.
func thisBuild() build {
	v := build{
		Version: cmp.Or(version, "(devel)"), Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if version == "" && info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Commit = setting.Value
		case "vcs.modified":
			v.Modified = setting.Value == "true"
		}
	}
	return v
}

// text describes the executable in a line.
func (v build) text() string {
	commit := ""
	if v.Commit != "" {
		commit = ", commit " + v.Commit
	}
	if v.Modified {
		commit += " with changes"
	}
	return fmt.Sprintf("rules %s%s, %s, %s\n", v.Version, commit, v.Go, v.Platform)
}
