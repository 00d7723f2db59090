package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"podd/internal/atomicfile"
)

// dropIn is the name of the files that keep systemd from stopping podd's slices by itself when the
// machine shuts down. It would send SIGTERM to every process of every pod, beside podd, which
// ends pods in order (ADR 0042). The property DefaultDependencies of a transient slice is not
// enough: systemd loads a slice before it looks at the properties.
const dropIn = "50-podd-shutdown.conf"

const dropInText = `# Written by podd, which ends the pods below when the machine shuts down.
[Unit]
DefaultDependencies=no
`

// unitDirs are where systemd looks for drop-ins. An installation has those of the default root in
// the last ones; podd writes those of another root into the first, which a boot empties.
var unitDirs = []string{"/run/systemd/system", "/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// keepSlicesAtShutdown writes the drop-ins that are missing, before systemd loads the slices.
func (t *Tree) keepSlicesAtShutdown(ctx context.Context) error {
	root := t.rootRel()
	var missing []string
	for _, rel := range levels(root) {
		if slice := path.Base(rel); !hasDropIn(t.unitDirs, slice) {
			missing = append(missing, slice+".d")
		}
	}
	stem := strings.TrimSuffix(path.Base(root), ".slice")
	if !hasDropIn(t.unitDirs, stem+"-pods.slice") { // of all slices below
		missing = append(missing, stem+"-.slice.d")
	}
	if len(missing) == 0 {
		return nil
	}
	var errs []error
	for _, dir := range missing {
		dir = filepath.Join(t.unitDirs[0], dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, atomicfile.Write(filepath.Join(dir, dropIn), []byte(dropInText), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("keep systemd from stopping pods by itself when the machine shuts down: %w", err)
	}
	return t.units.reload(ctx)
}

// hasDropIn says whether a slice has podd's drop-in: its own, or that of all slices whose names
// begin as its does (systemd.unit(5)).
func hasDropIn(dirs []string, slice string) bool {
	stem := strings.TrimSuffix(slice, ".slice")
	candidates := []string{slice}
	for i := range stem {
		if stem[i] == '-' {
			candidates = append(candidates, stem[:i]+"-.slice")
		}
	}
	for _, dir := range dirs {
		for _, c := range candidates {
			if _, err := os.Stat(filepath.Join(dir, c+".d", dropIn)); err == nil {
				return true
			}
		}
	}
	return false
}
