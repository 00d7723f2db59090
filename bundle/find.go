package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"podd/internal/instance"
)

// EnvDir names the bundle's folder when no flag does.
const EnvDir = "PODD_RUNTIME_DIR"

// required lists what containerd needs to run a pod. ctr and crictl are for people. The
// default network uses these CNI plugins.
var required = []string{"containerd", "containerd-shim-runc-v2", "runc", "bridge", "host-local", "portmap", "loopback"}

// MissingError says that no complete bundle was found.
type MissingError struct {
	// Looked are the folders, in order, each with what it lacks.
	Looked []string
}

func (e *MissingError) Error() string {
	return "no container runtime found; looked in " + strings.Join(e.Looked, "; ") +
		". Build it with \"make runtime\", or name its directory with --runtime-dir or $" + EnvDir
}

// Find returns the folder that holds the runtime's binaries: the one named by flag (may be
// empty), else by $PODD_RUNTIME_DIR, else the first complete one of ../libexec/podd,
// runtime/bin and /usr/libexec/podd, the first two relative to this program's own folder. If a
// folder was named, Find searches no other. The error is a *MissingError.
func Find(flag string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the path of this program: %w", err)
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	return find(flag, os.Getenv(EnvDir), filepath.Dir(self))
}

func find(flag, env, selfDir string) (string, error) {
	dirs := []string{filepath.Join(selfDir, "../libexec/podd"), filepath.Join(selfDir, "runtime/bin"), instance.PackagedRuntimeDir}
	switch {
	case flag != "":
		dirs = []string{flag}
	case env != "":
		dirs = []string{env}
	}
	missing := &MissingError{}
	for _, dir := range dirs {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", err
		}
		lacks := describeMissing(abs)
		if lacks == "" {
			return abs, nil
		}
		missing.Looked = append(missing.Looked, abs+" ("+lacks+")")
	}
	return "", missing
}

// describeMissing says what a folder lacks to be a bundle; empty if it is complete.
func describeMissing(dir string) string {
	info, err := os.Stat(dir)
	switch {
	case os.IsNotExist(err):
		return "does not exist"
	case err != nil:
		return err.Error()
	case !info.IsDir():
		return "is not a directory"
	}
	var absent []string
	for _, name := range required {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			absent = append(absent, name)
		}
	}
	if len(absent) == 0 {
		return ""
	}
	return "lacks " + strings.Join(absent, ", ")
}
