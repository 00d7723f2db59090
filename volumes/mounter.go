package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/podfs"
)

// Options are what a Mounter needs to know of the node.
type Options struct {
	// RootDir is podd's --root-dir; it is made when missing and may be, or lie
	// behind, a symbolic link.
	RootDir string
	// NodeMemory bounds a tmpfs without any other limit, in bytes; 0 means the
	// machine's memory.
	NodeMemory int64
	// RecursiveReadOnly says that the runtime can make submounts read-only too.
	RecursiveReadOnly bool
	// Objects and Downward have what volumes with values are made of; nil for none.
	Objects  Objects
	Downward Downward
	// CSI has the volumes of CSI drivers; nil for a podd that none registers with.
	CSI CSI
	// Claims has what claims are bound to; nil for none.
	Claims Claims
	// Projects counts what is in emptyDirs of pods with hostUsers: false; nil does not.
	Projects Projects
	// Events tells of volumes that cannot be brought up to date, of changes of
	// ownership that take long, and of pending unmounts; nil tells nobody.
	Events Events
	// Waker is told when a set-up that a pod waits for has ended; it may be nil.
	Waker Waker
}

// Waker wakes a pod. It must not block.
type Waker interface{ Wake(uid pod.UID) }

// Mounter sets volumes up and tears them down.
type Mounter struct {
	options  Options
	dirs     podfs.Dirs // its root is resolved
	kinds    []kind
	log      *slog.Logger
	metrics  *metrics
	poke     chan struct{} // capacity 1: an unmount is pending
	places   chan struct{} // of set-ups at work
	owner    *owner
	unmounts *unmounts

	mu       sync.Mutex // guards what follows
	locks    map[lockKey]*podLock
	setUps   map[pod.UID]*setUp                     // under way, or ended and not told
	working  map[lockKey]*setUp                     // those that have that lock, given up or not
	ready    map[pod.UID]map[string]string          // volume name → plugin, what this Mounter has set up
	bound    map[pod.UID]map[string]pod.BoundVolume // of those that are ready, where they have a claim
	released map[pod.UID]bool                       // by Release: they use nothing any more
	ending   map[pod.UID]bool                       // by Stopping: their volumes follow nothing any more
	live     map[pod.UID]*livePod
	pods     map[pod.UID]*v1.Pod // that were set up or followed, for events
	pending  map[pod.UID]*PendingUnmount
	stopping bool // Run has ended: volumes follow nothing any more
}

// New makes the root directory if it is missing and resolves it. It starts
// nothing; Run retries what TearDown could not finish, and its end gives up the
// set-ups under way.
func New(o Options, log *slog.Logger, reg prometheus.Registerer) (*Mounter, error) {
	if err := os.MkdirAll(o.RootDir, 0o750); err != nil {
		return nil, fmt.Errorf("make the root directory: %w", err)
	}
	root, err := filepath.Abs(o.RootDir)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, fmt.Errorf("resolve the root directory: %w", err)
	}
	dirs := podfs.Dirs{Root: root}
	if err := os.MkdirAll(dirs.Pods(), 0o750); err != nil {
		return nil, fmt.Errorf("make the pods directory: %w", err)
	}
	if o.NodeMemory == 0 {
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			return nil, fmt.Errorf("determine the machine's memory: %w", err)
		}
		o.NodeMemory = int64(info.Totalram) * int64(info.Unit)
	}
	if o.Objects == nil {
		o.Objects = noObjects{}
	}
	if o.CSI == nil {
		o.CSI = noCSI{}
	}
	if o.Claims == nil {
		o.Claims = noClaims{}
	}
	m := &Mounter{
		options:  o,
		dirs:     dirs,
		kinds:    kinds(o),
		log:      log,
		poke:     make(chan struct{}, 1),
		places:   make(chan struct{}, parallelSetUps),
		owner:    newOwner(o.Events),
		unmounts: newUnmounts(),
		locks:    map[lockKey]*podLock{},
		setUps:   map[pod.UID]*setUp{},
		working:  map[lockKey]*setUp{},
		ready:    map[pod.UID]map[string]string{},
		bound:    map[pod.UID]map[string]pod.BoundVolume{},
		released: map[pod.UID]bool{},
		ending:   map[pod.UID]bool{},
		live:     map[pod.UID]*livePod{},
		pods:     map[pod.UID]*v1.Pod{},
		pending:  map[pod.UID]*PendingUnmount{},
	}
	m.metrics = newMetrics(reg, m.counts)
	return m, nil
}

// Pods lists the UIDs that have something on disk, wanted or not, in no
// particular order. Those that nobody wants go to TearDown.
func (m *Mounter) Pods() ([]pod.UID, error) { return podsBelow(m.dirs.Pods()) }

// Pods is Mounter.Pods of a root directory that has no Mounter yet, and perhaps no
// pods.
func Pods(rootDir string) ([]pod.UID, error) {
	uids, err := podsBelow((podfs.Dirs{Root: rootDir}).Pods())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return uids, err
}

func podsBelow(dir string) ([]pod.UID, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the pods directory: %w", err)
	}
	uids := make([]pod.UID, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() {
			uids = append(uids, pod.UID(e.Name()))
		}
	}
	return uids, nil
}

// safeName refuses what would lead somewhere else as a component of a path.
// Validation has refused it long before; a mistake there must not delete files.
func safeName(what, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%s %q cannot be the name of a directory", what, name)
	}
	return nil
}
