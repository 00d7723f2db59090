package volumes

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func TestAVolumeThatNoContainerUsesIsNotSetUp(t *testing.T) {
	m := newMounter(t)
	made := tempDir(t) + "/made"
	p := aPod("u1",
		fromSecret("secret", "none"), host("missing", made+"/none", v1.HostPathDirectory), host("made", made, v1.HostPathDirectoryOrCreate),
		v1.Volume{Name: "flex", VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{Driver: "example.com/x"}}},
		ofCSI("csi"), claims("unbound"), empty("empty"), empty("variables"), empty("late"))
	p.Spec.InitContainers = nil
	mustSetUp(t, m, p)
	mustHaveVolumes(t, m, "u1")
	if _, err := os.Stat(made); err == nil {
		t.Error("the path of a hostPath that nobody mounts was created")
	}

	withMounts(p, v1.VolumeMount{Name: "empty", MountPath: "/empty"})
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "variables", Path: "env", Key: "A"}}}}
	mustSetUp(t, m, p)
	mustHaveVolumes(t, m, "u1", "empty", "variables")
	mustMounts(t, m, p)

	p = p.DeepCopy()
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: "look", VolumeMounts: []v1.VolumeMount{{Name: "late", MountPath: "/late"}},
	}}}
	mustSetUp(t, m, p)
	mustHaveVolumes(t, m, "u1", "empty", "late", "variables")

	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "missing", MountPath: "/missing"})
	mustSay(t, ensure(t, m, p), `"missing"`)
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

// An earlier podd has set it up: it neither follows its Secret nor stays.
func TestAVolumeThatNoContainerUsesIsTornDownWithItsPod(t *testing.T) {
	withStore(t, func(t *testing.T, m *Mounter, s *store) {
		p := aPod("u1", fromSecret("s", "key"), empty("memory", memory))
		mustBeReady(t, m, p)
		m = restarted(t, m)
		p.Spec.InitContainers = nil
		s.drop(pod.KindSecret, "key")
		m.Follow(p)
		synctest.Wait()
		if told := s.told(); len(told) > 0 {
			t.Errorf("got the events %q, want none", told)
		}
		mustBeReady(t, m, p)
		mustTearDown(t, m, "u1")
		mustBeGone(t, m, "u1")
	}, aSecret("key", "a", "1"))
}

// mustHaveVolumes checks which of the pod's volumes have a directory, by their names.
func mustHaveVolumes(t *testing.T, m *Mounter, uid pod.UID, want ...string) {
	t.Helper()
	var got []string
	plugins, _ := os.ReadDir(m.PodDir(uid) + "/volumes")
	for _, plugin := range plugins {
		names, err := os.ReadDir(m.PodDir(uid) + "/volumes/" + plugin.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			got = append(got, n.Name())
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the pod's directory has the volumes %q, want %q", got, want)
	}
}
