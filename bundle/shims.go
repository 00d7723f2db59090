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

// CollectedShims counts what CollectShims took away.
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

// Any says whether there was anything.
func (c CollectedShims) Any() bool { return c != CollectedShims{} }

// Record is what containerd knows of a container or sandbox.
type Record struct {
	// Known: there is a record, so somebody has made it and will delete it.
	Known bool
	// Task: containerd knows of a process, or of a shim that is to make one.
	Task bool
	// GivenUp: CRI takes the container for ended, or it is Unlisted, and so CRI
	// looks after it no more. Of a sandbox that is just being made that is true too.
	GivenUp bool
	// Unlisted: CRI has never heard of it or has forgotten it.
	Unlisted bool
	// Sandbox is whose shim looks after a container; empty for a sandbox.
	Sandbox string
}

// tended says whether somebody looks after it, or containerd can still end it.
func (r Record) tended() bool { return r.Task || r.Known && !r.GivenUp }

// unowned says that no call can be creating it. The record is made first and deleted
// last, and CRI takes a container for ended as the last thing that a failed
// StartContainer does; for a sandbox it does so while it is being created.
func (r Record) unowned() bool {
	return !r.Known || r.Sandbox != "" && r.GivenUp && !r.Unlisted
}

// Remains tells what calls that broke off left from what calls are creating.
type Remains struct {
	// Before is by when a call that began earlier is over: what is older is left.
	Before time.Time
	// UnownedBefore is the same for what no call can be creating according to
	// containerd's records, and for sockets; never earlier than Before.
	UnownedBefore time.Time
	// RuntimeBegan is when the runtime's process began: what is older and CRI does not
	// list is nothing that it is creating.
	RuntimeBegan time.Time
	// Running are IDs that need not be asked for.
	Running map[string]bool
}

// may says whether something that began at a time is left, if it is unowned.
func (r Remains) may(id string, began time.Time) bool {
	return !r.Running[id] && (began.Before(r.Before) || began.Before(r.UnownedBefore))
}

// are says the same of something whose record is known.
func (r Remains) are(began time.Time, record Record) bool {
	return began.Before(r.Before) || record.unowned() && began.Before(r.UnownedBefore)
}

// Runtime answers for containerd. Of what there is no answer for, nothing is
// touched.
type Runtime interface {
	// Record is what is known of an ID in a namespace of containerd's (podd's is
	// k8s.io).
	Record(ctx context.Context, namespace, id string) (Record, error)
	// Delete kills a container's processes, waits for their end, and deletes
	// the task; of what CRI does not know it deletes the records too.
	Delete(ctx context.Context, namespace, id string) error
}

// CollectShims takes away what calls that broke off left of containers. When a
// client dies, containerd kills "shim start" at once, and with that loses the
// shim that it may have started already: a process, its socket, sometimes a
// container with its directory, mounts and cgroup. Or containerd forgets the
// task that a shim is making, or keeps it where CRI has already given it up, and
// "runc init" waits for ever in the pod's cgroup. Or CRI cannot load a container
// when containerd is started, for want of disk say, and never speaks of it again.
// Nothing else collects these.
//
// A record is made before a shim is started and deleted after it has ended, so
// that what has none is nobody's. A container that runc knows has a task in
// containerd, and is not over for CRI, but for the moments in which it is made
// and deleted. Shims of another containerd are told by its socket.
//
// Errors do not stop the rest. It blocks for a few milliseconds when there is
// nothing to do, and up to 10 s for a shim or container. Not to be called twice
// at once. Of Settings it uses BinDir, RootDir and StateDir.
func (s *Settings) CollectShims(ctx context.Context, runtime Runtime, remains Remains) (CollectedShims, error) {
	c := &shimCollection{s: s, proc: "/proc", runtime: runtime, remains: remains}
	// Shims first: they hold the rest. CRI's directories after what runs in them.
	err := errors.Join(c.shims(ctx), c.containers(ctx), c.bundles(ctx), c.unlisted(ctx), c.sockets(ctx))
	return c.done, err
}

