package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"podd/internal/features"
	"podd/internal/hugepage"
	"podd/internal/pod"
	"podd/volumes/ownership"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resources "k8s.io/component-helpers/resource"
)

// emptyDir is scratch space that lives as long as the pod: a directory, a tmpfs
// or a hugetlbfs.
//
// The sizeLimit of a directory is not enforced here: package usage measures it, and the
// agent evicts the pod, as the kubelet does.
type emptyDir struct {
	nodeMemory int64 // bytes
	memory     *tmpfs
	projects   Projects // or nil
	modes      bool     // podd honours mode
}

const emptyDirPlugin = "kubernetes.io/empty-dir"

// emptyDirs returns the kind.
func emptyDirs(o Options, memory *tmpfs) kind {
	return kind{
		plugin:  emptyDirPlugin,
		managed: true,
		handles: isEmptyDir,
		path:    func(t target) string { return t.dir },
		driver:  &emptyDir{o.NodeMemory, memory, o.Projects, o.Features.Enabled(features.EmptyDirVolumeMode)},
	}
}

// isEmptyDir is also true for a volume without any source: the API's default.
func isEmptyDir(s *v1.VolumeSource) bool {
	return s.EmptyDir != nil || *s == v1.VolumeSource{}
}

// refresh recreates what is missing.
func (e *emptyDir) refresh(ctx context.Context, t target) error { return e.setUp(ctx, t) }

// tearDown has nothing to do: there is only the directory and perhaps a mount.
func (*emptyDir) tearDown(context.Context, string) error { return nil }

func (e *emptyDir) setUp(ctx context.Context, t target) error {
	source := t.volume.EmptyDir
	if source == nil {
		source = &v1.EmptyDirVolumeSource{}
	}
	mode := e.mode(source)
	if err := makeDir(ctx, t, mode, e.assignProject); err != nil {
		return err
	}
	switch {
	case source.Medium == v1.StorageMediumDefault:
		return nil
	case source.Medium == v1.StorageMediumMemory:
		return e.memory.mount(t.dir, tmpfsOptions{size: e.tmpfsSize(t.pod, source), group: fsGroup(t.pod), mode: mode})
	case strings.HasPrefix(string(source.Medium), string(v1.StorageMediumHugePages)):
		return mountHugePages(t, source.Medium, mode)
	default:
		return fmt.Errorf("unknown storage medium %q; use none, Memory, HugePages or HugePages-<size>", source.Medium)
	}
}

// mode returns the mode that the volume asks for, 0 to 01777; nil for the medium's default.
func (e *emptyDir) mode(source *v1.EmptyDirVolumeSource) *uint32 {
	if source.Mode == nil || !e.modes {
		return nil
	}
	mode := uint32(*source.Mode) & 0o1777 // was validated
	return &mode
}

// rootMode returns the mode of a volume's directory: the one that the volume asks for or the
// medium's default, plus the permissions that an fsGroup adds.
func rootMode(asked *uint32, own uint32, group *int64) uint32 {
	mode := own
	if asked != nil {
		mode = *asked
	}
	if group != nil {
		mode = ownership.Mode(mode, true, false)
	}
	return mode
}

// makeDir creates the volume's directory with the mode (nil for 0777) and the pod's fsGroup, and
// renames it into place last: a directory of that name is complete, and the mode that
// containers may have given it is kept. Before the rename it calls made, unless nil.
func makeDir(ctx context.Context, t target, mode *uint32, made func(t target, dir string)) error {
	if _, err := os.Lstat(t.dir); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.dir), 0o750); err != nil {
		return err
	}
	unfinished := filepath.Dir(t.dir) + "/.new-" + t.volume.Name // no volume's name starts with a dot
	if err := os.Mkdir(unfinished, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := unix.Chmod(unfinished, rootMode(mode, 0o777, nil)); err != nil {
		return &os.PathError{Op: "chmod", Path: unfinished, Err: err}
	}
	if err := t.fsGroups.apply(ctx, t, unfinished); err != nil {
		return err
	}
	if made != nil {
		made(t, unfinished)
	}
	return os.Rename(unfinished, t.dir)
}

func fsGroup(p *v1.Pod) *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.FSGroup
}

// tmpfsSize returns the smallest of the sizeLimit, the pod's memory limit (if
// every container has one) and the node's memory, in bytes.
func (e *emptyDir) tmpfsSize(p *v1.Pod, source *v1.EmptyDirVolumeSource) int64 {
	size := e.nodeMemory
	if limit, ok := podMemoryLimit(p); ok && limit < size {
		size = limit
	}
	if source.SizeLimit != nil && source.SizeLimit.Value() > 0 && source.SizeLimit.Value() < size {
		size = source.SizeLimit.Value()
	}
	return size
}

