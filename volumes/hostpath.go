package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// hostPath is a file or directory of the host. It has nothing below the pod's
// directory, so it is never unmounted or deleted.
type hostPath struct{}

const hostPathPlugin = "kubernetes.io/host-path"

func hostPaths() kind {
	return kind{
		plugin:    hostPathPlugin,
		mayBlock:  true,
		handles:   func(s *v1.VolumeSource) bool { return s.HostPath != nil },
		handlesPV: func(s *v1.PersistentVolumeSource) bool { return s.HostPath != nil },
		path:      func(t target) string { return hostPathOf(t).Path },
		driver:    hostPath{},
	}
}

func hostPathOf(t target) *v1.HostPathVolumeSource {
	if t.bound != nil {
		return t.bound.Volume.Spec.HostPath
	}
	return t.volume.HostPath
}

// prerequisites returns, for each of the pod's volumes, the indexes of earlier hostPaths
// that may create its path or a part of it: manifests have one volume create a directory
// and the next a file in it. Volumes that no container uses are not set up, and are left
// out.
func (m *Mounter) prerequisites(p *v1.Pod, used map[string]bool) [][]int {
	first := make([][]int, len(p.Spec.Volumes))
	paths := make([]string, len(p.Spec.Volumes)) // those that may be created
	for i := range p.Spec.Volumes {
		if !used[p.Spec.Volumes[i].Name] {
			continue
		}
		k, t, err := m.resolve(p, &p.Spec.Volumes[i])
		if err != nil || k.plugin != hostPathPlugin {
			continue
		}
		source := hostPathOf(t)
		if source.Type == nil || *source.Type == v1.HostPathUnset {
			continue // nothing is checked
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

// checkHostPathTypes checks the hostPaths that a container mounts, and the earlier ones that may
// create a part of their paths. It does so at each start of the container (ADR 0036),
// because a runtime makes a directory of the host in place of a path that is gone. Paths of
// type *OrCreate are created again.
func (m *Mounter) checkHostPathTypes(o *podSetUp, c *v1.Container) error {
	p := o.pod
	needed := make([]bool, len(p.Spec.Volumes))
	for i := range p.Spec.Volumes {
		needed[i] = mountsVolume(c, p.Spec.Volumes[i].Name)
	}
	before := m.prerequisites(p, pod.UsedVolumes(p))
	for i := len(needed) - 1; i >= 0; i-- {
		for _, earlier := range before[i] {
			needed[earlier] = needed[earlier] || needed[i]
		}
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if !needed[i] {
			continue
		}
		k, t, err := m.resolve(p, v)
		if err != nil || k.plugin != hostPathPlugin {
			continue // mountOf reports the error
		}
		m.setCurrentVolume(o, v.Name)
		if err := k.setUp(context.Background(), t); err != nil {
			return fmt.Errorf("%w (the container starts once that has been put right)", setUpFailed(v, err))
		}
	}
	return nil
}

// hasTypedHostPath says whether a container mounts a hostPath with a type that podd must check.
func (m *Mounter) hasTypedHostPath(p *v1.Pod, c *v1.Container) bool {
	for i := range p.Spec.Volumes {
		if !mountsVolume(c, p.Spec.Volumes[i].Name) {
			continue
		}
		k, t, err := m.resolve(p, &p.Spec.Volumes[i])
		if err != nil || k.plugin != hostPathPlugin {
			continue
		}
		if kind := hostPathOf(t).Type; kind != nil && *kind != v1.HostPathUnset {
			return true
		}
	}
	return false
}

func mountsVolume(c *v1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume })
}

// within says whether path is dir or below it; both are cleaned.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// refresh does nothing: each start of a container checks the types of its hostPaths
// (checkHostPathTypes).
func (hostPath) refresh(context.Context, target) error { return nil }

// tearDown leaves the host's data alone.
func (hostPath) tearDown(context.Context, string) error { return nil }

// setUp checks the type that the manifest asks for, and creates what it allows to be
// created. It may be called again at any time.
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
		return unknownType(source.Path, *source.Type, err)
	}
	return checkHostPath(source.Path, *source.Type, info.Mode())
}

// makeHostPath creates what the type allows to be created. The modes, and that a file's
// parents are not created, are from the API's documentation of HostPathType.
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
	return unknownType(path, want, fmt.Errorf("path %q does not exist", path))
}

// unknownType is upstream's error for a path with a type that nobody can say.
func unknownType(path string, want v1.HostPathType, err error) error {
	required, ok := hostPathTypes[want]
	if !ok {
		return noHostPathType(path, want)
	}
	return fmt.Errorf("hostPath type check failed, %s is not %s, unable to determine its type: %w", path, required.words, err)
}

func noHostPathType(path string, want v1.HostPathType) error {
	return fmt.Errorf("hostPath %s: %q is not a type of hostPath; use one of DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice, BlockDevice, or none", path, want)
}

// hostPathTypes has for each type the one that the path must have, and its words in
// upstream's errors.
var hostPathTypes = map[v1.HostPathType]struct {
	found v1.HostPathType
	words string
}{
	v1.HostPathDirectoryOrCreate: {v1.HostPathDirectory, "a directory"},
	v1.HostPathDirectory:         {v1.HostPathDirectory, "a directory"},
	v1.HostPathFileOrCreate:      {v1.HostPathFile, "a file"},
	v1.HostPathFile:              {v1.HostPathFile, "a file"},
	v1.HostPathSocket:            {v1.HostPathSocket, "a socket file"},
	v1.HostPathCharDev:           {v1.HostPathCharDev, "a character device"},
	v1.HostPathBlockDev:          {v1.HostPathBlockDev, "a block device"},
}

func checkHostPath(path string, want v1.HostPathType, mode fs.FileMode) error {
	required, ok := hostPathTypes[want]
	if !ok {
		return noHostPathType(path, want)
	}
	found := typeOfFile(mode)
	switch found {
	case required.found:
		return nil
	case v1.HostPathUnset:
		return unknownType(path, want, fmt.Errorf("it is %s", describeFileType(mode)))
	}
	return fmt.Errorf("hostPath type check failed: %s is not %s, it's a %s", path, required.words, found)
}

// typeOfFile returns the type of hostPath that a file has, HostPathUnset for one that none
// allows.
func typeOfFile(mode fs.FileMode) v1.HostPathType {
	switch {
	case mode.IsDir():
		return v1.HostPathDirectory
	case mode.IsRegular():
		return v1.HostPathFile
	case mode&fs.ModeSocket != 0:
		return v1.HostPathSocket
	case mode&fs.ModeCharDevice != 0:
		return v1.HostPathCharDev
	case mode&fs.ModeDevice != 0:
		return v1.HostPathBlockDev
	}
	return v1.HostPathUnset
}

// describeFileType returns what a file is, in the words of upstream's errors where it has any.
func describeFileType(mode fs.FileMode) string {
	switch found := typeOfFile(mode); {
	case found != v1.HostPathUnset:
		return hostPathTypes[found].words
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	default:
		return "of another type"
	}
}
