package testnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Node is a place with a runtime in it.
type Node struct {
	*Place
	Bundle     Bundle
	Containerd *Containerd
	CRI        *CRI
	ports      *ports
	unwatch    context.CancelFunc
}

// NewNode claims a place below base, sweeps what an earlier holder left there,
// starts containerd and imports the bundle's images. When it fails nothing
// stays behind.
func NewNode(ctx context.Context, base string, bundle Bundle) (node *Node, err error) {
	if err := bundle.Check(); err != nil {
		return nil, err
	}
	place, err := Claim(base)
	if err != nil {
		return nil, err
	}
	n := &Node{Place: place, Bundle: bundle}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if err := n.Sweep(); err != nil {
		return nil, fmt.Errorf("sweep what an earlier test node left: %w", err)
	}
	watch, unwatch := context.WithCancel(context.Background())
	n.unwatch = unwatch
	if n.ports, err = watchPorts(watch, place.Bridge); err != nil {
		return nil, err
	}
	if n.Containerd, err = NewContainerd(ctx, place, bundle); err != nil {
		return nil, err
	}
	if n.CRI, err = DialCRI(n.Containerd.Endpoint()); err != nil {
		return nil, err
	}
	if err := n.Containerd.Start(ctx); err != nil {
		return nil, err
	}
	if err := n.Containerd.ImportAll(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// Close removes every pod, stops containerd, sweeps and gives the place back.
// It uses no caller's context: it must work after a cancellation.
func (n *Node) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var errs []error
	if n.unwatch != nil {
		n.unwatch()
	}
	if n.Containerd != nil && n.Containerd.Pid() != 0 {
		errs = append(errs, n.Containerd.Signal(unix.SIGCONT), n.CRI.RemoveAll(ctx), n.Containerd.Signal(unix.SIGTERM))
	}
	if n.CRI != nil {
		errs = append(errs, n.CRI.Close())
	}
	errs = append(errs, n.Sweep(), n.Release())
	return errors.Join(errs...)
}

// Scope looks at this node; the process IDs are podd's or other of the
// harness's, the paths those whose entries must not stay.
func (n *Node) Scope(mine []int, paths ...string) Scope {
	if pid := n.Containerd.Pid(); pid != 0 {
		mine = append(mine, pid)
	}
	state := filepath.Join(n.State(), "containerd")
	root := filepath.Join(n.Root(), "containerd")
	return Scope{
		Place: n.Place, CRI: n.CRI, LeaseDir: n.Containerd.LeaseDir(), Mine: mine, Ports: n.ports,
		Paths: append(paths,
			filepath.Join(state, "io.containerd.runtime.v2.task", "k8s.io"),
			filepath.Join(state, "io.containerd.grpc.v1.cri", "sandboxes"),
			filepath.Join(state, "io.containerd.grpc.v1.cri", "containers"),
			filepath.Join(root, "io.containerd.grpc.v1.cri", "sandboxes"),
			filepath.Join(root, "io.containerd.grpc.v1.cri", "containers"),
			filepath.Join(n.State(), "s"),
			filepath.Join(n.State(), "runc", "k8s.io"),
		),
	}
}

// PowerOff leaves of the place what a power cut leaves of a machine: the files
// on disk. Processes, mounts, network, cgroups and what lies in the state
// directory (below /run on a real machine) are gone. podd must not run.
func (p *Place) PowerOff() error {
	err := errors.Join(p.KillAll(), p.unmountAll(), p.removeLinks(), p.removeCgroups(), p.removeRules(), p.removeNFT())
	if err != nil {
		return err
	}
	if err := os.RemoveAll(p.State()); err != nil {
		return fmt.Errorf("clear the state directory: %w", err)
	}
	return nil
}

// Sweep kills, unmounts and removes whatever is left in the place, for a
// holder that was killed. It is the last resort of the harness and no part of
// any assertion.
func (p *Place) Sweep() error {
	var errs []error
	errs = append(errs, p.KillAll(), p.unmountAll(), p.removeLinks(), p.removeCgroups(), p.removeRules(), p.removeNFT(), p.removeCache())
	if err := errors.Join(errs...); err != nil {
		return err // a mount may still be there: remove nothing below it
	}
	if err := os.RemoveAll(p.Dir); err != nil {
		return fmt.Errorf("remove %s: %w", p.Dir, err)
	}
	return nil
}

// KillAll kills the processes of the place (podd, runtime, shims, containers), by
// process ID, until none is left, which may take 20 s.
func (p *Place) KillAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return Poll(ctx, 20*time.Millisecond, func() error {
		pids, err := p.pids()
		if err != nil {
			return Stop(err)
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if len(pids) > 0 {
			return fmt.Errorf("processes %v do not end", pids)
		}
		return nil
	})
}

// upstreams are upstream's programs, whose names may end in a version.
var upstreams = regexp.MustCompile(`/(kubelet|apiserver|controllermanager|scheduler|metricsserver|prometheus|ginkgo|e2e\.test)[^/]*$`)

// pids are those of the place's cgroups and those whose command line names its
// directory, this process and its parents excepted.
func (p *Place) pids() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || pid == os.Getppid() {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		groups, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		argv0, _, _ := strings.Cut(string(cmdline), "\x00")
		runs := strings.Contains(argv0, "containerd") || strings.HasSuffix(argv0, "podd") || upstreams.MatchString(argv0)
		if strings.Contains(string(groups), ":"+p.CgroupRoot+"/") || runs && strings.Contains(string(cmdline), p.Dir+"/") {
			if state, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat")); err == nil && !strings.Contains(string(state), ") Z ") {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

func (p *Place) unmountAll() error {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return !within(m.Mountpoint, p.Dir), false })
	if err != nil {
		return fmt.Errorf("read the mount table: %w", err)
	}
	var errs []error
	for i := len(mounts) - 1; i >= 0; i-- { // youngest first
		if err := unix.Unmount(mounts[i].Mountpoint, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", mounts[i].Mountpoint, err))
		}
	}
	return errors.Join(errs...)
}

func (p *Place) removeLinks() error {
	bridge, err := netlink.LinkByName(p.Bridge)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for bridge %s: %w", p.Bridge, err)
	}
	if err := netlink.LinkDel(bridge); err != nil {
		return fmt.Errorf("remove bridge %s: %w", p.Bridge, err)
	}
	return nil
}

func (p *Place) removeCgroups() error {
	roots, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range roots {
		errs = append(errs, removeCgroup(filepath.Join(root, p.CgroupRoot)))
	}
	return errors.Join(errs...)
}

// removeCgroup removes a tree of cgroups, children first; a killed process may
// take a moment to leave.
func removeCgroup(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return ignoreGone(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = Poll(ctx, 10*time.Millisecond, func() error { return ignoreGone(os.Remove(path)) })
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	return nil
}

// MakeCgroupRoot makes the place's root in every hierarchy, for agents that
// expect it. A controller that needs to be set up first (cpuset of v1 clones
// its parent's) is left to the agent.
func (p *Place) MakeCgroupRoot() error {
	roots, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := os.MkdirAll(filepath.Join(root, p.CgroupRoot), 0o755); err != nil {
			return fmt.Errorf("make the cgroup root: %w", err)
		}
	}
	return nil
}

// cniCache is where libcni notes what it attached, for the whole machine, named
// after the network.
const cniCache = "/var/lib/cni/results"

func (p *Place) removeCache() error {
	notes, err := filepath.Glob(filepath.Join(cniCache, p.Bridge+"-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, note := range notes {
		errs = append(errs, ignoreGone(os.Remove(note)))
	}
	return errors.Join(errs...)
}
