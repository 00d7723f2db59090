package testnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
)

// Snapshot is what exists on a node, by kind, each thing as a line that a
// person can act on.
type Snapshot map[string][]string

// The kinds of things that a pod may leave behind.
const (
	KindSandbox   = "sandbox"
	KindContainer = "container"
	KindSnapshot  = "snapshot"
	KindNetNS     = "network namespace"
	KindLink      = "network link"
	KindLease     = "address"
	KindMount     = "mount"
	KindCgroup    = "cgroup"
	KindRule      = "packet filter"
	KindProcess   = "process"
	KindPath      = "path"
)

// Scope says where to look.
type Scope struct {
	Place *Place
	// CRI is asked for sandboxes and containers; nil when there is no runtime.
	CRI *CRI
	// LeaseDir is host-local's directory.
	LeaseDir string
	// Mine are the process IDs that belong to the harness (containerd, podd).
	Mine []int
	// Ports knows what has been on the place's bridge; nil where nobody watched.
	Ports *ports
	// Paths are directories whose entries count, to a depth of one.
	Paths []string
	// LogRemovals is podd's directory of checkpoints of logs to be removed; empty for none.
	LogRemovals string
	// Logs is where pods' logs are: one that is in no such checkpoint would stay for ever.
	Logs string
}

// logsStay is how long podd keeps the logs of a gone pod for those who ship them.
const logsStay = time.Minute

// looks finds the things of each kind, cheapest first: a few directories before the
// runtime's lists, and all processes and the packet filter, which takes three commands, last.
var looks = []struct {
	kind string
	at   func(Scope, context.Context) ([]string, error)
}{
	{KindPath, Scope.paths},
	{KindLease, Scope.leases},
	{KindSandbox, Scope.sandboxes},
	{KindContainer, Scope.containers},
	{KindSnapshot, Scope.snapshots},
	{KindMount, Scope.mounts},
	{KindLink, Scope.links},
	{KindNetNS, Scope.namespaces},
	{KindCgroup, Scope.cgroups},
	{KindProcess, Scope.processes},
	{KindRule, Scope.rules},
}

// Take looks at everything; what cannot be looked at is an error, never silence.
func (s Scope) Take(ctx context.Context) (Snapshot, error) {
	snap := Snapshot{}
	var errs []error
	for _, look := range looks {
		lines, err := look.at(s, ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("look for every %s: %w", look.kind, err))
		}
		sort.Strings(lines)
		snap[look.kind] = lines
	}
	return snap, errors.Join(errs...)
}

