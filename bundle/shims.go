package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"podd/internal/wipe"
)

// CollectedShims counts what CollectShims removed.
type CollectedShims struct {
	// Shims that lived without a container.
	Shims int
	// Containers that runc knew and containerd did not.
	Containers int
	// Directories of containers (bundles) and CRI's of containers and sandboxes,
	// with what was mounted in them.
	Directories int
	// Sockets that nobody listened on.
	Sockets int
}

// Any says whether anything was removed.
func (c CollectedShims) Any() bool { return c != CollectedShims{} }

// Record is what containerd knows about a container or sandbox.
type Record struct {
	// Known says that a record names it: whoever made it will delete it.
	Known bool
	// Task says that containerd knows about a process, or about a shim that will make one.
	Task bool
	// EndedInCRI says that CRI considers the container ended, or that it is Unlisted. In
	// either case CRI no longer looks after it. It is also true for a sandbox that is still
	// being made.
	EndedInCRI bool
	// Unlisted says that CRI has never heard of it or has forgotten it.
	Unlisted bool
	// Sandbox is the sandbox with the shim that looks after a container; empty for a
	// sandbox.
	Sandbox string
}

// managed says whether somebody looks after the object, or containerd can still end it.
func (r Record) managed() bool { return r.Task || r.Known && !r.EndedInCRI }

// unowned says that no call can be creating the object. The record is made first and
// deleted last. A failed StartContainer makes CRI consider the container ended as its last
// step; a sandbox is in that state while it is being created.
func (r Record) unowned() bool {
	return !r.Known || r.Sandbox != "" && r.EndedInCRI && !r.Unlisted
}

// LeftoverCriteria distinguishes what broken-off calls left from what calls are creating.
type LeftoverCriteria struct {
	// Before is the time before which anything is a leftover: older calls are over.
	Before time.Time
	// UnownedBefore is the same for what no call can be creating according to containerd's
	// records, and for sockets. It is never earlier than Before.
	UnownedBefore time.Time
	// RuntimeBegan is when the runtime's process began. The runtime is not creating
	// anything older that CRI does not list.
	RuntimeBegan time.Time
	// Running are IDs that need no query.
	Running map[string]bool
}

// mayBeLeftover says whether something that began at that time may be a leftover: it is one if
// it is unowned.
func (r LeftoverCriteria) mayBeLeftover(id string, began time.Time) bool {
	return !r.Running[id] && (began.Before(r.Before) || began.Before(r.UnownedBefore))
}

// isLeftover says whether something with that record that began at that time is a leftover.
func (r LeftoverCriteria) isLeftover(began time.Time, record Record) bool {
	return began.Before(r.Before) || record.unowned() && began.Before(r.UnownedBefore)
}

// Runtime answers for containerd. Without an answer, nothing is touched.
type Runtime interface {
	// Record returns what is known about an ID in one of containerd's namespaces (podd's is
	// k8s.io).
	Record(ctx context.Context, namespace, id string) (Record, error)
	// Delete kills a container's processes, waits for their end, and deletes the task. If
	// CRI does not know the container, it deletes the records too.
	Delete(ctx context.Context, namespace, id string) error
}

// CollectShims removes what broken-off calls left of containers. When a client dies,
// containerd kills "shim start" at once. It thereby loses the shim that may have been
// started already: a process, its socket, sometimes a container with its directory, mounts
// and cgroup. Or containerd forgets the task that a shim is making, or keeps it although
// CRI has already given it up, and "runc init" waits for ever in the pod's cgroup. Or CRI
// cannot load a container when containerd is started, for example because the disk is full,
// and never mentions it again. Nothing else collects these.
//
// A record is made before a shim is started and deleted after it has ended, so a shim
// without a record belongs to nobody. A container that runc knows has a task in containerd,
// and CRI does not consider it ended, except for the moments in which it is made and
// deleted. The socket identifies the shims of another containerd.
//
// Errors do not stop the rest. It blocks for a few milliseconds when there is nothing to
// do, and up to 10 s for a shim or container. Do not call it concurrently. It uses BinDir,
// RootDir and StateDir of Settings.
func (s *Settings) CollectShims(ctx context.Context, runtime Runtime, criteria LeftoverCriteria) (CollectedShims, error) {
	c := &shimCollection{s: s, proc: "/proc", runtime: runtime, criteria: criteria}
	// Shims first: they hold the rest. CRI's directories after what runs in them.
	err := errors.Join(c.killLeakedShims(ctx), c.deleteLeakedContainers(ctx), c.removeBundles(ctx), c.collectUnlisted(ctx), c.removeDeadSockets(ctx))
	return c.done, err
}

// shimCollection is one run of CollectShims.
type shimCollection struct {
	s        *Settings
	proc     string
	runtime  Runtime
	criteria LeftoverCriteria
	done     CollectedShims
}

func (c *shimCollection) record(ctx context.Context, namespace, id string) (Record, error) {
	r, err := c.runtime.Record(ctx, namespace, id)
	if err != nil {
		return r, fmt.Errorf("ask containerd for %s: %w", id, err)
	}
	return r, nil
}

// shim is what a shim's command line contains.
type shim struct {
	pid           int
	namespace, id string
}

