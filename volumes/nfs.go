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

// nfsVolume is an NFS export, mounted below the pod's directory until the pod is torn
// down. Mounting and unmounting may block on the server, which blocks this pod only.
type nfsVolume struct{}

const nfsPlugin = "kubernetes.io/nfs"

// isNFSMount says whether a mount point is one of an NFS volume that podd mounted.
func (m *Mounter) isNFSMount(point string) bool {
	rel, ok := strings.CutPrefix(point, m.dirs.Pods()+"/")
	uid, _, _ := strings.Cut(rel, "/")
	return ok && filepath.Dir(point) == m.dirs.Volume(pod.UID(uid), nfsPlugin, "")
}

func nfsVolumes() kind {
	return kind{
		plugin:    nfsPlugin,
		mayBlock:  true,
		handles:   func(s *v1.VolumeSource) bool { return s.NFS != nil },
		handlesPV: func(s *v1.PersistentVolumeSource) bool { return s.NFS != nil },
		path:      func(t target) string { return t.dir },
		driver:    nfsVolume{},
	}
}

func (nfsVolume) refresh(context.Context, target) error { return nil }

// tearDown has nothing to do: the volume is already unmounted.
func (nfsVolume) tearDown(context.Context, string) error { return nil }

func (nfsVolume) setUp(ctx context.Context, t target) error {
	mounted, err := makeMountPoint(t.dir)
	if err != nil || mounted {
		return err
	}
	const program = "mount.nfs"
	if !hasMountHelper(program) {
		return errors.New("the node cannot mount NFS: the program " + program + " is missing; install the package nfs-common (Debian, Ubuntu) or nfs-utils (Fedora, SUSE)")
	}
	source, options := nfsMount(t)
	if err := runMount(ctx, source, t.dir, "nfs", options); err != nil {
		return fmt.Errorf("mount %s: %w", source, err)
	}
	return nil
}

// nfsMount returns the source and the options of the mount.
func nfsMount(t target) (source string, options []string) {
	nfs := t.volume.NFS
	readOnly := nfs != nil && nfs.ReadOnly
	if t.bound != nil {
		nfs, readOnly = t.bound.Volume.Spec.NFS, t.readOnly() // as upstream, not the PersistentVolume's nfs.readOnly
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