// podMemoryLimit returns the limit of the pod's cgroup, if it has one.
func podMemoryLimit(p *v1.Pod) (int64, bool) {
	limits := resources.PodLimits(p, resources.PodResourcesOptions{})
	return limits.Memory().Value(), pod.IsLimited(p, v1.ResourceMemory) && !limits.Memory().IsZero()
}

func mountHugePages(t target, medium v1.StorageMedium, mode *uint32) error {
	size, err := hugePageSize(t.pod, medium)
	if err != nil {
		return err
	}
	if done, err := isMountedAs(t.dir, unix.HUGETLBFS_MAGIC); err != nil {
		return err
	} else if done {
		return checkHugePages(t.dir, size)
	}
	options := "pagesize=" + strconv.FormatInt(size, 10)
	group := fsGroup(t.pod)
	if group != nil {
		options += fmt.Sprintf(",gid=%d", *group)
	}
	if group == nil && mode == nil {
		return wrapMountError("hugetlbfs", t.dir, unix.Mount("nodev", t.dir, "hugetlbfs", 0, options))
	}
	root := rootMode(mode, 0o755, group)
	options += fmt.Sprintf(",mode=%o", root&0o1777)
	if err := wrapMountError("hugetlbfs", t.dir, unix.Mount("nodev", t.dir, "hugetlbfs", 0, options)); err != nil || group == nil {
		return err
	}
	if err := unix.Chmod(t.dir, root); err != nil { // its mount options cannot set setgid
		return &os.PathError{Op: "chmod", Path: t.dir, Err: err}
	}
	return nil
}

func checkHugePages(dir string, want int64) error {
	var found unix.Statfs_t
	if err := unix.Statfs(dir, &found); err != nil {
		return fmt.Errorf("statfs %s: %w", dir, err)
	}
	if found.Bsize != want {
		return fmt.Errorf("%s has pages of %d bytes, but the medium asks for %d", dir, found.Bsize, want)
	}
	return nil
}

// hugePageSize returns the page size that the medium names, which a container must request.
// For HugePages without a size, it returns the only size that containers request.
func hugePageSize(p *v1.Pod, medium v1.StorageMedium) (int64, error) {
	requested := map[int64]bool{}
	add := func(list v1.ResourceList) error {
		for name := range list {
			size, ok, err := hugepage.ResourceSize(name)
			if err != nil {
				return fmt.Errorf("page size of resource %s: %w", name, err)
			}
			if ok {
				requested[size] = true
			}
		}
		return nil
	}
	for c := range pod.ContainerSpecs(&p.Spec) {
		if err := add(c.Resources.Requests); err != nil {
			return 0, err
		}
	}
	if p.Spec.Resources != nil {
		if err := add(p.Spec.Resources.Requests); err != nil {
			return 0, err
		}
	}
	if medium != v1.StorageMediumHugePages {
		return namedPageSize(medium, requested)
	}
	if len(requested) != 1 {
		return 0, fmt.Errorf("medium %s needs containers that request exactly one size of huge pages, found %d; or name the size: HugePages-2Mi", medium, len(requested))
	}
	for size := range requested {
		return size, nil
	}
	return 0, nil
}

func namedPageSize(medium v1.StorageMedium, requested map[int64]bool) (int64, error) {
	text, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
	if !ok {
		return 0, fmt.Errorf("unknown storage medium %q; use none, Memory, HugePages or HugePages-<size>", medium)
	}
	size, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("page size of medium %s: %w", medium, err)
	}
	if !requested[size.Value()] {
		return 0, fmt.Errorf("medium %s, but no container requests hugepages-%s", medium, text)
	}
	return size.Value(), nil
}

// isMountedAs says whether a file system of that type is mounted at dir. One of another
// type is an error: mounting over it would hide its content.
func isMountedAs(dir string, magic int64) (bool, error) {
	mounted, err := mountinfo.Mounted(dir)
	if err != nil || !mounted {
		return false, err
	}
	var found unix.Statfs_t
	if err := unix.Statfs(dir, &found); err != nil {
		return false, fmt.Errorf("statfs %s: %w", dir, err)
	}
	if found.Type != magic {
		return false, fmt.Errorf("something else is mounted at %s (file system type %#x): unmount it", dir, found.Type)
	}
	return true, nil
}

func wrapMountError(what, dir string, err error) error {
	if err != nil {
		return fmt.Errorf("mount %s at %s: %w", what, dir, err)
	}
	return nil
}
