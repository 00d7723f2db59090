package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// resize changes the resources of a running pod, as kubectl does.
func (m *member) resize(name, patch string) {
	m.Helper()
	if _, err := m.says("patch", "pod", name, "--subresource=resize", "-p", patch); err != nil {
		m.Fatal(err)
	}
}

// hasMemory says that a container is shown with a memory limit, granted and in force.
func hasMemory(find func(p *v1.Pod) []v1.ContainerStatus, name, limit string) func(p *v1.Pod) error {
	return func(p *v1.Pod) error {
		c := pod.FindContainerStatus(find(p), name)
		if c == nil || c.Resources == nil || c.Resources.Limits.Memory().String() != limit || c.AllocatedResources.Memory().String() != limit {
			return fmt.Errorf("container %s is %+v, want memory of %s", name, c, limit)
		}
		if condition(p, v1.PodResizeInProgress) == v1.ConditionTrue {
			return errors.New("the resize is in progress")
		}
		return nil
	}
}

func ofInit(p *v1.Pod) []v1.ContainerStatus    { return p.Status.InitContainerStatuses }
func ofRegular(p *v1.Pod) []v1.ContainerStatus { return p.Status.ContainerStatuses }

// TestAnInitContainerIsResizedWhileItRuns, up and down, and goes on; the runtime hears what the pod
// has from then on.
func TestAnInitContainerIsResizedWhileItRuns(t *testing.T) {
	m := join(t)
	c := m.cgroups()
	text := m.podOf("web", ": > /out/web; ${REST}")
	text = replaced(m, text, "    image:", "    resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 50m, memory: 32Mi}}\n    image:")
	m.bind(replaced(m, text, "  containers:", m.vars().Replace("  initContainers:\n  - name: init\n    image: ${IMAGE}\n"+
		"    resources: {requests: {cpu: 100m, memory: 48Mi}, limits: {cpu: 100m, memory: 48Mi}}\n"+
		"    command: [/bin/sh, -c, 'until [ -e /out/go ]; do sleep 0.05; done']\n    volumeMounts: [{name: out, mountPath: /out}]\n  containers:")))
	p := m.shown("web", "initializing", hasMemory(ofInit, "init", "48Mi"))
	id := pod.FindContainerStatus(ofInit(p), "init").ContainerID
	whole := "pod" + string(p.UID)
	container := filepath.Join(whole, pod.RuntimeID(id))
	c.want(container, "memory.limit_in_bytes", "memory.max", "50331648", "50331648")

	patch := `{"spec": {"initContainers": [{"name": "init", "resources": {"requests": {"cpu": %[1]q, "memory": %[2]q}, "limits": {"cpu": %[1]q, "memory": %[2]q}}}]}}`
	m.resize("web", fmt.Sprintf(patch, "200m", "96Mi"))
	m.shown("web", "with more in its init container", hasMemory(ofInit, "init", "96Mi"))
	for _, group := range []string{container, whole} {
		c.want(group, "memory.limit_in_bytes", "memory.max", "100663296", "100663296")
		c.want(group, "cpu.cfs_quota_us", "cpu.max", "20000", "20000 100000")
	}
	m.resize("web", fmt.Sprintf(patch, "100m", "40Mi"))
	p = m.shown("web", "with less in its init container", hasMemory(ofInit, "init", "40Mi"))
	for _, group := range []string{container, whole} {
		c.want(group, "memory.limit_in_bytes", "memory.max", "41943040", "41943040")
		c.want(group, "cpu.cfs_quota_us", "cpu.max", "10000", "10000 100000")
	}
	if now := pod.FindContainerStatus(ofInit(p), "init"); now.ContainerID != id || now.RestartCount != 0 || now.State.Running == nil {
		t.Errorf("the init container is %+v, want the one that ran before", now)
	}
	// Once before the pod's limits were raised, and once before they were lowered.
	m.metric(`kubelet_runtime_operations_total{operation_type="update_podsandbox_resources"} 2`)
	m.metric(`kubelet_container_requested_resizes_total{operation="decrease",requirement="limits",resource="memory"} 1`)
	m.told("web", "ResizeCompleted")

	if err := os.WriteFile(filepath.Join(m.out, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	m.mark("web")
	p = m.shown("web", "ready", isReady)
	if now := pod.FindContainerStatus(ofInit(p), "init"); now.RestartCount != 0 || now.State.Terminated == nil {
		t.Errorf("the init container is %+v, want it ended", now)
	}
	m.delete("web")
	m.gone("web")
}

// TestAContainerStartsWithMoreInAPodThatHasRoom, although the resize was refused because of the one
// beside it: with cgroup v1 the kernel refuses a quota above the pod's, and memory that the pod lacks
// kills it.
func TestAContainerStartsWithMoreInAPodThatHasRoom(t *testing.T) {
	m := join(t)
	c := m.cgroups()
	text := m.podOf("web", ": > /out/web; ${REST}")
	text = replaced(m, text, "    image:", "    resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 50m, memory: 32Mi}}\n    image:")
	text = replaced(m, text, "  containers:", m.vars().Replace("  containers:\n  - name: side\n    image: ${IMAGE}\n"+
		"    resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {cpu: 50m, memory: 64Mi}}\n"+
		"    command: [/bin/sh, -c, \"dd if=/dev/zero of=/memory/x bs=1M count=40 && : > /out/side; ${REST}\"]\n"+
		"    volumeMounts: [{name: out, mountPath: /out}, {name: memory, mountPath: /memory}]"))
	m.bind(replaced(m, text, "  volumes:\n", "  volumes:\n  - name: memory\n    emptyDir: {medium: Memory}\n"))
	m.mark("web", "side")
	p := m.shown("web", "ready", isReady)
	whole := "pod" + string(p.UID)
	m.resize("web", `{"spec": {"containers": [`+
		`{"name": "side", "resources": {"requests": {"memory": "16Mi"}, "limits": {"memory": "16Mi"}}}, `+
		`{"name": "main", "resources": {"requests": {"cpu": "400m"}, "limits": {"cpu": "400m"}}}]}}`)
	m.told("web", "ResizeError", "cannot decrease memory limits", "container", "side")
	c.want(filepath.Join(whole, containerID(p, "main")), "cpu.cfs_quota_us", "cpu.max", "5000", "5000 100000")
	m.terminate(p, "main")
	after := m.shown("web", "with its first container restarted", func(p *v1.Pod) error {
		if s := pod.FindContainerStatus(ofRegular(p), "main"); s.RestartCount == 0 || s.State.Running == nil {
			return fmt.Errorf("it is %+v", s)
		}
		return isReady(p)
	})
	main, side := pod.FindContainerStatus(ofRegular(after), "main"), pod.FindContainerStatus(ofRegular(after), "side")
	if main.RestartCount != 1 || side.RestartCount != 0 || containerID(after, "side") != containerID(p, "side") {
		t.Errorf("main is %+v, side %+v: want one restart of main alone", main, side)
	}
	c.want(filepath.Join(whole, containerID(after, "main")), "cpu.cfs_quota_us", "cpu.max", "40000", "40000 100000")
	c.want(filepath.Join(whole, containerID(after, "side")), "memory.limit_in_bytes", "memory.max", "67108864", "67108864")
	m.delete("web")
	m.gone("web")
}

// TestAVolumeInMemoryIsNotResized, and the pod says so: an apiserver that does not heed what nodes
// declare lets such a change through.
func TestAVolumeInMemoryIsNotResized(t *testing.T) {
	m := join(t, "--feature-gates=InPlacePodVerticalScalingMemoryBackedVolumes=true", "--disable-admission-plugins=NodeDeclaredFeatureValidator")
	text := m.podOf("web", ": > /out/web; ${REST}")
	text = replaced(m, text, "    image:", "    resources: {requests: {memory: 64Mi}, limits: {memory: 64Mi}}\n    image:")
	text = replaced(m, text, "    volumeMounts: [", "    volumeMounts: [{name: memory, mountPath: /memory}, ")
	m.bind(replaced(m, text, "  volumes:\n", "  volumes:\n  - name: memory\n    emptyDir: {medium: Memory, sizeLimit: 8Mi}\n"))
	p := m.shown("web", "ready", isReady)
	m.resize("web", `{"spec": {"volumes": [{"name": "memory", "emptyDir": {"sizeLimit": "16Mi"}}]}}`)
	m.shown("web", "with a resize that is infeasible", func(p *v1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodResizePending && c.Reason == v1.PodReasonInfeasible && c.Message == "Memory-backed emptyDir volume resize is disabled" {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", p.Status.Conditions)
	})
	m.told("web", "FailedNodeDeclaredFeaturesCheck", "Pod requires node features that are not available: InPlacePodVerticalScalingMemoryBackedVolumes")
	m.metric(`kubelet_pod_infeasible_resizes_total{reason_detail="memory_volume_resize_gate_off"} 1`)
	if got := m.exec(p, "main", "sh", "-c", "df -k /memory | awk 'NR==2 {print $2}'"); got != "8192\n" {
		t.Errorf("the volume has %q KiB, want 8192", got)
	}
	m.delete("web")
	m.gone("web")
}
