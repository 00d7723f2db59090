package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/stats/kernel"
	"podd/test/cluster"
)

// thresholds are evictionHard: those that are given, and none besides.
func thresholds(given map[string]string) func(config map[string]any) {
	return func(config map[string]any) {
		config["evictionHard"] = given
		// A condition that holds for two seconds only is seen to go.
		config["evictionPressureTransitionPeriod"] = "2s"
	}
}

// nodeIs waits until the Node has a condition with this status, and the kubelet's reason.
func (m *member) nodeIs(of v1.NodeConditionType, status v1.ConditionStatus, reason string) {
	m.Helper()
	m.eventually(fmt.Sprintf("the node's %s is %s", of, status), func(ctx context.Context) error {
		var n v1.Node
		if err := m.server.Client().Get(ctx, cluster.Object{"kind": "Node", "metadata": map[string]any{"name": m.podd.NodeName()}}, &n); err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == of && c.Status == status && c.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", n.Status.Conditions)
	})
}

// evicted waits until the apiserver shows a pod as evicted, with a message.
func (m *member) evicted(name, message string) {
	m.Helper()
	want := regexp.MustCompile("^" + message + "$")
	p := m.shown(name, "evicted", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" || !want.MatchString(p.Status.Message) {
			return fmt.Errorf("it is %s with reason %q and message %q", p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
		return nil
	})
	if len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].State.Terminated == nil {
		m.Errorf("the containers of the evicted pod %s are %+v", name, p.Status.ContainerStatuses)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet && c.Message == p.Status.Message {
			return
		}
	}
	m.Errorf("%s has no condition that says so: %+v", name, p.Status.Conditions)
}

const amount = `[0-9]+(\.[0-9]+)?[kKMG]?i?`

