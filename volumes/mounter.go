package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Options are what a Mounter needs to know of the node.
type Options struct {
	// RootDir is podd's --root-dir; it is made when missing and may be, or lie
	// behind, a symbolic link.
	RootDir string
	// NodeMemory bounds a tmpfs without any other limit, in bytes; 0 means the
	// machine's memory.
	NodeMemory int64
	// RecursiveReadOnly says whether the runtime can make submounts read-only
	// too. Asked at each Mounts; nil means that it cannot.
	RecursiveReadOnly func() bool
	// Variables are those of a container of a pod that has its sandbox, which a
	// subPathExpr may name; nil only for a Mounter that mounts nothing into
	// containers. It is called with the pod's lock held, and may call Path.
	Variables func(p *v1.Pod, c *v1.Container) (map[string]string, error)
}

// Mounter sets volumes up and tears them down.
type Mounter struct {
	options Options
	pods    string // <resolved root>/pods
	kinds   []kind
	log     *slog.Logger
	metrics *metrics
	poke    chan struct{} // capacity 1: a debt was made

	mu    sync.Mutex
	locks map[pod.UID]*podLock
	ready map[pod.UID]map[string]string // volume name → plugin, what this Mounter has set up
	owed  map[pod.UID]*Debt
}

// podLock serialises the calls for one pod; it goes with its last user.
type podLock struct {
	sync.Mutex
	users int
}

// New makes the root directory if it is missing and resolves it. It starts
// nothing; Run retries what TearDown could not finish.
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
	pods := filepath.Join(root, "pods")
	if err := os.MkdirAll(pods, 0o750); err != nil {
		return nil, fmt.Errorf("make the pods directory: %w", err)
	}
	if o.NodeMemory == 0 {
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			return nil, fmt.Errorf("ask for the machine's memory: %w", err)
		}
		o.NodeMemory = int64(info.Totalram) * int64(info.Unit)
	}
	m := &Mounter{
		options: o,
		pods:    pods,
		kinds: []kind{
			&emptyDir{nodeMemory: o.NodeMemory},
			hostPath{},
		},
		log:   log,
		poke:  make(chan struct{}, 1),
		locks: map[pod.UID]*podLock{},
		ready: map[pod.UID]map[string]string{},
		owed:  map[pod.UID]*Debt{},
	}
	m.metrics = newMetrics(reg, m.counts)
	return m, nil
}

// PodDir is <root-dir>/pods/<uid>, the root resolved. It need not exist.
func (m *Mounter) PodDir(uid pod.UID) string { return m.podDir(uid) }

func (m *Mounter) podDir(uid pod.UID) string { return m.pods + "/" + string(uid) }

// lock takes the pod's lock and returns what gives it back.
func (m *Mounter) lock(uid pod.UID) func() {
	m.mu.Lock()
	l := m.locks[uid]
	if l == nil {
		l = &podLock{}
		m.locks[uid] = l
	}
	l.users++
	m.mu.Unlock()

	l.Lock()
	return func() {
		l.Unlock()
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(m.locks, uid)
		}
	}
}

// SetUp makes every volume of the pod exist, and the pod's directory. Calling
// it again is cheap and changes nothing. Errors are *pod.ReasonError with
// FailedMount; they say which volume and why, all of them at once, and trying
// again later is right. A pod that comes back while TearDown still owes the end
// of its last life waits for it: an emptyDir begins empty.
func (m *Mounter) SetUp(ctx context.Context, p *v1.Pod) error {
	uid := p.UID
	if err := safeName("pod UID", string(uid)); err != nil {
		return pod.WithReason("FailedMount", err)
	}
	defer m.lock(uid)()
	if err := m.payDebt(ctx, uid); err != nil {
		return pod.WithReason("FailedMount", err)
	}
	for _, dir := range []string{m.podDir(uid), m.podDir(uid) + "/containers"} {
		if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return pod.WithReason("FailedMount", fmt.Errorf("make the pod's directory: %w", err))
		}
	}
	var errs []error
	for i := range p.Spec.Volumes {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := m.setUpOne(ctx, p, &p.Spec.Volumes[i]); err != nil {
			errs = append(errs, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", p.Spec.Volumes[i].Name, err))
		}
	}
	return pod.WithReason("FailedMount", errors.Join(errs...))
}

func (m *Mounter) setUpOne(ctx context.Context, p *v1.Pod, v *v1.Volume) error {
	if err := safeName("volume name", v.Name); err != nil {
		return err
	}
	k := m.kindOf(v)
	if k == nil {
		return fmt.Errorf("podd has no volumes of kind %s yet: only emptyDir and hostPath", sourceName(&v.VolumeSource))
	}
	again := m.isReady(p.UID, v.Name)
	start := time.Now()
	err := k.setUp(ctx, m.targetFor(p, v, k, again))
	if !again || err != nil {
		m.metrics.observe(k.plugin(), "volume_mount", start, err)
	}
	if err != nil {
		return err
	}
	if !again {
		m.markReady(p.UID, v.Name, k.plugin())
	}
	return nil
}

func (m *Mounter) isReady(uid pod.UID, volume string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.ready[uid][volume]
	return ok
}

func (m *Mounter) markReady(uid pod.UID, volume, plugin string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ready[uid] == nil {
		m.ready[uid] = map[string]string{}
	}
	m.ready[uid][volume] = plugin
}

// Pods lists the UIDs that have something on disk, wanted or not, in no
// particular order. Those that nobody wants go to TearDown.
func (m *Mounter) Pods() ([]pod.UID, error) {
	entries, err := os.ReadDir(m.pods)
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
