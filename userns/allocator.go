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

// DefaultLength is the kubelet's userNamespaces.idsPerPod: 65536, which is also
// what every other length must be a multiple of.
const DefaultLength = 1 << 16

// Range is First and the Length-1 IDs after it, of users as of groups.
type Range struct{ First, Length uint32 }

func (r Range) end() uint64 { return uint64(r.First) + uint64(r.Length) }

func (r Range) overlaps(o Range) bool {
	return uint64(r.First) < o.end() && uint64(o.First) < r.end()
}

// Config is what an Allocator needs.
type Config struct {
	// Dirs is where pods have their directories.
	Dirs podfs.Dirs
	// Length of a pod's range; 0 is DefaultLength (userNamespaces.idsPerPod).
	Length uint32
	// Node is what of the node's IDs may be used; the zero Range is all from the
	// first Length on, as in the kubelet.
	Node Range
	Log  *slog.Logger
}

// Allocator knows whose the ranges are. Make it with New.
type Allocator struct {
	dirs   podfs.Dirs
	length uint32
	node   Range
	log    *slog.Logger

	mu      sync.Mutex
	byPod   map[pod.UID]Range // guarded by mu
	broken  map[string]error  // records that cannot be read; guarded by mu
	nextOne uint32            // the slot to look at first; guarded by mu
}

// New reads the records of the pods that there are. Errors are of the
// configuration, in upstream's rules, or of a directory of pods that cannot be listed.
func New(cfg Config) (*Allocator, error) {
	a := &Allocator{
		dirs: cfg.Dirs, length: cfg.Length, node: cfg.Node, log: cfg.Log,
		byPod: map[pod.UID]Range{}, broken: map[string]error{},
	}
	if a.length == 0 {
		a.length = DefaultLength
	}
	if a.node == (Range{}) {
		// All but the first, cut so that it holds whole ranges.
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
		if _, err := a.recallLocked(pod.UID(e.Name())); err != nil {
			a.log.Warn("cannot read a pod's user namespace: no other pod gets one until it can be read", "uid", e.Name(), "error", err)
		}
	}
	return a, nil
}

// check has upstream's rules for what the node gives.
func (a *Allocator) check() error {
	switch {
	case a.length%DefaultLength != 0:
		return fmt.Errorf("user namespaces of %d IDs: must be a multiple of %d", a.length, DefaultLength)
	case a.node.First < a.length:
		return fmt.Errorf("user namespaces from ID %d: the first %d IDs are reserved for the node", a.node.First, a.length)
	case a.node.First%a.length != 0, a.node.Length%a.length != 0:
		return fmt.Errorf("user namespaces in the %d IDs from %d: both must be multiples of %d", a.node.Length, a.node.First, a.length)
	case a.node.Length == 0:
		return errors.New("user namespaces: the node has no IDs for them")
	}
	return nil
}

// Of is the pod's range: the one that it has, or a new one, which is on disk
// when Of returns. It makes the pod's directory if it is not there.
func (a *Allocator) Of(uid pod.UID) (Range, error) {
	if !filepath.IsLocal(string(uid)) || filepath.Base(string(uid)) != string(uid) {
		return Range{}, fmt.Errorf("user namespace: %q is not a pod UID", uid)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known, held := a.byPod[uid]
	r, err := a.recallLocked(uid)
	switch {
	case err != nil:
		return Range{}, fmt.Errorf("user namespace: %w", err)
	case r != Range{}:
		return r, nil
	case held:
		r = known // its directory went and came again
	default:
		if r, err = a.freeLocked(); err != nil {
			return Range{}, fmt.Errorf("create user namespace: %w", err)
		}
	}
	if err := writeRecord(a.file(uid), r); err != nil {
		return Range{}, fmt.Errorf("create user namespace: %w", err)
	}
	a.byPod[uid] = r
	return r, nil
}

// recallLocked reads a pod's record; the zero Range when it has none.
func (a *Allocator) recallLocked(uid pod.UID) (Range, error) {
	file := a.file(uid)
	r, err := readRecord(file)
	if err == nil && r != (Range{}) {
		for other, held := range a.byPod {
			if other != uid && held.overlaps(r) {
				err = fmt.Errorf("%s: its IDs are also those of pod %s", file, other)
			}
		}
	}
	if err != nil {
		a.broken[file] = err
		return Range{}, err
	}
	delete(a.broken, file)
	if r != (Range{}) {
		a.byPod[uid] = r
	}
	return r, nil
}

// freeLocked finds a range that nobody has, beginning after the last one found.
func (a *Allocator) freeLocked() (Range, error) {
	for file := range a.broken {
		if _, err := a.recallLocked(pod.UID(filepath.Base(filepath.Dir(file)))); err != nil {
			return Range{}, fmt.Errorf("another pod's record must be fixed or removed first: %w", err)
		}
	}
	for uid := range a.byPod {
		if _, err := os.Lstat(a.file(uid)); errors.Is(err, fs.ErrNotExist) {
			delete(a.byPod, uid)
		}
	}
	slots := a.node.Length / a.length
	taken := slices.Collect(maps.Values(a.byPod))
	for i := range slots {
		slot := (a.nextOne + i) % slots
		r := Range{First: a.node.First + slot*a.length, Length: a.length}
		if !slices.ContainsFunc(taken, r.overlaps) {
			a.nextOne = (slot + 1) % slots
			return r, nil
		}
	}
	return Range{}, errors.New("could not find an empty slot to allocate a user namespace") // upstream's words
}

func (a *Allocator) file(uid pod.UID) string {
	return a.dirs.UserNamespace(uid)
}
