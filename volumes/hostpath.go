package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// hostPath is a file or directory of the host. Nothing is made for it below the
// pod's directory, so nothing of it is ever unmounted or deleted.
type hostPath struct{}

const hostPathPlugin = "kubernetes.io/host-path"

func hostPaths() kind {
	return kind{
		plugin:  hostPathPlugin,
		waits:   true,
		handles: func(s *v1.VolumeSource) bool { return s.HostPath != nil },
		behind:  func(s *v1.PersistentVolumeSource) bool { return s.HostPath != nil },
		path:    func(t target) string { return hostPathOf(t).Path },
		driver:  hostPath{},
	}
}

func hostPathOf(t target) *v1.HostPathVolumeSource {
	if t.bound != nil {
		return t.bound.Volume.Spec.HostPath
	}
	return t.volume.HostPath
}

// madeFirst are, by the index of the pod's volumes, the earlier hostPaths that may make
// what a later one looks for: manifests have the directory made by one volume, and a
// file in it by the next. Each is nil where nothing comes first.
func (m *Mounter) madeFirst(p *v1.Pod) [][]int {
	first := make([][]int, len(p.Spec.Volumes))
	paths := make([]string, len(p.Spec.Volumes)) // that may be made
	for i := range p.Spec.Volumes {
		k, t, err := m.find(p, &p.Spec.Volumes[i])
		if err != nil || k.plugin != hostPathPlugin {
			continue
		}
		source := hostPathOf(t)
		if source.Type == nil || *source.Type == v1.HostPathUnset {
			continue // which looks for nothing
		}
		path := filepath.Clean(source.Path)
		for j, made := range paths[:i] {
			if made != "" && (within(path, made) || within(made, path)) {
				first[i] = append(first[i], j)
			}
		}
		if *source.Type == v1.HostPathDirectoryOrCreate || *source.Type == v1.HostPathFileOrCreate {
			paths[i] = path
		}
	}
	return first
}

// within says whether a path is another, or below it; both are cleaned.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// refresh does not check again: what a pod, or its owner, does to the path later must
// not keep a container from restarting.
func (hostPath) refresh(context.Context, target) error { return nil }

// tearDown leaves the host's data alone.
func (hostPath) tearDown(context.Context, string) error { return nil }

// setUp checks the type that the manifest asks for, as the kubelet does: once,
// when the volume is first set up.
func (hostPath) setUp(_ context.Context, t target) error {
	source := hostPathOf(t)
	if source.Type == nil || *source.Type == v1.HostPathUnset {
		return nil
	}
	info, err := os.Stat(source.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeHostPath(source.Path, *source.Type)
	}
	if err != nil {
		return isNot(source.Path, *source.Type, err.Error())
	}
	return checkHostPath(source.Path, *source.Type, info.Mode())
}

// makeHostPath makes what the type says may be made. Modes and the rule that a
// file's parents are not made are the API's documentation of HostPathType.
func makeHostPath(path string, want v1.HostPathType) error {
	switch want {
	case v1.HostPathDirectoryOrCreate:
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("hostPath of type %s: %w", want, err)
		}
		return nil
	case v1.HostPathFileOrCreate:
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("hostPath of type %s: %w (type %s makes the file, not the directories above it)", want, err, want)
		}
		if err != nil {
			return fmt.Errorf("hostPath of type %s: %w", want, err)
		}
		return f.Close()
	}
	return isNot(path, want, "it does not exist")
}

// isNot says in upstream's words what a path is not, and then why.
func isNot(path string, want v1.HostPathType, why string) error {
	words, ok := hostPathWords[want]
	if !ok {
		return fmt.Errorf("hostPath %s: %q is not a type of hostPath; use one of DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice, BlockDevice, or none", path, want)
	}
	return fmt.Errorf("hostPath type check failed: %s is not %s: %s", path, words, why)
}

// hostPathWords says what each type wants to find.
var hostPathWords = map[v1.HostPathType]string{
	v1.HostPathDirectoryOrCreate: "a directory",
	v1.HostPathDirectory:         "a directory",
	v1.HostPathFileOrCreate:      "a file",
	v1.HostPathFile:              "a file",
	v1.HostPathSocket:            "a socket file",
	v1.HostPathCharDev:           "a character device",
	v1.HostPathBlockDev:          "a block device",
}

func checkHostPath(path string, want v1.HostPathType, found fs.FileMode) error {
	if describe(found) == hostPathWords[want] {
		return nil
	}
	return isNot(path, want, "it is "+describe(found))
}

func describe(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode.IsRegular():
		return "a file"
	case mode&fs.ModeSocket != 0:
		return "a socket file"
	case mode&fs.ModeCharDevice != 0:
		return "a character device"
	case mode&fs.ModeDevice != 0:
		return "a block device"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	default:
		return "of another type"
	}
}