// AwaitNothingLeft looks every interval until nothing is there that was not before, or ctx
// ends; the error then lists all that is left. While something of one kind is left, it does
// not look at the kinds after it: that would slow down the teardown that it waits for.
func (s Scope) AwaitNothingLeft(ctx context.Context, before Snapshot, interval time.Duration) error {
	err := Poll(ctx, interval, func() error {
		for _, look := range looks {
			lines, err := look.at(s, ctx)
			if err != nil {
				return fmt.Errorf("look for every %s: %w", look.kind, err)
			}
			if left := Left(before, Snapshot{look.kind: lines}); len(left) > 0 {
				return fmt.Errorf("left, of kind %s: %d", look.kind, len(left))
			}
		}
		return nil
	})
	if err == nil {
		return nil
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	after, err2 := s.Take(late)
	return fmt.Errorf("%w:\n\t%s", errors.Join(err, err2), strings.Join(Left(before, after), "\n\t"))
}

// Left returns what is in after and was not in before, as lines "kind: thing",
// sorted.
func Left(before, after Snapshot) []string {
	var left []string
	for kind, lines := range after {
		was := map[string]int{} // one more of the same is left too: a mount on a mount
		for _, line := range before[kind] {
			was[line]++
		}
		for _, line := range lines {
			if was[line]--; was[line] < 0 {
				left = append(left, kind+": "+line)
			}
		}
	}
	sort.Strings(left)
	return left
}

func (s Scope) sandboxes(ctx context.Context) ([]string, error) {
	if s.CRI == nil {
		return nil, nil
	}
	boxes, err := s.CRI.Sandboxes(ctx)
	var lines []string
	for _, box := range boxes {
		// Without the state: a line must stay the same while the thing does.
		lines = append(lines, fmt.Sprintf("%s of pod %s/%s (uid %s)", box.Id, box.Metadata.GetNamespace(), box.Metadata.GetName(), box.Metadata.GetUid()))
	}
	return lines, err
}

func (s Scope) containers(ctx context.Context) ([]string, error) {
	if s.CRI == nil {
		return nil, nil
	}
	list, err := s.CRI.Containers(ctx)
	var lines []string
	for _, c := range list {
		lines = append(lines, fmt.Sprintf("%s (%s, attempt %d) of pod %s", c.Id, c.Metadata.GetName(), c.Metadata.GetAttempt(), c.Labels["io.kubernetes.pod.name"]))
	}
	return lines, err
}

// snapshots are the writable layers of containers. The runtime removes those of a
// container that is gone in its own time.
func (s Scope) snapshots(ctx context.Context) ([]string, error) {
	if s.CRI == nil {
		return nil, nil
	}
	return s.CRI.Snapshots(ctx)
}

// namespaces finds bind-mounted network namespaces: those below the place, and
// those of the shared directory in which an address of the place's subnet is.
func (s Scope) namespaces(context.Context) ([]string, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.FSType != "nsfs", false })
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, m := range mounts {
		if within(m.Mountpoint, s.Place.Dir) {
			lines = append(lines, m.Mountpoint)
		} else if s.addressesOf(m.Mountpoint) {
			lines = append(lines, m.Mountpoint+" (has an address of "+s.Place.Subnet.String()+")")
		}
	}
	return lines, nil
}

// addressesOf says whether an interface in the network namespace at path has
// an address of the place's subnet.
func (s Scope) addressesOf(path string) bool {
	handle, err := openNetNS(path)
	if err != nil {
		return false // gone meanwhile, or no network namespace
	}
	defer handle.Close()
	addrs, err := handle.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if addr, ok := addrOf(a.IP); ok && s.Place.Subnet.Contains(addr) {
			return true
		}
	}
	return false
}

// links are the ports of the place's bridge, which itself is the node's, and what
// was one and is on no bridge any more.
func (s Scope) links(context.Context) ([]string, error) {
	port := -1 // of no bridge
	bridge, err := netlink.LinkByName(s.Place.Bridge)
	if err == nil {
		port = bridge.Attrs().Index
	} else if !errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, err
	}
	all, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	var lines []string
	for _, l := range all {
		if l.Attrs().MasterIndex == port {
			lines = append(lines, fmt.Sprintf("%s %s on bridge %s", l.Type(), l.Attrs().Name, s.Place.Bridge))
		}
	}
	if s.Ports != nil {
		fallen, err := s.Ports.fallen(all)
		for _, name := range fallen {
			lines = append(lines, fmt.Sprintf("%s, which was on bridge %s and is on none", name, s.Place.Bridge))
		}
		return lines, err
	}
	return lines, nil
}

func (s Scope) leases(context.Context) ([]string, error) {
	var lines []string
	err := filepath.WalkDir(s.LeaseDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "lock" || strings.HasPrefix(d.Name(), "last_reserved_ip") {
			return ignoreGone(err)
		}
		owner, _ := os.ReadFile(path)
		lines = append(lines, fmt.Sprintf("%s given to %.12s", d.Name(), owner))
		return nil
	})
	return lines, err
}

func (s Scope) mounts(context.Context) ([]string, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !within(m.Mountpoint, s.Place.Dir) || m.FSType == "nsfs", false
	})
	var lines []string
	for _, m := range mounts {
		lines = append(lines, fmt.Sprintf("%s on %s", m.FSType, m.Mountpoint))
	}
	return lines, err
}

