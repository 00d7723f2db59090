// Package instance tells the podds on a machine apart: it knows each one's two directories,
// the locks of the processes that use them, and the records of what belongs to it.
//
//	<root>/agent.lock    held by podd run           <root>/agent.json
//	<root>/runtime.lock  held by podd runtime,      <root>/runtime.json
//	                     and by the containerd that it becomes
//	<state>/containerd.lock  the same               <state>/runtime.json
//
// "podd runtime stop" uses the records, and removes what they name and nothing else. The
// next start also uses them, and rejects a directory that still has the pods of another
// instance. A record of an earlier boot is stale: none of its processes runs any more.
package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Dirs are an instance's directories: absolute, without symbolic links, and not one inside
// the other.
type Dirs struct {
	// Root holds what must survive a reboot, State what need not.
	Root  string `json:"root"`
	State string `json:"state"`
}

// Resolve makes Dirs of the values of --root-dir and --state-dir, which need not exist. It
// follows symbolic links, since the mount table and /proc show resolved paths only. The
// state directory is removed as a whole, so it must not contain the root directory.
func Resolve(root, state string) (Dirs, error) { return resolveDirs("--root-dir", root, state) }

// ResolveRuntime is Resolve for the value of --runtime-root-dir.
func ResolveRuntime(root, state string) (Dirs, error) {
	return resolveDirs("--runtime-root-dir", root, state)
}

func resolveDirs(flag, root, state string) (Dirs, error) {
	var d Dirs
	var errs [2]error
	d.Root, errs[0] = resolvePath(flag, root)
	d.State, errs[1] = resolvePath("--state-dir", state)
	if err := errors.Join(errs[:]...); err != nil {
		return Dirs{}, err
	}
	switch {
	case d.Root == d.State:
		return Dirs{}, fmt.Errorf("%s %s and --state-dir %s are the same directory: each needs its own, such as /var/lib/podd and /run/podd", flag, root, state)
	case within(d.Root, d.State):
		return Dirs{}, fmt.Errorf("%s %s is within --state-dir %s, which a reboot or podd runtime stop clears, images and all: put it elsewhere, such as /var/lib/podd", flag, root, state)
	case within(d.State, d.Root):
		return Dirs{}, fmt.Errorf("--state-dir %s is within %s %s: put it elsewhere, such as /run/podd, where a reboot clears it", state, flag, root)
	}
	return d, nil
}

func within(path, dir string) bool {
	return dir == "/" || strings.HasPrefix(path, dir+"/")
}

// resolvePath follows the links in the existing part of a path.
func resolvePath(flag, path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%s must be an absolute path, not %q", flag, path)
	}
	there, rest := filepath.Clean(path), ""
	for {
		real, err := filepath.EvalSymlinks(there)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s %s: %w", flag, path, err)
		}
		if _, err := os.Lstat(there); err == nil {
			return "", fmt.Errorf("%s %s: %s is a dangling symbolic link", flag, path, there)
		}
		there, rest = filepath.Dir(there), filepath.Join(filepath.Base(there), rest)
	}
}
