package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podd/bundle"
	"podd/cli"
	"podd/cni"
	"podd/config"
	"podd/internal/instance"
	"podd/node"
	"podd/podconfig/manifest"
)

// bindNode binds those flags of podd run that the kubelet does not have.
func bindNode(fs *pflag.FlagSet, c *node.Config) {
	fs.StringVar(&c.RuntimeDir, "runtime-dir", "", "`directory` of the bundled runtime's binaries (default $"+bundle.EnvDir+", or found near podd)")
	fs.StringVar(&c.Bridge, "bridge", cni.DefaultBridge, "bridge and `name` of the default pod network, unique on this machine")
	fs.StringVar(&c.SandboxImage, "sandbox-image", bundle.PauseImage, "`image` that holds a pod's namespaces in the bundled runtime")
	fs.StringVar(&c.RuntimeRootDir, "runtime-root-dir", "", "`directory` for what survives a reboot of the bundled runtime: images, its pod network's configuration (default --root-dir; "+instance.DefaultRootDir+" under the name kubelet with "+config.KubeletRootDir+")")
	fs.StringVar(&c.ImageDir, "image-dir", "", "`directory` of image archives to import (default images in --runtime-root-dir)")
	bindValidation(fs, &c.Validation, "what happens to unknown and duplicate fields of manifests: the pod is rejected, runs with a warning, or runs; under the name kubelet warn, else")
	fs.StringVar(&c.ContainerLogsDir, "container-logs-dir", instance.DefaultContainerLogsDir, "`directory` of links to the containers' logs, for log shippers")
}

func bindValidation(fs *pflag.FlagSet, v *manifest.Validation, usage string) {
	*v = manifest.Strict
	fs.Var(v, flagValidation, usage)
}

const flagValidation = "manifest-validation"

// resolveDirs resolves the directories and defaults --runtime-root-dir. The runtime does not
// use the kubelet's root directory: kubeadm reset empties it.
func resolveDirs(cfg *config.Config, own *node.Config, asKubelet bool) error {
	runtimeRoot := cmp.Or(own.RuntimeRootDir, cfg.RootDir)
	if own.RuntimeRootDir == "" && asKubelet && cfg.RootDir == config.KubeletRootDir {
		runtimeRoot = instance.DefaultRootDir
	}
	dirs, err := instance.Resolve(cfg.RootDir, cfg.StateDir)
	if err != nil {
		return err
	}
	runtime, err := instance.ResolveRuntime(runtimeRoot, cfg.StateDir)
	if err != nil {
		return err
	}
	cfg.RootDir, cfg.StateDir, own.RuntimeRootDir = dirs.Root, dirs.State, runtime.Root
	return absolutePaths(&own.RuntimeDir, &own.ImageDir, &own.ContainerLogsDir, &cfg.API.CertFile, &cfg.API.KeyFile, &cfg.API.ClientCAFile)
}

// absolutePaths makes the paths of flags absolute before the daemon leaves its working
// directory.
func absolutePaths(paths ...*string) error {
	for _, path := range paths {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("make %s absolute: %w", *path, err)
		}
		*path = abs
	}
	return nil
}

// newRunCmd returns "podd run", which is all of podd under the name kubelet.
func newRunCmd(asKubelet bool) *cobra.Command {
	var kubelet config.Flags
	var own node.Config
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the pods of this machine",
		Long: `Run the pods of the manifest directory and the manifest URL, and keep them running.
The flags are the kubelet's; --config is a KubeletConfiguration (see podd config
--explain).

Without --container-runtime-endpoint podd uses its bundled containerd: it adopts
a running one, or starts it. Stopping podd stops neither pods nor runtime; the next
podd run adopts them.`,
		Example: `  # standalone: manifests in /etc/podd/manifests, http://127.0.0.1:10255/metrics
  podd run

  # with a kubelet's configuration and another runtime
  podd run --config /var/lib/kubelet/config.yaml \
    --container-runtime-endpoint unix:///run/containerd/containerd.sock

  # a second, independent instance
  podd run --config two.yaml --root-dir /srv/podd2 --state-dir /run/podd2 \
    --bridge podd2 --pod-cidr 10.99.0.0/16`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := kubelet.Load()
			if err != nil {
				return err
			}
			own.AsKubelet = asKubelet
			if err := resolveDirs(cfg, &own, asKubelet); err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				return errors.New("running pods needs root: use sudo, or the systemd service podd")
			}
			inherited := resetInherited()
			restoreChildHangups()
			if err := chdirRoot(); err != nil {
				return err
			}
			log, setVerbosity := newLogger(cfg, os.Stderr)
			for _, w := range cfg.Warnings {
				log.Warn(w)
			}
			logInherited(log, inherited)
			limitHeap()
			lowerOOMScore(cfg.OOMScoreAdj, log)
			disableCoreDumps(log)
			own.Kubelet, own.Version, own.Log = cfg, thisVersion(), log
			own.Flags, own.SetVerbosity = func() map[string]string { return config.FlagValues(cmd.Flags()) }, setVerbosity
			own.ImportProgress, own.ImportLog = cli.ImportProgress(os.Stderr, log)
			n, err := node.New(own)
			if err != nil {
				return err
			}
			go returnMemory(cmd.Context(), log)
			return n.Run(cmd.Context())
		},
	}
	kubelet.Bind(cmd.Flags())
	if asKubelet {
		kubelet.BindKubelet(cmd.Flags())
	}
	bindNode(cmd.Flags(), &own)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &cli.ExitError{Code: cli.ExitUsage, Err: config.FlagError(cmd.Flags(), err)}
	})
	return cmd
}
