package csi

import (
	"os"
	"slices"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
	"podd/internal/selinux"
)

// withLabels returns a node with SELinux, and a driver that stages and, if mounts is set,
// says so of labels.
func withLabels(t *testing.T, root string, mounts bool) (*testNode, *fake) {
	n := nodeOf(t, root, Config{SELinux: selinux.New("system_u:object_r:container_file_t:s0")})
	f := newFake(t, driverName, stages).serve().register(n)
	n.has(driverName)
	n.allow(driverName, func(s *storagev1.CSIDriverSpec) { s.SELinuxMount = &mounts })
	return n, f
}

// labelled is a volume of a pod with a level; "" for none.
func (n *testNode) labelled(uid, level string) pod.CSIVolume {
	v := n.persistent(uid, driverName, "h")
	v.PodVolume = "data"
	v.Pod.Spec.Containers = []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}}
	if level != "" {
		v.Pod.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: level}}
	}
	return v
}

func recursive(v pod.CSIVolume) pod.CSIVolume {
	policy := v1.SELinuxChangePolicyRecursive
	v.Pod.Spec.SecurityContext.SELinuxChangePolicy = &policy
	return v
}

func TestADriverMountsAVolumeWithThePodsLabel(t *testing.T) {
	const option = `context="system_u:object_r:container_file_t:s0:c1,c2"`
	for name, c := range map[string]struct {
		mounts bool
		change func(pod.CSIVolume) pod.CSIVolume
		level  string
		want   []string
	}{
		"yes":                            {true, nil, "s0:c1,c2", []string{"noatime", option}},
		"its driver does not":            {false, nil, "s0:c1,c2", []string{"noatime"}},
		"a pod without a level":          {true, nil, "", []string{"noatime"}},
		"a pod that wants it relabelled": {true, recursive, "s0:c1,c2", []string{"noatime"}},
		"a volume that nobody mounts":    {true, func(v pod.CSIVolume) pod.CSIVolume { v.PodVolume = "x"; return v }, "s0:c1,c2", []string{"noatime"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := withLabels(t, "", c.mounts)
			v := n.labelled("a", c.level)
			if c.change != nil {
				v = c.change(v)
			}
			n.mustSetUp(v)
			staged, published := last[*csipb.NodeStageVolumeRequest](f), last[*csipb.NodePublishVolumeRequest](f)
			for _, got := range [][]string{staged.VolumeCapability.GetMount().MountFlags, published.VolumeCapability.GetMount().MountFlags} {
				if !slices.Equal(got, c.want) {
					t.Errorf("mount flags: got %q, want %q", got, c.want)
				}
			}
			if got, want := n.Labelled(v), len(c.want) == 2; got != want {
				t.Errorf("labelled: got %v, want %v", got, want)
			}
			n.mustTearDown(v)
		})
	}
	n, f := withDriver(t, stages)
	yes := true
	n.allow(driverName, func(s *storagev1.CSIDriverSpec) { s.SELinuxMount = &yes })
	v := n.labelled("a", "s0:c1,c2")
	n.mustSetUp(v)
	if got := last[*csipb.NodePublishVolumeRequest](f).VolumeCapability.GetMount().MountFlags; !slices.Equal(got, []string{"noatime"}) || n.Labelled(v) {
		t.Errorf("without SELinux: got flags %q, labelled %v", got, n.Labelled(v))
	}
	families, err := n.gathers.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.Contains(f.GetName(), "selinux") {
			t.Errorf("without SELinux: got the metric %s", f.GetName())
		}
	}
}

// A volume is mounted with one label on a node. Whoever needs another one waits.
func TestAPodWithAnotherLabelWaitsForTheVolume(t *testing.T) {
	n, f := withLabels(t, "", true)
	a, again, b := n.labelled("a", "s0:c1,c2"), n.labelled("again", "s0:c1,c2"), n.labelled("b", "s0:c3,c4")
	n.mustSetUp(a)
	n.mustSetUp(again)
	for _, other := range []pod.CSIVolume{b, n.labelled("none", ""), recursive(n.labelled("relabels", "s0:c1,c2"))} {
		_, err := n.SetUp(t.Context(), other)
		if want := `conflicting SELinux labels of volume pv: "system_u:object_r:container_file_t:s0:c1,c2" and "`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", other.Pod.UID, err, want)
		}
	}
	wantCalls(t, f, "Stage", "Publish", "Publish")
	n.mustTearDown(a)
	n.mustTearDown(again)
	woken := map[pod.UID]bool{}
	for range 3 {
		woken[<-n.woken] = true
	}
	if !woken["b"] || !woken["none"] || !woken["relabels"] {
		t.Errorf("woken: got %v, want those that wait", woken)
	}
	n.mustSetUp(b)
	wantCalls(t, f, "Stage", "Publish", "Publish", "Unpublish", "Unpublish", "Unstage", "Stage", "Publish")
	if got, want := last[*csipb.NodeStageVolumeRequest](f).VolumeCapability.GetMount().MountFlags, `context="system_u:object_r:container_file_t:s0:c3,c4"`; !slices.Contains(got, want) {
		t.Errorf("mount flags: got %q, want %s", got, want)
	}
	n.mustTearDown(b)
	n.wantGauges(map[string]float64{"volume_context_mismatch_errors_total": 3, "volumes_admitted_total": 2})
}

