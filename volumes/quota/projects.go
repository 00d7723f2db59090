package quota

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// firstID is the lowest project ID that podd assigns, and numIDs how many there are.
	// They are far from those that administrators choose and that upstream starts with
	// (1048577) and, like upstream's, fit into 31 bits.
	firstID = 0x70000000
	numIDs  = 1 << 20
	// maxTries bounds the search for a free ID.
	maxTries = 1 << 14
)

// errUnsupported says that the file system has no project quotas.
var errUnsupported = errors.New("no project quotas")

// attributes are the file attributes of a directory that matter here.
type attributes struct {
	project  uint32 // 0: none
	inherits bool   // new entries inherit the project
}

// projectUsage is the usage that a file system accounts for a project, and whether the project
// has a limit.
type projectUsage struct {
	bytes, inodes int64
	limited       bool
}

// kernel has the system calls; they return errUnsupported without project quotas.
type kernel interface {
	attributes(dir *os.File) (attributes, error)
	setProject(dir *os.File, id uint32) error
	usage(dir *os.File, id uint32) (projectUsage, error)
}

// Projects assigns projects to directories. All methods are safe for concurrent use;
// they block as long as the file system takes.
type Projects struct {
	kernel          kernel
	reservedIDFiles []string // with projects of others
	log             *slog.Logger

	mu   sync.Mutex // held while an ID is chosen and assigned
	next uint32     // where the search continues, relative to firstID; guarded by mu
}

// New makes no system call yet. A nil *Projects assigns nothing and knows no usage.
func New(log *slog.Logger) *Projects {
	return &Projects{kernel: linux{}, reservedIDFiles: []string{"/etc/projects", "/etc/projid"}, log: log}
}

// Assign assigns a project of its own to a directory, which must be empty. A directory
// that already has a project, even an inherited one, keeps it. Without project quotas it
// does nothing. A failure is only logged, because usage can also be measured by a walk.
func (p *Projects) Assign(dir string) {
	if p == nil {
		return
	}
	if err := p.assign(dir); err != nil && !errors.Is(err, errUnsupported) {
		p.log.Warn("cannot assign a project quota to a volume: its usage is measured by walking it", "path", dir, "error", err)
	}
}

func (p *Projects) assign(path string) error {
	dir, err := open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	has, err := p.kernel.attributes(dir)
	if err != nil || has.project != 0 {
		return err
	}
	taken, err := p.reservedIDs()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range maxTries {
		id := firstID + p.next
		p.next = (p.next + 1) % numIDs
		if taken[id] {
			continue
		}
		n, err := p.kernel.usage(dir, id)
		if err != nil {
			return fmt.Errorf("ask for the quota of project %d: %w", id, err)
		}
		if n == (projectUsage{}) {
			return p.kernel.setProject(dir, id) // from now on its inode count is not 0
		}
	}
	return fmt.Errorf("the next %d project IDs from %d on are all in use", maxTries, firstID)
}

// Used returns the disk usage of a directory and its content, in bytes of whole blocks and
// in inodes. known is false if Assign has not assigned a project to it, or the kernel
// cannot tell: then the caller must walk the tree.
func (p *Projects) Used(dir string) (bytes, inodes int64, known bool) {
	if p == nil {
		return 0, 0, false
	}
	n, err := p.used(dir)
	switch {
	case err == nil:
		return n.bytes, n.inodes, true
	case !errors.Is(err, errUnsupported) && !errors.Is(err, fs.ErrNotExist):
		p.log.Debug("cannot get the project quota of a volume: walking it", "path", dir, "error", err)
	}
	return 0, 0, false
}

func (p *Projects) used(path string) (projectUsage, error) {
	dir, err := open(path)
	if err != nil {
		return projectUsage{}, err
	}
	defer dir.Close()
	has, err := p.kernel.attributes(dir)
	if err != nil {
		return projectUsage{}, err
	}
	if !has.inherits || has.project < firstID || has.project >= firstID+numIDs {
		return projectUsage{}, errUnsupported
	}
	above, err := open(filepath.Dir(path))
	if err != nil {
		return projectUsage{}, err
	}
	defer above.Close()
	if parent, err := p.kernel.attributes(above); err != nil || parent.project == has.project {
		return projectUsage{}, errors.Join(errUnsupported, err) // the project is not this directory's alone
	}
	return p.kernel.usage(dir, has.project)
}

// open opens a directory without following a link.
func open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
