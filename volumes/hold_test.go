package volumes

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// The file of a subPath cannot be bind-mounted again once an update has replaced it: a
// container failed and backed off if its object was edited while it started.
func TestAChangeWhileAContainerStartsIsWrittenAfterwards(t *testing.T) {
	s := newStore(aConfigMap("app", "key", "one"))
	m := newMounter(t, s.into)
	p := withMounts(aPod("u1", fromConfigMap("v", "app")), v1.VolumeMount{Name: "v", MountPath: "/m", SubPath: "key"})
	mustSetUp(t, m, p)
	// The runtime bind-mounts it again for the container.
	start := func() error {
		place, again := mustMounts(t, m, p)[0].HostPath, t.TempDir()+"/again"
		s.put(aConfigMap("app", "key", "two"))
		mustFollow(t, m, "u1")
		if err := os.WriteFile(again, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err := unix.Mount(place, again, "", unix.MS_BIND, "")
		if err == nil {
			mustBe(t, again, "one")
			err = unix.Unmount(again, 0)
		}
		return err
	}
	release := m.Hold(p, &p.Spec.Containers[0])
	other := m.Hold(p, &p.Spec.Containers[0]) // of another container
	if err := start(); err != nil {
		t.Errorf("bind the mounted subPath: %v", err)
	}
	other()
	dir := volumeDir(m, "u1", "configmap", "v")
	awaitUpdates(t, m, "u1")
	mustHold(t, dir, map[string]string{"key": "one"})
	release()
	awaitUpdates(t, m, "u1")
	mustHold(t, dir, map[string]string{"key": "two"})

	s.put(aConfigMap("app", "key", "one"))
	mustFollow(t, m, "u1")
	if err := start(); err == nil {
		t.Error("it can be bound without a hold: this test no longer shows anything")
	}
}

// An update cannot break other mounts.
func TestOnlySubPathsOfLiveVolumesAreHeld(t *testing.T) {
	s := newStore(aConfigMap("app", "key", "one"))
	m := newMounter(t, s.into)
	p := withMounts(aPod("u1", fromConfigMap("v", "app"), empty("e")),
		v1.VolumeMount{Name: "v", MountPath: "/v"}, v1.VolumeMount{Name: "e", MountPath: "/e", SubPath: "sub"})
	mustSetUp(t, m, p)
	defer m.Hold(p, &p.Spec.Containers[0])()
	s.put(aConfigMap("app", "key", "two"))
	mustFollow(t, m, "u1")
	mustHold(t, volumeDir(m, "u1", "configmap", "v"), map[string]string{"key": "two"})
}
