package payload

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// File is one file of a payload.
type File struct {
	Data []byte
	// Mode has the permission bits, up to 0777.
	Mode uint32
	// UID owns the file; 0 for root.
	UID int64
}

const (
	maxName = 255  // the kernel's limit
	maxPath = 4096 // upstream's limit
)

// tree is a directory of a payload.
type tree struct {
	files map[string]File
	dirs  map[string]*tree
}

func newTree() *tree { return &tree{files: map[string]File{}, dirs: map[string]*tree{}} }

// buildTree arranges the files by directory. The error names the first invalid path.
func buildTree(files map[string]File) (*tree, error) {
	root := newTree()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := checkPath(name); err != nil {
			return nil, err
		}
		if err := root.put(path.Clean(name), files[name]); err != nil {
			return nil, fmt.Errorf("invalid path %q: %w", name, err)
		}
	}
	return root, nil
}

func (t *tree) put(name string, f File) error {
	first, rest, deeper := strings.Cut(name, "/")
	_, isFile := t.files[first]
	switch {
	case !deeper && isFile:
		return fmt.Errorf("another file of the volume has the same path")
	case !deeper && t.dirs[first] != nil:
		return fmt.Errorf("another file of the volume is below it")
	case deeper && isFile:
		return fmt.Errorf("%q is a file of the volume, not a directory", first)
	case !deeper:
		t.files[first] = f
		return nil
	}
	if t.dirs[first] == nil {
		t.dirs[first] = newTree()
	}
	return t.dirs[first].put(rest, f)
}

// has says whether the tree has a file or directory of that name.
func (t *tree) has(name string) bool {
	_, isFile := t.files[name]
	return isFile || t.dirs[name] != nil
}

// names returns the names of its files and directories, sorted.
func (t *tree) names() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range t.files {
			if !yield(name) {
				return
			}
		}
		for name := range t.dirs {
			if !yield(name) {
				return
			}
		}
	})
}

// checkPath rejects paths that lead out of the volume or are reserved. Validation has done so
// long before; the messages are upstream's.
func checkPath(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("invalid path: must not be empty: %q", name)
	case path.IsAbs(name):
		return fmt.Errorf("invalid path: must be relative path: %s", name)
	case len(name) > maxPath:
		return fmt.Errorf("invalid path: must be less than or equal to %d characters", maxPath)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("invalid path: must not contain a zero byte: %q", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return fmt.Errorf("invalid path: must not contain '..': %s", name)
		}
		if len(part) > maxName {
			return fmt.Errorf("invalid path: filenames must be less than or equal to %d characters", maxName)
		}
	}
	if path.Clean(name) == "." {
		return fmt.Errorf("invalid path: must name a file: %q", name)
	}
	if isReserved(path.Clean(name)) {
		return fmt.Errorf("invalid path: must not start with '..': %s", name)
	}
	return nil
}

// isReserved says whether a name in the volume's root is reserved for this package.
func isReserved(name string) bool { return strings.HasPrefix(name, "..") }
