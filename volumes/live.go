package volumes

import (
	"context"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/volumes/payload"
)

// maxLive bounds the files of a live volume, in bytes: a hundred of the largest
// objects. Items may show one key ten thousand times.
const maxLive = 96 << 20

// sizeLive is the size of a live volume's tmpfs, in bytes: two versions, and what the
// file system takes for names and pages that are not full. Only podd writes there.
const sizeLive = 256 << 20

// files are a live volume's, by their paths, cleaned.
type files map[string]payload.File

// put adds a file, instead of one that an earlier source has put there.
func (f files) put(name string, data []byte, modes ...*int32) {
	mode := v1.ConfigMapVolumeSourceDefaultMode
	for _, m := range modes { // the nearest last
		if m != nil {
			mode = *m
		}
	}
	f[path.Clean(name)] = payload.File{Data: data, Mode: uint32(mode)}
}

// fit refuses files that are too many bytes together.
func (f files) fit() error {
	size := 0
	for name := range f {
		size += len(f[name].Data)
	}
	if size > maxLive {
		return fmt.Errorf("its files have %d MiB together, more than the %d MiB that such a volume may have: show fewer keys with items", size>>20, maxLive>>20)
	}
	return nil
}

// live makes the volumes whose files follow something: one version, swapped for
// the next in one step.
type live struct {
	memory *tmpfs // nil for the disk
	// collect says what the files are. It does not block. Its error is told to the
	// pod, and nothing is written: another try makes sense when a source changes.
	collect func(target) (files, error)
}

// collectError is that the files are not known: time alone changes nothing.
type collectError struct{ error }

func (e collectError) Unwrap() error { return e.error }

func (l *live) setUp(ctx context.Context, t target) error {
	content, err := l.collect(t)
	if err == nil {
		err = content.fit()
	}
	if err != nil {
		return collectError{err}
	}
	if err := makeDir(ctx, t, nil); err != nil {
		return err
	}
	if l.memory != nil {
		if err := l.memory.mount(t.dir, sizeLive, fsGroup(t.pod)); err != nil {
			return err
		}
	}
	if err := makeMountPoints(t); err != nil {
		return err
	}
	_, err = payload.Write(ctx, t.dir, content, fsGroup(t.pod))
	return err
}

func (l *live) refresh(ctx context.Context, t target) error { return l.setUp(ctx, t) }

// tearDown has nothing to do: there is only the directory, and a mount.
func (*live) tearDown(context.Context, string) error { return nil }

// found says that an earlier podd has set the volume up, and that it is still
// there.
func (l *live) found(t target) bool {
	if l.memory != nil {
		if mounted, err := isMounted(t.dir, unix.TMPFS_MAGIC); err != nil || !mounted {
			return false
		}
	}
	return payload.InUse(t.dir)
}

// liveKind is a kind of such volumes.
func liveKind(plugin string, handles func(*v1.VolumeSource) bool, l *live) kind {
	return kind{
		plugin: plugin, managed: true, live: true, handles: handles, driver: l,
		path: func(t target) string { return t.dir },
	}
}
