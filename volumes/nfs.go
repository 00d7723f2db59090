package volumes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// nfsVolume is a directory of an NFS server, mounted below the pod's directory for
// as long as the pod is there. Mounting and unmounting may take as long as the
// server; that holds up the pod alone.
type nfsVolume struct{}

const nfsPlugin = "kubernetes.io/nfs"

// mountedNFS says whether a mount point is that of an nfs volume, which podd mounted.
func (m *Mounter) mountedNFS(point string) bool {
	rel, ok := strings.CutPrefix(point, m.dirs.Pods()+"/")
	uid, _, _ := strings.Cut(rel, "/")
	return ok && filepath.Dir(point) == m.dirs.Volume(pod.UID(uid), nfsPlugin, "")
}

func nfsVolumes() kind {
	return kind{
		plugin:  nfsPlugin,
		waits:   true,
		handles: func(s *v1.VolumeSource) bool { return s.NFS != nil },
		behind:  func(s *v1.PersistentVolumeSource) bool { return s.NFS != nil },
		path:    func(t target) string { return t.dir },
		driver:  nfsVolume{},
	}
}

func (nfsVolume) refresh(context.Context, target) error { return nil }

// tearDown has nothing to do: the mount is gone.
func (nfsVolume) tearDown(context.Context, string) error { return nil }

func (nfsVolume) setUp(ctx context.Context, t target) error {
	mounted, err := makeMountPoint(t.dir)
	if err != nil || mounted {
		return err
	}
	const program = "mount.nfs"
	if !helper(program) {
		return errors.New("the node cannot mount NFS: the program " + program + " is missing; install the package nfs-common (Debian, Ubuntu) or nfs-utils (Fedora, SUSE)")
	}
	source, options := nfsMount(t)
	if err := mountProgram(ctx, source, t.dir, "nfs", options); err != nil {
		return fmt.Errorf("mount %s: %w", source, err)
	}
	return nil
}

// nfsMount is what is mounted, and how.
func nfsMount(t target) (source string, options []string) {
	nfs := t.volume.NFS
	readOnly := nfs != nil && nfs.ReadOnly
	if t.bound != nil {
		nfs, readOnly = t.bound.Volume.Spec.NFS, t.readOnly() // upstream asks the claim's volume alone
		options = slices.Clone(t.bound.Volume.Spec.MountOptions)
	}
	if readOnly {
		options = append(options, "ro")
	}
	server := nfs.Server
	if strings.Contains(server, ":") {
		server = "[" + strings.Trim(server, "[]") + "]"
	}
	return server + ":" + nfs.Path, options
}
