package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"podd/cli"
	"podd/internal/versions"
	"podd/server"
)

// version and commit are set by the build, with -ldflags -X main.version=….
var (
	version = ""
	commit  = ""
)

// thisVersion returns the version that this binary was built from. If the build did not set it,
// it returns the one that Go recorded.
func thisVersion() server.Version {
	v := server.Version{
		Version: version, Commit: commit, Kubernetes: versions.Kubernetes,
		GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v.Commit == "" {
			v.Commit = s.Value
		}
	}
	return v
}

func newVersionCmd() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of podd",
		Example: `  podd version
  podd version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.PrintVersion(cmd.OutOrStdout(), thisVersion(), output)
		},
	}
	addOutput(cmd, &output, "json", "yaml")
	return cmd
}
