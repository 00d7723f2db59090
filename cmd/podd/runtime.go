package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"podd/bundle"
	"podd/cgroup"
	"podd/cni"
	"podd/internal/places"
)

// Places of podd's own; the flags --root-dir and --state-dir change the first two.
const (
	defaultRootDir   = "/var/lib/podd"
	defaultStateDir  = "/run/podd"
	defaultConfigDir = "/etc/podd"
)

// runtimeFlags are what "podd runtime" takes, and what "podd run" hands on to
// the runtime that it starts.
type runtimeFlags struct {
	rootDir, stateDir, runtimeDir, configDir string
	podCIDR, bridge                          string
	sandboxImage, logLevel                   string
}

func (f *runtimeFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.rootDir, "root-dir", defaultRootDir, "directory for what survives a boot: images, snapshots, containerd's database")
	cmd.Flags().StringVar(&f.stateDir, "state-dir", defaultStateDir, "directory for what a boot may forget; the socket is containerd.sock in it")
	cmd.Flags().StringVar(&f.runtimeDir, "runtime-dir", "", "directory of the runtime's binaries (default $"+bundle.EnvDir+", or found near podd)")
	cmd.Flags().StringVar(&f.configDir, "runtime-config-dir", defaultConfigDir, "directory of containerd.d/*.toml and certs.d, which need not exist")
	cmd.Flags().StringVar(&f.podCIDR, "pod-cidr", cni.DefaultPodCIDR, "addresses of pods in the default network")
	cmd.Flags().StringVar(&f.bridge, "bridge", cni.DefaultBridge, "bridge and name of the default network, unique on this machine")
	cmd.Flags().StringVar(&f.sandboxImage, "sandbox-image", bundle.PauseImage, "image that holds a pod's namespaces")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "warn", "containerd's: debug, info, warn or error")
}

// args are the flags again, for a child.
func (f *runtimeFlags) args() []string {
	return []string{
		"--root-dir=" + f.rootDir, "--state-dir=" + f.stateDir, "--runtime-dir=" + f.runtimeDir, "--runtime-config-dir=" + f.configDir,
		"--pod-cidr=" + f.podCIDR, "--bridge=" + f.bridge, "--sandbox-image=" + f.sandboxImage, "--log-level=" + f.logLevel,
	}
}

// cniConfDir is the runtime's directory of network configurations: one for each
// root directory, so that an administrator's own survives a boot.
func (f *runtimeFlags) cniConfDir() string { return filepath.Join(f.rootDir, "cni/net.d") }

// network is the default pod network that goes with these flags.
func (f *runtimeFlags) network(binDir string, log *slog.Logger) (*cni.Network, error) {
	cidr, err := netip.ParsePrefix(f.podCIDR)
	if err != nil {
		return nil, fmt.Errorf("--pod-cidr %q is not a network such as %s", f.podCIDR, cni.DefaultPodCIDR)
	}
	return cni.New(cni.Config{
		Bridge: f.bridge, Owner: f.rootDir, PodCIDR: cidr,
		BinDirs:  []string{binDir, "/opt/cni/bin"},
		ConfDir:  f.cniConfDir(),
		LeaseDir: filepath.Join(f.stateDir, "cni/leases"),
		NetNSDir: bundle.NetNSDir(f.stateDir),
	}, log)
}

// prepare takes the directories, writes everything that the runtime reads, and
// returns its settings.
func (f *runtimeFlags) prepare(ctx context.Context, log *slog.Logger) (*bundle.Settings, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("the container runtime needs root: run it with sudo, or as the systemd service podd-runtime")
	}
	dirs, err := places.Resolve(f.rootDir, f.stateDir)
	if err != nil {
		return nil, err
	}
	f.rootDir, f.stateDir = dirs.Root, dirs.State
	binDir, err := bundle.Find(f.runtimeDir)
	if err != nil {
		return nil, err
	}
	facts, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	settings := &bundle.Settings{
		BinDir: binDir, RootDir: f.rootDir, StateDir: f.stateDir, ConfigDir: f.configDir,
		CNIConfDir: f.cniConfDir(), SandboxImage: f.sandboxImage, LogLevel: f.logLevel,
		SystemdCgroup: facts.Driver == cgroup.Systemd, LowerOOMScore: bundle.MayLowerOOMScore(),
	}
	_, settings.BoundHugePages = facts.Controllers["hugetlb"]
	network, err := f.network(binDir, log)
	if err != nil {
		return nil, err
	}
	if err := settings.MakeDirs(); err != nil {
		return nil, err
	}
	// Before anything is written that a running one would read.
	if err := places.ClaimRuntime(places.Runtime{Dirs: dirs, Bridge: f.bridge, PodCIDR: f.podCIDR}); err != nil {
		return nil, err
	}
	path, remark, err := settings.WriteConfig()
	if err != nil {
		return nil, err
	}
	if remark != "" {
		log.Warn("container runtime: " + remark)
	}
	if err := network.SetUp(ctx); err != nil {
		return nil, err
	}
	log.Info("starting containerd", "config", path, "bin", binDir, "cgroups", facts.Version, "cgroup_driver", facts.Driver,
		"lower_oom_score", settings.LowerOOMScore, "pod_cidr", f.podCIDR, "bridge", f.bridge)
	return settings, nil
}

// newRuntimeCmd is "podd runtime".
func newRuntimeCmd() *cobra.Command {
	flags := &runtimeFlags{}
	cmd := &cobra.Command{
		Use:   "runtime",
		Short: "Run the bundled container runtime",
		Long: `Run the bundled container runtime: write containerd's configuration and the
default pod network for this machine, then become containerd.

"podd run" starts this by itself when no runtime is configured and none is
running, and adopts one that is. Run it on its own (as podd-runtime.service does)
to start and stop podd and the runtime apart. Pods go on running either way.`,
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
			settings, err := flags.prepare(cmd.Context(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
			if err != nil {
				return err
			}
			return settings.Exec()
		},
	}
	flags.register(cmd)
	cmd.AddCommand(newRuntimeStopCmd())
	return cmd
}