// killLeakedShims ends shims without a record.
func (c *shimCollection) killLeakedShims(ctx context.Context) error {
	entries, err := os.ReadDir(c.proc)
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		found, ok := c.shimOf(pid)
		if !ok || c.criteria.Running[found.id] {
			continue
		}
		errs = append(errs, c.endShim(ctx, found))
	}
	return errors.Join(errs...)
}

// shimOf reads a process's command line; ok says that it is a shim that serves this
// containerd. The command lines of "shim start" and "shim delete", which containerd waits
// for, end with that word.
func (c *shimCollection) shimOf(pid int) (found shim, ok bool) {
	text, err := os.ReadFile(filepath.Join(c.proc, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return shim{}, false
	}
	args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
	if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim-") {
		return shim{}, false
	}
	found, address := shim{pid: pid}, ""
	for i := 1; i < len(args); i++ {
		name := strings.TrimLeft(args[i], "-")
		switch {
		case name == "start" || name == "delete":
			return shim{}, false
		case i+1 == len(args):
		case name == "namespace":
			found.namespace, i = args[i+1], i+1
		case name == "id":
			found.id, i = args[i+1], i+1
		case name == "address":
			address, i = args[i+1], i+1
		}
	}
	return found, address == Socket(c.s.StateDir) && found.namespace != "" && found.id != ""
}

// endShim kills a shim without a record. It cannot end in an orderly way any more: whoever
// would have asked for that is gone.
func (c *shimCollection) endShim(ctx context.Context, found shim) error {
	// Open the process before checking it: the handle then refers to this process, and not
	// to a later one with the same number.
	p, err := watchProcess(found.pid)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch shim (process %d): %w", found.pid, err)
	}
	defer p.close()
	if again, ok := c.shimOf(found.pid); !ok || again != found || !c.criteria.mayBeLeftover(found.id, p.began) {
		return nil
	}
	if r, err := c.record(ctx, found.namespace, found.id); err != nil || r.managed() || !c.criteria.isLeftover(p.began, r) {
		return err
	}
	if err := p.kill(); err != nil {
		return fmt.Errorf("stop shim of lost container %s (process %d): %w", found.id, found.pid, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("it does not exit"))
	defer cancel()
	if err := p.wait(ctx); err != nil {
		return fmt.Errorf("stop shim of lost container %s (process %d): %w", found.id, found.pid, err)
	}
	c.done.Shims++
	return nil
}

// deleteLeakedContainers deletes the containers that runc knows and that nobody looks after.
func (c *shimCollection) deleteLeakedContainers(ctx context.Context) error {
	return c.forEachLeftover(ctx, filepath.Join(c.s.StateDir, "runc"), func(namespace, id, dir string, r Record) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		var err error
		switch {
		case !r.Task:
			err = c.deleteTaskless(ctx, namespace, id, dir, r)
		case !r.EndedInCRI:
			return nil
		}
		if err == nil && (r.Known || r.Task) && r.EndedInCRI {
			err = c.runtime.Delete(ctx, namespace, id)
		}
		if err != nil {
			return fmt.Errorf("delete lost container %s: %w", id, err)
		}
		c.done.Containers++
		return nil
	})
}

// deleteTaskless makes runc delete what it knows: processes, cgroup, its own state. The
// shim that made the container must then forget it, or the shim would never end.
func (c *shimCollection) deleteTaskless(ctx context.Context, namespace, id, dir string, r Record) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.s.BinDir, "runc"), "--root", filepath.Dir(dir), "delete", "--force", id)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("runc: %w: %s", err, bytes.TrimSpace(out))
	}
	// runc does not complain about a container that it never got to record.
	if err := wipe.Tree(ctx, filepath.Dir(dir), id); err != nil {
		return err
	}
	if r.Sandbox == "" {
		return nil // its shim is gone, or knew but this one
	}
	// containerd has removed the directory already, and the shim's runc needs it for its
	// log.
	bundle := filepath.Join(c.s.StateDir, taskPlugin, namespace, id)
	if err := os.Mkdir(bundle, 0o700); err == nil {
		defer os.RemoveAll(bundle)
	}
	if err := deleteTaskFromShim(ctx, c.s.shimSocket(namespace, r.Sandbox), namespace, id); err != nil {
		return fmt.Errorf("delete it from its shim: %w", err)
	}
	return nil
}

// removeDeadSockets removes the sockets that nobody listens on; their names are hashes. A shim that
// ends by itself removes its own, and "shim start" listens as soon as it has made one. So a
// socket that refuses connections belongs to nobody, whatever the records say.
func (c *shimCollection) removeDeadSockets(ctx context.Context) error {
	dir := c.s.shimDir()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list sockets of shims: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&os.ModeSocket == 0 || !info.ModTime().Before(c.criteria.UnownedBefore) || !refuses(ctx, path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove socket of a shim that is gone: %w", err))
			continue
		}
		c.done.Sockets++
	}
	return errors.Join(errs...)
}

// refuses says whether nothing listens on a socket.
func refuses(ctx context.Context, path string) bool {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// unmountBelow unmounts everything at or below a directory, the last first, so that nothing
// is deleted across a mount.
func unmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("read the mount table: %w", err)
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		if err := unix.Unmount(mounts[i].Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return &fs.PathError{Op: "unmount", Path: mounts[i].Mountpoint, Err: err}
		}
	}
	return nil
}
