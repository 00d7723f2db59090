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
	// first is the lowest project ID that podd gives, and ids how many there are. They
	// are far from those that people choose and that upstream starts with (1048577),
	// and, as its own, positive numbers of 32 bits.
	first = 0x70000000
	ids   = 1 << 20
	// mostTried bounds the search for an ID that nobody uses.
	mostTried = 1 << 14
)

// errNone is a file system without project quotas.
var errNone = errors.New("no project quotas")

// attributes are those of a directory that matter here.
type attributes struct {
	project  uint32 // 0 is every file's without one
	inherits bool   // what is made in it gets its project
}

// count is what a file system counts for a project, and whether it has a limit.
type count struct {
	bytes, inodes int64
	limited       bool
}

// kernel is what the kernel is asked; errors are errNone where it has no such thing.
type kernel interface {
	attributes(dir *os.File) (attributes, error)
	setProject(dir *os.File, id uint32) error
	count(dir *os.File, id uint32) (count, error)
}

// Projects gives directories projects. All methods are safe for concurrent use; they
// block as long as the file system takes.
type Projects struct {
	kernel kernel
	files  []string // that name projects of others
	log    *slog.Logger

	mu   sync.Mutex // of two searches each finds another ID
	next uint32     // where the search goes on, from first; guarded by mu
}

// New asks nothing yet. Nil is a *Projects that gives and knows none.
func New(log *slog.Logger) *Projects {
	return &Projects{kernel: linux{}, files: []string{"/etc/projects", "/etc/projid"}, log: log}
}

// Assign gives a directory, which must be empty, a project of its own. It keeps the one
// that it has, and leaves alone what is in a project of somebody's. Where there are no
// project quotas it does nothing; where it fails that is logged: what has no project is
// measured in another way.
func (p *Projects) Assign(dir string) {
	if p == nil {
		return
	}
	if err := p.assign(dir); err != nil && !errors.Is(err, errNone) {
		p.log.Warn("cannot have the file system count what a volume takes: it will be walked", "path", dir, "error", err)
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
	taken, err := p.named()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range mostTried {
		id := first + p.next
		p.next = (p.next + 1) % ids
		if taken[id] {
			continue
		}
		n, err := p.kernel.count(dir, id)
		if err != nil {
			return fmt.Errorf("ask for the quota of project %d: %w", id, err)
		}
		if n == (count{}) {
			return p.kernel.setProject(dir, id) // from now on its count is not 0
		}
	}
	return fmt.Errorf("the next %d project IDs from %d on are all in use", mostTried, first)
}

// Used is what a directory and all that was made in it take of the file system, in
// bytes of whole blocks and in inodes. known is false where it has no project of its
// own from Assign, or the kernel no number: then its tree tells.
func (p *Projects) Used(dir string) (bytes, inodes int64, known bool) {
	if p == nil {
		return 0, 0, false
	}
	n, err := p.used(dir)
	switch {
	case err == nil:
		return n.bytes, n.inodes, true
	case !errors.Is(err, errNone) && !errors.Is(err, fs.ErrNotExist):
		p.log.Debug("the file system does not say what a volume takes: it is walked", "path", dir, "error", err)
	}
	return 0, 0, false
}

func (p *Projects) used(path string) (count, error) {
	dir, err := open(path)
	if err != nil {
		return count{}, err
	}
	defer dir.Close()
	has, err := p.kernel.attributes(dir)
	if err != nil {
		return count{}, err
	}
	if !has.inherits || has.project < first || has.project >= first+ids {
		return count{}, errNone
	}
	above, err := open(filepath.Dir(path))
	if err != nil {
		return count{}, err
	}
	defer above.Close()
	if parent, err := p.kernel.attributes(above); err != nil || parent.project == has.project {
		return count{}, errors.Join(errNone, err) // not of this directory alone
	}
	return p.kernel.count(dir, has.project)
}

// open opens a directory, and nothing that a link leads to.
func open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
