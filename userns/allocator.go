package userns

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"podd/internal/pod"
	"podd/podfs"
)

// DefaultLength is the kubelet's default of userNamespaces.idsPerPod. Every other length
// must be a multiple of it.
const DefaultLength = 1 << 16

// Range is Length IDs from First on, of users and of groups.
type Range struct{ First, Length uint32 }

func (r Range) end() uint64 { return uint64(r.First) + uint64(r.Length) }

func (r Range) overlaps(o Range) bool {
	return uint64(r.First) < o.end() && uint64(o.First) < r.end()
}

// usable is false for a range with the ID 4294967295, which stands for none: the kernel accepts no
// mapping of it, so that nothing starts in such a range. Upstream's range of the node has it, too.
func (r Range) usable() bool { return r.end() <= math.MaxUint32 }

// Config configures an Allocator.
type Config struct {
	// Dirs has the pods' directories.
	Dirs podfs.Dirs
	// Length of the range of a pod (userNamespaces.idsPerPod); 0 is DefaultLength.
	Length uint32
	// Node is the range of the node's IDs that pods may use; the zero Range is all but
	// the first Length IDs, as in the kubelet.
	Node Range
	Log  *slog.Logger
}

// Allocator allocates ranges to pods. Create it with New.
type Allocator struct {
	dirs   podfs.Dirs
	length uint32
	node   Range
	log    *slog.Logger

	mu         sync.Mutex
	byPod      map[pod.UID]Range // guarded by mu
	unreadable map[string]error  // records that cannot be read; guarded by mu
	nextSlot   uint32            // the slot to try first; guarded by mu
}

// New reads the records of the existing pods. It fails if the configuration violates
// upstream's rules, or if the pods' directories cannot be listed.
func New(cfg Config) (*Allocator, error) {
	a := &Allocator{
		dirs: cfg.Dirs, length: cfg.Length, node: cfg.Node, log: cfg.Log,
		byPod: map[pod.UID]Range{}, unreadable: map[string]error{},
	}
	if a.length == 0 {
		a.length = DefaultLength
	}
	if a.node == (Range{}) {
		// All but the first range, rounded down to whole ranges.
		a.node = Range{First: a.length, Length: uint32((uint64(math.MaxUint32)+1)/uint64(a.length)-1) * a.length}
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(a.dirs.Pods())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the pods' directories: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if _, err := a.loadLocked(pod.UID(e.Name())); err != nil {
			a.log.Warn("cannot read a pod's user namespace: no other pod gets one until it can be read", "uid", e.Name(), "error", err)
		}
	}
	return a, nil
}

// check applies upstream's rules to the range of the node.
func (a *Allocator) check() error {
	switch {
	case a.length%DefaultLength != 0:
		return fmt.Errorf("user namespaces of %d IDs: must be a multiple of %d", a.length, DefaultLength)
	case a.node.First < a.length:
		return fmt.Errorf("user namespaces from ID %d: the first %d IDs are reserved for the node", a.node.First, a.length)
	case a.node.First%a.length != 0, a.node.Length%a.length != 0:
		return fmt.Errorf("user namespaces in the %d IDs from %d: both must be multiples of %d", a.node.Length, a.node.First, a.length)
	case a.node.Length == 0, !(Range{a.node.First, a.length}).usable():
		return errors.New("user namespaces: the node has no IDs for them")
	}
	return nil
}

// GetOrAllocate returns the pod's range, and allocates one if it has none; its record is
// written when GetOrAllocate returns. It creates the pod's directory if it does not exist.
func (a *Allocator) GetOrAllocate(uid pod.UID) (Range, error) {
	if !filepath.IsLocal(string(uid)) || filepath.Base(string(uid)) != string(uid) {
		return Range{}, fmt.Errorf("user namespace: %q is not a pod UID", uid)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known, held := a.byPod[uid]
	r, err := a.loadLocked(uid)
	switch {
	case err != nil:
		return Range{}, fmt.Errorf("user namespace: %w", err)
	case r != Range{}:
		return r, nil
	case held:
		r = known // its directory was removed and created again
	default:
		if r, err = a.freeLocked(); err != nil {
			return Range{}, fmt.Errorf("create user namespace: %w", err)
		}
	}
	if err := writeRecord(a.recordPath(uid), r); err != nil {
		return Range{}, fmt.Errorf("create user namespace: %w", err)
	}
	a.byPod[uid] = r
	return r, nil
}

// loadLocked reads a pod's record; the zero Range if it has none.
func (a *Allocator) loadLocked(uid pod.UID) (Range, error) {
	file := a.recordPath(uid)
	r, err := readRecord(file)
	if !r.usable() {
		r = Range{} // of an older podd: nothing has started in it, and the pod gets another
	}
	if err == nil && r != (Range{}) {
		for other, held := range a.byPod {
			if other != uid && held.overlaps(r) {
				err = fmt.Errorf("%s: its IDs are also those of pod %s", file, other)
			}
		}
	}
	if err != nil {
		a.unreadable[file] = err
		return Range{}, err
	}
	delete(a.unreadable, file)
	if r != (Range{}) {
		a.byPod[uid] = r
	}
	return r, nil
}

// freeLocked finds a free range, starting after the last one found.
func (a *Allocator) freeLocked() (Range, error) {
	for file := range a.unreadable {
		if _, err := a.loadLocked(pod.UID(filepath.Base(filepath.Dir(file)))); err != nil {
			return Range{}, fmt.Errorf("another pod's record must be fixed or removed first: %w", err)
		}
	}
	for uid := range a.byPod {
		if _, err := os.Lstat(a.recordPath(uid)); errors.Is(err, fs.ErrNotExist) {
			delete(a.byPod, uid)
		}
	}
	slots := a.node.Length / a.length
	taken := slices.Collect(maps.Values(a.byPod))
	for i := range slots {
		slot := (a.nextSlot + i) % slots
		r := Range{First: a.node.First + slot*a.length, Length: a.length}
		if r.usable() && !slices.ContainsFunc(taken, r.overlaps) {
			a.nextSlot = (slot + 1) % slots
			return r, nil
		}
	}
	return Range{}, errors.New("could not find an empty slot to allocate a user namespace") // upstream's words
}

func (a *Allocator) recordPath(uid pod.UID) string {
	return a.dirs.UserNamespace(uid)
}
