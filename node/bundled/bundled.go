// Package bundled combines the bundled container runtime (bundle) with its pod network (cni).
// "podd runtime" executes it, "podd run" starts it, and "podd runtime stop" stops it.
package bundled

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"podd/bundle"
	"podd/cgroup"
	"podd/cni"
	"podd/internal/instance"
)

// Runtime identifies the bundled runtime of an instance. Its fields are the flags of "podd
// runtime".
type Runtime struct {
	// StateDir and RootDir are podd's; RootDir differs under the name kubelet. BinDir has the
	// runtime's binaries; if empty, bundle.Find finds them. ConfigDir need not exist.
	RootDir, StateDir, BinDir, ConfigDir string
	// PodCIDR is the range of pods' addresses. If empty, it is the one that the cluster gives
	// to this node, or without a cluster cni.DefaultPodCIDR. Bridge is the name of the pods'
	// network.
	PodCIDR, Bridge string
	// SandboxImage is the image of the containers that hold pods' namespaces. LogLevel is
	// containerd's log level.
	SandboxImage, LogLevel string
}

// Args returns the flags that make "podd runtime" run this runtime.
func (r *Runtime) Args() []string {
	return []string{
		"--root-dir=" + r.RootDir, "--state-dir=" + r.StateDir, "--runtime-dir=" + r.BinDir, "--runtime-config-dir=" + r.ConfigDir,
		"--pod-cidr=" + r.PodCIDR, "--bridge=" + r.Bridge, "--sandbox-image=" + r.SandboxImage, "--log-level=" + r.LogLevel,
	}
}

// cniConfDir returns the runtime's directory of network configurations. Each root directory has
// its own, so that an administrator's configuration survives a boot.
func (r *Runtime) cniConfDir() string { return filepath.Join(r.RootDir, "cni/net.d") }

// assignedCIDRFile returns the file that records the podCIDR that a cluster gave to this node.
// It is in the directory that holds everything podd stores about a cluster. podd removes that
// directory when it leaves the cluster.
func (r *Runtime) assignedCIDRFile() string { return filepath.Join(r.RootDir, "cluster/pod-cidr") }

// Network returns the default pod network, with the plugins in binDir.
func (r *Runtime) Network(binDir string, log *slog.Logger) (*cni.Network, error) {
	var cidr netip.Prefix
	if r.PodCIDR != "" {
		var err error
		if cidr, err = netip.ParsePrefix(r.PodCIDR); err != nil {
			return nil, fmt.Errorf("--pod-cidr %q is not a network such as %s", r.PodCIDR, cni.DefaultPodCIDR)
		}
	}
	return cni.New(cni.Config{
		Bridge: r.Bridge, Owner: r.RootDir, PodCIDR: cidr, AssignedFile: r.assignedCIDRFile(),
		BinDirs:  []string{binDir, "/opt/cni/bin"},
		ConfDir:  r.cniConfDir(),
		LeaseDir: filepath.Join(r.StateDir, "cni/leases"),
		NetNSDir: bundle.NetNSDir(r.StateDir),
	}, log)
}

// Prepare resolves and claims the directories, writes all files that the runtime reads, and
// returns its settings.
func (r *Runtime) Prepare(ctx context.Context, log *slog.Logger) (*bundle.Settings, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("the container runtime needs root: run it with sudo, or as the systemd service podd-runtime")
	}
	dirs, err := instance.Resolve(r.RootDir, r.StateDir)
	if err != nil {
		return nil, err
	}
	r.RootDir, r.StateDir = dirs.Root, dirs.State
	binDir, err := bundle.Find(r.BinDir)
	if err != nil {
		return nil, err
	}
	facts, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	settings := &bundle.Settings{
		BinDir: binDir, RootDir: r.RootDir, StateDir: r.StateDir, ConfigDir: r.ConfigDir,
		CNIConfDir: r.cniConfDir(), SandboxImage: r.SandboxImage, LogLevel: r.LogLevel,
		SystemdCgroup: facts.Driver == cgroup.Systemd, LowerOOMScore: bundle.MayLowerOOMScore(),
	}
	_, settings.BoundHugePages = facts.Controllers["hugetlb"]
	network, err := r.Network(binDir, log)
	if err != nil {
		return nil, err
	}
	if err := settings.MakeDirs(); err != nil {
		return nil, err
	}
	// Claim before writing anything that a running runtime would read.
	if err := instance.AcquireRuntime(instance.RuntimeRecord{Dirs: dirs, Bridge: r.Bridge, PodCIDR: r.PodCIDR}); err != nil {
		return nil, err
	}
	if err := settings.ClearTemp(ctx); err != nil {
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
	cidr := cmp.Or(r.PodCIDR, "the cluster's, or the default one")
	log.Info("starting containerd", "config", path, "bin", binDir, "cgroups", facts.Version, "cgroup_driver", facts.Driver,
		"lower_oom_score", settings.LowerOOMScore, "pod_cidr", cidr, "bridge", r.Bridge)
	return settings, nil
}