// cgroups are the directories of pods below the place's root in every
// hierarchy; the root and the classes (kubepods, burstable …) are the node's.
func (s Scope) cgroups(context.Context) ([]string, error) {
	roots, err := cgroupHierarchies()
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, root := range roots {
		top := filepath.Join(root, s.Place.CgroupRoot)
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return ignoreGone(err)
			}
			if rel := strings.TrimPrefix(path, root); !nodeCgroup(strings.TrimPrefix(path, top)) {
				found[rel] = append(found[rel], filepath.Base(root))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var lines []string
	for path, controllers := range found {
		// Not the list itself: hierarchies go one after the other.
		lines = append(lines, fmt.Sprintf("%s (in %s …)", path, controllers[0]))
	}
	return lines, nil
}

// nodeCgroup says whether a path below the root is one of the classes.
func nodeCgroup(path string) bool {
	return slices.Contains([]string{"", "/kubepods", "/kubepods/burstable", "/kubepods/besteffort"}, path)
}

// processes are those in the place's cgroups, those whose command line names the
// place (the shims), and what the harness's own have begun and not ended, wherever
// it is; without the harness's own.
func (s Scope) processes(context.Context) ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	mine := append([]int{os.Getpid(), os.Getppid()}, s.Mine...)
	var lines []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || slices.Contains(mine, pid) {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(cmdline) == 0 {
			continue // gone, or a kernel thread
		}
		command := strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))
		groups, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if strings.Contains(string(groups), ":"+s.Place.CgroupRoot+"/") || s.shim(command) || s.begun(pid) {
			lines = append(lines, fmt.Sprintf("%d %.120s", pid, command))
		}
	}
	return lines, nil
}

// begun says whether one of the harness's own processes is the parent. What is not
// running has the process ID 0, which is the parent of init.
func (s Scope) begun(pid int) bool {
	parent := ParentOf(pid)
	return parent != 0 && slices.Contains(s.Mine, parent)
}

// ParentOf is 0 for a process that is gone.
func ParentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// proc_pid_stat(5): the name, in brackets, may hold anything; the parent is the
	// second field after it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return parent
}

func (s Scope) shim(command string) bool {
	return strings.Contains(command, "containerd-shim") && strings.Contains(command, s.Place.Dir+"/")
}

func (s Scope) paths(context.Context) ([]string, error) {
	var lines []string
	for _, dir := range s.Paths {
		entries, err := os.ReadDir(dir)
		if ignoreGone(err) != nil {
			return nil, err
		}
		for _, e := range entries {
			lines = append(lines, filepath.Join(dir, e.Name()))
		}
	}
	notes, err := filepath.Glob(filepath.Join(cniCache, s.Place.Bridge+"-*"))
	overdue, err2 := s.overdue()
	forgotten, err3 := s.forgotten()
	return slices.Concat(lines, notes, overdue, forgotten), errors.Join(err, err2, err3)
}

// forgotten are the directories of logs that nothing says are to be removed: those of pods
// that are there, and those that stay.
func (s Scope) forgotten() (lines []string, err error) {
	if s.Logs == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(s.Logs)
	if ignoreGone(err) != nil {
		return nil, err
	}
	for _, e := range entries {
		uid := e.Name()[strings.LastIndexByte(e.Name(), '_')+1:]
		if _, err := os.Stat(filepath.Join(s.LogRemovals, uid+".json")); errors.Is(err, fs.ErrNotExist) {
			if _, err := os.Stat(filepath.Join(s.Logs, e.Name())); err == nil { // and it has not just gone
				lines = append(lines, "logs that nobody is to remove: "+filepath.Join(s.Logs, e.Name()))
			}
		}
	}
	return lines, nil
}

// overdue are the checkpoints of logs that podd should have removed by now, or will
// not within the time that it keeps them.
func (s Scope) overdue() ([]string, error) {
	if s.LogRemovals == "" {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(s.LogRemovals, "*"))
	var lines []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var checkpoint struct{ Due time.Time }
		if err := errors.Join(err, json.Unmarshal(text, &checkpoint)); err != nil {
			lines = append(lines, fmt.Sprintf("%s: %v", file, err))
		} else if wait := time.Until(checkpoint.Due); wait < 0 || wait > logsStay {
			lines = append(lines, fmt.Sprintf("%s, due %v", file, checkpoint.Due))
		}
	}
	return lines, err
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// ignoreGone forgives what went away between the listing and the look.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
