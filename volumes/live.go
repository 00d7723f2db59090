package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/wipe"
	"podd/volumes/payload"
)

// maxLiveBytes bounds the total size of a live volume's files, in bytes: nearly a hundred of
// the largest objects. Without it, items could repeat one key ten thousand times.
const maxLiveBytes = 96 << 20

// liveTmpfsBytes is the size of a live volume's tmpfs, in bytes: two versions, plus the
// overhead for names and partly filled pages. Only podd writes there.
const liveTmpfsBytes = 256 << 20

// files are the files of a live volume by their cleaned paths.
type files map[string]file

// file is a file with data or text as its content. Neither is copied until the total size
// is known: a pod may name one key ten thousand times.
type file struct {
	payload.File
	text string
}

// put adds a file, replacing one of an earlier source.
func (f files) put(name string, data []byte, modes ...*int32) {
	f[path.Clean(name)] = file{File: payload.File{Data: data, Mode: modeOf(modes)}}
}

// putText is put with text.
func (f files) putText(name, text string, modes ...*int32) {
	f[path.Clean(name)] = file{File: payload.File{Mode: modeOf(modes)}, text: text}
}

// own gives a file to the last user that is not nil; callers pass the most specific one last
// (KEP-5936). If there is none, or the feature gate is off, the file's owner stays. If the pod
// has a user namespace, the ID is that of a user in its containers, because their mounts are
// ID-mapped.
func (f files) own(t target, name string, users ...*int64) {
	if !t.sources.users {
		return
	}
	name = path.Clean(name)
	each := f[name]
	for _, u := range users {
		if u != nil {
			each.UID = *u
		}
	}
	f[name] = each
}

func modeOf(modes []*int32) uint32 {
	mode := v1.ConfigMapVolumeSourceDefaultMode
	for _, m := range modes { // the most specific last
		if m != nil {
			mode = *m
		}
	}
	return uint32(mode)
}

// toPayload returns the files as they are written. It rejects files that exceed maxLiveBytes in
// total.
func (f files) toPayload() (map[string]payload.File, error) {
	size := 0
	for name := range f {
		size += len(f[name].Data) + len(f[name].text)
	}
	if size > maxLiveBytes {
		return nil, tooLarge(size)
	}
	out := make(map[string]payload.File, len(f))
	for name := range f {
		each := f[name].File
		if text := f[name].text; text != "" {
			each.Data = []byte(text)
		}
		out[name] = each
	}
	return out, nil
}

func tooLarge(size int) error {
	return fmt.Errorf("its files have %d MiB in total, more than the limit of %d MiB: project fewer keys with items", size>>20, maxLiveBytes>>20)
}

// liveDriver is the driver of volumes with files that follow their sources. The next version
// replaces the last atomically.
type liveDriver struct {
	memory *tmpfs // nil: on disk
	// collect returns the files. It does not block. After an error, which the pod
	// reports, nothing is written until a source changes.
	collect func(target) (files, error)
}

// collectError is an error of collect: retrying is useless until a source changes.
type collectError struct{ error }

func (e collectError) Unwrap() error { return e.error }

func (l *liveDriver) setUp(ctx context.Context, t target) error {
	collected, err := l.collect(t)
	if err != nil {
		return collectError{err}
	}
	content, err := collected.toPayload()
	if err != nil {
		return collectError{err}
	}
	if err := makeDir(ctx, t, nil, nil); err != nil {
		return err
	}
	if l.memory != nil {
		if err := l.memory.mount(t.dir, tmpfsOptions{size: liveTmpfsBytes, group: fsGroup(t.pod), label: l.memory.labelOf(t)}); err != nil {
			return err
		}
	}
	if err := makeMountPoints(t); err != nil {
		return err
	}
	if err := removeSubPathDirs(ctx, t, content); err != nil {
		return err
	}
	_, err = payload.Write(ctx, t.dir, content, fsGroup(t.pod))
	return err
}

// removeSubPathDirs removes the directories that subPaths have made where keys were missing, and
// which would now hide the keys for good. Mount points of other volumes stay. A directory
// that a container has mounted is not touched: the container keeps it.
func removeSubPathDirs(ctx context.Context, t target, content map[string]payload.File) error {
	var points map[string]bool // by the first part of the path
	for name := range content {
		first, _, _ := strings.Cut(name, "/")
		info, err := os.Lstat(filepath.Join(t.dir, first))
		if err != nil || !info.IsDir() {
			continue
		}
		if points == nil {
			points = map[string]bool{}
			for _, point := range nestedMountPoints(t.pod, t.volume.Name) {
				point, _, _ = strings.Cut(point, "/")
				points[point] = true
			}
		}
		if points[first] {
			continue
		}
		err = wipe.Tree(ctx, t.dir, first)
		if _, crossing := errors.AsType[*wipe.MountError](err); err != nil && !crossing {
			return fmt.Errorf("remove the directory %q, in whose place a key belongs: %w", first, err)
		}
	}
	return nil
}

func (l *liveDriver) refresh(ctx context.Context, t target) error { return l.setUp(ctx, t) }

// tearDown has nothing to do: there is only the directory and perhaps a mount.
func (*liveDriver) tearDown(context.Context, string) error { return nil }

// isSetUp says whether an earlier podd has set the volume up and it still exists.
func (l *liveDriver) isSetUp(t target) bool {
	if l.memory != nil {
		if mounted, err := isMountedAs(t.dir, unix.TMPFS_MAGIC); err != nil || !mounted {
			return false
		}
	}
	return payload.HasVersion(t.dir)
}

// liveKind returns a kind of live volumes.
func liveKind(plugin string, handles func(*v1.VolumeSource) bool, l *liveDriver) kind {
	k := kind{
		plugin: plugin, managed: true, live: true, handles: handles, driver: l, isSetUp: l.isSetUp,
		path: func(t target) string { return t.dir },
	}
	if l.memory != nil {
		k.labelled = l.memory.labelled
	}
	return k
}
