package cri_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// TestObservedContainerTellsWhatItsEndNeeds: the hook, the ports that it may
// name, and whether it is a sidecar, for a pod whose manifest is gone.
func TestObservedContainerTellsWhatItsEndNeeds(t *testing.T) {
	r := newRig(t)
	ports := []v1.ContainerPort{{Name: "admin", ContainerPort: 8081}}
	hook := &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}}}
	always := v1.ContainerRestartPolicyAlways
	for _, tc := range []struct {
		name   string
		change func(*v1.Pod)
		want   *v1.Container
	}{
		{"nothing", func(p *v1.Pod) { p.Spec.Containers[0].Ports = ports }, nil},
		{"hook", func(p *v1.Pod) { p.Spec.Containers[0].Ports, p.Spec.Containers[0].Lifecycle = ports, hook },
			&v1.Container{Name: "app", Ports: ports, Lifecycle: hook}},
		{"sidecar", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{*p.Spec.Containers[0].DeepCopy()}
			p.Spec.InitContainers[0].RestartPolicy = &always
		}, &v1.Container{Name: "app", RestartPolicy: &always}},
		{"regular, with that policy", func(p *v1.Pod) { p.Spec.Containers[0].RestartPolicy = &always }, nil},
	} {
		p := aPod(tc.name)
		tc.change(p)
		r.start(t, p, r.sandbox(t, p, 0), 0)
		seen := r.observe(t, p.UID).LatestContainer("app")
		if d := cmp.Diff(tc.want, seen.Kept); d != "" {
			t.Errorf("%s: (-want +got)\n%s", tc.name, d)
		}
		if want := pod.ContainerHash(&p.Spec.Containers[0]); seen.Hash != want {
			t.Errorf("%s: hash: got %q, want %q", tc.name, seen.Hash, want)
		}
	}
}
