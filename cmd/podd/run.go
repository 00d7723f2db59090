package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podd/bundle"
	"podd/cni"
	"podd/config"
	"podd/internal/places"
	"podd/podconfig/manifest"
)

// runFlags are the flags of podd run that are not the kubelet's.
type runFlags struct {
	runtimeDir, bridge, sandboxImage string
	imageDir, containerLogsDir       string
	validation                       manifest.Validation
}

func (f *runFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.runtimeDir, "runtime-dir", "", "`directory` of the bundled runtime's binaries (default $"+bundle.EnvDir+", or found near podd)")
	fs.StringVar(&f.bridge, "bridge", cni.DefaultBridge, "bridge and `name` of the default pod network, unique on this machine")
	fs.StringVar(&f.sandboxImage, "sandbox-image", bundle.PauseImage, "`image` that holds a pod's namespaces in the bundled runtime")
	fs.StringVar(&f.imageDir, "image-dir", "", "`directory` of image archives to import (default images in --root-dir)")
	bindValidation(fs, &f.validation, "what becomes of unknown and duplicate fields of manifests: the pod is refused, runs with a warning, or runs; under the name kubelet warn, else")
	fs.StringVar(&f.containerLogsDir, "container-logs-dir", "/var/log/containers", "`directory` of links to the containers' logs, for log shippers")
}

func bindValidation(fs *pflag.FlagSet, v *manifest.Validation, usage string) {
	*v = manifest.Strict
	fs.Var(v, flagValidation, usage)
}

const flagValidation = "manifest-validation"

// newRunCmd is "podd run".
func newRunCmd() *cobra.Command {
	var kubelet config.Flags
	var own runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the pods of this machine",
		Long: `Run the pods that the manifest directory and the manifest URL name, and keep them
running. The flags are the kubelet's; the file of --config is a
KubeletConfiguration (see podd config --explain).

Without --container-runtime-endpoint podd uses its bundled containerd: it adopts
the one that runs, or starts it. Stopping podd stops no pod and no runtime;
podd run again takes them up where they are.`,
		Example: `  # standalone: manifests in /etc/podd/manifests, http://127.0.0.1:10255/metrics
  podd run

  # with a kubelet's configuration and another runtime
  podd run --config /var/lib/kubelet/config.yaml \
    --container-runtime-endpoint unix:///run/containerd/containerd.sock

  # a second, independent instance
  podd run --config two.yaml --root-dir /srv/podd2 --state-dir /run/podd2 --bridge podd2`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := kubelet.Load()
			if err != nil {
				return err
			}
			dirs, err := places.Resolve(cfg.RootDir, cfg.StateDir)
			if err != nil {
				return err
			}
			cfg.RootDir, cfg.StateDir = dirs.Root, dirs.State
			if os.Geteuid() != 0 {
				return errors.New("running pods needs root: use sudo, or the systemd service podd")
			}
			log := newLogger(cfg, os.Stderr)
			for _, w := range cfg.Warnings {
				log.Warn(w)
			}
			limitHeap()
			lowerOOMScore(cfg.OOMScoreAdj, log)
			n, err := newNode(cfg, own, log)
			if err != nil {
				return err
			}
			return n.run(cmd.Context())
		},
	}
	kubelet.Bind(cmd.Flags())
	own.bind(cmd.Flags())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &exitError{exitUsage, config.FlagError(cmd.Flags(), err)}
	})
	return cmd
}

// ignoreCanceled is for parts that return their context's error.
func ignoreCanceled(ctx context.Context, part string, err error) error {
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s: %w", part, err)
}
