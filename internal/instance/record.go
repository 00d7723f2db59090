package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"

	"podd/internal/atomicfile"
)

// RuntimeRecord is what "podd runtime" records about itself, in both directories.
type RuntimeRecord struct {
	Dirs
	Bridge  string `json:"bridge"`
	PodCIDR string `json:"podCIDR"`
	// Boot is the kernel's ID of the boot in which the runtime was started.
	Boot string `json:"boot"`
}

// AgentRecord is what "podd run" records about itself, in the root directory.
type AgentRecord struct {
	Dirs
	// Endpoint is the container runtime's; it is empty for the bundled one.
	Endpoint string `json:"endpoint,omitempty"`
	// CgroupRoot is the parent of all cgroups of pods.
	CgroupRoot string `json:"cgroupRoot"`
	Boot       string `json:"boot"`
}

const (
	runtimeRecordFile = "runtime.json"
	agentRecordFile   = "agent.json"
)

// AcquireRuntime locks both directories, which must exist, for a container runtime, for as
// long as this process lives, even after an exec. It fails if another runtime holds one of
// the locks, or held it and left its pods.
func AcquireRuntime(r RuntimeRecord) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	r.Boot = boot
	if err := errors.Join(stateLock.acquire(r.State), runtimeLock.acquire(r.Root)); err != nil {
		return err
	}
	for _, dir := range []string{r.Root, r.State} {
		old, err := readRuntime(dir)
		if err != nil || old == nil || old.Dirs == r.Dirs || old.Boot != boot {
			continue // a damaged record comes from the boot before a power cut
		}
		left, err := mountsBelow(old.State)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("%s was used by a container runtime with --root-dir %s and --state-dir %s, whose pods are still there; end them first: podd runtime stop --root-dir %[2]s --state-dir %[3]s",
				dir, old.Root, old.State)
		}
	}
	return errors.Join(write(r.Root, runtimeRecordFile, r), write(r.State, runtimeRecordFile, r))
}

// AcquireAgent locks podd run's root directory and that of the bundled runtime, which may be
// another, for as long as this process lives. It creates missing ones. It fails if another
// podd run has one of them, or had it and left pods in its own root directory.
func AcquireAgent(a AgentRecord, runtimeRoot string) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	a.Boot = boot
	roots := []string{a.Root}
	if runtimeRoot != a.Root {
		roots = append(roots, runtimeRoot)
	}
	for _, dir := range roots {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("make the root directory: %w", err)
		}
		if err := agentLock.acquire(dir); err != nil {
			return err
		}
	}
	for _, dir := range roots {
		if err := checkLeftPods(dir, a.Root); err != nil {
			return err
		}
	}
	for _, dir := range roots {
		if err := write(dir, agentRecordFile, a); err != nil {
			return err
		}
	}
	return nil
}

// checkLeftPods returns an error if the last podd run of a directory used another root directory
// than now, and that one still has pods: they would run a second time.
func checkLeftPods(dir, now string) error {
	old, err := read[AgentRecord](dir, agentRecordFile)
	if err != nil || old == nil || old.Root == now {
		return nil // a damaged record comes from the boot before a power cut
	}
	pods, err := os.ReadDir(filepath.Join(old.Root, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("determine whether the last podd of %s has left pods: %w", dir, err)
	}
	if len(pods) > 0 {
		return fmt.Errorf("%s was last used by a podd with --root-dir %s, where directories of pods are left: end those pods first (podd runtime stop), or start podd with --root-dir %[2]s", dir, old.Root)
	}
	return nil
}

func write(dir, name string, record any) error {
	text, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, name), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("record who uses %s: %w", dir, err)
	}
	return nil
}

// readRuntime reads the record of the last runtime in a directory; nil if there is none. An
// older podd wrote no record: then the directories come from the configuration that it
// wrote for containerd, and Boot is empty.
func readRuntime(dir string) (*RuntimeRecord, error) {
	r, err := read[RuntimeRecord](dir, runtimeRecordFile)
	if r != nil || err != nil {
		return r, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "containerd.toml"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		quoted, ok := strings.CutPrefix(strings.TrimSpace(line), "root = ")
		var root string
		if ok && json.Unmarshal([]byte(quoted), &root) == nil && filepath.Base(root) == "containerd" {
			d, err := Resolve(filepath.Dir(root), dir)
			return &RuntimeRecord{Dirs: d}, err
		}
	}
	return nil, nil
}

func read[T any](dir, name string) (*T, error) {
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read who uses %s: %w", dir, err)
	}
	record := new(T)
	if err := json.Unmarshal(text, record); err != nil {
		return nil, fmt.Errorf("%s is damaged (%w); the next start of podd rewrites it", path, err)
	}
	return record, nil
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

func mountsBelow(dir string) ([]*mountinfo.Info, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return mounts, nil
}