// A pod that waits and is deleted meanwhile leaves nothing behind, however long the other stays.
func TestAPodThatStopsWaitingForAVolumeIsForgotten(t *testing.T) {
	n, _ := withLabels(t, "", true)
	a, b := n.labelled("a", "s0:c1,c2"), n.labelled("b", "s0:c3,c4")
	n.mustSetUp(a)
	if _, err := n.SetUp(t.Context(), b); err == nil || len(n.labelWaiting) != 1 {
		t.Fatalf("got %v, and %d volumes are waited for; want a conflict", err, len(n.labelWaiting))
	}
	n.mustTearDown(b)
	if len(n.labelWaiting) != 0 {
		t.Errorf("waiting: got %v, want none", n.labelWaiting)
	}
	n.mustTearDown(a)
}

func TestContainersWithOtherLabelsDoNotShareAVolume(t *testing.T) {
	n, f := withLabels(t, "", true)
	v := n.labelled("a", "s0:c1,c2")
	side := *v.Pod.Spec.Containers[0].DeepCopy()
	side.Name, side.SecurityContext = "side", &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c3,c4"}}
	v.Pod.Spec.Containers = append(v.Pod.Spec.Containers, side)
	if _, err := n.SetUp(t.Context(), v); err == nil || !strings.Contains(err.Error(), "multiple SELinux labels found: ") {
		t.Errorf("got %v", err)
	}
	v.Pod.Spec.Containers[1].SecurityContext.SELinuxOptions.Level = `s0",x`
	if _, err := n.SetUp(t.Context(), v); err == nil || !strings.Contains(err.Error(), "is not part of an SELinux label") {
		t.Errorf("got %v", err)
	}
	wantCalls(t, f)
	n.wantGauges(map[string]float64{"pod_context_mismatch_errors_total": 1, "container_errors_total": 1})
	n.mustSetUp(recursive(v))
	n.mustTearDown(v)
}

// TestAMountedVolumeKeepsItsLabel also across a restart of podd, and what an earlier podd
// has mounted without a label stays as it is.
func TestAMountedVolumeKeepsItsLabel(t *testing.T) {
	root, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	n, f := withLabels(t, root, false)
	old := n.labelled("old", "s0:c1,c2")
	n.mustSetUp(old)
	n.stop()
	f.stop()
	n, f = withLabels(t, root, true)
	n.mustSetUp(old)
	if got := last[*csipb.NodePublishVolumeRequest](f).VolumeCapability.GetMount().MountFlags; !slices.Equal(got, []string{"noatime"}) || n.Labelled(old) {
		t.Errorf("mounted by an earlier podd: got flags %q, labelled %v", got, n.Labelled(old))
	}
	wantCalls(t, f, "Publish")
	n.mustTearDown(old)
	n.mustSetUp(old)
	n.stop()
	f.stop()
	n, f = withLabels(t, root, true)
	if !n.Labelled(old) {
		t.Error("after a restart, the volume counts as not labelled")
	}
	n.mustSetUp(old)
	if got := last[*csipb.NodePublishVolumeRequest](f).VolumeCapability.GetMount().MountFlags; len(got) != 2 {
		t.Errorf("published again after a restart: got flags %q", got)
	}
	n.mustTearDown(old)
}

// wantGauges compares the sums of volume_manager_selinux_*; what is not wanted is 0.
func (n *testNode) wantGauges(want map[string]float64) {
	n.t.Helper()
	families, err := n.gathers.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "volume_manager_selinux_")
		for _, m := range f.GetMetric() {
			if ours {
				got[name] += m.GetGauge().GetValue()
			}
		}
	}
	for name := range want {
		if got[name] != want[name] {
			n.t.Errorf("%s: got %v, want %v", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		n.t.Errorf("got %v, want %v", got, want)
	}
}
