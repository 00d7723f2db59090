package node

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/config"
	"podd/internal/pod"
	"podd/status"
	"podd/volumes/usage"
)

func TestStorageIsLimitedUnlessTheConfigurationForbidsIt(t *testing.T) {
	p := &runtimeParts{Node: &Node{cfg: &config.Config{}}, meter: usage.New(usage.Config{})}
	if p.limits() != nil {
		t.Error("with localStorageCapacityIsolation: false storage is watched")
	}
	p.cfg.LimitStorage = true
	if p.limits() == nil {
		t.Error("storage is not watched")
	}
}

func TestADirectoryOfContainerdNamesItsSnapshotter(t *testing.T) {
	for path, want := range map[string]string{
		"/var/lib/podd/containerd/io.containerd.snapshotter.v1.overlayfs": "overlayfs",
		"/var/lib/containerd/io.containerd.snapshotter.v1.native":         "native",
		"/var/lib/containers/storage/overlay-images":                      "",
		"": "",
	} {
		if got, ok := snapshotterOf(path); ok != (want != "") || ok && got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestTheSummaryHasNoPodThatHasRunToItsEnd(t *testing.T) {
	n := &Node{cfg: &config.Config{}, status: status.NewWriter(status.Config{})}
	for uid, over := range map[pod.UID]bool{"runs": false, "over": true} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid)}}
		n.status.Report(pod.Report{Desired: &pod.Desired{Pod: p}, Failed: over, Reason: pod.ReasonEvicted})
	}
	if got := n.activePods(); len(got) != 1 || got[0].UID != "runs" {
		t.Errorf("got %d pods", len(got))
	}
}