// TestTheNodeIsLowOnDisk: the pod that fills the disk is evicted, in the kubelet's words, and
// the node's own runs on; as long as the disk is full, new pods of the cluster are refused,
// and the Node says so.
func TestTheNodeIsLowOnDisk(t *testing.T) {
	m := meet(t)
	disk := filepath.Join(m.node.Root(), "pods")
	if err := os.MkdirAll(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64m,mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	thresholds(map[string]string{"nodefs.available": "50%"})(m.podd.Config)
	if err := m.server.NodeKubeconfig(m.kubeconfig(), m.podd.NodeName()); err != nil {
		t.Fatal(err)
	}
	m.start()
	writing := replaced(m, m.podOf("greedy", "dd if=/dev/zero of=/data/file bs=1M count=40 && : > /out/greedy; ${REST}"),
		"mountPath: /out}]", "mountPath: /out}, {name: data, mountPath: /data}]") + "  - name: data\n    emptyDir: {}\n"
	m.write("own.yaml", replacedAll(m, replacedAll(m, writing, "greedy", "own"), "count=40", "count=1"))
	m.ready("own")
	m.nodeIs(v1.NodeDiskPressure, v1.ConditionFalse, "KubeletHasNoDiskPressure")
	m.bind(replacedAll(m, replacedAll(m, writing, "greedy", "modest"), "count=40", "count=2"))
	m.shown("modest", "ready", isReady)
	m.bind(writing)
	m.nodeIs(v1.NodeDiskPressure, v1.ConditionTrue, "KubeletHasDiskPressure")
	m.evicted("greedy", `The node was low on resource: ephemeral-storage\. Threshold quantity: 32Mi, available: `+amount+`\. (Container main was using `+amount+`, request is 0, has larger consumption of ephemeral-storage\. )?`)
	m.nodeIs(v1.NodeDiskPressure, v1.ConditionFalse, "KubeletHasNoDiskPressure")
	m.shown("modest", "ready", isReady)

	// What no eviction relieves. It is no pod's.
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 40<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	m.nodeIs(v1.NodeDiskPressure, v1.ConditionTrue, "KubeletHasDiskPressure")
	m.evicted("modest", `The node was low on resource: ephemeral-storage\. .*`)
	m.shows("nodefs.available is")
	if n := m.sum(`podd_node_pressure{condition="DiskPressure"}`); n != 1 {
		t.Errorf("the metric of the pressure is %d, want 1", n)
	}
	m.bind(m.podOf("late", "${REST}"))
	m.shown("late", "refused", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" || p.Status.Message != "Pod was rejected: The node had condition: [DiskPressure]. " {
			return fmt.Errorf("it is %s with reason %q and message %q", p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
		return nil
	})
	m.write("second.yaml", m.resting("second")) // the node's own are admitted
	m.ready("second")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	m.nodeIs(v1.NodeDiskPressure, v1.ConditionFalse, "KubeletHasNoDiskPressure")
	m.bind(m.resting("after"))
	m.shown("after", "ready", isReady)
	m.ready("own")
	if n := m.sum(`kubelet_evictions{eviction_signal="nodefs.available"}`); n != 2 {
		t.Errorf("%d evictions were counted, want 2", n)
	}
	m.remove("own.yaml", "second.yaml")
	m.delete("greedy", "modest", "late", "after")
	m.gone("greedy", "modest", "late", "after")
}

// TestTheNodeIsLowOnMemory: of what its pods together may have, so that nothing else on this
// machine decides.
func TestTheNodeIsLowOnMemory(t *testing.T) {
	total := memoryOfThisMachine(t)
	m := joinWith(t, func(config map[string]any) {
		thresholds(map[string]string{"allocatableMemory.available": "200Mi"})(config)
		config["kernelMemcgNotification"] = true
		config["systemReserved"] = map[string]string{"memory": strconv.FormatUint(total-512<<20, 10)}
	})
	taking := func(name, mib string) string {
		return replaced(m, m.podOf(name, "dd if=/dev/zero of=/data/file bs=1M count="+mib+"; ${REST}"),
			"mountPath: /out}]", "mountPath: /out}, {name: data, mountPath: /data}]") + "  - name: data\n    emptyDir: {medium: Memory}\n"
	}
	m.write("own.yaml", m.resting("own"))
	m.ready("own")
	m.bind(replaced(m, taking("modest", "20"), "    volumeMounts:", "    resources: {requests: {memory: 64Mi}}\n    volumeMounts:"))
	m.shown("modest", "ready", isReady)
	m.bind(taking("greedy", "360"))
	m.evicted("greedy", `The node was low on resource: memory\. Threshold quantity: 200Mi, available: `+amount+`\. Container main was using `+amount+`, request is 0, has larger consumption of memory\. `)
	m.nodeIs(v1.NodeMemoryPressure, v1.ConditionFalse, "KubeletHasSufficientMemory")
	m.shown("modest", "ready", isReady)
	m.ready("own")
	m.delete("greedy", "modest")
	m.gone("greedy", "modest")
}

func memoryOfThisMachine(t *testing.T) uint64 {
	t.Helper()
	total := kernel.New(kernel.Config{}).Machine().Memory
	if total < 2<<30 {
		t.Skip("less than 2 GiB of memory")
	}
	return total
}

// TestTheNodeIsLowOnProcesses: kernel.pid_max is the machine's, and stays what it is. The
// threshold is a thousand below what is left, and a pod starts two thousand processes.
func TestTheNodeIsLowOnProcesses(t *testing.T) {
	running, most := kernel.New(kernel.Config{}).Tasks()
	if most-running < 10000 {
		t.Skip("too few processes are left on this machine")
	}
	m := joinWith(t, thresholds(map[string]string{"pid.available": strconv.FormatInt(most-running-1500, 10)}))
	m.bind(m.resting("modest"))
	m.shown("modest", "ready", isReady)
	m.bind(m.podOf("bomb", "i=0; while [ $i -lt 3000 ]; do sleep 3600 & i=$((i+1)); done; ${REST}"))
	m.evicted("bomb", `The node was low on resource: pids\. Threshold quantity: .*, available: .*\. `)
	m.nodeIs(v1.NodePIDPressure, v1.ConditionFalse, "KubeletHasSufficientPID")
	m.shown("modest", "ready", isReady)
	m.delete("bomb", "modest")
	m.gone("bomb", "modest")
}

// TestAFullDiskCostsEndedContainers, and neither what the ended pod shows, nor one of the
// machine's own pods: without an apiserver there are no others.
func TestAFullDiskCostsEndedContainers(t *testing.T) {
	e := prepare(t)
	// Every disk uses more than 1 byte of all. The test node's images are to stay.
	thresholds(map[string]string{"imagefs.available": "99.99%", "memory.available": "99.99%"})(e.podd.Config)
	e.podd.Config["imageMinimumGCAge"] = "24h"
	e.write("own.yaml", e.resting("own"))
	e.write("job.yaml", e.once("job", "Never", 3))
	// A limit of its own ends the node's own pods, too.
	e.write("much.yaml", replaced(e, e.podOf("much", "dd if=/dev/zero of=/data/file bs=1M count=12; ${REST}"),
		"mountPath: /out}]", "mountPath: /out}, {name: data, mountPath: /data}]")+"  - name: data\n    emptyDir: {sizeLimit: 10Mi}\n")
	overLimit := func(p *v1.Pod) error {
		c := p.Status.ContainerStatuses
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" || len(c) != 1 || c[0].State.Terminated == nil || c[0].State.Terminated.ExitCode != 0 {
			return errors.New(describe(p))
		}
		return nil
	}
	e.start()
	e.ready("own")
	e.phase("job", v1.PodFailed, 3)
	e.waitPod("much", "evicted", overLimit)
	e.eventually("the ended containers are removed", func(context.Context) error {
		if n := e.containersOf("job") + e.containersOf("much"); n != 0 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	e.waitPod("much", "still evicted", overLimit)
	e.shows("DiskPressure")
	e.shows("imagefs.available is")
	e.shows("MemoryPressure")
	e.phase("job", v1.PodFailed, 3)
	e.stop()
	e.start()
	e.phase("job", v1.PodFailed, 3)
	e.waitPod("much", "evicted for good", overLimit)
	p := e.ready("own")
	if p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the machine's own pod was restarted")
	}
	if n := e.sum("kubelet_evictions"); n != 0 { // by this podd
		t.Errorf("%d pods were evicted", n)
	}
}
