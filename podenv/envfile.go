package podenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// maxEnvFile bounds a file of variables, which a container writes: 1 MiB, like an object
// of the API.
const maxEnvFile = 1 << 20

// fileValue is a variable from a file in one of the pod's volumes (KEP-3721); ok is false
// if it is optional and does not exist.
func (r *Resolver) fileValue(p *v1.Pod, ref *v1.FileKeySelector) (value string, ok bool, err error) {
	if r.cfg.Volumes == nil {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	root, err := r.cfg.Volumes.Path(p, ref.VolumeName)
	if err != nil {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef: %w", ref.VolumeName, err)
	}
	text, err := readEnvFile(root, ref.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isTrue(ref.Optional):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("couldn't parse env file: %w", err)
	}
	if value, err = lookupVariable(text, ref.Key); err != nil {
		return "", false, fmt.Errorf("couldn't parse env file: %s: %w", ref.Path, err)
	}
	if value == "" { // upstream does not tell an empty value from none
		if isTrue(ref.Optional) {
			return "", false, nil
		}
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, true, nil
}

// readEnvFile reads a file below root. The containers own that directory: a link leads
// nowhere outside, and a FIFO or a device does not block the read.
func readEnvFile(root, path string) ([]byte, error) {
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat2(int(dir.Fd()), path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if len(text) > maxEnvFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxEnvFile)
	}
	return text, err
}

// lookupVariable finds a variable in upstream's subset of shell syntax (pkg/kubelet/util/env):
// NAME='value', comments and blank lines. The quotes are obligatory, and the value is
// literal and may span several lines. The first variable of a name counts, and nothing
// after it is read. It returns "" if there is no such variable.
func lookupVariable(text []byte, key string) (string, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxEnvFile+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimLeft(lines.Text(), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest, found := strings.Cut(line, "=")
		switch {
		case !found:
			return "", fmt.Errorf("invalid environment variable format at line %d: missing '='", n)
		case strings.TrimRight(name, " \t") == "":
			return "", fmt.Errorf("invalid environment variable format at line %d: empty variable name", n)
		case strings.TrimRight(name, " \t") != name:
			return "", fmt.Errorf("invalid environment variable format at line %d: whitespace before '=' is not allowed", n)
		case strings.TrimLeft(rest, " \t") != rest: // to a shell, an empty value and a command
			if name == key {
				return "", nil
			}
			continue
		case !strings.HasPrefix(rest, "'"):
			return "", fmt.Errorf("invalid environment variable format at line %d: value must be enclosed in single quotes", n)
		}
		value, after, closed := strings.Cut(rest[1:], "'")
		for begin := n; !closed; {
			if !lines.Scan() {
				return "", fmt.Errorf("invalid environment variable format starting at line %d: unclosed single quote", begin)
			}
			n++
			var more string
			more, after, closed = strings.Cut(lines.Text(), "'")
			value += "\n" + more
		}
		if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
			return "", fmt.Errorf("invalid environment variable format at line %d: unexpected content after closing quote", n)
		}
		if name == key {
			if strings.ContainsRune(value, 0) {
				return "", fmt.Errorf("the value of %s contains a NUL byte", key)
			}
			return value, nil
		}
	}
	return "", lines.Err()
}
