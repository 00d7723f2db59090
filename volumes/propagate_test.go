package volumes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// private makes a directory a private mount, as / is on a host without systemd.
func private(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
}

// Runtimes reject propagation from a private mount.
func TestPropagationWorksOnAHostWithPrivateMounts(t *testing.T) {
	m := newMounter(t, func(o *Options) { private(t, o.RootDir) })
	h2c, both, yes, dir := v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional, true, tempDir(t)
	private(t, dir)
	p := withMounts(aPod("u1", empty("disk"), empty("plain"), empty("memory", memory), host("host", dir, v1.HostPathDirectory)),
		v1.VolumeMount{Name: "disk", MountPath: "/disk", MountPropagation: &both},
		v1.VolumeMount{Name: "disk", MountPath: "/sub", SubPath: "s", MountPropagation: &h2c},
		v1.VolumeMount{Name: "memory", MountPath: "/memory", MountPropagation: &h2c},
		v1.VolumeMount{Name: "plain", MountPath: "/plain"},
		v1.VolumeMount{Name: "host", MountPath: "/host", MountPropagation: &h2c})
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: &yes}
	mustSetUp(t, m, p)
	mounts := mustMounts(t, m, p)
	before, err := mountsBelow(m.PodDir("u1"))
	if err != nil {
		t.Fatal(err)
	}
	for i, shared := range []bool{true, true, true, false, false} {
		over, err := containingMount(mounts[i].HostPath)
		if err != nil || strings.Contains(over.Optional, "shared:") != shared {
			t.Errorf("%s: got %+v (%v), want shared %v", mounts[i].ContainerPath, over, err, shared)
		}
	}
	// A restarted container, or another one, adds no mounts.
	mustMounts(t, m, p)
	if after, err := mountsBelow(m.PodDir("u1")); err != nil || len(after) != len(before) || len(after) != 3 {
		t.Errorf("got the mounts %q (%v), then %q, want three", before, err, after)
	}
	// What a container leaves mounted there is unmounted with the pod, and its content stays.
	canary := filepath.Join(dir, "canary")
	in := filepath.Join(mounts[0].HostPath, "in")
	if err := os.WriteFile(canary, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(in, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dir, in, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
	if _, err := os.Stat(canary); err != nil {
		t.Error(err)
	}
}
