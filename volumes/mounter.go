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

	"podd/internal/features"
	"podd/internal/keylock"
	"podd/internal/pod"
	"podd/internal/selinux"
	"podd/internal/slots"
	"podd/internal/wake"
	"podd/podfs"
)

// Options configures a Mounter.
type Options struct {
	// RootDir is podd's --root-dir. It is created if missing, and its path may contain
	// symbolic links.
	RootDir string
	// NodeMemory bounds a tmpfs without any other limit, in bytes; 0 means the
	// machine's memory.
	NodeMemory int64
	// RecursiveReadOnly says that the runtime supports recursive read-only mounts.
	RecursiveReadOnly bool
	// Objects and Downward provide the content of live volumes; nil for none.
	Objects  Objects
	Downward Downward
	// Tokens provides service account tokens, or is NoTokens.
	Tokens Tokens
	// TrustBundles provides ClusterTrustBundles, or is NoTrustBundles.
	TrustBundles TrustBundles
	// PodCertificates provides keys and certificates of pods, or is NoPodCertificates.
	PodCertificates PodCertificates
	// Features are the feature gates. They decide about emptyDir.mode and owners of files.
	Features features.Set
	// SELinux are the node's labels; nil on a node without SELinux.
	SELinux *selinux.Labels
	// CSI sets up CSI volumes; nil if no driver can register.
	CSI CSI
	// Claims resolves claims to PersistentVolumes; nil for none.
	Claims Claims
	// Projects assigns project quotas to emptyDirs of pods with hostUsers: false; may be
	// nil.
	Projects Projects
	// Events reports volumes that cannot be updated, slow changes of ownership, and
	// pending unmounts; may be nil.
	Events Events
	// Waker is called when a setup that a pod waits for has ended; may be nil.
	Waker Waker
}

// Waker wakes a pod. It must not block.
type Waker interface{ Wake(uid pod.UID) }

// Mounter sets volumes up and tears them down.
type Mounter struct {
	options     Options
	dirs        podfs.Dirs // its root is resolved
	kinds       []kind
	log         *slog.Logger
	metrics     *metrics
	poke        wake.Signal   // an unmount is pending
	slots       *slots.Slots  // bound the setups in progress
	threads     chan struct{} // bound the volumes being set up that may block, including hung ones
	fsGroups    *fsGroupApplier
	unmounter   *unmounter
	probeServer func(point string) (answer <-chan error) // probeServer, except in tests

	locks keylock.Locks[lockKey]

	mu          sync.Mutex              // guards what follows
	pods        map[pod.UID]*podVolumes // of the pods that are known
	lockHolders map[lockKey]*podSetUp   // the setups that hold that lock, including abandoned ones
	stopping    bool                    // Run has ended: volumes are no longer updated
}

// New creates the root directory if it is missing and resolves it. It starts
// nothing; Run retries what TearDown could not finish, and cancels the setups in
// progress when it ends.
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
		options:     o,
		dirs:        dirs,
		kinds:       kinds(o),
		log:         log,
		poke:        wake.New(),
		slots:       slots.New(parallelSetUps, slots.Unlimited, longSetUp),
		threads:     make(chan struct{}, maxThreads),
		fsGroups:    newFSGroupApplier(o.Events),
		unmounter:   newUnmounts(),
		probeServer: probeServer,
		pods:        map[pod.UID]*podVolumes{},
		lockHolders: map[lockKey]*podSetUp{},
	}
	m.metrics = newMetrics(reg, m.counts)
	return m, nil
}

// Pods lists the UIDs of the pods that have something on disk, desired or orphaned, in no
// particular order. The caller tears down the orphaned ones.
func (m *Mounter) Pods() ([]pod.UID, error) { return podsBelow(m.dirs.Pods()) }

// Pods is Mounter.Pods for a root directory without a Mounter. It may not have a pods
// directory yet.
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

// safeName rejects names that are not a single path component. Validation has done so
// long before; a bug there must not delete files.
func safeName(what, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%s %q cannot be the name of a directory", what, name)
	}
	return nil
}