// shimCollection is one run of CollectShims.
type shimCollection struct {
	s       *Settings
	proc    string
	runtime Runtime
	remains Remains
	done    CollectedShims
}

func (c *shimCollection) record(ctx context.Context, namespace, id string) (Record, error) {
	r, err := c.runtime.Record(ctx, namespace, id)
	if err != nil {
		return r, fmt.Errorf("ask containerd for %s: %w", id, err)
	}
	return r, nil
}

// shim is what a shim's command line says.
type shim struct {
	pid           int
	namespace, id string
}

// shims ends shims without a record.
func (c *shimCollection) shims(ctx context.Context) error {
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
		if !ok || c.remains.Running[found.id] {
			continue
		}
		errs = append(errs, c.endShim(ctx, found))
	}
	return errors.Join(errs...)
}

// shimOf reads a process's command line; ok for a shim that serves this
// containerd. "shim start" and "shim delete", which containerd waits for, end
// with that word.
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

// endShim kills a shim without a record. There is nothing that it could still
// do in an orderly way: who would have asked for it is gone.
func (c *shimCollection) endShim(ctx context.Context, found shim) error {
	// Held from before the look at what it is, so that it is this process that
	// is meant and not a later one of the same number.
	p, err := watchProcess(found.pid)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch shim (process %d): %w", found.pid, err)
	}
	defer p.close()
	if again, ok := c.shimOf(found.pid); !ok || again != found || !c.remains.may(found.id, p.began) {
		return nil
	}
	if r, err := c.record(ctx, found.namespace, found.id); err != nil || r.tended() || !c.remains.are(p.began, r) {
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

// containers deletes those that runc knows and that nobody looks after.
func (c *shimCollection) containers(ctx context.Context) error {
	return c.each(ctx, filepath.Join(c.s.StateDir, "runc"), func(namespace, id, dir string, r Record) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		var err error
		switch {
		case !r.Task:
			err = c.deleteTaskless(ctx, namespace, id, dir, r)
		case !r.GivenUp:
			return nil
		}
		if err == nil && (r.Known || r.Task) && r.GivenUp {
			err = c.runtime.Delete(ctx, namespace, id)
		}
		if err != nil {
			return fmt.Errorf("delete lost container %s: %w", id, err)
		}
		c.done.Containers++
		return nil
	})
}

// deleteTaskless has runc delete what it knows: processes, cgroup, its own note.
// The shim that made it then forgets it, or it would never end.
func (c *shimCollection) deleteTaskless(ctx context.Context, namespace, id, dir string, r Record) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.s.BinDir, "runc"), "--root", filepath.Dir(dir), "delete", "--force", id)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("runc: %w: %s", err, bytes.TrimSpace(out))
	}
	// runc is content with a container of which it never got to note anything.
	if err := wipe.Tree(ctx, filepath.Dir(dir), id); err != nil {
		return err
	}
	if r.Sandbox == "" {
		return nil // its shim is gone, or knew but this one
	}
	// containerd has removed the directory already, and the shim's runc wants to
	// log into it.
	bundle := filepath.Join(c.s.StateDir, taskPlugin, namespace, id)
	if err := os.Mkdir(bundle, 0o700); err == nil {
		defer os.RemoveAll(bundle)
	}
	if err := forget(ctx, c.s.shimSocket(namespace, r.Sandbox), namespace, id); err != nil {
		return fmt.Errorf("delete it from its shim: %w", err)
	}
	return nil
}

// sockets removes those that nobody listens on; their names are hashes. A shim
// that ends by itself removes its own, and "shim start" listens as soon as it has
// made one, so that a socket that refuses is nobody's, whatever the records say.
func (c *shimCollection) sockets(ctx context.Context) error {
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
		if err != nil || info.Mode()&os.ModeSocket == 0 || !info.ModTime().Before(c.remains.UnownedBefore) || !refuses(ctx, path) {
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

// unmountBelow unmounts what is mounted on a directory or below it, the last
// first, so that nothing is deleted across a mount.
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
