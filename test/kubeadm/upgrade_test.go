package kubeadm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/versions"
	"podd/test/e2e/testnode"
)

// TestNodesOfTwoReleasesOfPoddAreOneCluster joins a node with an earlier podd to a control plane
// on this podd, and then upgrades it beneath its pods.
func TestNodesOfTwoReleasesOfPoddAreOneCluster(t *testing.T) {
	dir := os.Getenv("PODD_TEST_EARLIER")
	if dir == "" {
		t.Skip("PODD_TEST_EARLIER is not set: make upgrade FROM=COMMIT sets it to what that commit built")
	}
	b := programs(t)
	earlier := prepareOf(t, filepath.Join(dir, "podd"), testnode.Bundle{Bin: filepath.Join(dir, "runtime/bin"), Images: filepath.Join(dir, "images")},
		map[string]string{"kubeadm": os.Getenv("PODD_TEST_KUBEADM"), "kubectl": os.Getenv("PODD_TEST_KUBECTL")})
	plane, worker, _, ofWorker := b.clusterWith(t, earlier)
	release := func(of *machine) string {
		var n v1.Node
		plane.get(&n, "node", of.name)
		return n.Status.NodeInfo.KubeletVersion
	}
	now, before := release(plane), release(worker)
	if !strings.HasPrefix(now, versions.Kubernetes) || before == now {
		t.Fatalf("the nodes are %s and %s, want %s and an earlier release", now, before, versions.Kubernetes)
	}
	plane.testWork(ofWorker)
	plane.testTaints(worker)

	pods := plane.podsOf(worker)
	worker.kill("kubelet", "TERM")
	worker.env = b.env
	worker.begin("kubelet", kubelet)
	plane.eventually("the Node is of this release", func(context.Context) error {
		if got := release(worker); got != now {
			return fmt.Errorf("it is %s, want %s", got, now)
		}
		return nil
	})
	plane.nodeReady(worker)
	if after := plane.podsOf(worker); after != pods {
		t.Errorf("the upgrade from %s changed the node's pods:\nbefore %s\nafter  %s", before, pods, after)
	}
	if said := plane.run("kubectl", "logs", "deployment/work"); said != "at work\n" {
		t.Errorf("after the upgrade the log is %q", said)
	}
	plane.testReset(worker)
}

// podsOf describes the containers of a node's pods, in the order of the apiserver's list.
func (m *machine) podsOf(of *machine) (text string) {
	m.Helper()
	var pods v1.PodList
	m.get(&pods, "pods", "-A", "--field-selector", "spec.nodeName="+of.name)
	if len(pods.Items) == 0 {
		m.Fatalf("%s has no pods", of.name)
	}
	for _, p := range pods.Items {
		text += fmt.Sprintf(" %s/%s %s %s", p.Namespace, p.Name, p.Status.Phase, p.Status.PodIP)
		for _, c := range p.Status.ContainerStatuses {
			text += fmt.Sprint(" ", c.Name, c.ContainerID, c.RestartCount, c.Ready, c.State.Running)
		}
	}
	return text
}
