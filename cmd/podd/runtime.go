package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"podd/bundle"
	"podd/cni"
	"podd/internal/instance"
	"podd/node/bundled"
)

// runtimeFlags are the flags of "podd runtime".
type runtimeFlags struct{ bundled.Runtime }

func (f *runtimeFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.RootDir, "root-dir", instance.DefaultRootDir, "directory for what survives a reboot: images, snapshots, containerd's database")
	cmd.Flags().StringVar(&f.StateDir, "state-dir", instance.DefaultStateDir, "directory for what a reboot may clear; the socket is containerd.sock in it")
	cmd.Flags().StringVar(&f.BinDir, "runtime-dir", "", "directory of the runtime's binaries (default $"+bundle.EnvDir+", or found near podd)")
	cmd.Flags().StringVar(&f.ConfigDir, "runtime-config-dir", instance.DefaultConfigDir, "directory of containerd.d/*.toml and certs.d, which need not exist")
	cmd.Flags().StringVar(&f.PodCIDR, "pod-cidr", "", "addresses of pods in the default network (default what a cluster gives to this node, without one "+cni.DefaultPodCIDR+")")
	cmd.Flags().StringVar(&f.Bridge, "bridge", cni.DefaultBridge, "bridge and name of the default network, unique on this machine")
	cmd.Flags().StringVar(&f.SandboxImage, "sandbox-image", bundle.PauseImage, "image that holds a pod's namespaces")
	cmd.Flags().StringVar(&f.LogLevel, "log-level", "warn", "containerd's: debug, info, warn or error")
}

// newRuntimeCmd returns "podd runtime".
func newRuntimeCmd() *cobra.Command {
	flags := &runtimeFlags{}
	cmd := &cobra.Command{
		Use:   "runtime",
		Short: "Run the bundled container runtime",
		Long: `Run the bundled container runtime: write containerd's configuration and the
default pod network for this machine, then become containerd.

"podd run" starts this by itself when no runtime is configured and none is
running, and adopts one that is. Run it on its own (as podd-runtime.service does)
to start and stop podd and the runtime separately. Pods keep running either way.`,
		Example: `  # in the foreground, with the default places
  podd runtime

  # a second, independent instance
  podd runtime --root-dir /srv/podd2 --state-dir /run/podd2 --bridge podd2 --pod-cidr 10.99.0.0/16

  # look into it
  crictl --runtime-endpoint unix:///run/podd/containerd.sock ps`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(os.Stderr, nil))
			if err := absolutePaths(&flags.BinDir, &flags.ConfigDir); err != nil {
				return err
			}
			logInherited(log, resetInherited())
			settings, err := flags.Prepare(cmd.Context(), log)
			if err != nil {
				return err
			}
			if err := chdirRoot(); err != nil {
				return err
			}
			return settings.Exec()
		},
	}
	flags.register(cmd)
	cmd.AddCommand(newRuntimeStopCmd())
	return cmd
}
