package main

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker; empty in builds that do not go through make.
var version string

// build is what the binary knows about its own making.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildInfo() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(version, b.Version)
		return b
	}
	b.Version = cmp.Or(version, info.Main.Version, b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func newVersion(process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version and how it was built", GroupID: sectionTools,
		Example: "  settleonce version\n  settleonce version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, buildInfo(), func(t *table, b build) { b.fill(t) })
		},
	}
	offerOutput(cmd)
	return cmd
}

func (b build) fill(t *table) {
	t.row("version", b.Version)
	t.row("revision", b.Revision)
	t.row("time", b.Time)
	t.row("modified", b.Modified)
	t.row("go", b.Go)
	t.row("platform", b.Platform)
}
